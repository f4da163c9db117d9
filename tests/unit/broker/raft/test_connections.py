"""One connection of a group, each end by itself: what is heard on it, and when it is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from rmq.broker.raft.incoming import Incoming
from rmq.broker.raft.outgoing import Outgoing
from rmq.broker.raft.wire import Hello, Word, encode, listens, refusal
from rmq.broker.replication.wire import header
from rmq.protocol.errors import ReplicationError, RMQError
from rmq.raft.messages import TimeoutNow
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.testing.simloop import run

HELLO = Hello("group", "n1", "n0", "abc", "n0;n1;n2", 1 << 30, "10.0.0.1:10911", "broker")


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4000)})
        self.written = b""
        self.ended = False
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Listener:
    """Takes connections, and whoever says hello."""

    def __init__(self) -> None:
        self.tls = ServerTls(TlsMode.DISABLED)
        self.known = True
        self.words: list[Word] = []
        self.closes = False
        self.refusals: list[str] = []
        self.link = Incoming(self)
        self.wire = Wire()
        self.link.connection_made(self.wire)

    def opened(self, link: Incoming) -> None: ...

    def introduced(self, link: Incoming, hello: Hello) -> None: ...

    def is_known(self, hello: Hello) -> bool:
        return self.known

    def heard(self, message: Word) -> None:
        self.words.append(message)
        if self.closes:
            self.link.close()

    def left_out(self, link: Incoming, error: ReplicationError) -> None: ...

    def refused(self, link: Incoming, error: RMQError) -> None:
        self.refusals.append(str(error))
        link.refuse(str(error))

    def closed(self, link: Incoming) -> None: ...


def word(term: int) -> bytes:
    return encode(TimeoutNow(term, "n1"))


def plain(unit: bytes) -> bytes:
    """As a member of the release before says it."""
    return bytes(8) + unit[8:]


def test_what_a_member_says_is_heard_once_it_is_known() -> None:
    async def main() -> None:
        group = Listener()
        group.known = False
        group.link.data_received(HELLO.encode() + word(1))
        assert group.words == []  # its disk is not kept yet
        group.known = True
        group.link.data_received(word(2))
        assert group.words == [TimeoutNow(2, "n1")]
        assert group.wire.written == listens()

    run(main())


def test_nothing_is_heard_behind_the_end_of_a_connection() -> None:
    async def main() -> None:
        group = Listener()
        group.closes = True
        group.link.data_received(HELLO.encode() + word(1) + word(2) + HELLO.encode() + word(3))
        assert group.words == [TimeoutNow(1, "n1")]
        assert group.wire.ended
        group.link.data_received(word(4))
        assert len(group.words) == 1

    run(main())


def test_a_connection_is_of_one_member_and_one_disk() -> None:
    async def main() -> None:
        for other in (replace(HELLO, source="n2"), replace(HELLO, disk="other")):
            group = Listener()
            group.link.data_received(HELLO.encode() + replace(HELLO, begun=True).encode() + word(1))
            assert len(group.words) == 1
            group.link.data_received(other.encode() + word(2))
            assert group.refusals == ["it was n1, and says that it is another one now"]
            assert len(group.words) == 1
            assert group.wire.ended

    run(main())


def test_a_word_that_is_none_ends_the_connection() -> None:
    async def main() -> None:
        for wrong in (b"\x06", b"\x0b" + bytes(8), b"\x06" + b"\xff" * 8, b"", b"\x07no", b"\x0a"):
            group = Listener()
            group.link.data_received(plain(HELLO.encode()) + header(0, len(wrong)) + wrong + word(1))
            assert group.words == []
            assert len(group.refusals) == 1
            assert group.wire.ended

    run(main())


def test_a_plain_word_where_tls_is_enforced_is_not_heard() -> None:
    async def main() -> None:
        group = Listener()
        group.tls.mode = TlsMode.ENFORCING
        group.link.data_received(HELLO.encode() + word(1))
        assert group.words == []
        assert "does not speak TLS" in group.refusals[0]

    run(main())


class Caller:
    """Connects, and has a clock that a test sets."""

    def __init__(self) -> None:
        self.time = 0.0
        self.link = Outgoing(HELLO.encode, lambda: self.time, lambda: None)
        self.wire = Wire()
        self.link.connection_made(self.wire)
        self.wire.written = b""


def test_what_a_member_does_not_read_is_lost_at_some_point() -> None:
    async def main() -> None:
        caller = Caller()
        caller.wire.unsent = (8 << 20) - 20
        caller.link.send([b"a" * 20])
        caller.link.send([b"b" * 15, b"c" * 6])
        assert caller.wire.written == b"a" * 20
        caller.link.introduce()  # that is never lost
        assert caller.wire.written == b"a" * 20 + HELLO.encode()

    run(main())


def test_a_machine_from_which_nothing_comes_back_is_gone() -> None:
    async def main() -> None:
        caller = Caller()
        for caller.time in (0.0, 1.0, 2.9):
            caller.link.send([b"a"])
        caller.link.data_received(header(0, 0))
        for caller.time in (3.5, 6.4):
            caller.link.send([b"a"])
        assert caller.link.open
        caller.time = 6.6
        caller.link.send([b"b"])
        assert await caller.link.ended == "nothing has come back for 3 s"
        assert caller.wire.written == b"a" * 5
        assert caller.wire.ended

    run(main())


def test_who_answers_anything_else_than_a_member_does_is_left() -> None:
    async def main() -> None:
        for said, why in (
            (refusal("no\nERROR all is lost\u202e"), "no?ERROR all is lost?"),
            (refusal("x" * 5000), "x" * 1024),
            (header(0, -1), "this is no HA stream of 4.9"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this is no HA stream of 4.9"),
        ):
            caller = Caller()
            caller.link.data_received(said)
            told = await caller.link.ended
            assert told is not None
            assert told.startswith(why)
            assert told.isprintable()

    run(main())

"""What a member writes to another: what is told of a span goes with its bytes, before them, in one write."""

from __future__ import annotations

import asyncio
from typing import Any

from rmq.broker.raft.outgoing import Outgoing


class Writes(asyncio.Transport):
    """Keeps what is written; so much of it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes] = []
        self.waits = 0

    def write(self, data: Any) -> None:
        self.done.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.done.append(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.waits


def connected(done: Writes) -> Outgoing:
    link = Outgoing(lambda: b"hello", lambda: 1.0, lambda: None)
    link.connection_made(done)
    done.done.clear()
    return link


def test_what_is_held_goes_before_the_next_span_in_one_write() -> None:
    async def main() -> None:
        link = connected(done := Writes())
        link.hold(b"told 1 ")
        link.hold(b"told 2 ")
        link.send([b"heartbeat"])
        link.send([b"span ", b"bytes"], span=True)
        link.send([b"span ", b"more"], span=True)
        assert done.done == [b"heartbeat", b"told 1 told 2 span bytes", b"span more"]

    asyncio.run(main())


def test_of_much_that_is_held_the_newest_goes() -> None:
    async def main() -> None:
        link = connected(done := Writes())
        for number in range(9):
            link.hold(b"%d" % number * (1 << 17))
        link.hold(b"9")
        link.send([b"span"], span=True)
        (sent,) = done.done
        assert (sent[:1], sent[-5:], len(sent)) == (b"2", b"9span", (7 << 17) + 5)

    asyncio.run(main())


def test_a_span_for_which_there_is_no_room_is_lost_whole() -> None:
    async def main() -> None:
        link = connected(done := Writes())
        done.waits = (8 << 20) - 2
        link.hold(b"told ")
        link.send([b"span"], span=True)
        assert done.done == []
        done.waits = 0
        link.send([b"span"], span=True)
        assert done.done == [b"told span"]

    asyncio.run(main())

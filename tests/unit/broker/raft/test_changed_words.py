"""Words between members of which bits change on their way: none is believed, whatever it has become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.broker.raft.wire import SpanTold, Word, encode
from rmq.broker.replication.wire import HEADER_SIZE, LARGEST_BODY, header
from rmq.broker.store.told import Told, ToldQueue
from rmq.raft.messages import Admit, Append, AppendReply, Install, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import Position
from rmq.testing.simloop import run
from tests.unit.broker.raft.test_connections import HELLO, Listener, plain, word

A, B = Position(3, 400), Position(4, 410)
WORDS: list[Word] = [
    VoteRequest(5, "n1", A, pre=False, told=True),
    VoteReply(5, "n1", granted=False, pre=False),
    Append(5, "n1", A, B, 390, b"0123456789", 77),
    AppendReply(5, "n1", match=A, asked=78),
    Install(5, "n1", A, 400, 80),
    Admit(5, "n1", 81),
    TimeoutNow(5, "n1"),
    SpanTold(5, "n1", Told(10, 200, 7, 8, [ToldQueue("T", 1, 4, bytes(20))], bytes(20))),
]
SAID = {"hello": HELLO.encode(), **{type(one).__name__: encode(one) for one in WORDS}}


@pytest.mark.parametrize("name", SAID)
def test_a_word_of_which_a_bit_has_changed_is_not_believed(name: str) -> None:
    async def main() -> None:
        unit = SAID[name]
        before = b"" if name == "hello" else SAID["hello"]
        in_head = HEADER_SIZE * 8
        for bit in (*range(in_head), *range(in_head, len(unit) * 8, 9)):
            changed = bytearray(unit)
            changed[bit // 8] ^= 1 << bit % 8
            group = Listener()
            group.link.data_received(before + bytes(changed) + word(9))
            assert group.words == [], f"bit {bit} of {name}"
            assert len(group.refusals) == 1, f"bit {bit} of {name} has it wait for more"
            assert group.wire.ended

    run(main())


def test_what_a_member_of_the_release_before_says_is_heard() -> None:
    """It has no sums, and says where the bytes of a span lie instead."""

    async def main() -> None:
        span = encode(WORDS[2])
        group = Listener()
        group.link.data_received(plain(HELLO.encode()) + plain(word(1)))
        group.link.data_received(header(400, len(span) - HEADER_SIZE) + span[HEADER_SIZE:] + plain(HELLO.encode()))
        assert group.words == [TimeoutNow(1, "n1"), WORDS[2]]
        assert group.refusals == []

    run(main())


def test_who_sends_sums_sends_one_with_each_word() -> None:
    async def main() -> None:
        for said in (
            HELLO.encode() + plain(word(1)), plain(HELLO.encode()) + word(1), header(7, 3) + b"\x00{}",
            HELLO.encode() + plain(replace(HELLO, begun=True).encode()),
        ):  # fmt: skip
            group = Listener()
            group.link.data_received(said + word(2))
            assert group.words == []
            assert group.refusals == ["what it says does not show that nothing has changed on its way, or not always"]

    run(main())


def test_nobody_waits_for_as_much_as_a_size_says_that_has_changed() -> None:
    """A member would hear nothing for as long as it takes until so much has come."""

    async def main() -> None:
        unit = bytearray(encode(TimeoutNow(5, "n1")))
        unit[8:12] = LARGEST_BODY.to_bytes(4, "big")
        group = Listener()
        group.link.data_received(HELLO.encode() + bytes(unit[:HEADER_SIZE]))
        assert group.wire.ended
        assert "has changed on its way: the network between the two members, or the memory" in group.refusals[0]

    run(main())

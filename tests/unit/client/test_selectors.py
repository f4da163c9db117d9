"""Selectors choose what Java's choose."""

from __future__ import annotations

import pytest

from rmq.client.message import Message, MessageQueue
from rmq.client.selectors import by_hash, by_machine_room, by_random, java_hash
from rmq.protocol.errors import ClientError

QUEUES = [MessageQueue("T", "a", i) for i in range(7)]
MESSAGE = Message("T", b"x")


@pytest.mark.parametrize(
    ("arg", "code"),
    [("TagA", 2598919), ("ZZZZZZZZ", -1127396096), ("中", 20013), (5, 5), (-5, -5), (1 << 31, -(1 << 31)), (True, 1231),
     (-(1 << 31), -(1 << 31)), ((1 << 32) + 7, 6), (-1 << 40, -256)],
)  # fmt: skip
def test_hash_codes_are_javas(arg: object, code: int) -> None:
    """Field case B037."""
    assert java_hash(arg) == code
    assert by_hash(QUEUES, MESSAGE, arg) == QUEUES[abs(code) % 7]


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ClientError, match="not float"):
        by_hash(QUEUES, MESSAGE, 1.5)


def test_random_reaches_every_queue() -> None:
    assert {by_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)


def test_machine_room_keeps_to_its_rooms() -> None:
    queues = [MessageQueue("T", name, i) for name in ("r1@a", "r2@b", "r1") for i in range(2)]
    select = by_machine_room({"r1"})
    assert {select(queues, MESSAGE, i).broker_name for i in range(10)} == {"r1@a"}
    with pytest.raises(ClientError, match="machine rooms"):
        by_machine_room({"r9"})(queues, MESSAGE, 1)

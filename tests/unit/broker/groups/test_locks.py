"""Leases of orderly consumption (store-and-broker.md 8.4)."""

from __future__ import annotations

import logging

import pytest

from rmq.broker.groups.locks import RebalanceLocks
from rmq.protocol.queue import MessageQueue


class HandClock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


def queues(*ids: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", queue_id) for queue_id in ids]


def test_a_free_queue_is_taken_and_a_foreign_one_refused() -> None:
    locks = RebalanceLocks(HandClock())
    assert locks.lock("g", "c1", queues(0, 1)) == queues(0, 1)
    assert locks.lock("g", "c2", queues(1, 2)) == queues(2)
    assert locks.lock("other", "c2", queues(1)) == queues(1)


def test_renewing_keeps_a_lock_and_letting_it_lapse_gives_it_away(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", "c1", queues(0, 1))
    clock.seconds += 50
    locks.lock("g", "c1", queues(0))
    clock.seconds += 50
    with caplog.at_level(logging.WARNING):
        assert locks.lock("g", "c2", queues(0, 1)) == queues(1)
    assert "from c1 to c2" in caplog.text


def test_only_own_locks_are_given_back() -> None:
    locks = RebalanceLocks(HandClock())
    locks.lock("g", "c1", queues(0))
    locks.unlock("g", "c2", queues(0))
    assert locks.holder("g", queues(0)[0]) == "c1"
    locks.unlock("g", "c1", queues(0, 5))
    assert locks.holder("g", queues(0)[0]) is None
    locks.unlock("nobody", "c1", queues(0))


def test_lapsed_locks_take_no_memory() -> None:
    clock = HandClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", "c1", queues(0))
    clock.seconds += 61
    locks.forget_expired()
    assert locks._groups == {}


@pytest.mark.parametrize(
    ("lost", "age", "free"),
    [(True, 0, 10), (True, 19, 10), (False, 0, 40), (False, 19, 21), (False, 39, 10), (True, 55, 5), (False, 55, 5)],
)
def test_a_client_that_left_and_does_not_come_back_loses_its_locks(lost: bool, age: int, free: int) -> None:
    """Its connection ends ``age`` seconds after its last renewal; ``free`` seconds later whoever asks has the lock."""
    clock = HandClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", "c1", queues(0), lost_with_connection=lost)
    clock.seconds += age
    locks.left("g", "c1")
    clock.seconds += free
    assert locks.lock("g", "c2", queues(0)) == []
    locks.forget_expired()
    clock.seconds += 0.1
    assert locks.holder("g", queues(0)[0]) is None
    assert locks.lock("g", "c2", queues(0)) == queues(0)


@pytest.mark.parametrize("back", ["heartbeat", "renewal"])
def test_a_client_that_comes_back_keeps_its_locks(back: str) -> None:
    clock = HandClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", "c1", queues(0), lost_with_connection=True)
    locks.lock("g", "c3", queues(1), lost_with_connection=True)
    locks.left("g", "c1")
    locks.left("other", "c1")
    clock.seconds += 9
    if back == "heartbeat":
        locks.came("g", "c1")
    else:
        locks.lock("g", "c1", queues(0), lost_with_connection=True)
    clock.seconds += 50
    assert locks.lock("g", "c2", queues(0, 1)) == []


def test_locks_of_a_client_that_left_take_no_memory() -> None:
    clock = HandClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", "c1", queues(0), lost_with_connection=True)
    locks.left("g", "c1")
    clock.seconds += 11
    locks.forget_expired()
    assert locks._groups == {}

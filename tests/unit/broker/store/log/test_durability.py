"""What is acknowledged and what is visible, event by event."""

from typing import Any

import pytest

from rmq.broker.store.log.durability import FLUSH, REPLICA, Durability
from rmq.broker.store.state import Queue


def answer(name: str) -> list[tuple[Any, bytes]]:
    return [(name, b"0")]


def held(durability: Durability, name: str, end: int, need: int, deadline: float = 5.0) -> list[tuple[Any, bytes]]:
    return held_until(durability, name, end, need, deadline, deadline)


def held_until(
    durability: Durability, name: str, end: int, need: int, flush_by: float, replica_by: float
) -> list[tuple[Any, bytes]]:
    return durability.hold(end, need, flush_by, replica_by, answer(name), lambda code: [(name, str(code).encode())])


def grown(durability: Durability, queue: Queue, end: int) -> None:
    queue.next += 1
    durability.on_appended(end, [queue])


def test_async_flush_shows_at_once() -> None:
    moved: list[list[Queue]] = []
    durability = Durability()
    durability.on_visible = moved.append
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    assert (durability.visible, queue.visible, moved) == (100, 1, [[queue]])


def test_sync_flush_shows_and_answers_what_is_on_disk() -> None:
    moved: list[list[Queue]] = []
    durability = Durability(sync_flush=True)
    durability.on_visible = moved.append
    a, b = Queue("A", 0), Queue("B", 0)
    grown(durability, a, 100)
    assert held(durability, "1", 100, FLUSH) == []
    grown(durability, a, 200)
    assert held(durability, "2", 200, FLUSH) == []
    grown(durability, b, 300)
    assert (a.visible, b.visible, durability.visible) == (0, 0, 0)
    # Half of the second record is not the second record.
    assert durability.on_flushed(150) == answer("1")
    assert (a.visible, b.visible) == (1, 0)
    assert durability.on_flushed(300) == answer("2")
    assert (a.visible, b.visible) == (2, 1)
    assert moved == [[a], [a, b]]
    assert durability.deadline is None
    # Flushed already: sent at once.
    assert held(durability, "3", 300, FLUSH) == answer("3")


def test_a_late_flush_is_10_and_nothing_is_shown_for_it() -> None:
    durability = Durability(sync_flush=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held(durability, "1", 100, FLUSH, deadline=5)
    grown(durability, queue, 200)
    held(durability, "2", 200, FLUSH, deadline=6)
    assert durability.on_tick(4.9) == []
    assert durability.on_tick(5.0) == [("1", b"10")]
    assert (queue.visible, durability.deadline) == (0, 6)
    assert durability.on_flushed(200) == answer("2")
    assert queue.visible == 2


def test_a_failed_flush_answers_honestly_and_freezes() -> None:
    durability = Durability(sync_flush=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held(durability, "1", 100, FLUSH)
    durability.on_flushed(100)
    grown(durability, queue, 200)
    held(durability, "2", 200, FLUSH)
    assert durability.on_fsync_error() == [("2", b"10")]
    # A later success is no success.
    assert durability.on_flushed(200) == []
    assert (durability.visible, queue.visible) == (100, 1)
    assert held(durability, "3", 200, FLUSH) == [("3", b"10")]
    assert held(durability, "4", 100, FLUSH) == answer("4")


def test_replicas_count_by_id() -> None:
    durability = Durability(sync_master=True, replicas=2)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held(durability, "1", 100, REPLICA)
    assert durability.on_replica("one", 100) == []
    # The same replica over a second connection, and an older report.
    assert durability.on_replica("one", 150) == []
    assert durability.on_replica("two", 50) == []
    assert (durability.replicated, queue.visible) == (50, 0)
    assert durability.on_replica("two", 100) == answer("1")
    assert queue.visible == 1
    assert durability.on_replica("two", 60) == []
    assert durability.replicated == 100


def test_a_dead_slave_does_not_stop_consumers_but_a_flush_is_never_waived() -> None:
    durability = Durability(sync_flush=True, sync_master=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held(durability, "1", 100, FLUSH | REPLICA, deadline=3)
    assert durability.on_tick(3) == [("1", b"12")]
    assert (durability.waived, queue.visible) == (100, 0)
    durability.on_flushed(100)
    assert queue.visible == 1
    grown(durability, queue, 200)
    durability.waive(200)
    assert queue.visible == 1
    durability.on_flushed(200)
    assert queue.visible == 2


def test_flush_and_replica_must_both_come() -> None:
    durability = Durability(sync_flush=True, sync_master=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held(durability, "1", 100, FLUSH | REPLICA)
    assert durability.on_replica("s", 100) == []
    assert queue.visible == 0
    assert durability.on_flushed(100) == answer("1")
    assert queue.visible == 1


@pytest.mark.parametrize(("flush_by", "replica_by"), [(5.0, 30.0), (5.0, 3.0), (5.0, 5.0)])
def test_disk_and_slave_have_times_of_their_own(flush_by: float, replica_by: float) -> None:
    def one(*, flushed: bool, replicated: bool) -> dict[float, list[tuple[Any, bytes]]]:
        durability = Durability(sync_flush=True, sync_master=True)
        grown(durability, Queue("T", 0), 100)
        held_until(durability, "1", 100, FLUSH | REPLICA, flush_by, replica_by)
        if flushed:
            durability.on_flushed(100)
        if replicated:
            durability.on_replica("s", 100)
        found = {}
        while (due := durability.deadline) is not None:
            assert durability.on_tick(due - 0.001) == []
            if answers := durability.on_tick(due):
                found[due] = answers
        return found

    assert one(flushed=False, replicated=True) == {flush_by: [("1", b"10")]}
    assert one(flushed=True, replicated=False) == {replica_by: [("1", b"12")]}
    assert one(flushed=False, replicated=False) == {replica_by: [("1", b"12")]}


def test_a_slave_that_comes_after_the_time_of_the_disk_leaves_10() -> None:
    durability = Durability(sync_flush=True, sync_master=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    held_until(durability, "1", 100, FLUSH | REPLICA, 5, 30)
    grown(durability, queue, 200)
    held_until(durability, "2", 200, FLUSH | REPLICA, 6, 31)
    assert durability.on_tick(5.5) == []
    assert durability.on_flushed(200) == []
    assert durability.on_replica("s", 200) == [("1", b"10"), *answer("2")]
    assert (queue.visible, durability.deadline) == (2, None)


def test_who_has_waited_for_what_is_cut_away_hears_that_it_is_not_replicated_or_not_on_disk() -> None:
    durability = Durability(sync_flush=True, sync_master=True)
    queue = Queue("T", 0)
    for end, name, need in ((100, "kept", FLUSH), (200, "flush", FLUSH), (300, "replica", REPLICA | FLUSH)):
        grown(durability, queue, end)
        assert held(durability, name, end, need) == []
    assert sorted(durability.log_ends(100)) == [("flush", b"10"), ("replica", b"12")]
    assert durability.on_flushed(100) == answer("kept")
    assert durability.deadline is None


def test_what_was_there_before_it_became_a_sync_master_waits_for_no_slave() -> None:
    durability = Durability(sync_flush=True)
    queue = Queue("T", 0)
    grown(durability, queue, 100)
    durability.set_sync_master(True)
    grown(durability, queue, 200)
    durability.on_flushed(200)
    assert (durability.visible, queue.visible) == (100, 1)
    durability.set_sync_master(False)
    assert (durability.visible, queue.visible) == (200, 2)


def test_one_timer_serves_all() -> None:
    durability = Durability(sync_flush=True)
    durability.on_appended(100, [])
    held(durability, "1", 50, FLUSH, deadline=9)
    held(durability, "2", 100, FLUSH, deadline=7)
    assert durability.deadline == 9
    assert durability.on_tick(8) == []
    assert durability.on_tick(9) == [("1", b"10"), ("2", b"10")]


@pytest.mark.parametrize(("sync_flush", "sync_master"), [(False, False), (True, False), (False, True), (True, True)])
def test_visible_never_goes_back(sync_flush: bool, sync_master: bool) -> None:
    durability = Durability(sync_flush=sync_flush, sync_master=sync_master)
    durability.begin(1000)
    queue = Queue("T", 0)
    seen = [durability.visible]
    for step in (
        lambda: grown(durability, queue, 1100),
        lambda: durability.on_flushed(900),
        lambda: durability.on_replica("s", 500),
        lambda: durability.on_flushed(1100),
        lambda: durability.on_replica("s", 1100),
        lambda: durability.on_replica("t", 1050),
    ):
        step()
        seen.append(durability.visible)
    assert seen == sorted(seen)
    assert seen[0] == 1000
    assert seen[-1] == 1100
    assert queue.visible == 1

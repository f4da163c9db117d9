"""What a group's word makes of answers and of what is seen."""

from __future__ import annotations

from rmq.broker.store.log.durability import REPLICA
from rmq.broker.store.log.group_durability import GroupDurability
from rmq.broker.store.state import Queue


def waiting(durability: GroupDurability, end: int) -> None:
    held = durability.hold(end, REPLICA, 3.0, 3.0, [(end, b"ok")], lambda code: [(end, b"%d" % code)])
    assert held == []


def test_nothing_is_answered_or_seen_before_it_is_committed() -> None:
    durability, queue = GroupDurability(), Queue("T", 0)
    durability.begin(100)
    durability.show(100, [])
    queue.next = 1
    durability.on_appended(150, [queue])
    waiting(durability, 150)
    assert durability.on_replica("other", 150) == []
    assert durability.on_no_replica() == []
    durability.set_sync_master(False)
    assert (durability.visible, queue.visible) == (100, 0)
    assert durability.on_committed(149) == []
    assert queue.visible == 0
    assert durability.on_committed(150) == [(150, b"ok")]
    assert (durability.visible, queue.visible) == (150, 1)


def test_who_waits_too_long_hears_so_and_nobody_sees_it_for_that() -> None:
    durability = GroupDurability()
    durability.begin(0)
    durability.show(0, [])
    durability.on_appended(50, [])
    waiting(durability, 50)
    assert durability.on_tick(3.0) == [(50, b"12")]
    assert durability.visible == 0


def test_what_was_committed_stays_so_whatever_is_said_later() -> None:
    durability = GroupDurability()
    durability.begin(0)
    durability.show(0, [])
    durability.on_appended(60, [])
    durability.on_committed(50)
    assert durability.on_committed(30) == []
    assert (durability.visible, durability.replicated) == (50, 50)


def test_what_is_cut_away_is_refused() -> None:
    durability = GroupDurability()
    durability.begin(0)
    durability.show(0, [])
    for end in (50, 90):
        durability.on_appended(end, [])
        waiting(durability, end)
    assert durability.log_ends(50) == [(90, b"14")]
    assert durability.on_committed(50) == [(50, b"ok")]


def test_what_a_start_does_not_know_to_be_committed_is_hidden() -> None:
    durability, queue = GroupDurability(), Queue("T", 0)
    queue.next = queue.visible = 5
    durability.begin(500)
    durability.show(300, [(queue, 3, queue.next)])
    assert (durability.visible, queue.visible) == (300, 3)
    durability.on_committed(400)
    assert queue.visible == 3
    durability.on_committed(500)
    assert queue.visible == 5


def test_what_a_start_left_out_behind_what_is_hidden_is_not_shown() -> None:
    durability, queue = GroupDurability(), Queue("T", 0)
    queue.next = queue.visible = 6  # the last of them blank: a power cut took its message, which the others have
    durability.begin(500)
    durability.show(300, [(queue, 3, 5)])
    assert queue.visible == 3
    durability.log_ends(450)
    durability.on_committed(450)
    assert queue.visible == 5

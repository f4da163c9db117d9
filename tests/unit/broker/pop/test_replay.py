"""The journal's events bring the same state back, read once or partly twice, from the beginning or from a rewrite."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.pop.checkpoints import Checkpoints, Key, PopCheckpoint
from rmq.broker.pop.journal import Event, Replayed, batch_event, checkpoint_event
from rmq.broker.pop.ordered import OrderedQueues, Place


def read(events: list[Event]) -> Replayed:
    replayed = Replayed(Checkpoints(), OrderedQueues())
    for index, event in enumerate(events):
        replayed.apply(orjson.loads(orjson.dumps(event)), index)
    return replayed


def shown(checkpoints: Checkpoints) -> set[tuple[Key, int, int]]:
    return {(checkpoint.key, offset, checkpoint.deadline) for checkpoint in checkpoints for offset in
            checkpoint.open_offsets()}  # fmt: skip


steps = st.lists(st.tuples(st.sampled_from("pack"), st.integers(0, 30), st.integers(0, 3)), max_size=40)


def run(actions: list[tuple[str, int, int]]) -> tuple[Checkpoints, list[Event]]:
    """A life: what it leaves in memory and in the journal."""
    live = Checkpoints()
    events: list[Event] = []
    end = 0
    for now, (kind, which, how) in enumerate(actions, 1_000):
        held = list(live)
        if kind == "p":
            made = PopCheckpoint(Key("g", "T", 0, end, now), 100, tuple(range(end, end + how + 1)))
            end += how + 1
            live.add(made)
            events += [checkpoint_event(made), ("n", "g", "T", 0, end)]
        elif held:
            checkpoint = held[which % len(held)]
            offset = checkpoint.open_offsets()[how % len(checkpoint.open_offsets())]
            if kind == "a":
                events.append(("a", *checkpoint.key, (offset,)))
                live.settle(checkpoint, (offset,), now)
            else:
                pop_time = live.free_pop_time([("g", "T", 0, offset)], now)
                events.append(("c", *checkpoint.key, offset, pop_time, how * 50))
                live.change(checkpoint, offset, pop_time, how * 50, now)
    return live, events


@given(steps, st.integers(0, 60))
def test_replay_gives_what_was(actions: list[tuple[str, int, int]], twice: int) -> None:
    live, events = run(actions)
    replayed = read(events)
    assert shown(replayed.checkpoints) == shown(live)
    assert replayed.clean is (not events)
    # A piece read again changes nothing: what is written anew stands in the journal twice.
    assert shown(read([*map(checkpoint_event, live)]).checkpoints) == shown(live)
    again = read([*events, *map(checkpoint_event, live)])
    assert shown(again.checkpoints) == shown(live)
    fuzzy = read([*map(checkpoint_event, run(actions[:twice])[0]), *events[len(run(actions[:twice])[1]) :]])
    assert shown(fuzzy.checkpoints) == shown(live)


def test_positions_and_the_clean_stop() -> None:
    place = Place("g", "T", 0)
    assert read([("n", *place, 5), ("n", *place, 9)]).positions == {place: 9}
    assert read([("n", *place, 5), ("x", *place)]).positions == {}
    assert read([("n", *place, 5), ("s",)]).clean
    assert not read([("s",), ("n", *place, 5)]).clean


def test_an_orderly_batch() -> None:
    ordered = OrderedQueues()
    place = Place("g", "T", 3)
    batch = ordered.popped(place, "try", [4, 5, 7], 1_000, 50)
    ordered.ack(batch, 1)
    ordered.change(batch, 2, 9_000)
    back = read([batch_event(batch)]).ordered
    assert back.blocked(place, "", 1_049)
    assert not back.blocked(place, "try", 1_001)
    assert back.blocked(place, "", 8_999)
    assert not back.blocked(place, "", 9_000)
    assert back.again(place) == [4, 7]
    found = back.get(place)
    assert found is not None
    assert found.position == 4
    ordered.ack(batch, 0)
    ordered.ack(batch, 2)
    assert read([batch_event(batch)]).ordered.get(place) is None


def test_nothing_passes_a_message_that_must_wait_longer() -> None:
    ordered = OrderedQueues()
    place = Place("g", "T", 0)
    batch = ordered.popped(place, "", [0, 1, 2], 1_000, 50)
    ordered.change(batch, 1, 5_000)
    assert ordered.blocked(place, "", 1_050), "whoever has message 1 may still work on it"
    ordered.ack(batch, 0)
    assert ordered.blocked(place, "", 4_999)
    assert not ordered.blocked(place, "", 5_000)
    assert ordered.again(place) == [1, 2]

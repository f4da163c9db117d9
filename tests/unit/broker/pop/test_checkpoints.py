"""The invisible-time logic alone: what is open, what is due, which handle still counts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq.broker.pop.checkpoints import Checkpoints, Key, Outcome, PopCheckpoint

LIFE = 100


def pop(checkpoints: Checkpoints, start: int, count: int, now: int, life: int = LIFE) -> PopCheckpoint:
    pop_time = checkpoints.free_pop_time([("g", "T", 0, start)], now)
    made = PopCheckpoint(Key("g", "T", 0, start, pop_time), life, tuple(range(start, start + count)))
    checkpoints.add(made)
    return made


def test_equal_deadlines_do_not_collide() -> None:
    checkpoints = Checkpoints()
    made = [pop(checkpoints, start, 1, 1_000) for start in range(50)]
    made += [pop(checkpoints, 7, 1, 1_000) for _ in range(3)]  # the offset was reset: the same message, the same time
    assert len({checkpoint.key for checkpoint in made}) == 53
    assert len(checkpoints) == 53
    assert checkpoints.take_due(1_000 + LIFE - 1, 100) == []
    assert len(checkpoints.take_due(1_000 + LIFE + 3, 100)) == 53


def test_a_change_to_the_deadline_it_had() -> None:
    checkpoints = Checkpoints()
    whole = pop(checkpoints, 0, 3, 1_000)
    own = checkpoints.change(whole, 0, checkpoints.free_pop_time([("g", "T", 0, 0)], 1_000), LIFE - 1, 1_000)
    assert own.deadline == whole.deadline
    assert own.key != whole.key
    due = checkpoints.take_due(2_000, 10)
    assert sorted(offset for checkpoint in due for offset in checkpoint.open_offsets()) == [0, 1, 2]


def test_old_handles_work_as_long_as_the_message_is_out() -> None:
    checkpoints = Checkpoints()
    first = pop(checkpoints, 0, 1, 1_000)
    handles = [first.key]
    current = first
    for i in range(20):
        now = 1_010 + i
        current = checkpoints.change(current, 0, checkpoints.free_pop_time([("g", "T", 0, 0)], now), 500, now)
        handles.append(current.key)
    for key in handles:
        assert checkpoints.find(key, 0) is current
    checkpoints.settle(current, (0,), 1_600, expired=True)
    for key in handles:
        outcome, _ = checkpoints.ack(key, 0, 1_100, 1_700)
        assert outcome is Outcome.EXPIRED
    assert len(checkpoints) == 0


def test_an_ack_for_a_message_given_back_early_is_an_error_though_its_first_time_runs() -> None:
    checkpoints = Checkpoints()
    first = pop(checkpoints, 0, 1, 1_000, 60_000)
    now = checkpoints.change(first, 0, 1_001, 0, 1_001)
    checkpoints.settle(now, (0,), 1_002, expired=True)
    assert checkpoints.ack(first.key, 0, first.deadline, 1_003)[0] is Outcome.EXPIRED


def test_nothing_is_kept_of_what_is_settled() -> None:
    checkpoints = Checkpoints()
    for i in range(1_000):
        checkpoint = pop(checkpoints, i, 1, 1_000 + i)
        own = checkpoints.change(checkpoint, i, checkpoints.free_pop_time([("g", "T", 0, i)], 1_000 + i), 50, 1_000 + i)
        checkpoints.settle(own, (i,), 1_001 + i)
    assert checkpoints.next_deadline() is None
    held = (checkpoints._table, checkpoints._moved, checkpoints._forget, checkpoints._due, checkpoints._in_flight)
    assert sum(map(len, held)) < 3_000
    assert len(checkpoints._moved) <= LIFE + 2


class Model(RuleBasedStateMachine):
    """Acks, changes and deadlines in any order: a message that is not acknowledged is given back exactly once."""

    @initialize()
    def begin(self) -> None:
        self.checkpoints = Checkpoints()
        self.now = 1_000
        self.next = 0
        #: Offset -> deadline, for what is out.
        self.out: dict[int, int] = {}
        self.handles: dict[int, list[tuple[Key, int]]] = {}
        self.done: set[int] = set()

    @rule(count=st.integers(1, 5), life=st.sampled_from([0, 10, 50]))
    def pops(self, count: int, life: int) -> None:
        made = pop(self.checkpoints, self.next, count, self.now, life)
        for offset in made.offsets:
            self.out[offset] = made.deadline
            self.handles[offset] = [(made.key, made.deadline)]
        self.next += count

    @rule(data=st.data(), again=st.integers(0, 3))
    def acks(self, data: st.DataObject, again: int) -> None:
        if not self.handles:
            return
        offset = data.draw(st.sampled_from(sorted(self.handles)))
        key, deadline = data.draw(st.sampled_from(self.handles[offset]))
        outcome, _ = self.checkpoints.ack(key, offset, deadline, self.now)
        if offset in self.out:
            assert outcome is Outcome.SETTLED
            del self.out[offset]
            self.done.add(offset)
        else:
            assert outcome is not Outcome.SETTLED
            if offset not in self.done and self.now >= deadline:
                assert outcome is Outcome.EXPIRED

    @rule(data=st.data(), life=st.sampled_from([0, 10, 50]))
    def changes(self, data: st.DataObject, life: int) -> None:
        if not self.handles:
            return
        offset = data.draw(st.sampled_from(sorted(self.handles)))
        key, _ = data.draw(st.sampled_from(self.handles[offset]))
        found = self.checkpoints.find(key, offset)
        assert (found is not None) == (offset in self.out)
        if found is not None:
            pop_time = self.checkpoints.free_pop_time([("g", "T", 0, offset)], self.now)
            own = self.checkpoints.change(found, offset, pop_time, life, self.now)
            self.out[offset] = own.deadline
            self.handles[offset] = [*self.handles[offset][-5:], (own.key, own.deadline)]

    @rule(step=st.sampled_from([0, 1, 10, 60]), limit=st.integers(1, 4))
    def passes(self, step: int, limit: int) -> None:
        self.now += step
        given_back = []
        while due := self.checkpoints.take_due(self.now, limit):
            for checkpoint in due:
                offsets = checkpoint.open_offsets()
                self.checkpoints.settle(checkpoint, offsets, self.now, expired=True)
                given_back += offsets
        assert sorted(given_back) == sorted(offset for offset, deadline in self.out.items() if deadline <= self.now)
        for offset in given_back:
            del self.out[offset]

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "checkpoints"):
            assert self.checkpoints.in_flight("g", "T", 0) == len(self.out)
            still = [offset for checkpoint in self.checkpoints for offset in checkpoint.open_offsets()]
            assert sorted(still) == sorted(self.out)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Effects are carried out one after the other, and none of a node that is no more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rmq.broker.raft.effect_queue import EffectQueue
from rmq.protocol.errors import StoreError
from rmq.raft.effects import Commit, Cut, Effect, Write
from rmq.raft.position import Position
from rmq.runtime.tasks import TaskOwner
from tests.support.virtual import in_virtual_time


class Member:
    """Commits and writes are done at once, a cut is waited for until ``released``."""

    def __init__(self) -> None:
        self.done: list[Effect | str] = []
        self.released = asyncio.Event()
        #: What goes wrong with a cut, and with a commit.
        self.cut_fault: Exception | None = None
        self.fault: Exception | None = None
        self.tasks = TaskOwner("member")
        self.queue = EffectQueue(self.tasks, self._carry_out, self._fail, lambda: self.done.append("went on"))

    def _carry_out(self, effect: Effect) -> Coroutine[Any, Any, None] | None:
        if isinstance(effect, Cut):
            return self._cut(effect)
        if self.fault is not None:
            raise self.fault
        self.done.append(effect)
        return None

    async def _cut(self, effect: Cut) -> None:
        await self.released.wait()
        if self.cut_fault is not None:
            raise self.cut_fault
        self.done.append(effect)

    def _fail(self, error: Exception) -> None:
        self.queue.drop()
        self.done.append(f"failed: {error}")


CUT = Cut(Position(1, 10))


@in_virtual_time
async def test_what_comes_behind_an_effect_that_is_waited_for_waits_too() -> None:
    member = Member()
    await member.queue.begin()
    member.queue.do([Commit(1), CUT, Commit(2)])
    member.queue.do([Commit(3)])
    await asyncio.sleep(1)
    assert (member.done, len(member.queue)) == ([Commit(1)], 2)
    member.released.set()
    await asyncio.sleep(1)
    assert (member.done, len(member.queue)) == ([Commit(1), CUT, Commit(2), Commit(3), "went on"], 0)


@in_virtual_time
@pytest.mark.parametrize("apart", [False, True])
async def test_what_waits_has_bytes_of_its_own(apart: bool) -> None:
    member, memory = Member(), bytearray(b"abc")
    await member.queue.begin()
    write = Write(10, Position(1, 13), memoryview(memory))
    for effects in ([CUT], [write]) if apart else ([CUT, write],):
        member.queue.do(list(effects))
    memory[:] = b"xyz"
    member.released.set()
    await asyncio.sleep(1)
    assert member.done == [CUT, Write(10, Position(1, 13), b"abc"), "went on"]


@in_virtual_time
@pytest.mark.parametrize("fault", [StoreError("full"), ValueError("of the code")])
async def test_what_fails_takes_with_it_what_waits(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    member = Member()
    await member.queue.begin()
    member.fault = fault
    member.queue.do([Commit(1), Commit(2)])
    assert (member.done, len(member.queue)) == ([f"failed: {fault}"], 0)
    member.fault, member.cut_fault = None, fault
    await member.queue.begin()
    member.queue.do([CUT, Commit(3)])
    member.released.set()
    await asyncio.sleep(1)
    assert (member.done[1:], len(member.queue)) == ([f"failed: {fault}"], 0)
    # What nobody has foreseen is for who mends the code.
    assert len(caplog.records) == (2 if isinstance(fault, ValueError) else 0)


@in_virtual_time
@pytest.mark.parametrize("fault", [None, StoreError("full")])
async def test_a_new_node_waits_for_what_the_last_one_had_under_way(fault: Exception | None) -> None:
    member = Member()
    member.cut_fault = fault
    await member.queue.begin()
    member.queue.do([CUT, Commit(1)])
    await asyncio.sleep(1)
    member.queue.drop()
    begins = asyncio.create_task(member.queue.begin())
    await asyncio.sleep(1)
    assert not begins.done()
    member.released.set()
    await begins
    assert member.done == ([CUT] if fault is None else [])  # nobody is told, and nothing follows
    member.queue.do([Commit(2)])
    assert member.done[-1] == Commit(2)

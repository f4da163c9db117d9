"""Calls on threads: what becomes of one that is cancelled."""

import asyncio
import threading

import pytest

from rmq.broker.store.log.files import LogFiles
from rmq.runtime.offload import ThreadOffload, never_behind_others


class Disk:
    @never_behind_others
    def flush(self) -> str:
        return "flushed"


class Slow:
    """A call that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = threading.Event()
        self.ended = False
        self._tell = asyncio.get_running_loop().call_soon_threadsafe

    def __call__(self) -> None:
        self._tell(self.begun.set)
        assert self.go.wait(60)
        self.ended = True


async def begun(offload: ThreadOffload, call: Slow) -> asyncio.Task[None]:
    task = asyncio.create_task(offload(call))
    await call.begun.wait()
    return task


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_call_has_ended_when_its_caller_hears_of_it(times: int) -> None:
    offload, call = ThreadOffload(), Slow()
    task = await begun(offload, call)
    for _ in range(times):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
    call.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended
    offload.close()


async def test_a_cancelled_caller_is_told_first_what_its_call_failed_with() -> None:
    offload, call = ThreadOffload(), Slow()
    told: list[str] = []

    def fail() -> None:
        call()
        raise OSError("told once")

    async def caller() -> None:
        try:
            await offload(fail)
        except OSError as error:
            told.append(str(error))
        task = asyncio.current_task()
        assert task is not None
        told.append(f"{task.cancelling()} asked for")
        await asyncio.sleep(0)
        told.append("not cancelled")

    task = asyncio.create_task(caller())
    await call.begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    call.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["told once", "1 asked for"]
    offload.close()


async def test_a_cancelled_call_that_waits_its_turn_is_never_made() -> None:
    offload, first, second = ThreadOffload(1), Slow(), Slow()
    task = await begun(offload, first)
    waiting = asyncio.create_task(offload(second))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not second.begun.is_set()
    first.go.set()
    await task
    offload.close()
    assert not second.begun.is_set()


async def test_an_impatient_one_lets_go_at_once() -> None:
    offload, call = ThreadOffload(patient=False), Slow()
    task = await begun(offload, call)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not call.ended
    call.go.set()
    offload.close()
    assert call.ended


async def test_a_flush_waits_behind_no_reads() -> None:
    offload = ThreadOffload(2)
    calls = [Slow() for _ in range(6)]
    tasks = [await begun(offload, call) for call in calls[:2]]
    tasks += [asyncio.create_task(offload(call)) for call in calls[2:]]
    await asyncio.sleep(0)
    assert await offload(Disk().flush) == "flushed"
    assert not any(task.done() for task in tasks)
    for call in calls:
        call.go.set()
    await asyncio.gather(*tasks)
    offload.close()


def test_the_flush_of_the_commit_log_is_such_a_call() -> None:
    assert never_behind_others(lambda: None).__dict__ == {**LogFiles.sync.__dict__}

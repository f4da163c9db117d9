"""The loop thread behind blocking calls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from rmq.protocol.errors import ClientError
from rmq.runtime.bridge import Waiter
from rmq.runtime.thread_bridge import ThreadBridge, bridge


def test_results_and_errors_come_back_to_the_thread_that_asked() -> None:
    made = bridge()

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        if number == 13:
            raise KeyError(number)
        return number * 2

    def ask(number: int) -> object:
        try:
            return made.run(double(number))
        except KeyError as error:
            return repr(error)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [number * 2 if number != 13 else "KeyError(13)" for number in range(200)]


@pytest.mark.parametrize("others", [0, 1])
def test_who_waits_alone_goes_on_at_once_and_several_together(others: int) -> None:
    made = bridge()

    async def look() -> list[bool]:
        waiters = [Waiter[None]() for _ in range(1 + others)]
        made._waiting.update(waiters[1:])  # this call waits as well: it is the other one of two
        await asyncio.sleep(0)
        made.release(waiters[0])
        seen = [waiters[0].lock.locked()]
        await asyncio.sleep(0)
        made._waiting.difference_update(waiters)
        return [*seen, waiters[0].lock.locked()]

    assert made.run(look()) == [others > 0, False]


def test_the_loop_thread_may_not_wait_for_itself() -> None:
    made = bridge()

    async def nested() -> None:
        made.run(asyncio.sleep(0))

    with pytest.raises(ClientError, match=r"use rmq.aio in coroutines"):
        made.run(nested())


def test_the_end_of_a_process_stops_all_at_once_and_receivers_first(caplog: pytest.LogCaptureFixture) -> None:
    """One that takes its time is not to cost the others theirs: their offsets would not be kept."""
    made = ThreadBridge()
    ended: list[str] = []
    meeting: list[asyncio.Event] = []

    async def stop(name: str) -> None:
        if not meeting:
            meeting.append(asyncio.Event())
            await meeting[0].wait()  # for the second receiver: one after the other, it would never come
        meeting[0].set()
        ended.append(name)

    async def fail() -> None:
        raise ClientError("a broker is away")

    async def last() -> None:
        ended.append("producer")

    made.stop_at_exit("producer", last)
    made.stop_at_exit("one", partial(stop, "one"), first=True)
    made.stop_at_exit("two", partial(stop, "two"), first=True)
    made.stop_at_exit("broken", fail, first=True)
    made.exit(limit=30.0)
    assert ended[-1] == "producer"
    assert sorted(ended[:-1]) == ["one", "two"]
    assert "a client did not stop cleanly at exit: a broker is away" in caplog.text
    assert not made._thread.is_alive()
    with pytest.raises(ClientError, match="the process ends"):
        made.run(last())


AT_THE_END = """
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # called after what comes later
"""


@pytest.mark.parametrize(
    "begin",
    [
        "from rmq.runtime.thread_bridge import bridge; bridge()",
        "from rmq.runtime.background import LoopThread; LoopThread()",
    ],
)
def test_no_loop_outlives_the_interpreter(begin: str) -> None:
    """One that does crashes the process at its next event, with its work done and its exit code wrong."""
    ended = subprocess.run([sys.executable, "-c", AT_THE_END + begin], capture_output=True, text=True, check=True)
    assert (ended.stdout.strip(), ended.stderr) == ("['MainThread']", "")


@pytest.mark.parametrize(
    ("module", "asked", "line"),
    [
        ("gevent.monkey", "is_module_patched", r"gevent has replaced threads.*patch_all\(thread=False, queue=False"),
        ("eventlet.patcher", "is_monkey_patched", r"eventlet has replaced threads.*monkey_patch\(thread=False\)"),
    ],
)
def test_threads_that_are_none_are_refused_with_one_line(
    module: str, asked: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop on a greenlet never gives the others a turn: the first call never returned."""
    patched = [True]
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{asked: lambda what: patched[0]}))  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=line):
        ThreadBridge()
    patched[0] = False
    ThreadBridge().exit()

"""Every way in which an application awaits a send, or does not."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import types
import warnings
from collections.abc import Coroutine
from typing import Any
from unittest.mock import AsyncMock, MagicMock, create_autospec

import pytest

from rmq.aio import ClientError, ConnectFailed, Message, Producer, RMQError, SendResult, TransactionProducer
from rmq.client import plain
from rmq.protocol.command import Command
from rmq.testing import simloop
from tests.support.scripted import ScriptedCluster, refuse
from tests.support.virtual import eventually, in_virtual_time
from tests.unit.client.test_bursts import answer_later, bodies, producer


def sends(p: Producer, *names: str, **how: Any) -> list[Coroutine[Any, Any, SendResult]]:
    return [p.send(Message("T", name), **how) for name in names]


@in_virtual_time
async def test_each_way_sends_once() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        (send,) = sends(p, "await")
        assert (await send).ok
        assert (await asyncio.create_task(*sends(p, "create_task"), name="t")).ok
        assert (await asyncio.ensure_future(*sends(p, "ensure_future"))).ok
        assert (await asyncio.wait_for(*sends(p, "wait_for"), 1.0)).ok
        assert (await asyncio.shield(*sends(p, "shield"))).ok
        assert all(result.ok for result in await asyncio.gather(*sends(p, "gather 1", "gather 2")))
        for one in asyncio.as_completed(sends(p, "as_completed")):
            assert (await one).ok
        done, _ = await asyncio.wait([asyncio.ensure_future(one) for one in sends(p, "wait 1", "wait 2")])
        assert all(one.result().ok for one in done)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(*sends(p, "TaskGroup"))
        assert task.result().ok
        assert (await p.send(Message("T", "timeout"), timeout=2)).ok
        kept = asyncio.ensure_future(*sends(p, "nobody waits"))
        await eventually(kept.done)
        sent = b"await create_task ensure_future wait_for shield gather1 gather2 as_completed wait1 wait2 TaskGroup"
        assert [body.replace(b" ", b"") for body in bodies(c.brokers["a"])] == [
            *sent.split(), b"timeout", b"nobodywaits",
        ]  # fmt: skip
        assert p._sender.window.used == p._sender.window.used_kib == 0


@in_virtual_time
async def test_gather_makes_no_task_of_a_send() -> None:
    async with ScriptedCluster("a") as c, producer(c, topics=["T"]) as p:
        answer_later(c.brokers["a"], 1.0)
        before = asyncio.all_tasks()
        gathered = asyncio.gather(*sends(p, *map(str, range(500))))
        await asyncio.sleep(0.5)
        assert len(asyncio.all_tasks() - before) < 3
        assert all(result.ok for result in await gathered)


@in_virtual_time
async def test_a_send_that_waits_is_one_object_besides_its_message() -> None:
    """What the interpreter's collector looks at, again and again, is what very many that wait cost."""
    async with ScriptedCluster("a") as c, producer(c, topics=["T"], back_pressure_for_async_send_num=10) as p:
        answer_later(c.brokers["a"], 1.0)
        messages = [Message("T", b"x") for _ in range(1_000)]
        gc.collect()
        gc.freeze()  # what earlier tests have left may end at any time
        try:
            gathered = asyncio.gather(*map(p.send, messages))
            await asyncio.sleep(0.5)
            gc.collect()
            assert 1_000 <= len(gc.get_objects()) < 1_500
        finally:
            gc.unfreeze()
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered


@in_virtual_time
async def test_nothing_is_sent_before_it_is_awaited() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        message = Message("T", "at first")
        send = p.send(message)
        await asyncio.sleep(1.0)
        assert not bodies(c.brokers["a"])
        message.body = b"as it is awaited"
        await send
        assert bodies(c.brokers["a"]) == [b"as it is awaited"]
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer.send' was never awaited"):
            p.send(Message("T", "never"))
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer.send' was never awaited"):
            p.send(Message("T", "never"), selector=lambda queues, message, arg: queues[0])
        for send in (p.send(message), p.send(message, queue=p._client.routes.publish["T"].queues[0])):
            send.close()
        await asyncio.sleep(1.0)
        assert len(bodies(c.brokers["a"])) == 1


@in_virtual_time
async def test_what_waits_and_is_cancelled_is_never_sent_and_what_is_under_way_keeps_its_place() -> None:
    async with ScriptedCluster("a") as c, producer(c, topics=["T"], back_pressure_for_async_send_num=10) as p:
        answer_later(c.brokers["a"], 1.0)
        gathered = asyncio.gather(*sends(p, *map(str, range(30))))
        await asyncio.sleep(0.5)
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered
        window = p._sender.window
        assert window.used == 10
        (late,) = sends(p, "late")
        assert (await late).ok
        assert window.used == 0
        assert bodies(c.brokers["a"]) == [*(b"%d" % number for number in range(10)), b"late"]
        # A time limit is a cancellation, too.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(*sends(p, "limited"), 0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(*sends(p, "no time at all"), 0)
        await asyncio.sleep(1.0)
        assert window.used == 0
        assert bodies(c.brokers["a"])[11:] == [b"limited"]


@pytest.mark.parametrize("awaited", ["a task", "a future"])
@in_virtual_time
async def test_attempts_after_the_first_go_on_for_whoever_waits(awaited: str) -> None:
    async with ScriptedCluster("a") as c, producer(c, topics=["T"], send_msg_timeout=5.0) as p:
        wrap: Any = asyncio.create_task if awaited == "a task" else asyncio.ensure_future
        c.topics.clear()
        p._client.routes.publish.clear()
        c.fresh = True  # the topic may be there in a moment
        begun = [wrap(one) for one in sends(p, "cancelled", "sent")]
        await asyncio.sleep(1.0)
        assert p._sender.window.used == 2
        begun[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun[0]
        await eventually(lambda: p._sender.window.used == 1, within=0.1)
        c.topics["T"] = ["a"]
        c.fresh = False
        assert (await begun[1]).ok
        assert bodies(c.brokers["a"]) == [b"sent"]
        assert p._sender.window.used == 0


@in_virtual_time
async def test_a_shutdown_waits_for_attempts_after_the_first() -> None:
    async with ScriptedCluster("a") as c, producer(c, send_msg_timeout=2.0) as p:
        c.topics.clear()
        c.fresh = True
        send = asyncio.ensure_future(*sends(p, "x"))
        await asyncio.sleep(0.5)
        await p.shutdown()
        assert isinstance(send.exception(), ConnectFailed)


@in_virtual_time
async def test_another_broker_is_tried_without_a_task() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c, topics=["T"]) as p:
        refused: list[bytes] = []

        def refuse(request: Command) -> Command:
            refused.append(request.body)
            return request.reply(14, "not now")

        c.brokers["a"].script = refuse
        results = await asyncio.gather(*sends(p, *map(str, range(50))))
        assert all(result.ok for result in results)
        assert len(bodies(c.brokers["b"])) == 50
        assert refused


@in_virtual_time
async def test_what_is_wrong_with_a_call_is_told_where_it_is_awaited() -> None:
    async with ScriptedCluster("a") as c:
        p = producer(c)
        for wrong in (p.send(Message("T", "x")), p.send(Message("T", "x"), timeout="soon")):  # type: ignore[arg-type]
            (error,) = await asyncio.gather(wrong, return_exceptions=True)
            assert isinstance(error, ClientError)
        early = p.send(Message("T", "called before the start"))
        async with p:
            assert (await early).ok
            for given in (None, [1], Message("T", b"")):
                (error,) = await asyncio.gather(p.send(given), return_exceptions=True)  # type: ignore[arg-type]
                assert isinstance(error, ClientError), given
            (error,) = await asyncio.gather(p.send(Message("T", "x"), timeout="soon"), return_exceptions=True)  # type: ignore[arg-type]
            assert isinstance(error, ClientError)
            late = p.send(Message("T", "x"))
        with pytest.raises(ClientError, match="shut down"):
            await late
        assert p._sender.window.used == 0


def test_a_send_may_be_called_before_its_loop_runs() -> None:
    p = Producer("pg", namesrv="127.0.0.1:1")
    send = p.send(Message("T", "x"))
    with pytest.raises(ClientError, match="not started"):
        asyncio.run(send)


@in_virtual_time
async def test_a_send_may_be_called_on_another_thread() -> None:
    """``run_coroutine_threadsafe(producer.send(message), loop)`` calls it there, and awaits it on the loop."""
    async with ScriptedCluster("a") as c, producer(c) as p:
        made: list[Coroutine[Any, Any, SendResult]] = []
        thread = threading.Thread(target=lambda: made.extend(sends(p, "x")))
        thread.start()
        thread.join()
        assert (await made[0]).ok


@in_virtual_time
async def test_it_is_a_coroutine_function_to_who_asks() -> None:
    for kind in (Producer, TransactionProducer):
        assert inspect.iscoroutinefunction(kind.send)
    async with ScriptedCluster("a") as c, producer(c) as p:
        assert inspect.iscoroutinefunction(p.send)
        send = p.send(Message("T", "x"))
        assert asyncio.iscoroutine(send)
        assert isinstance(send, Coroutine)
        assert inspect.isawaitable(send)
        assert (await send).ok
    for mocked in (MagicMock(spec=Producer), create_autospec(Producer, instance=True)):
        mocked.send.return_value = "as told"
        assert await mocked.send(Message("T", "x")) == "as told"
    assert isinstance(MagicMock(spec=Producer).send, AsyncMock)


@in_virtual_time
async def test_frameworks_that_call_it_later_await_it() -> None:
    background = pytest.importorskip("starlette.background")
    async with ScriptedCluster("a") as c, producer(c) as p:
        await background.BackgroundTask(p.send, Message("T", "x"))()
        assert bodies(c.brokers["a"]) == [b"x"]


@in_virtual_time
async def test_anyio_starts_it() -> None:
    anyio = pytest.importorskip("anyio")
    async with ScriptedCluster("a") as c, producer(c) as p:
        async with anyio.create_task_group() as group:
            group.start_soon(p.send, Message("T", "x"))
        assert bodies(c.brokers["a"]) == [b"x"]


@pytest.mark.parametrize(("version", "insists"), [("4.13.0", True), ("4.14.0", False), ("3.7.1", True), ("5", False)])
@in_virtual_time
async def test_an_older_anyio_gets_a_coroutine_of_the_language(
    version: str, insists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ``start_soon(producer.send, message)`` takes anything else for a mistake."""
    monkeypatch.setitem(plain.sys.modules, "anyio", types.ModuleType("anyio"))  # type: ignore[attr-defined]
    monkeypatch.setattr(plain.importlib.metadata, "version", lambda name: version)  # type: ignore[attr-defined]
    async with ScriptedCluster("a") as c, producer(c) as p:
        send = p.send(Message("T", "x"))
        assert inspect.iscoroutine(send) == insists
        assert (await send).ok


@pytest.mark.parametrize("debug", [False, True])
def test_loops_that_debug_say_nothing(debug: bool) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_debug(debug)
        async with ScriptedCluster("a") as c, producer(c) as p:
            assert all(result.ok for result in await asyncio.gather(*sends(p, "1", "2")))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simloop.run(main())


@in_virtual_time
async def test_errors_nobody_waits_for_are_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with ScriptedCluster("a") as c, producer(c, topics=["T"], retry_times_when_send_failed=0) as p:
        c.brokers["a"].script = refuse(1)
        with pytest.raises(RMQError):
            await asyncio.gather(*sends(p, "1", "2"))
        await asyncio.sleep(1.0)
        assert told == []
        asyncio.ensure_future(*sends(p, "3"))  # noqa: RUF006
        await asyncio.sleep(1.0)
        gc.collect()
        (context,) = told
        assert isinstance(context["exception"], RMQError)

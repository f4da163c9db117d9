"""Starts, calls and ends cancelled at each of their awaits: nothing keeps running, and the client works again."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Collection, Coroutine, Generator
from typing import Any

import pytest

from rmq import TransactionState
from rmq.aio import (
    AdminClient,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ScheduledPullConsumer,
    TransactionProducer,
)
from rmq.client.instance import instances_of
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

Client = Any
#: More awaits than any of these has.
_MANY = 100


@types.coroutine
def _driven(coro: Coroutine[Any, Any, object], at: Collection[int]) -> Generator[Any, Any, int]:
    """Run a coroutine, and cancel its task at its n-th wait, for each n of ``at``; how often it waited."""
    task = asyncio.current_task()
    assert task is not None
    waited = 0
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            awaited = coro.send(value) if error is None else coro.throw(error)
        except StopIteration:
            return waited
        waited += 1
        if waited in at:
            asyncio.get_running_loop().call_soon(task.cancel)
        value = error = None
        try:
            value = yield awaited
        except BaseException as raised:
            error = raised


async def cancelled(coro: Coroutine[Any, Any, object], at: Collection[int]) -> bool:
    """Whether the coroutine was cancelled there; it may also have been through before, or all the same."""
    task = asyncio.current_task()
    assert task is not None
    try:
        waited = await _driven(coro, at)
    except asyncio.CancelledError:
        task.uncancel()
        return True
    if waited >= min(at):  # it ended in spite of it: what is cancelled then is the next wait
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            task.uncancel()
        return True
    return False


def _options(s: Scene, more: dict[str, Any]) -> dict[str, Any]:
    return {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world, **more}


async def _commit(_: object) -> TransactionState:
    return TransactionState.COMMIT


async def _ignore(_: object) -> None:
    return None


async def _again(_: MessageQueue) -> float:
    await asyncio.sleep(1)
    return 0


def _producer(s: Scene, **more: Any) -> Client:
    return Producer("other", **_options(s, more))


def _transactions(s: Scene, **more: Any) -> Client:
    return TransactionProducer("other", _commit, **_options(s, more))


def _push(s: Scene, **more: Any) -> Client:
    made = PushConsumer("g", **_options(s, more))
    made.on("T")(_ignore)
    return made


def _scheduled(s: Scene, **more: Any) -> Client:
    made = ScheduledPullConsumer("g", **_options(s, more))
    made.on("T")(_again)
    return made


def _pull(s: Scene, **more: Any) -> Client:
    return PullConsumer("g", register_topics=("T",), **_options(s, more))


def _lite(s: Scene, **more: Any) -> Client:
    made = LitePullConsumer("g", **_options(s, more))
    made.subscribe("T")
    return made


def _admin(s: Scene) -> Client:
    return AdminClient(**_options(s, {}))


_TRACED: dict[str, Any] = {"enable_msg_trace": True}
_BROADCAST: dict[str, Any] = {"message_model": "BROADCASTING", "offset_store_dir": "/offsets"}
KINDS: dict[str, tuple[Callable[..., Client], dict[str, Any]]] = {
    "producer": (_producer, {}),
    "producer of topics": (_producer, {"topics": ("T",)}),
    "producer, traced": (_producer, _TRACED),
    "producer of batches": (_producer, {"auto_batch": True}),
    "transactions": (_transactions, {}),
    "transactions, traced": (_transactions, {"topics": ("T",), **_TRACED}),
    "push": (_push, {}),
    "push, traced": (_push, _TRACED),
    "push, orderly": (_push, {"orderly": True}),
    "push, broadcast": (_push, _BROADCAST),
    "pop": (_push, {"client_rebalance": False}),
    "pull": (_pull, {}),
    "pull, traced": (_pull, _TRACED),
    "pull, broadcast": (_pull, _BROADCAST),
    "scheduled": (_scheduled, {}),
    "lite": (_lite, {}),
    "lite, traced": (_lite, _TRACED),
    "admin": (_admin, {}),
}


async def use(client: Client) -> None:
    """Something that waits for a broker."""
    if isinstance(client, TransactionProducer):
        await client.send_in_transaction(Message("T", b"x"), _commit)
    elif isinstance(client, Producer):
        await client.send(Message("T", b"x"))
    elif isinstance(client, LitePullConsumer):
        await client.poll(timeout=1)
    elif isinstance(client, AdminClient):
        await client.topic_list()
    else:
        await client.fetch_subscribe_message_queues("T")


def _tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if not task.done()}


async def ended(s: Scene, others: int, before: set[asyncio.Task[Any]]) -> None:
    """The client has left, and none of its tasks runs."""
    await eventually(lambda: len(instances_of(s.cluster.namesrv_addr, s.cluster.world)) == others)
    names = ("client", "consumer", "trace", "checks", "send", "shutdown")
    await eventually(lambda: not [t for t in _tasks() - before if t.get_name().startswith(names)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_is_cancelled_at_any_await_leaves_nothing_behind_and_can_be_repeated(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        make, more = KINDS[kind]
        async with scene() as s:
            others, before = len(instances_of(s.cluster.namesrv_addr, s.cluster.world)), _tasks()
            for number in range(1, _MANY):
                client = make(s, **more)
                cut = await cancelled(client.start(), {number})
                if cut:
                    await ended(s, others, before)
                    await client.start()
                await use(client)
                await client.shutdown()
                await ended(s, others, before)
                if not cut:
                    return
            raise AssertionError(f"it waited {_MANY} times")

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_cancelled_at_any_await_harms_no_other(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        make, more = KINDS[kind]
        async with scene() as s:
            others, before = len(instances_of(s.cluster.namesrv_addr, s.cluster.world)), _tasks()
            async with make(s, **more) as client:
                number = 1
                while await cancelled(use(client), {number}):
                    await use(client)
                    number += 1
            await ended(s, others, before)

    run()


@pytest.mark.parametrize("times", [1, 2, _MANY], ids=["once", "twice", "again and again"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shutdown_that_is_cancelled_at_any_await_ends_all_the_same(kind: str, times: int) -> None:
    @in_virtual_time
    async def run() -> None:
        make, more = KINDS[kind]
        async with scene() as s:
            others, before = len(instances_of(s.cluster.namesrv_addr, s.cluster.world)), _tasks()
            for number in range(1, _MANY):
                client = make(s, **more)
                await client.start()
                await use(client)
                cut = await cancelled(client.shutdown(), range(number, number + times))
                await ended(s, others, before)
                if not cut:
                    return
                async with client:
                    await use(client)
                await ended(s, others, before)
            raise AssertionError(f"it waited {_MANY} times")

    run()

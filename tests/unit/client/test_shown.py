"""Errors name what an application gave without calling any code of its own, which may block, or raise anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

from rmq.aio import (
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    ScheduledPullConsumer,
    TransactionProducer,
    TransactionState,
)
from rmq.client.shown import shown, told
from rmq.protocol.errors import ClientError
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time


class Watched:
    """Says which of its methods were called; each of them raises."""

    def __init__(self, called: list[str]) -> None:
        self.__dict__["called"] = called


def _watch(name: str) -> Any:
    def method(self: Any, *_: object) -> object:
        self.__dict__["called"].append(name)
        raise Own

    return method


for _name in ("repr", "str", "format", "eq", "hash", "bool", "len", "iter", "lt", "int", "float", "index"):
    setattr(Watched, f"__{_name}__", _watch(_name))


class Own(BaseException):
    """Of the application's own."""


class Textless(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text of it")


class Zone(tzinfo):
    def __repr__(self) -> str:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 100, "'" + "a" * 59),
        (b"a", "b'a'"),
        (12, "12"),
        pytest.param(1 << 20_000, "a number of 20001 bits", id="long"),
        (None, "None"),
        (1.5, "1.5"),
        ([1, "a", (2,)], "[1, 'a', (2,)]"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        ({"a": {1}}, "{'a': {1}}"),
        (frozenset({1}), "frozenset({1})"),
        ((), "()"),
        (set(), "set()"),
        ([[[[1]]]], "[[[<list object>]]]"),
        (ConsumeResult.SUCCESS, repr(ConsumeResult.SUCCESS)),
        (MessageQueue("T", "b", 1), repr(MessageQueue("T", "b", 1))[:60]),
        (datetime(2026, 1, 2, tzinfo=UTC), "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone"),
        (datetime(2026, 1, 2, tzinfo=Zone()), "<datetime object>"),
        (type("S", (str,), {"__repr__": _watch("repr")})("a"), "<S object>"),
        (Watched([]), "<Watched object>"),
        ([Watched([])], "[<Watched object>]"),
    ],
)  # fmt: skip
def test_values(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a", 1), "ValueError: ('a', 1)"),
        (KeyError("a"), "KeyError: 'a'"),
        (OSError(2, "no such file"), "FileNotFoundError: [Errno 2] no such file"),
        (Own(), "Own"),
        (Textless("a"), "Textless"),
        (ValueError(Watched([])), "ValueError"),
    ],
)
def test_errors(error: BaseException, text: str) -> None:
    assert told(error) == text


@pytest.mark.parametrize(
    ("raised", "plain"),
    [(Own(), False), (KeyboardInterrupt(), False), (StopIteration(), True), (Textless(), True), (None, True)],
)
def test_an_offset_store_that_fails_in_any_way_is_asked_again(raised: BaseException | None, plain: bool) -> None:
    """None: what it gives is the wrong thing."""

    @in_virtual_time
    async def run() -> None:
        called: list[str] = []
        failed: set[str] = set()

        def read(what: str) -> Any:
            if what in failed:
                return 0
            failed.add(what)
            if raised is not None:
                raise raised
            return Watched(called)

        class Plain:
            def read(self, group: str, queue: MessageQueue) -> Any:
                return read(f"read {queue.queue_id}")

            def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> Any:
                return read("write")

        class Coroutines:
            async def read(self, group: str, queue: MessageQueue) -> Any:
                return read(f"read {queue.queue_id}")

            async def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> Any:
                return read("write")

        async with scene() as s:
            got: set[bytes] = set()
            consumer = s.consumer(offset_store=Plain() if plain else Coroutines(), rebalance_interval=1)
            consumer.on("T")(lambda message: got.add(message.body))
            await s.send(8)
            async with consumer:
                await eventually(lambda: len(got) == 8)
            assert {"read 0", "read 1", "read 2", "read 3"} <= failed
            assert not called

    run()


@in_virtual_time
async def test_whatever_functions_of_an_application_return_is_not_asked_for_its_text() -> None:
    called: list[str] = []
    odd: Any = Watched(called)

    def selects(queues: Sequence[MessageQueue], message: Message, arg: object) -> Any:
        return odd

    checks: list[str] = []

    def check(message: MessageExt) -> Any:
        checks.append(message.keys or "")
        return odd if len(checks) == 1 else TransactionState.COMMIT

    async with scene(transactionTimeOut="1000", transactionCheckInterval="1000") as s:
        with pytest.raises(ClientError, match="the selector returned <Watched object>"):
            await s.producer.send(Message("T", b"1"), selector=selects)  # type: ignore[arg-type]
        for wrong in (s.producer.send_oneway, s.producer.request):
            with pytest.raises(ClientError, match="Watched"):
                await wrong(odd)
        with pytest.raises(ClientError, match="timeout is <Watched object>"):
            await s.producer.send(Message("T", b"1"), timeout=odd)
        checked = TransactionProducer("t", check, namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        async with checked:
            with pytest.raises(ClientError, match="the local transaction returned <Watched object>"):
                await checked.send_in_transaction(Message("T", b"1", keys="k"), lambda message: odd)
            await eventually(lambda: len(checks) > 1)
        calls: list[int] = []
        scheduled = ScheduledPullConsumer("s", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)

        @scheduled.on("T")
        def pull(queue: MessageQueue) -> Any:
            calls.append(queue.queue_id)
            return odd if len(calls) <= 4 else 1

        async with scheduled:
            await eventually(lambda: len(calls) > 8)
    assert not called

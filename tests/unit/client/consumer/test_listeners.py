"""Calling listeners: what they may look like, return and raise."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

import pytest

from rmq.client.consumer.listeners import ConsumeContext, Listener, Outcome
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.protocol.errors import ClientError

NO_POOL: Any = None
QUEUE = MessageQueue("T", "b", 0)


def batch_of(count: int) -> list[MessageExt]:
    made = []
    for i in range(count):
        message = MessageExt()
        message.topic, message.body, message.queue_offset, message.properties = (
            "T",
            str(i).encode(),
            i,
            {"UNIQ_KEY": "0A0B"},
        )
        message.broker_name, message.queue_id, message.reconsume_times = "b", 0, 0
        made.append(message)
    return made


def called(listener: Listener, count: int = 1, **how: bool) -> Outcome:
    return listener.call(batch_of(count), ConsumeContext(QUEUE), **how)


@pytest.mark.parametrize("returned", [None, True, ConsumeResult.SUCCESS])
def test_success(returned: object, caplog: pytest.LogCaptureFixture) -> None:
    outcome = called(Listener(lambda message: returned))
    assert (outcome.result, list(outcome.failed)) == (ConsumeResult.SUCCESS, [])
    assert caplog.records == []


@pytest.mark.parametrize("returned", [False, ConsumeResult.RECONSUME_LATER])
def test_failure(returned: object) -> None:
    outcome = called(Listener(lambda message: returned))
    assert outcome.result is ConsumeResult.RECONSUME_LATER
    assert len(outcome.failed) == 1
    assert outcome.error is None


@pytest.mark.parametrize("returned", [0, 1, "yes", 1.5, [], ["row"], object()])
def test_a_function_that_returned_has_done_its_work(returned: object, caplog: pytest.LogCaptureFixture) -> None:
    def store(message: MessageExt) -> object:
        return returned

    listener = Listener(store, group="g")
    for _ in range(3):
        outcome = called(listener, 2)
        assert (outcome.result, list(outcome.failed), outcome.error) == (ConsumeResult.SUCCESS, [], None)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "group g, topic T: the listener test_a_function_that_returned_has_done_its_work.<locals>.store "
    )
    assert f"returns {type(returned).__name__}, which is no result: taken as success" in line


async def later(message: MessageExt) -> None: ...


def generator_of(message: MessageExt) -> object:
    return (each for each in [message])


@pytest.mark.parametrize(
    ("function", "kind"), [(lambda message: later(message), "coroutine"), (generator_of, "generator")]
)
def test_work_that_is_returned_instead_of_done_is_a_failure(
    function: Callable[..., object], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = called(Listener(function, group="g"))
    assert outcome.result is ConsumeResult.RECONSUME_LATER
    assert f"returned a {kind}, whose work nobody does" in str(outcome.error)


def yields(message: MessageExt) -> object:
    yield message


async def yields_later(message: MessageExt) -> object:
    yield message


class Yields:
    def __call__(self, message: MessageExt) -> object:
        yield message


@pytest.mark.parametrize("function", [yields, yields_later, Yields()])
def test_a_generator_is_refused_when_it_is_registered(function: Callable[..., object]) -> None:
    with pytest.raises(ClientError, match="has a yield: calling it would do nothing"):
        Listener(function)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, BaseException])
def test_whatever_a_listener_raises_is_a_failure_that_the_log_tells(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def store(message: MessageExt) -> None:
        raise error

    async def store_later(message: MessageExt) -> None:
        raise error

    for outcome in (
        called(Listener(store, group="g")),
        asyncio.run(Listener(store_later, group="g").call_async(NO_POOL, batch_of(1), ConsumeContext(QUEUE))),
    ):
        assert outcome.result is ConsumeResult.RECONSUME_LATER
        assert isinstance(outcome.error, error)
    for record, name in zip(caplog.records, ("store", "store_later"), strict=True):
        line = record.getMessage()
        assert line.startswith("group g, topic T: a listener raised, ")
        assert f".<locals>.{name}, for MessageExt('T', id=0A0B, " in line
        assert line.endswith(", at try 1")


def test_raising_fails_only_that_message() -> None:
    def listener(message: MessageExt) -> None:
        if message.body == b"1":
            raise ValueError("no")

    outcome = called(Listener(listener), 3)
    assert [message.body for message in outcome.failed] == [b"1"]
    assert isinstance(outcome.error, ValueError)


def test_in_order_nothing_after_the_failed_one_is_tried() -> None:
    seen: list[bytes] = []

    def listener(message: MessageExt) -> None:
        seen.append(message.body)
        if message.body == b"1":
            raise ValueError("no")

    outcome = called(Listener(listener), 4, in_order=True)
    assert seen == [b"0", b"1"]
    assert [message.body for message in outcome.failed] == [b"1", b"2", b"3"]


def test_a_batch_listener_gets_the_list_and_may_say_how_much_succeeded() -> None:
    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        assert len(messages) == 5
        context.ack_index = 1

    outcome = called(Listener(listener, batch=True), 5)
    assert [message.body for message in outcome.failed] == [b"2", b"3", b"4"]


@pytest.mark.parametrize(("index", "failed"), [(-1, 5), (0, 4), (3, 1), (4, 0), (9, 0)])
def test_the_last_index_of_a_batch_is_success(index: int, failed: int) -> None:
    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        context.ack_index = index

    outcome = called(Listener(listener, batch=True), 5)
    assert len(outcome.failed) == failed
    assert (outcome.result is ConsumeResult.SUCCESS) == (failed == 0)


class Handler:
    def method(self, message: MessageExt) -> None:
        assert isinstance(message, MessageExt)

    def with_context(self, message: MessageExt, context: ConsumeContext) -> None:
        assert isinstance(context, ConsumeContext)

    def with_default(self, message: MessageExt, times: int = 3) -> None:
        assert times == 3

    def __call__(self, message: MessageExt) -> None:
        assert isinstance(message, MessageExt)


def anything(*args: Any) -> None:
    assert len(args) == 2


@pytest.mark.parametrize(
    "function", [Handler().method, Handler().with_context, Handler().with_default, Handler(), [].append, anything]
)
def test_the_context_is_given_to_those_that_take_it(function: Callable[..., Any]) -> None:
    outcome = called(Listener(function))
    assert outcome.error is None


async def test_coroutine_listeners() -> None:
    async def listener(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER if message.body == b"1" else ConsumeResult.SUCCESS

    made = Listener(listener)
    assert made.is_coroutine
    outcome = await made.call_async(NO_POOL, batch_of(3), ConsumeContext(QUEUE))
    assert [message.body for message in outcome.failed] == [b"1"]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ClientError, match="a listener is a function"):
        Listener("print")  # type: ignore[arg-type]


def no_parameter() -> None: ...


def three(message: MessageExt, context: ConsumeContext, more: object) -> None: ...


def keyword(message: MessageExt, *, more: object) -> None: ...


@pytest.mark.parametrize("function", [no_parameter, three, keyword])
def test_what_could_not_be_called_is_refused_when_it_is_registered(function: Callable[..., None]) -> None:
    with pytest.raises(ClientError, match=f"the listener {function.__name__} cannot be called: it takes a mess"):
        Listener(function)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay_level_when_next_consume", "3"),
        ("delay_level_when_next_consume", None),
        ("delay_level_when_next_consume", True),
        ("ack_index", "0"),
        ("auto_commit", "false"),
        ("suspend_current_queue_time", "1"),
        ("suspend_current_queue_time", -1),
    ],
)
async def test_what_a_listener_sets_to_a_wrong_type_is_a_failure(name: str, value: object, raises: bool) -> None:
    def listener(message: MessageExt, context: ConsumeContext) -> None:
        setattr(context, name, value)
        if raises:
            raise ValueError("no")

    async def listener_later(message: MessageExt, context: ConsumeContext) -> None:
        listener(message, context)

    for outcome in (
        called(Listener(listener)),
        await Listener(listener_later).call_async(NO_POOL, batch_of(1), ConsumeContext(QUEUE)),
    ):
        assert len(outcome.failed) == 1
        assert isinstance(outcome.error, ValueError) if raises else f"context.{name} is {value!r}" in str(outcome.error)
        assert outcome.context == ConsumeContext(QUEUE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay_level_when_next_consume", 3),
        ("delay_level_when_next_consume", -1),
        ("ack_index", 0),
        ("auto_commit", False),
        ("suspend_current_queue_time", 1.5),
    ],
)
def test_what_a_listener_sets_is_kept(name: str, value: object) -> None:
    def listener(message: MessageExt, context: ConsumeContext) -> None:
        setattr(context, name, value)

    outcome = called(Listener(listener))
    assert not outcome.failed
    assert getattr(outcome.context, name) == value


def test_a_pause_may_be_a_timedelta() -> None:
    def listener(message: MessageExt, context: ConsumeContext) -> bool:
        context.suspend_current_queue_time = datetime.timedelta(minutes=1)  # type: ignore[assignment]
        return False

    outcome = called(Listener(listener))
    assert outcome.context is not None
    assert outcome.context.suspend_current_queue_time == 60.0

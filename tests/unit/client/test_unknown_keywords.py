"""Keywords that nobody takes: a TypeError in every public call, which names the one that was meant."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rmq
from rmq import Message, MessageQueue, aio
from rmq.app import App, Depends, Topic
from rmq.integrations.logging import RocketMQHandler
from rmq.protocol.errors import ClientError, UnknownOption
from rmq.testing import BlockingCluster, BlockingSimCluster, Cluster, SimCluster
from tests.unit.client.test_surface import CLASSES, public

SERVERS: dict[str, Any] = {"namesrv": "127.0.0.1:1"}
BEFORE: dict[str, tuple[Any, ...]] = {"AdminClient": (), "TransactionProducer": ("g", print)}


def methods() -> Iterator[Any]:
    for home in (aio, rmq):
        for name in CLASSES:
            client = getattr(home, name)(*BEFORE.get(name, ("g",)), **SERVERS)
            for method in public(type(client)):
                function = getattr(type(client), method)
                if inspect.isfunction(function) and len(inspect.signature(function).parameters) > 1:
                    yield pytest.param(getattr(client, method), id=f"{home.__name__}.{name}.{method}")


async def outcome(call: Callable[..., Any], *given: Any, **named: Any) -> Exception:
    try:
        made = call(*given, **named)
        if inspect.isawaitable(made):
            await made
    except Exception as error:
        return error
    raise AssertionError("it was taken")


async def test_every_method_names_the_argument_that_was_meant() -> None:
    for each in methods():
        (call,) = each.values
        arguments = list(inspect.signature(call).parameters.values())
        right = [None for one in arguments if one.default is one.empty]
        meant = arguments[-1].name
        error = await outcome(call, *right[: len(right)], **{f"{meant}_": None})
        expected = f"{call.__name__}() has no argument '{meant}_'; did you mean '{meant}'?"
        assert isinstance(error, UnknownOption), (each.id, error)
        assert str(error).partition(".")[2] == expected, each.id
        assert isinstance(error, TypeError)
        assert isinstance(error, ClientError)


async def take(body: bytes) -> None: ...


@pytest.mark.parametrize(
    ("made", "given", "named", "said"),
    [
        (Message, ("T", b""), "tag", "Message() has no argument 'tag'; did you mean 'tags'?"),
        (Message, ("T", b""), "delayLevel", "Message() has no argument 'delayLevel'; did you mean 'delay_level'?"),
        (MessageQueue, ("T", "b", 0), "queueId", "MessageQueue() has no argument 'queueId'; did you mean 'queue_id'?"),
        (rmq.MessageExt, ("T", b""), "born_time", "did you mean 'born_timestamp'?"),
        (rmq.SubscriptionGroupConfig, (), "retryMaxTimes", "did you mean 'retry_max_times'?"),
        (rmq.TopicConfig, (), "topicName", "did you mean 'topic_name'?"),
        (rmq.PlainAccessConfig, (), "accessKey", "did you mean 'access_key'?"),
        (
            rmq.AllocateByMachineRoom,
            (),
            "room",
            "() has no argument 'room'; did you mean 'rooms'?",
        ),
        (rmq.AllocateQueuesByConfig, (), "queue", "did you mean 'queues'?"),
        (rmq.AllocateConsistentHash, (), "nodes", "did you mean 'virtual_nodes'?"),
        (rmq.by_machine_room, (), "room", "by_machine_room() has no argument 'room'; did you mean 'rooms'?"),
        (Topic, ("T",), "decoder", "Topic() has no argument 'decoder'; did you mean 'decode'?"),
        (Topic("T").message, (b"",), "tag", "Message() has no argument 'tag'; did you mean 'tags'?"),
        (Depends, (print,), "maker", "Depends() has no argument 'maker'; did you mean 'make'?"),
        (rmq.Producer, ("g",), "wrld", "no setting 'wrld': did you mean world?"),
        (aio.PushConsumer, ("g",), "worlds", "no setting 'worlds': did you mean world?"),
        (RocketMQHandler, ("T",), "key", "no setting 'key': did you mean keys?"),
        (RocketMQHandler, ("T",), "close_time", "no setting 'close_time': did you mean close_timeout?"),
        (RocketMQHandler, ("T",), "compress_typ", "no setting 'compress_typ': did you mean compress_type?"),
        (App, ("a",), "helth", "no setting 'helth': did you mean health?"),
        (App, ("a",), "name_srv", "no setting 'name_srv': did you mean namesrv?"),
        (App("a", **SERVERS).listener, ("T",), "sendto", "no setting 'sendto': did you mean send_to?"),
        (App("a", **SERVERS).listener, ("T",), "consume_thread_maximum", "did you mean consume_thread_max?"),
        (Cluster, ("/x",), "broker", "Cluster() has no argument 'broker'; did you mean 'brokers'?"),
        (SimCluster, (), "broker", "SimCluster() has no argument 'broker'; did you mean 'brokers'?"),
        (BlockingCluster, ("/x",), "broker", "Cluster() has no argument 'broker'; did you mean 'brokers'?"),
        (BlockingSimCluster, (), "broker", "BlockingSimCluster() has no argument 'broker'; did you mean 'brokers'?"),
        (rmq.Producer("g", **SERVERS).send, (None,), "wait", "it takes message, queue, selector, arg, timeout"),
        (
            rmq.LitePullConsumer("g", **SERVERS).poll,
            (),
            "max",
            ".poll() has no argument 'max'; it takes timeout",
        ),
    ],
)
def test_so_does_what_is_made(made: Callable[..., Any], given: tuple[Any, ...], named: str, said: str) -> None:
    with pytest.raises(UnknownOption) as raised:
        made(*given, **{named: 1})
    assert said in str(raised.value)


async def test_so_do_the_tools_of_tests() -> None:
    cluster = SimCluster()
    for call, wrong, right in (
        (cluster.advance, "minute", "minutes"),
        (cluster.kill_broker, "nummber", "number"),
        (cluster.messages, "topics", "topic"),
    ):
        assert f"did you mean '{right}'?" in str(await outcome(call, **{wrong: 1}))


async def test_a_field_of_a_message_and_an_argument_of_the_call_are_told_together() -> None:
    app, topic = App("a", **SERVERS), Topic("T", bytes)
    for call, given, wrong, right in (
        (app.send, (topic, b"x"), "tag", "tags"),
        (app.request, (topic, b"x", bytes), "timout", "timeout"),
        (app.request, (topic, b"x", bytes), "property", "properties"),
    ):
        error = await outcome(call, *given, **{wrong: 1})
        assert str(error) == f"App.{call.__name__}() has no argument '{wrong}'; did you mean '{right}'?"


def test_what_is_shown_of_them_stays_as_it_was() -> None:
    assert "unknown" not in str(inspect.signature(Message))
    assert list(inspect.signature(MessageQueue).parameters) == ["topic", "broker_name", "queue_id"]
    for home in (aio, rmq):
        for name in CLASSES:
            for method, value in public(getattr(home, name)).items():
                if inspect.isfunction(value):
                    assert "unknown" not in inspect.signature(value).parameters, f"{name}.{method}"
    assert inspect.iscoroutinefunction(aio.Producer.send)
    assert inspect.iscoroutinefunction(aio.Producer.request)


def test_a_queue_is_copied_and_pickled_as_before() -> None:
    queue = MessageQueue("T", "b", 1)
    assert pickle.loads(pickle.dumps(queue)) == copy.deepcopy(queue) == copy.copy(queue) == queue
    assert MessageQueue(topic="T", broker_name="b", queue_id=0) < queue

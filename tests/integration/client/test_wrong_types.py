"""Arguments of a wrong type, in every public method: one line before anything is sent, and no other meaning."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from rmq import aio
from rmq.aio import ClientError, Message, MessageExt, MessageQueue
from rmq.protocol.bodies.acl import PlainAccessConfig
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import in_virtual_time
from tests.unit.client.test_surface import CLASSES, public

QUEUE = MessageQueue("T", "broker-0", 0)
WRONG: dict[str, list[object]] = {
    "bool": [None, "false", "true", 0, 1, b"", [True]],
    "int": [None, "1", 1.0, True, b"1", [1], 1 << 63],
    "str": [None, 1, 2.5, True, b"x", ["x"], {"x": 1}, object(), "\ud800"],
    "MessageQueue": [None, "T", ("T", "broker-0", 0), 1],
    "MessageExt": [None, "id", 1, Message("T", b"x")],
    "SubscriptionGroupConfig": [None, {"groupName": "g"}, "g"],
    "Message": [None, b"x", "x", 1, ["x"]],
    "Message | MessageExt": [None, b"x", "x", 1],
    "Sendable": [None, b"x", "x", 1, ["x"], [None]],
    "Iterable[Message | MessageExt]": [None, 1, "x", [1], ["x"]],
    "list[Message | MessageExt] | None": [1, "x", ()],
    "MessageQueueSelector | None": [1, "by_hash", QUEUE],
    "Duration | None": ["1", b"1", [1], True, object()],
    "Callable[[asyncio.Future[MessageExt]], object] | None": [1, "f"],
    "Callable[[asyncio.Future[SendResult]], object] | None": [1, "f"],
    "Callable[[str, list[MessageQueue]], object]": [None, 1, "f"],
    "OneListener | BatchListener": [None, 1, "f"],
    "LocalTransaction": [None, 1, "f"],
    "Iterable[str]": [None, 1, "127.0.0.1:1", b"127.0.0.1:1", [1], [None]],
    "Collection[MessageQueue]": [None, 1, "T", QUEUE, ["T"], [("T", "broker-0", 0)]],
    "Collection[MessageQueue] | None": [1, "T", QUEUE, ["T"], [None]],
    "Mapping[str, str] | None": [1, "a", ["ab"], {"a": 1}, {1: "a"}, [("a", "b")]],
    "bytes | str": [None, 1, ["x"], {"a": 1}],
    "str | Iterable[str] | None": [1, b"k", [1], {"k": "v"}],
    "int | datetime": [None, "1", 1.0, True, b"1"],
}
#: Of a right type, and refused for another reason.
REFUSED: dict[str, list[object]] = {"int": [1 << 63], "str": ["\ud800"]}
REQUEST = MessageExt()
REQUEST.properties = {"CLUSTER": "DefaultCluster", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "nobody"}
RIGHT: dict[str, object] = {
    "access_key": "somebody", "account": PlainAccessConfig(access_key="somebody"), "addresses": "10.0.0.1",
    "arg": None, "batch": False, "begin": 0, "body": b"x", "broker_addr": "127.0.0.1:1",
    "broker_addrs": ["127.0.0.1:1"],
    "broker_name": "broker-0", "request": REQUEST,
    "client_id": "c", "cluster": "DefaultCluster", "config": SubscriptionGroupConfig("g"), "count": 5, "delay_level": 0,
    "end": 1, "expression": "*", "force": True, "from_store": False, "group": "g", "jstack": False, "key": "k",
    "listener": lambda message: None, "max_num": 1, "max_nums": 1, "message": Message("T", b"x"),
    "messages": [], "local": lambda message: None, "msg_id": "0" * 32,
    "name": "TOPIC_PUT_NUMS",
    "namesrv": "127.0.0.1:1", "offset": 0, "order": False, "perm": 6, "queue": QUEUE, "read_queue_nums": 1,
    "recall_handle": "x", "remove_offset": False, "sql": False,
    "values": {"flushDiskType": "ASYNC_FLUSH"}, "timestamp": 0, "topic": "T", "topic_sys_flag": 0,
    "write_queue_nums": 1,
}  # fmt: skip


def wrong_calls(cls: type) -> Iterator[tuple[str, str, dict[str, object]]]:
    """(method, argument, arguments of which that one is wrong) of all public methods of a class."""
    for name, method in public(cls).items():
        if not inspect.isfunction(method):
            continue
        arguments = list(inspect.signature(method).parameters.values())[1:]
        right = {one.name: RIGHT[one.name] for one in arguments if one.name in RIGHT}
        for one in arguments:
            said = str(one.annotation)
            kind = said if said in WRONG else said.removesuffix(" | None")
            for value in WRONG.get(kind, ()):
                if value is None and (kind != said or one.name == "expression"):
                    continue
                rest = {k: v for k, v in right.items() if (one.name, k) != ("selector", "queue")}
                yield name, one.name, {**rest, one.name: value}


async def outcome(client: Any, name: str, arguments: dict[str, Any]) -> Exception | None:
    """How a call fails."""
    try:
        result = getattr(client, name)(**arguments)
        if inspect.isawaitable(result):
            result = await result
        if name == "on":
            result(lambda message: None)
        elif name == "split":
            list(result)
        elif name == "transaction":
            await result.__aenter__()
    except Exception as error:
        return error
    return None


def refusal(value: object, error: Exception | None) -> str | None:
    """What is wrong with how a value of a wrong type was refused."""
    if not isinstance(error, ClientError):
        return f"{type(error).__name__}: {error}"
    late = any(value is one for values in REFUSED.values() for one in values)
    if not late and not isinstance(error, TypeError):
        return f"no TypeError: {error!r}"
    return f"several lines: {error}" if "\n" in str(error) else None


def client_of(s: Scene, name: str) -> Any:
    options: dict[str, Any] = {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world}
    if name == "TransactionProducer":
        return aio.TransactionProducer("t", lambda message: None, **options)  # type: ignore[arg-type, return-value]
    return aio.AdminClient(**options) if name == "AdminClient" else getattr(aio, name)("w", **options)


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_refuses_them_in_one_line(name: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            client = client_of(s, name)
            if name in ("PushConsumer", "ScheduledPullConsumer"):
                client.on("T")(lambda message: None)
            async with client:
                calls = list(wrong_calls(type(client)))
                assert {kind for kind, *_ in calls}
                wrong = []
                for method, argument, arguments in calls:
                    value = arguments[argument]
                    if (why := refusal(value, await outcome(client, method, arguments))) is not None:
                        wrong.append(f"{method}({argument}={value!r}): {why}")
                assert not wrong, "\n".join(wrong)

    run()


def test_the_blocking_methods_refuse_them_likewise() -> None:
    consumer = __import__("rmq").PushConsumer("g", namesrv="127.0.0.1:1")
    with pytest.raises(ClientError, match="sql is 'false': give True or False"):
        consumer.subscribe("T", "a = 1", sql="false")
    with pytest.raises(ClientError, match="batch is 1: give True or False"):
        consumer.on("T", batch=1)(lambda message: None)


#: What a message is made of, and what each of it is not.
WRONG_FIELDS: dict[str, list[Any]] = {
    "topic": [None, 1, b"T", ["T"], "\ud800"],
    "body": [None, 1, ["x"], "\ud800"],
    "tags": [0, 1, 3, 2.5, True, b"A", ["A"], object(), "\ud800"],
    "keys": [0, 1, True, [1], [None], b"k", {"k": "v"}, "\ud800", ["\ud800"]],
    "flag": [None, "1", 1.0, True, 1 << 31],
    "delay_level": [None, "1", 1.0, 0.0, True, False, -1, ""],
    "delay": ["1", b"1", True, [1], object()],
    "deliver_at": [1, "2030-01-01", 1.0, True, [1]],
    "wait_store_ok": [None, "false", "true", 0, 1],
    "properties": [["a"], ["ab"], [("a", "b")], 1, "a=b", {"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}],
}


def test_a_message_is_not_made_of_them() -> None:
    for name, values in WRONG_FIELDS.items():
        for value in values:
            if "ud800" in ascii(value) and name in ("keys", "properties"):
                continue  # looked at when it is sent
            with pytest.raises(ClientError) as refused:
                Message(**{"topic": "T", "body": b"x", name: value})
            assert "\n" not in str(refused.value)
            right_type = "ud800" in ascii(value) or value in (-1, 1 << 31)
            assert isinstance(refused.value, TypeError) != right_type, f"{name}={value!r}: {refused.value!r}"


@in_virtual_time
async def test_what_a_message_is_changed_to_is_looked_at_when_it_is_sent() -> None:
    async with scene() as s:
        wrong = {**WRONG_FIELDS, "properties": [*WRONG_FIELDS["properties"], {"a": ""}, {"\ud800": "a"}]}
        for name, values in wrong.items():
            for value in values:
                message = Message("T", b"x")
                setattr(message, name, value)
                for send in (s.producer.send, s.producer.send_oneway):
                    with pytest.raises(ClientError) as caught:
                        await send(message)
                    assert "\n" not in str(caught.value)
                with pytest.raises(ClientError):
                    await s.producer.send([message])  # type: ignore[arg-type]
        message = Message("T", b"x")
        message.keys, message.body = ["one", "two"], "text"  # type: ignore[assignment]
        await s.producer.send(message)
        await s.producer.send([message, message])  # type: ignore[arg-type]
        for key in ("one", "two"):
            found = (await s.admin.query_message("T", key)).messages
            assert [(each.keys, each.body) for each in found] == [("one two", b"text")] * 3


@in_virtual_time
async def test_received_messages_that_are_passed_on_are_none_of_a_wrong_type() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.producer.send(Message("One", b"x", keys=["a", "b"], tags="A", properties={"n": "1"}))
        async with s.puller() as puller:
            (message,) = (await puller.pull(MessageQueue("One", "broker-0", 0), "*", 0)).messages
        assert isinstance(message, MessageExt)
        await s.producer.send(message)
        assert len((await s.admin.query_message("One", "b")).messages) == 2

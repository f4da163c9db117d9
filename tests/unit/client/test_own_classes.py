"""Texts and numbers of an application's own classes: plain before they are kept, sent, or handed to the loop."""

from __future__ import annotations

import enum
import inspect
from collections import UserDict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest

from rmq.client.blocking import LitePullConsumer, mirror
from rmq.client.blocking.crossing import plain_message
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.sending import SendEncoder
from rmq.client.settings import ProducerSettings, PushConsumerSettings
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.plain import plain

PLAIN = (str, int, float, bytes, bool, type(None))


class Names(str, enum.Enum):  # noqa: UP042 - not a StrEnum: their text is what they are
    """Texts whose hash and text are others than those of what they are."""

    ORDERS = "orders"
    TAG = "TagA"


class Numbers(int, enum.Enum):
    TWO = 2


class Odd(str):
    """A text whose methods nobody may call: they could ask a database."""

    __slots__ = ()

    def _refuse(self, *given: object) -> NoReturn:
        raise AssertionError("a method of the application's class was called")

    __str__ = __hash__ = __eq__ = __len__ = __iter__ = __format__ = __contains__ = _refuse  # type: ignore[assignment]
    encode = isascii = startswith = _refuse  # type: ignore[assignment]


class Bytes(bytes):
    pass


class Seconds(float):
    pass


class Moment(datetime):
    pass


def test_plain_is_the_same_value_of_pythons_own_class() -> None:
    for value, expected in [
        (Names.ORDERS, "orders"), (Odd("x"), "x"), (Numbers.TWO, 2), (Seconds(2.5), 2.5), (Bytes(b"x"), b"x"),
    ]:  # fmt: skip
        made = plain(value, "it")
        assert made == expected
        assert type(made) is type(expected)
    given = object()
    assert plain(given, "it") is given
    assert plain(True, "it") is True
    with pytest.raises(WrongType, match=r"^it is an object of Mock, which only says that it is a str$"):
        plain(Mock(spec=str), "it")


def test_a_queue_is_found_by_its_plain_names() -> None:
    queue = MessageQueue(Names.ORDERS, Names.TAG, Numbers.TWO)
    assert {MessageQueue("orders", "TagA", 2): 1}[queue] == 1
    assert repr(queue) == "MessageQueue(topic='orders', broker_name='TagA', queue_id=2)"


def test_a_message_and_settings_hold_plain_values() -> None:
    message = Message(
        Names.ORDERS, Bytes(b"x"), tags=Names.TAG, keys=[Names.TAG], flag=Numbers.TWO, delay_level=Numbers.TWO,
        properties={Names.ORDERS: Names.TAG},
    )  # fmt: skip
    assert message.as_dict() == Message("orders", b"x", tags="TagA", keys="TagA", flag=2, delay_level=2,
                                        properties={"orders": "TagA"}).as_dict()  # fmt: skip
    assert {type(getattr(message, name)) for name in ("topic", "body", "tags", "keys")} == {str, bytes}
    settings = PushConsumerSettings.of({"instance_name": Names.TAG, "pull_batch_size": Numbers.TWO})
    assert (type(settings.instance_name), type(settings.pull_batch_size)) == (str, int)


def test_what_a_message_is_changed_to_is_sent_plain() -> None:
    encoder = SendEncoder("g", ProducerSettings(), lambda _: "0" * 32, lambda: 0)
    message = Message("T", b"x", properties={"own": "1"})
    message.topic, message.tags, message.keys = Names.ORDERS, Names.TAG, Names.TAG
    message.body, message.flag = Bytes(b"y"), Numbers.TWO
    message.properties = {Names.ORDERS: Names.TAG}
    send = encoder.prepare(message)
    assert (send.topic, send.body, send.flag) == ("orders", b"y", 2)
    assert {type(send.topic), type(send.body), type(send.flag)} == {str, bytes, int}
    assert b"orders\\u0001TagA\\u0002KEYS\\u0001TagA\\u0002TAGS\\u0001TagA" in send.properties
    message.properties = {Names("TagA"): ""}
    with pytest.raises(ClientError, match="texts that are not empty"):
        encoder.prepare(message)


def test_python_names_the_class_that_users_know() -> None:
    consumer = LitePullConsumer("g", namesrv="127.0.0.1:1")
    with pytest.raises(TypeError, match=r"^LitePullConsumer\.poll\(\) takes from 1 to 2 positional arguments"):
        consumer.poll(5, 6)  # type: ignore[call-arg]


def _odd(annotation: str) -> Any:
    """A value of an application's classes for an argument."""
    kind = annotation.removesuffix(" | None")
    message = Message("T", b"x")
    message.topic, message.body, message.keys = Odd("T"), Bytes(b"x"), (Odd("k") for _ in "x")  # type: ignore[assignment]
    message.properties = UserDict({"a": Odd("b")})  # type: ignore[assignment]
    message.delay, message.deliver_at = timedelta(seconds=1), Moment(2030, 1, 1, tzinfo=UTC)
    received = MessageExt()
    received.properties = {"a": Odd("b")}
    found = {
        "str": Odd("x"), "int": Numbers.TWO, "float": Seconds(1), "Duration": Seconds(1), "bytes | str": Bytes(b"x"),
        "int | datetime": Moment(2030, 1, 1, tzinfo=UTC), "Mapping[str, str]": UserDict({"a": Odd("b")}),
        "Iterable[str]": (Odd("x") for _ in "x"), "str | Iterable[str]": (Odd("x") for _ in "x"),
        "Collection[MessageQueue]": UserDict({MessageQueue("T", "b", 0): 0}).keys(),
        "Message": message, "Message | MessageExt": message, "MessageExt": received,
    }  # fmt: skip
    return found.get(kind, MessageQueue("T", "b", 0) if "MessageQueue" in kind else None)


def _all(value: object) -> list[object]:
    if isinstance(value, (Message, MessageExt)):
        slots = [name for name in type(value).__slots__ if hasattr(value, name)]
        return [one for name in slots for one in _all(getattr(value, name))]
    if type(value) is dict:
        return [*value.keys(), *value.values()]
    return list(value) if type(value) in (list, tuple) else [value]  # type: ignore[call-overload]


@pytest.mark.parametrize("name", [name for name in mirror.__all__ if name not in ("Consumer", "Lookups")])
def test_what_goes_to_the_loop_is_plain(name: str) -> None:
    got: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Client:
        def __getattr__(self, name: str) -> Any:
            return lambda *given, **named: got.append((given, named))

    cls = getattr(mirror, name)
    itself: Any = SimpleNamespace(
        _alive=Client, _run=lambda made: made, _on_loop=lambda call: call(Client()), _client=Client()
    )
    methods = {method: getattr(cls, method) for method in dir(cls) if not method.startswith("_")}
    asked = 0
    for method in methods.values():
        if not inspect.isfunction(method) or method.__name__ in ("start", "shutdown"):
            continue
        arguments = list(inspect.signature(method).parameters.values())[1:]
        method(itself, **{one.name: _odd(str(one.annotation)) for one in arguments})
        if not arguments:
            continue
        asked += 1
        given, named = got.pop()
        for value in [one for all_of in (*given, *named.values()) for one in _all(all_of)]:
            assert type(value) in (*PLAIN, MessageQueue, datetime), f"{method.__name__}: {type(value)}"
    assert asked > 5


def test_a_message_that_is_plain_goes_as_it_is() -> None:
    for message in (Message("T", b"x"), Message("T", b"x", keys=["k"], tags="t", properties={"a": "b"})):
        assert plain_message(message) is message
        assert plain_message(message) == message
    given = Message("T", b"x")
    given.properties["a"] = "b"
    assert Message("T", b"x").properties == {}
    assert plain_message(given).properties == {"a": "b"}

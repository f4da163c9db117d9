"""What an application gives, checked before anything is sent (protocol.md 6.6)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, is_typeddict

from rmq.client.foreign import no_setting
from rmq.client.shown import shown
from rmq.protocol import names
from rmq.protocol.errors import ClientError, RMQError, UnknownOption, WrongType
from rmq.protocol.keywords import keywords, names_of, no_such
from rmq.protocol.plain import plain
from rmq.protocol.queue import MessageQueue

__all__ = [
    "check_delay_level",
    "check_expression",
    "check_flag",
    "check_function",
    "check_group",
    "check_number",
    "check_queue",
    "check_text",
    "check_topic",
    "check_word",
    "milliseconds",
    "seconds",
    "several_queues",
    "several_texts",
    "typed",
]

T = TypeVar("T")
#: Seconds, 31 years: clocks and timers of the machine take no more.
_LONGEST = 1_000_000_000
_Check = Callable[[object, str], None]
#: The argument of a selector, which is any object, and stays what it is.
_ANY = "arg"


def check_topic(topic: object) -> None:
    """:raises ClientError: says what is wrong with a topic's name."""
    name = check_text(topic)
    if fault := names.topic_fault(name):
        raise _unnamed(fault, name)


def _unnamed(fault: str, name: str) -> ClientError:
    """In one line that every terminal and log file takes, whatever letters the name has."""
    plain = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
    return ClientError(f"{fault.replace(name, plain)} Given: {name[:64]!r}")


def check_delay_level(level: object, most: int) -> None:
    """:raises ClientError: it is no delay level, or over ``most``."""
    if not isinstance(level, int) or isinstance(level, bool):
        raise WrongType(f"delay_level is {shown(level)}: give 0 (none) or 1 to 18")
    if not 0 <= level <= most:
        raise ClientError(f"delay_level is {shown(level)}: give 0 (none) or 1 to 18")


def check_text(topic: object) -> str:
    """:raises ClientError: a topic to look up is no text. Those that brokers make have longer names than others."""
    topic = plain(topic, "the topic")
    if not isinstance(topic, str):
        how = ": say whose listener it is, @consumer.on('TopicTest')" if callable(topic) else ""
        raise WrongType(f"a topic is a text, not {type(topic).__name__}{how}")
    check_word(topic, "the topic")
    return topic


def check_word(value: object, name: str) -> None:
    """:raises ClientError: it is no text, or one that cannot be sent."""
    value = plain(value, name)
    if not isinstance(value, str):
        raise WrongType(f"{name} is {shown(value)}: give a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ClientError(f"{name} is {shown(value)}, which is not valid Unicode") from None


def check_flag(value: object, name: str) -> None:
    """:raises ClientError: it is neither True nor False; a text that says so is neither."""
    if not isinstance(value, bool):
        raise WrongType(f"{name} is {shown(value)}: give True or False")


def check_function(value: object, name: str) -> None:
    """:raises ClientError: it cannot be called."""
    if not callable(value):
        raise WrongType(f"{name} is {shown(value)}: give a function")


def several_texts(value: object, name: str) -> list[str]:
    """Texts as a list; one text is not its letters. :raises ClientError: they are none."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise WrongType(f"{name} is {shown(value)}: give several texts")
    found = [plain(one, f"one of {name}") for one in value]
    for one in found:
        check_word(one, f"one of {name}")
    return found


def check_group(group: object, placeholder: str) -> None:
    """:raises ClientError: the group's name cannot be used; ``placeholder`` is Java's default, which is no name."""
    if not isinstance(group, str):
        raise WrongType(f"a group is a text, not {type(group).__name__}")
    name: str = plain(group, "the group")
    if fault := names.group_fault(name):
        raise _unnamed(fault, name)
    if name == placeholder:
        raise ClientError(f"the group {placeholder} is a placeholder: give the name of your application")


def check_queue(queue: object, topic: str | None = None) -> None:
    """:raises ClientError: it is no queue, or not one of ``topic``."""
    if not isinstance(queue, MessageQueue):
        raise WrongType(f"the queue is {shown(queue)}: give a MessageQueue")
    if topic is not None and queue.topic != topic:
        raise ClientError(f"the queue is one of {queue.topic}, and the message is for {topic}")


def several_queues(queues: object) -> list[MessageQueue]:
    """Queues as a list. :raises ClientError: they are none."""
    if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable):
        raise WrongType(f"the queues are {shown(queues)}: give several MessageQueues")
    found = list(queues)
    for queue in found:
        check_queue(queue)
    return found


def check_number(value: object, name: str) -> None:
    """:raises ClientError: it is no whole number that fits 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} is {shown(value)}: give a whole number")
    if not -(1 << 63) <= value < 1 << 63:
        raise ClientError(f"{name} is {shown(value)}: give a whole number of 64 bits")


def milliseconds(value: object, name: str) -> int:
    """A time as milliseconds since the epoch, of such a number or of a datetime (one without a zone is local time).

    :raises ClientError: it is neither, or out of range.
    """
    if isinstance(value, datetime):
        try:
            return round(value.timestamp() * 1000)
        except (ValueError, OverflowError, OSError):  # a local time at the edge of the calendar
            raise ClientError(f"{name} is {value}: it is out of range") from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} is {shown(value)}: give a datetime, or milliseconds since the epoch")
    if not -(1 << 63) <= value < 1 << 63:
        raise ClientError(f"{name} is {shown(value)}: it is out of range")
    return value


def seconds(value: object, name: str = "timeout") -> float:
    """A duration as seconds.

    :raises ClientError: it is negative, longer than any, or no duration.
    """
    value = plain(value.total_seconds() if isinstance(value, timedelta) else value, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(f"{name} is {shown(value, 40)}: give seconds, or a timedelta")
    if not 0 <= value <= _LONGEST:
        raise ClientError(
            f"{name} is {shown(value, 40)}: give seconds (a number of at least 0, at most 1e9) or a timedelta"
        )
    return float(value)


def check_expression(expression: object) -> None:
    """:raises ClientError: a subscription is no text; None stands for everything, as in Java."""
    if expression is not None and not isinstance(expression, str):
        raise WrongType(f"the subscription is {shown(expression)}: give tags as 'TagA || TagB', or *")
    check_word(expression or "", "the subscription")


def typed(*, but: Collection[str] = (), inner: Collection[str] = ()) -> Callable[[type[T]], type[T]]:
    """Have the constructor and the public methods of a class refuse arguments of another type than they declare.

    Flags, whole numbers, texts, functions and objects of the SDK are looked at; what else a method declares is its own
    business. Texts and numbers of classes of their own, enumerations of texts above all, are handed on as plain ones.
    A misunderstood argument would otherwise mean something else (a text "false" is true), or fail somewhere
    inside. An error of the call says of which topic or queue it is. An argument that none of them takes is refused with
    the nearest name.

    :param but: names of arguments that the methods look at themselves.
    :param inner: methods that the SDK alone calls, some of them for every message.
    """

    def wrap(cls: type[T]) -> type[T]:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")) and name not in inner:
                checks = _checks_of(method, (*but, "group") if name == "__init__" else but)
                setattr(cls, name, _checking(method, checks) if any(checks.values()) else keywords(method))
        return cls

    return wrap


def _checks_of(method: Callable[..., Any], but: Collection[str]) -> dict[str, _Check | None]:
    """What is asked of each argument, in order."""
    arguments = list(inspect.signature(method).parameters.values())[1:]
    return {one.name: None if one.name in but else _check_for(one, method) for one in arguments}


def _check_for(argument: inspect.Parameter, method: Callable[..., Any]) -> _Check | None:
    kind, _, rest = str(argument.annotation).partition(" | ")
    check: _Check | None
    if argument.name == "expression":
        check = _check_subscription
    elif kind == "str" and argument.name == "topic":
        check = _check_topic_text
    else:
        kind = kind.partition("[")[0]
        check = _CHECKS.get(kind) or _check_class(method.__globals__.get(kind))
    if rest == "None" and check is not None:
        given = check
        return lambda value, name: None if value is None else given(value, name)
    return None if rest else check


def _check_topic_text(value: object, name: str) -> None:
    check_text(value)


def _check_subscription(value: object, name: str) -> None:
    check_expression(value)


def _check_class(kind: object) -> _Check | None:
    """A check for objects of a class that the SDK has."""
    if not isinstance(kind, type) or not kind.__module__.startswith("rmq.") or issubclass(kind, Enum):
        return None
    if getattr(kind, "_is_protocol", False) or is_typeddict(kind):
        return None
    if kind is MessageQueue:
        return lambda value, name: check_queue(value)

    def check(value: object, name: str) -> None:
        if not isinstance(value, kind):
            raise WrongType(f"{name} is {shown(value)}: give a {kind.__name__}")

    return check


_CHECKS: dict[str, _Check] = {
    "bool": check_flag,
    "int": check_number,
    "str": check_word,
    "Callable": check_function,
}


def _checking(method: Callable[..., Any], checks: dict[str, _Check | None]) -> Callable[..., Any]:
    in_order = list(checks.items())
    own, takes_others = names_of(method)

    def looked_at(value: object, name: str, check: _Check | None) -> object:
        if name != _ANY:
            value = plain(value, name)
        if check is not None:
            check(value, name)
        return value

    def look(given: tuple[object, ...], named: dict[str, object]) -> tuple[list[object], dict[str, object]]:
        """The arguments that the method gets."""
        if not takes_others and not checks.keys() >= named.keys():
            raise no_such(method, named.keys() - checks.keys())
        values = [looked_at(value, *one) for one, value in zip(in_order, given, strict=False)]
        values += given[len(values) :]  # too many: the method says so
        return values, {name: looked_at(value, name, checks.get(name)) for name, value in named.items()}

    def about(error: RMQError, given: tuple[object, ...], named: dict[str, object]) -> None:
        subject = {**dict(zip(checks, given, strict=False)), **named}
        topic, queue = subject.get("topic"), subject.get("queue")
        error.about(
            topic=topic if isinstance(topic, str) else None, queue=queue if isinstance(queue, MessageQueue) else None
        )

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_later(self: object, *given: object, **named: object) -> Any:
            try:
                values, names = look(given, named)
                return await method(self, *values, **names)
            except RMQError as error:
                about(error, given, named)
                raise

        return call_later

    @functools.wraps(method)
    def call(self: object, *given: object, **named: object) -> Any:
        try:
            values, names = look(given, named)
            return method(self, *values, **names)
        except UnknownOption as error:
            if takes_others and error.name in named:  # it may have meant an argument, and no setting
                raise no_setting(error.name, [*own[1:], *error.known]) from None
            raise
        except RMQError as error:
            about(error, given, named)
            raise

    return call

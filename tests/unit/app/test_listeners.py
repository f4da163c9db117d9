"""What a function may ask for, and what of it is refused before anything starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

from rmq import ConsumeContext, MessageExt
from rmq.app import App, BadPayload, Call, Depends, Topic
from rmq.app.depends import Plan
from rmq.protocol.errors import ClientError


def setting() -> int:
    return 1


def other(number: Annotated[int, Depends(setting)]) -> int:
    return number + 1


async def late() -> int:
    return 1


async def block() -> AsyncIterator[int]:
    yield 1


def test_a_plan_knows_where_each_argument_comes_from() -> None:
    def listener(
        order: dict, message: MessageExt, ctx: ConsumeContext, app: App, call: Call, n: int = Depends(other), x: int = 3
    ) -> None: ...

    plan = Plan.of(listener)
    assert {name: source for name, source in plan.arguments.items() if isinstance(source, str)} == {
        "order": "payload",
        "message": "message",
        "ctx": "context",
        "app": "app",
        "call": "call",
    }
    assert plan.payload is dict
    assert [one.function for one in plan.makers()] == [other, setting]


def no_payload(message: MessageExt) -> None: ...


def two(first: bytes, second: bytes) -> None: ...


def unknown(order: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def waits(order: bytes, value: int = Depends(late)) -> None: ...


def waits_for_a_block(order: bytes, value: int = Depends(block)) -> None: ...


def yields(order: bytes) -> Any:
    yield order


def texts(order: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (two, "two: nothing is known for the parameter second: there are the payload, MessageExt"),
        (unknown, "the parameters of unknown cannot be looked at: name 'Nowhere' is not defined"),
        (waits, "the listener waits runs on a thread, where the coroutine late cannot be awaited"),
        (waits_for_a_block, "the coroutine block cannot be awaited"),
        (yields, "the listener yields has a yield"),
        (texts, "the listener texts takes str, and the topic T has bytes"),
    ],
)
def test_a_listener_that_could_never_be_called_is_refused(function: Callable[..., Any], why: str) -> None:
    app = App("g", namesrv="n:1")
    with pytest.raises(ClientError) as refused:
        app.listener(Topic[bytes]("T"))(function)
    assert why in str(refused.value)
    assert not app.handlers
    assert not app.consumers
    app.listener(Topic[bytes]("T"))(no_payload)


def test_what_depends_on_itself_is_refused() -> None:
    depends = Depends(setting)

    def round_about(value: int = depends) -> int:  # type: ignore[assignment]
        return value

    depends.make = round_about
    with pytest.raises(ClientError, match="round_about depends on itself"):
        Plan.of(round_about)


def test_a_text_as_topic_has_the_type_of_the_parameter() -> None:
    app = App("g", namesrv="n:1")

    @app.listener("A")
    def typed(order: list[int]) -> None: ...

    @app.listener("B")
    def bare(order) -> None: ...  # type: ignore[no-untyped-def]

    assert [handler.topic.kind for handler in app.handlers] == [list[int], bytes]


def test_listeners_of_a_group_share_its_consumer_and_its_settings() -> None:
    app = App("g", namesrv="n:1")
    app.listener("A", group="h", orderly=True)(no_payload)
    app.listener("B", group="h")(no_payload)
    app.listener("C")(no_payload)
    assert {group: sorted(one._inner.topics()) for group, one in app.consumers.items()} == {"h": ["A", "B"], "g": ["C"]}
    with pytest.raises(ClientError, match="the group h has other settings for another listener: orderly"):
        app.listener("D", group="h", orderly=False)(no_payload)
    with pytest.raises(ClientError, match="the group g: give its settings with its first listener: orderly"):
        app.listener("D", orderly=True)(no_payload)
    with pytest.raises(ClientError, match="the topic A has a listener in this consumer already"):
        app.listener("A", group="h")(no_payload)


def test_a_group_that_broadcasts_has_no_dead_letters() -> None:
    app = App("g", namesrv="n:1")
    with pytest.raises(ClientError, match="neither retries nor dead letters"):
        app.listener("T", message_model="BROADCASTING", on_bad_payload=BadPayload.RETRY)(no_payload)
    app.listener("T", message_model="BROADCASTING")(no_payload)


@pytest.mark.parametrize("address", ["nowhere", "h:x", ":", "h:70000"])
def test_an_address_for_health_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(Exception, match="is no address"):
        App("g", health=address)


def test_a_middleware_that_could_not_be_awaited_is_refused() -> None:
    class Stamps:
        async def __call__(self, call: Call, following: Any) -> Any:
            return await following()

    app = App("g", namesrv="n:1")
    with pytest.raises(ClientError, match="the middleware setting is no coroutine function"):
        app.middleware(setting)  # type: ignore[type-var]
    app.middleware(Stamps())
    assert len(app.middlewares) == 1

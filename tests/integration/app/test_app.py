"""An application of typed listeners over a cluster, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from rmq.aio import ConsumeContext, ConsumeResult, Message, MessageExt, ReplyTimeout, RMQError
from rmq.app import App, BadPayload, Call, Depends, PayloadError, Topic
from rmq.protocol.errors import ClientError, ConfigError
from rmq.testing import simloop
from tests.support.scenes.client import FIRST, Scene, scene
from tests.support.virtual import eventually, in_virtual_time


@dataclasses.dataclass
class Order:
    number: int


@dataclasses.dataclass
class Bill:
    order: int
    cents: int


orders = Topic[Order]("T")
bills = Topic[Bill]("bills")


def app_of(s: Scene, **how: Any) -> App:
    return App("shop", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, **how)


async def bodies_of(s: Scene, topic: str, count: int) -> list[bytes]:
    """What a topic holds, once that is so much."""
    seen: list[bytes] = []
    reader = s.consumer("reader")

    @reader.on(topic)
    async def take(message: MessageExt) -> None:
        seen.append(message.body)

    async with reader:
        await eventually(lambda: len(seen) >= count)
    return sorted(seen)


@in_virtual_time
async def test_payloads_come_typed_and_what_a_listener_returns_goes_on() -> None:
    async with scene() as s:
        app = app_of(s)
        seen: list[tuple[Order, str | None]] = []

        @app.listener(orders, "new", consume_from_where=FIRST, send_to=bills)
        async def bill(order: Order, message: MessageExt) -> Bill | None:
            seen.append((order, message.keys))
            return Bill(order.number, 100) if order.number else None

        await s.topic("bills")
        async with app:
            await app.send(orders, Order(7), tags="new", keys="k7")
            await app.send(orders, Order(0), tags="new", keys="k0")
            await app.send(orders, Order(8), tags="old")
            await eventually(lambda: len(seen) == 2)
        assert sorted(seen, key=lambda one: one[0].number) == [(Order(0), "k0"), (Order(7), "k7")]
        assert await bodies_of(s, "bills", 1) == [b'{"order":7,"cents":100}']


@in_virtual_time
async def test_what_a_listener_returns_is_the_reply_to_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        app, seen = app_of(s), []

        @app.listener(orders, consume_from_where=FIRST, reply=Bill, send_to=bills)
        def bill(order: Order) -> Bill | None:
            seen.append(order.number)
            return Bill(order.number, 100) if order.number else None

        await s.topic("bills")
        async with app:
            assert await app.request(orders, Order(3), Bill, timeout=5) == Bill(3, 100)
            with pytest.raises(PayloadError, match="the body is no int"):
                await app.request(orders, Order(4), int)
            await app.send(orders, Order(5))  # no request: nobody is told
            with pytest.raises(ReplyTimeout):
                await app.request(orders, Order(0), Bill, timeout=1)
            async with app_of(s, instance_name="gone") as gone:
                asking = asyncio.ensure_future(gone.request(orders, Order(6), Bill, timeout=0.001))
                with pytest.raises(RMQError):
                    await asking
            assert len(await bodies_of(s, "bills", 3)) >= 3
        assert {3, 4, 5, 0} <= set(seen)
        assert "a listener raised" not in caplog.text


@in_virtual_time
async def test_a_result_that_cannot_be_sent_has_its_message_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        app, tries = app_of(s), []

        @app.listener(orders, consume_from_where=FIRST, send_to=bills)
        async def bill(order: Order) -> Any:
            tries.append(order)
            return {"no": "bill"} if len(tries) == 1 else Bill(1, 2)

        await s.topic("bills")
        async with app:
            await app.send(orders, Order(1))
            await eventually(lambda: len(tries) == 2)
            assert await bodies_of(s, "bills", 1) == [b'{"order":1,"cents":2}']
    assert "dict cannot be sent as Bill" in caplog.text
    # What the listener itself made is not taken for a fault of the body: no dead letter.
    assert "dead-letter" not in caplog.text


@in_virtual_time
async def test_a_bad_payload_costs_itself_alone_and_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        app, seen = app_of(s), []

        @app.listener(orders, consume_from_where=FIRST)
        async def take(order: Order) -> None:
            seen.append(order.number)

        for number in range(20):
            body = b"no order" if number % 2 else b'{"number":%d}' % number
            await s.producer.send(Message("T", body))
        with caplog.at_level(logging.WARNING):
            async with app:
                await eventually(lambda: len(seen) == 10)
                assert await bodies_of(s, "%DLQ%shop", 10) == [b"no order"] * 10
        told = [one.getMessage() for one in caplog.records if "no Order" in one.getMessage()]
        assert len(told) == 1
        assert told[0].startswith("group shop, listener ")
        assert "take: dead-letter: " in told[0]
        assert not [one for one in caplog.records if one.exc_info and one.name.startswith("rmq.client")]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("how", ["dead-letter", "retry", "skip", "function", "coroutine", "raises"])
def test_what_becomes_of_a_bad_payload(how: str, orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            app = app_of(s)
            seen: list[object] = []

            def plainly(message: MessageExt, error: PayloadError) -> object:
                seen.append(error)
                if how == "raises" and sum(isinstance(one, PayloadError) for one in seen) < 2:
                    raise ValueError("not yet")
                return ConsumeResult.SUCCESS

            async def waiting(message: MessageExt, error: PayloadError) -> None:
                seen.append(error)

            given: Any = {"function": plainly, "raises": plainly, "coroutine": waiting}.get(how) or BadPayload(how)

            @app.listener(
                orders, consume_from_where=FIRST, on_bad_payload=given, orderly=orderly, max_reconsume_times=2
            )
            async def take(order: Order) -> None:
                seen.append(order)

            await s.topic("T", 1)
            await s.producer.send(Message("T", b"[]"))
            async with app:
                await app.send(orders, Order(1))
                if how in ("dead-letter", "retry"):  # at once, or after two more tries
                    assert await bodies_of(s, "%DLQ%shop", 1) == [b"[]"]
                await eventually(lambda: Order(1) in seen)
                await eventually(lambda: len(seen) >= {"function": 2, "coroutine": 2, "raises": 3}.get(how, 1))
                assert seen.count(Order(1)) == 1

    run()


@pytest.mark.parametrize("plain", [True, False])
def test_dependencies_are_made_for_each_message_and_see_how_it_ended(plain: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            app = app_of(s)
            told: list[str] = []

            def session(message: MessageExt) -> Iterator[str]:
                try:
                    yield f"session {message.body.decode()}"
                except ValueError:
                    told.append("rolled back")
                    raise
                else:
                    told.append("committed")

            def name(db: str = Depends(session)) -> str:
                return db.upper()

            def work(order: bytes, upper: str, db: str) -> None:
                told.append(f"{upper} {db}")
                if len(told) == 1:
                    raise ValueError("not yet")

            def on_thread(order: bytes, upper: str = Depends(name), db: str = Depends(session)) -> None:
                work(order, upper, db)

            async def on_loop(order: bytes, upper: str = Depends(name), db: str = Depends(session)) -> None:
                work(order, upper, db)

            app.listener("T", consume_from_where=FIRST)(on_thread if plain else on_loop)
            await s.producer.send(Message("T", b"a"))
            async with app:
                await eventually(lambda: "committed" in told)
            assert told == ["SESSION A session a", "rolled back", "SESSION A session a", "committed"]

    run()


@in_virtual_time
async def test_coroutines_and_their_blocks_are_dependencies_of_coroutine_listeners() -> None:
    async with scene() as s:
        app, told = app_of(s), []

        async def number() -> int:
            await asyncio.sleep(1)
            return 5

        async def block(app: App, n: int = Depends(number)) -> AsyncIterator[str]:
            told.append("in")
            yield f"{app.name} {n}"
            told.append("out")

        @app.listener("T", consume_from_where=FIRST)
        async def take(order: bytes, what: str = Depends(block)) -> None:
            told.append(what)

        await s.producer.send(Message("T", b"a"))
        async with app:
            await eventually(lambda: "out" in told)
        assert told == ["in", "shop 5", "out"]


@in_virtual_time
async def test_middlewares_stand_around_the_first_one_outside() -> None:
    async with scene() as s:
        app, told = app_of(s), []

        @app.middleware
        async def outer(call: Call, following: Any) -> Any:
            told.append(f"outer {call.listener.rpartition('.')[2]} {call.group}")
            try:
                return await following()
            except ValueError:
                told.append("swallowed")
                return ConsumeResult.SUCCESS

        @app.middleware
        async def inner(call: Call, following: Any) -> Any:
            told.append("inner")
            call.state["x"] = 1
            return await following()

        @app.listener("T", consume_from_where=FIRST)
        def take(order: bytes, call: Call, context: ConsumeContext) -> None:
            told.append(f"listener {call.state} {context.message_queue.topic}")
            raise ValueError("mine")

        await s.producer.send(Message("T", b"a"))
        async with app:
            await eventually(lambda: "swallowed" in told)
            await asyncio.sleep(60)
        assert told == ["outer take shop", "inner", "listener {'x': 1} T", "swallowed"]


@in_virtual_time
async def test_a_stop_lets_what_runs_end_while_the_rest_is_still_there() -> None:
    async with scene() as s:
        told: list[str] = []

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            app.state.pool = "pool"
            told.append("made")
            yield
            told.append("gone")

        app = app_of(s, lifespan=lifespan, health="127.0.0.1:0")

        @app.listener("T", consume_from_where=FIRST)
        async def take(order: bytes, app: App) -> None:
            told.append("begun")
            await asyncio.sleep(5)
            told.append(f"done with {app.state.pool}")
            await app.send(Topic[bytes]("T"), order, tags="x")

        await app.start()
        await app.start()
        await s.producer.send(Message("T", b"a"))
        await eventually(lambda: "begun" in told)
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(1)
        assert app.missing == "it is stopping, or not started"
        await stopping
        await app.stop()
        assert told == ["made", "begun", "done with pool", "gone"]


@pytest.mark.parametrize("fault", ["lifespan", "listener", "health"])
def test_a_start_that_fails_leaves_nothing_behind(fault: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            told: list[str] = []

            @asynccontextmanager
            async def lifespan(app: App) -> AsyncIterator[None]:
                if fault == "lifespan":
                    raise ValueError("no database")
                yield
                told.append("gone")

            app = app_of(s, lifespan=lifespan, health="127.0.0.1:0")

            @app.listener("T")
            async def take(order: bytes) -> None: ...

            if fault == "listener":
                app.consumers["shop"].subscribe("U")
            if fault == "health":
                assert app.health is not None
                app.health._host = "10.9.9.9"
            kinds = {"lifespan": ValueError, "listener": ClientError, "health": ConfigError}
            with pytest.raises(kinds[fault]):
                await app.start()
            assert app.missing
            assert app.health is not None
            assert app.health.address is None
            assert told == (["gone"] if fault == "listener" else [])
            assert app.producer._instance is None

    run()


@in_virtual_time
async def test_its_health_says_where_it_stands() -> None:
    async with scene() as s:
        app, going = app_of(s, health="127.0.0.1:0"), asyncio.Event()

        @app.listener("T", consume_from_where=FIRST, pull_threshold_for_queue=1)
        async def take(order: bytes) -> None:
            await going.wait()

        await s.topic("T", 1)
        await s.send(5)
        async with app:
            assert app.health is not None
            await eventually(lambda: app.health.groups()["shop"]["lag"] == 5)
            answer = await app.health._ready({})
            assert answer.status == 200
            assert orjson.loads(bytes(answer.body))["groups"]["shop"] == {"queues": 2, "held": 5, "lag": 5}
            going.set()
            await eventually(lambda: app.health.groups()["shop"]["lag"] == 0)
        answer = await app.health._ready({})
        assert answer.status == 503
        assert orjson.loads(bytes(answer.body))["missing"]


@pytest.mark.parametrize("plain", [True, False])
def test_a_listener_that_wants_the_process_to_end_ends_it_in_order(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with scene() as s:
            app = app_of(s)

            def on_thread(order: bytes) -> None:
                sys.exit(7)

            async def on_loop(order: bytes) -> None:
                sys.exit(7)

            app.listener("T", consume_from_where=FIRST)(on_thread if plain else on_loop)
            await s.producer.send(Message("T", b"a"))
            try:
                await app.serve()
            finally:
                assert app.missing == "it is stopping, or not started"

    with pytest.raises(SystemExit) as ended:
        simloop.run(run())
    assert ended.value.code == 7

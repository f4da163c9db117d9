"""Very many sends at once: so many are under way as the settings say, and no server is blamed for the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rmq.aio import (
    ClientError,
    ConnectFailed,
    Message,
    Producer,
    RequestTimeout,
    SendResult,
    TooManyRequests,
    TransportError,
)
from rmq.protocol.command import Command
from rmq.testing.simloop import SimLoop
from tests.support.scripted import ScriptedBroker, ScriptedCluster, stored
from tests.support.virtual import eventually, in_virtual_time


def producer(cluster: ScriptedCluster, **options: Any) -> Producer:
    return Producer("pg", namesrv=cluster.namesrv, world=cluster.world, **options)


def answer_later(broker: ScriptedBroker, seconds: float) -> list[int]:
    """Have a broker answer each send after a while; a list that holds how many waited whenever one came."""
    waiting = 0
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def script(request: Command) -> None:
        nonlocal waiting
        waiting += 1
        seen.append(waiting)
        loop.call_later(seconds, answer, request)

    def answer(request: Command) -> None:
        nonlocal waiting
        waiting -= 1
        (conn,) = broker._server.connections
        conn.send_command(stored(request))

    broker.script = script
    return seen


def bodies(broker: ScriptedBroker) -> list[bytes]:
    return [request.body for request in broker.sends]


def many(p: Producer, count: int, **how: Any) -> list[asyncio.Task[SendResult]]:
    return [asyncio.ensure_future(p.send(Message("T", b"%d" % number), **how)) for number in range(count)]


@in_virtual_time
async def test_each_is_stored_once_in_its_order_and_so_many_are_under_way() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=20) as p:
        seen = answer_later(c.brokers["a"], 1.0)
        # A hundred turns of a second: far more than send_msg_timeout.
        results = await asyncio.gather(*many(p, 2_000))
        assert all(result.ok for result in results)
        assert bodies(c.brokers["a"]) == [b"%d" % number for number in range(2_000)]
        assert max(seen) == 20


@in_virtual_time
async def test_send_async_and_oneway_and_halves_wait_for_their_turn_too() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=20) as p:
        seen = answer_later(c.brokers["a"], 1.0)
        await asyncio.gather(*(p.send_async(Message("T", b"x")) for _ in range(200)))
        await asyncio.gather(*(p.send([Message("T", b"x"), Message("T", b"y")]) for _ in range(200)))
        assert max(seen) == 20
        await asyncio.gather(*(p.send_oneway(Message("T", b"x")) for _ in range(5_000)))
        await asyncio.sleep(1.0)
        assert len(c.brokers["a"].sends) == 5_400


@in_virtual_time
async def test_bytes_under_way_are_bounded_as_well() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_size=1 << 20) as p:
        seen = answer_later(c.brokers["a"], 1.0)
        await asyncio.gather(*(p.send(Message("T", bytes(100 << 10))) for _ in range(100)))
        assert max(seen) == 10


@in_virtual_time
async def test_without_back_pressure_all_are_under_way() -> None:
    async with ScriptedCluster("a") as c, producer(c, enable_backpressure_for_async_mode=False) as p:
        seen = answer_later(c.brokers["a"], 1.0)
        await asyncio.gather(*many(p, 5_000))
        assert max(seen) == 5_000


@in_virtual_time
async def test_a_burst_on_a_new_producer_asks_for_the_route_once() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        await asyncio.gather(*many(p, 5_000))
        assert Counter(c.routes_asked) == {"T": 1}
        assert len(c.brokers["a"].sends) == 5_000


@in_virtual_time
async def test_a_loop_that_is_busy_with_the_burst_takes_nobodys_time() -> None:
    """Ten seconds pass in the turn in which all of them are called: no name server and no broker is to blame."""
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=20) as p:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        for _ in range(2):  # on a new producer, and on one that knows the route
            burst = many(p, 200)
            loop.call_soon(loop.pass_time, 10.0)
            results = await asyncio.gather(*burst)
            assert all(result.ok for result in results)
        assert len(c.brokers["a"].sends) == 400


@in_virtual_time
async def test_a_loop_that_stands_still_while_it_connects_leaves_time_for_the_answer() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        answer_later(c.brokers["a"], 0.5)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        burst = many(p, 100)
        remoting = p._client.remoting
        await eventually(lambda: c.brokers["a"].address in remoting._opening, step=1e-5)
        loop.call_soon(loop.pass_time, 2.99)
        assert all(result.ok for result in await asyncio.gather(*burst))
        assert len(c.brokers["a"].sends) == 100


@pytest.mark.parametrize("chosen", [False, True])
@in_virtual_time
async def test_a_slow_name_server_leaves_a_send_no_more_than_its_time(chosen: bool) -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.route_takes = 2.9
        c.brokers["a"].script = lambda request: None
        began = asyncio.get_running_loop().time()
        how: dict[str, Any] = {"selector": lambda queues, message, arg: queues[0]} if chosen else {}
        with pytest.raises(RequestTimeout):
            await p.send(Message("T", b"x"), **how)
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("chosen", [False, True])
@in_virtual_time
async def test_a_loop_that_stands_still_while_a_route_is_asked_for_takes_nobodys_time(chosen: bool) -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.route_takes = 1.0
        answer_later(c.brokers["a"], 1.5)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        how: dict[str, Any] = {"selector": lambda queues, message, arg: queues[0]} if chosen else {}
        early = many(p, 20, **how)
        loop.call_later(0.5, loop.pass_time, 2.4)
        await asyncio.sleep(0.4)
        began = loop.time()
        assert all(result.ok for result in await asyncio.gather(*early))
        assert loop.time() - began > 3.0
        # Who comes behind it has not waited for that.
        c.topics["U"] = ["a"]
        c.brokers["a"].script = lambda request: None
        first = asyncio.ensure_future(p.send(Message("U", b"x"), timeout=4.0, **how))
        loop.call_later(0.1, loop.pass_time, 2.0)
        await asyncio.sleep(0.2)
        began = loop.time()
        with pytest.raises(RequestTimeout):
            await p.send(Message("U", b"x"), timeout=3.0, **how)
        assert loop.time() - began == pytest.approx(3.0, abs=0.25)
        with pytest.raises(RequestTimeout):
            await first


@in_virtual_time
async def test_a_broker_that_says_nothing_fails_all_of_them_in_the_time_of_one() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=20) as p:
        c.brokers["a"].script = lambda request: None
        began = asyncio.get_running_loop().time()
        outcomes = await asyncio.gather(*many(p, 1_000), return_exceptions=True)
        took = asyncio.get_running_loop().time() - began
        kinds = Counter(type(outcome) for outcome in outcomes)
        assert kinds.keys() == {RequestTimeout, TooManyRequests}
        assert kinds[RequestTimeout] <= 40  # those that were written
        assert took < 10
        # What was not written is not written later.
        written = len(c.brokers["a"].sends)
        await asyncio.sleep(30)
        assert len(c.brokers["a"].sends) == written <= 40
        refused = next(outcome for outcome in outcomes if isinstance(outcome, TooManyRequests))
        assert "the producer pg has 20 sends" in str(refused)
        assert "was not sent" in str(refused)
        # And it goes on when the broker does.
        c.brokers["a"].script = stored
        assert all(result.ok for result in await asyncio.gather(*many(p, 100)))


@in_virtual_time
async def test_a_broker_that_is_not_there_fails_all_of_them_soon() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=20) as p:
        await c.brokers["a"].stop()
        outcomes = await asyncio.gather(*many(p, 1_000), return_exceptions=True)
        assert Counter(type(outcome) for outcome in outcomes).keys() <= {ConnectFailed, TooManyRequests}


@in_virtual_time
async def test_a_message_that_cannot_be_sent_costs_itself() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=10) as p:
        calls = [p.send(Message("T", b"" if number % 3 else b"x")) for number in range(300)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [SendResult, ClientError, ClientError] * 100
        assert p._sender.window.used == 0


@in_virtual_time
async def test_sends_that_are_cancelled_leave_their_places() -> None:
    async with ScriptedCluster("a") as c, producer(c, back_pressure_for_async_send_num=10) as p:
        seen = answer_later(c.brokers["a"], 1.0)
        burst = many(p, 100)
        await asyncio.sleep(0.5)
        for task in burst[:50]:  # ten of them are under way
            task.cancel()
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[:50]] == [asyncio.CancelledError] * 50
        assert all(isinstance(outcome, SendResult) for outcome in outcomes[50:])
        assert max(seen) == 10  # a cancelled one that is with the broker has its place until that answers
        assert p._sender.window.used == 0


@in_virtual_time
async def test_who_asks_for_the_route_first_may_be_cancelled() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        burst = many(p, 1_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(c.routes_asked) == 0
        burst[0].cancel()
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert all(isinstance(outcome, SendResult) for outcome in outcomes[1:])
        assert bodies(c.brokers["a"]) == [b"%d" % number for number in range(1, 1_000)]
        assert p._sender.window.used == 0


@in_virtual_time
async def test_who_has_more_time_than_who_asked_for_the_route_asks_again() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.silent = True
        hurried = many(p, 1, timeout=1.0)
        await asyncio.sleep(0.5)
        patient = many(p, 3, timeout=10.0)
        (error,) = await asyncio.gather(*hurried, return_exceptions=True)
        assert isinstance(error, TransportError)
        c.silent = False
        assert all(result.ok for result in await asyncio.gather(*patient))


@in_virtual_time
async def test_a_burst_waits_for_its_connection_with_few_tasks() -> None:
    """A task a send was what a burst of a new producer held most memory for."""
    async with ScriptedCluster("a") as c, producer(c, topics=["T"]) as p:
        before = len(asyncio.all_tasks())
        burst = many(p, 2_000)
        most = 0

        def look() -> None:
            nonlocal most
            most = max(most, len(asyncio.all_tasks()) - before - len(burst))
            if not all(one.done() for one in burst):
                asyncio.get_running_loop().call_later(1e-5, look)

        look()
        assert all(result.ok for result in await asyncio.gather(*burst))
        assert most < 10
        assert len(c.brokers["a"].sends) == 2_000


@in_virtual_time
async def test_who_waits_for_one_connection_has_a_time_of_its_own() -> None:
    async with ScriptedCluster("a") as c, producer(c, topics=["T"], retry_times_when_send_failed=0) as p:
        c.simulation.net.cut(c.simulation.nodes["client"].address, c.brokers["a"].host)
        loop = asyncio.get_running_loop()
        took: dict[float, float] = {}

        async def one(timeout: float) -> None:
            began = loop.time()
            with pytest.raises(ConnectFailed, match=f"connect to .* failed: no answer in {timeout:g} s"):
                await p.send(Message("T", b"x"), timeout=timeout)
            took[timeout] = loop.time() - began

        await asyncio.gather(one(2.0), one(0.5), one(1.0), one(0.7))
        assert {timeout: round(seconds, 1) for timeout, seconds in took.items()} == {
            2.0: 2.0, 0.5: 0.5, 1.0: 1.0, 0.7: 0.7,
        }  # fmt: skip
        assert not p._client._openings._openings


@pytest.mark.parametrize("setting", ["back_pressure_for_async_send_num", "back_pressure_for_async_send_size"])
def test_a_window_that_nothing_fits_in_is_refused(setting: str) -> None:
    with pytest.raises(ClientError, match=f"{setting} is 1"):
        Producer("pg", namesrv="127.0.0.1:9876", **{setting: 1})  # type: ignore[arg-type]

"""Requests to a peer that does not read: held, and never written once nobody waits for their answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed, ConnectionLost, ConnectTimeout, RequestTimeout, RMQError, TooManyRequests
from rmq.remoting.limits import Limits
from rmq.testing.simloop import SimLoop
from tests.support.scenes.calls import Rig
from tests.support.virtual import in_virtual_time

SMALL = Limits(write_high=1 << 10, write_low=1 << 9, write_most=1 << 20)


def noted(number: int) -> Command:
    """A request that is answered with its body; the number in it says which it was."""
    return Command(1, body=b"%03d" % number)


def numbers(rig: Rig) -> list[int]:
    return [int(body) for body in rig.services.bodies]


class Deaf:
    """A rig whose server reads nothing until it is told to, and a connection whose transport is full."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    async def __aenter__(self) -> Deaf:
        await self.rig.__aenter__()
        self.conn = await self.rig.client.connection(self.rig.addr)
        self._net = self.rig.simulation.net
        self._ends = self.rig.machine.address, self.rig.simulation.nodes["client"].address
        self._net.cut(*self._ends)
        self.conn.oneway(Command(9, body=bytes(2 << 10)))
        self.conn.flush()
        assert self.conn.writing_paused
        return self

    async def __aexit__(self, *how: Any) -> None:
        await self.rig.__aexit__(*how)

    def hear(self) -> None:
        self._net.heal()


@in_virtual_time
async def test_what_was_not_written_in_its_time_is_never_written() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig
        with pytest.raises(ConnectFailed, match="this one waited 1 s, and was not sent"):
            await rig.client.request(rig.addr, noted(1), 1.0)
        late = asyncio.ensure_future(rig.client.request(rig.addr, noted(2), 3.0))
        await asyncio.sleep(0.1)
        deaf.hear()
        assert (await late).code == 0
        await asyncio.sleep(5.0)
        assert numbers(rig) == [2]


@in_virtual_time
async def test_they_are_written_in_order_before_what_comes_later() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig
        calls = [asyncio.ensure_future(rig.client.request(rig.addr, noted(n), 9.0)) for n in range(200)]
        await asyncio.sleep(0.1)
        deaf.hear()
        await asyncio.wait(calls[:1])
        calls += [asyncio.ensure_future(rig.client.request(rig.addr, noted(n), 9.0)) for n in range(200, 210)]
        await asyncio.gather(*calls)
        assert numbers(rig) == list(range(210))


@in_virtual_time
async def test_the_time_for_an_answer_begins_when_it_is_written() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig
        call = asyncio.ensure_future(rig.client.request(rig.addr, Command(3), 0.6))  # answered after 0.5 s
        await asyncio.sleep(0.4)
        deaf.hear()
        assert (await call).remark == "slow"


@in_virtual_time
async def test_a_turn_of_the_loop_that_is_long_costs_no_request_its_answer() -> None:
    async with Rig() as rig:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        conn = await rig.client.connection(rig.addr)
        answers: list[object] = []
        conn.call(Command(7), 9.0, lambda _: None)  # written at once: what comes now goes with others
        conn.call(Command(3), 0.6, answers.append)  # answered after half a second
        loop.pass_time(2.0)  # and written behind this turn
        await asyncio.sleep(1.0)
        assert [getattr(answer, "remark", answer) for answer in answers] == ["slow"]


@in_virtual_time
async def test_one_that_nobody_waits_for_any_more_is_not_written() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig
        call = asyncio.ensure_future(rig.client.request(rig.addr, noted(1), 9.0))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.sleep(0.1)
        deaf.hear()
        await rig.client.request(rig.addr, noted(2), 3.0)
        assert numbers(rig) == [2]
        assert deaf.conn.calls_waiting == 0


@in_virtual_time
async def test_a_lost_connection_says_which_were_written() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig
        deaf.hear()
        await rig.client.request(rig.addr, noted(1), 3.0)
        written = asyncio.ensure_future(rig.client.request(rig.addr, Command(7), 9.0))
        await asyncio.sleep(0.1)
        deaf._net.cut(*deaf._ends)
        deaf.conn.oneway(Command(9, body=bytes(2 << 10)))
        deaf.conn.flush()
        held = asyncio.ensure_future(rig.client.request(rig.addr, noted(2), 9.0))
        await asyncio.sleep(0.1)
        deaf.conn.abort("test")
        outcomes = await asyncio.gather(written, held, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectFailed]
        assert "before the request was written" in str(outcomes[1])


@in_virtual_time
async def test_so_much_is_held_and_no_more() -> None:
    async with Deaf(Rig(client_limits=SMALL)) as deaf:
        rig = deaf.rig

        async def ask() -> RMQError | None:
            try:
                await rig.client.request(rig.addr, Command(1, body=bytes(64 << 10)), 1.0)
            except RMQError as error:
                return error
            return None

        outcomes = await asyncio.gather(*(ask() for _ in range(40)))
        assert [type(outcome) for outcome in outcomes] == [ConnectTimeout] * 16 + [TooManyRequests] * 24
        again = await ask()  # what was held is gone, and there is room
        assert isinstance(again, (ConnectFailed, RequestTimeout))
        assert not isinstance(again, TooManyRequests)

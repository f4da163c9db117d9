"""Whatever one client asks, the others are served: a fuzzer of requests against a nameserver and a broker.

Every request comes in one tick with one of a bystander, who has to be answered in time whatever becomes of it. It is
answered itself, closes nobody's connection, and nothing is logged as an error. After a campaign both daemons start from
what is on their disk, and live on for ten minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine

import pytest

from rmq.testing import simloop
from rmq.testing.simworld import Simulation
from tests.support.kills.campaign import LONG, PIECE, amount
from tests.support.odd import requests as odd_requests
from tests.support.odd.campaign import Campaign, TimedLoop

_SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "durable": {"flushDiskType": "SYNC_FLUSH", "enablePropertyFilter": "true", "brokerRole": "SYNC_MASTER"},
    "light": {"enableLmq": "true", "enableMultiDispatch": "true"},
}


def campaign(seed: int, what: Callable[[Campaign], Coroutine[None, None, None]], settings: dict[str, str]) -> None:
    async def main() -> Campaign:
        async with Campaign(Simulation(seed).node("one"), settings) as made:
            await what(made)
            await made.restart()
        return made

    made = simloop.run(main(), loop=TimedLoop())
    print(f"seed {seed}: {made.said()}")
    assert not made.found, f"seed {seed}: {len(made.found)} findings\n{made.said()}"


@pytest.mark.parametrize("kind", sorted(_SETTINGS))
def test_what_is_drawn(kind: str) -> None:
    for seed in range(PIECE * 100 + 1, PIECE * 100 + 1 + amount(1, 20)):
        chance = random.Random(f"{kind} {seed}")

        async def ask(made: Campaign, chance: random.Random = chance) -> None:
            for address, number in ((made.broker, amount(1_000, 8_000)), (made.namesrv, amount(300, 2_000))):
                codes = made.codes(address)
                await made.ask(address, [odd_requests.drawn(chance, codes) for _ in range(number)])

        campaign(seed, ask, _SETTINGS[kind])


def test_batches_of_any_size() -> None:
    sizes = [0, 1, 2, 999, 1_000, 1_001, 9_000]
    if LONG:
        sizes += [5_000, 5_001, 10_000, 20_000, 50_000, 100_000, 190_000]

    async def ask(made: Campaign) -> None:
        await made.ask(made.broker, odd_requests.batches(sizes))
        await made.ask(made.broker, odd_requests.batches([700, 3_000], lambda n: (n, b"%d" % n, {"KEYS": f"k{n}"})))

    campaign(1, ask, {})


@pytest.mark.skipif(not LONG, reason="minutes: make torture")
def test_every_field_of_every_code() -> None:
    async def broker(made: Campaign) -> None:
        await made.ask(made.broker, odd_requests.every(made.codes(made.broker)))

    async def namesrv(made: Campaign) -> None:
        await made.ask(made.namesrv, odd_requests.every(made.codes(made.namesrv)))

    campaign(1, broker, {})
    campaign(2, namesrv, {})

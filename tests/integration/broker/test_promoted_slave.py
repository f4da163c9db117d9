"""A slave that takes its dead master's place by hand: what was late or timed is delivered, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter

from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import Pair, pair
from tests.support.virtual import in_virtual_time

KINDS = ("DELAY\x011\x02", "DELAY\x013\x02", "TIMER_DELAY_MS\x014000\x02", "TIMER_DELAY_SEC\x0120\x02")


async def stored(scene: Pair, name: str, count: int) -> set[str]:
    """Late messages of every kind, stored at the master."""
    bodies = set()
    for number in range(count):
        for kind in KINDS:
            body = f"{name}-{number}-{kind.split(chr(1))[0]}-{kind[-4]}"
            bodies.add(body)
            assert (await scene.ask("master", send("T", body.encode(), props=kind))).code == 0
        await asyncio.sleep(0.3)
    return bodies


async def there(scene: Pair, name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    while True:
        answer = await scene.ask(name, pull("g", "T", found.total()))
        if answer.code != 0:
            return found
        found.update(record.body.decode() for record in decode_records(answer.body))


@in_virtual_time
async def test_what_is_late_comes_at_the_promoted_slave() -> None:
    async with pair(timerWheelEnable="true") as scene:
        await scene.topic("T")
        bodies = await stored(scene, "first", 40)
        await scene.replicated()
        delivered = await there(scene, "master")
        assert 0 < delivered.total() < len(bodies), "in the middle of it"
        await scene.master.stop()
        await scene.slave.stop()
        await scene.start_slave(brokerRole="ASYNC_MASTER", brokerId="0")
        await asyncio.sleep(60)
        assert bodies - (await there(scene, "slave")).keys() == set()


@in_virtual_time
async def test_progress_never_says_more_than_the_log_has() -> None:
    """The slave loses its link: it keeps asking for offsets, and gets none of what it does not have."""
    async with pair() as scene:
        await scene.topic("T")
        await scene.replicated()
        await asyncio.sleep(12)
        bodies = await stored(scene, "kept", 3)
        await scene.replicated()
        await scene.unfollow()  # the originals are here; the copies that are delivered will not be
        await asyncio.sleep(60)
        assert (await there(scene, "master")).keys() == bodies
        assert (await there(scene, "slave")).keys() != bodies
        await scene.master.stop()
        await scene.slave.stop()
        await scene.start_slave(brokerRole="ASYNC_MASTER", brokerId="0")
        await asyncio.sleep(60)
        assert bodies - (await there(scene, "slave")).keys() == set()

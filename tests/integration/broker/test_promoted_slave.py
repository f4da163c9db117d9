"""A slave that takes its dead master's place by hand: what was late or timed is delivered, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter

from rmq.protocol.message import decode_records
from rmq.runtime.world import Files
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


def write(files: Files, path: str, text: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwrite(text, 0)
    file.close()


async def promote(scene: Pair) -> None:
    await scene.master.stop()
    await scene.slave.stop()
    await scene.start_slave(brokerRole="ASYNC_MASTER", brokerId="0")


@in_virtual_time
async def test_a_topic_that_the_slave_was_not_told_of_is_there_when_it_is_promoted() -> None:
    async with pair() as scene:
        await scene.topic("Old", 2)
        await scene.send("Old", "o")
        await scene.replicated()
        await asyncio.sleep(12)
        slave = scene.slave.roles.slave
        assert slave is not None
        await slave._tasks.close()  # the master dies before it answers again
        await scene.topic("New", 2)
        await scene.topic("Old", 12)
        for topic, queue in (("New", 1), ("Old", 11)):
            assert (await scene.ask("master", send(topic, b"n", queue=queue))).code == 0
        await scene.replicated()
        assert "New" not in scene.slave.topics
        await promote(scene)
        for topic, queue in (("New", 1), ("Old", 11), ("Old", 0)):
            answer = await scene.ask("slave", pull("g", topic, 0, queue=queue))
            assert answer.code == 0, (topic, queue, answer.remark)
        assert (await scene.ask("slave", send("New", b"m"))).code == 0
        assert scene.nodes["slave"].files.read("/store/config/followed.json") == b'{"topicsAsOf":-1}'


@in_virtual_time
async def test_topics_that_were_deleted_while_the_slave_was_away_do_not_come_back_with_its_promotion() -> None:
    async with pair() as scene:
        for topic in ("Kept", "Gone"):
            await scene.topic(topic)
            await scene.send(topic, "a")
        await scene.replicated()
        await asyncio.sleep(12)
        await scene.slave.stop()
        await scene.delete_topic("Gone")
        await scene.master.stop()
        await scene.start_master()
        await scene.start_slave()
        await asyncio.sleep(12)
        await scene.send("Kept", "b")
        await scene.replicated()
        assert "Gone" not in scene.slave.topics
        assert scene.slave.store.queues.get("Gone", 0) is not None, "they are hidden"
        await promote(scene)
        assert "Kept" in scene.slave.topics
        assert "Gone" not in scene.slave.topics


@in_virtual_time
async def test_what_a_slave_was_told_of_may_be_unreadable_and_ends_where_its_log_was_cut() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.replicated()
        await asyncio.sleep(12)
        await scene.slave.stop()
        files = scene.nodes["slave"].files
        path = "/store/config/followed.json"
        for text, expected in ((b'{"topicsAsOf":99999999}', scene.slave.store.log.end), (b'{"topicsAsOf":7}', 7)):
            write(files, path, text)
            await scene.start_slave()
            await asyncio.sleep(0.01)
            assert files.read(path) == b'{"topicsAsOf":%d}' % expected
            await scene.slave.stop()
        for name in (path, f"{path}.bak"):
            write(files, name, b"nonsense")
        await scene.start_slave(brokerRole="ASYNC_MASTER", brokerId="0")
        assert "T" in scene.slave.topics

"""The classic trap: a SYNC_MASTER dies with messages of its own, its slave takes its place, and it comes back."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped import cutting
from rmq.broker.store.stopped.dump import records
from rmq.broker.store.stopped.shared_end import shared_end
from rmq.broker.store.stopped.stopped_store import StoppedStore, fitted
from rmq.broker.store.stopped.verify import verify
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import StoreError
from rmq.protocol.headers.message import ViewMessageRequest
from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import Pair, pair
from tests.support.scenes.replication import log_bytes
from tests.support.virtual import eventually, in_virtual_time

AS_SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


def asks(scene: Pair, asked: list[int]) -> Callable[[int], Awaitable[bytes | None]]:
    """What the new master says of a record."""

    async def ask(offset: int) -> bytes | None:
        asked.append(offset)
        header = ViewMessageRequest(offset=offset)
        answer = await scene.ask("slave", Command.request(RequestCode.VIEW_MESSAGE_BY_ID, header))
        return answer.body if answer.code == 0 else None

    return ask


async def bodies(scene: Pair, name: str, topic: str) -> list[str]:
    found: list[str] = []
    while (answer := await scene.ask(name, pull("g", topic, len(found)))).code == 0:
        found += [record.body.decode() for record in decode_records(answer.body)]
    return found


async def ha_status(scene: Pair, name: str) -> HARuntimeInfo:
    return HARuntimeInfo.decode((await scene.ask(name, Command(RequestCode.GET_BROKER_HA_STATUS))).body)


async def parted(scene: Pair, own: int, sent_since: int) -> None:
    """The old master is stopped, and has ``own`` messages that its slave, the master now, has not."""
    await scene.topic("T")
    await scene.topic("U")
    await eventually(lambda: scene.master.roles.sends_log and scene.master.roles.sends_log.slaves())
    await scene.send("T", *(f"both-{number}" for number in range(40)))
    await scene.replicated()
    await asyncio.sleep(12)
    await scene.unfollow()
    for number in range(own):
        answer = await scene.ask("master", send("TU"[number % 2], b"lost-%03d" % number))
        assert answer.code in (11, 12), "nobody was told that it is safe"
    await scene.commit("master", "g", "U", own // 2)
    await scene.master.stop()
    await scene.slave.stop()
    await scene.start_slave(brokerRole="SYNC_MASTER", brokerId="0")
    for number in range(sent_since):
        assert (await scene.ask("slave", send("TU"[number % 2], b"next-%03d" % number))).code == 11
    # It has forgotten how far it gave its log away.
    await scene.slave.stop()
    await scene.start_slave(brokerRole="SYNC_MASTER", brokerId="0")


def settings_of(scene: Pair) -> StoreSettings:
    settings = StoreSettings(
        root="/store", commit_log_paths=("/store/commitlog",), index_slots=1000, index_entries=4000
    )
    return fitted(scene.nodes["master"].files, settings, [])


@pytest.mark.parametrize("sent_since", [0, 1, 5, 30, 31])
@in_virtual_time
async def test_the_old_master_comes_back(sent_since: int) -> None:
    async with pair(brokerRole="SYNC_MASTER", slaveTimeout="100", metricsExporterType="PROM") as scene:
        await parted(scene, 30, sent_since)
        there = log_bytes(scene.slave.store)
        await scene.start_master(**AS_SLAVE)
        own = log_bytes(scene.master.store)
        await asyncio.sleep(20)
        assert log_bytes(scene.master.store) == own, "nothing was joined"
        slave, master = await ha_status(scene, "master"), await ha_status(scene, "slave")
        said = [slave.ha_client_runtime_info.trouble or "", *(master.refused or ())]
        assert any("mqadmin store truncate --to-master" in text for text in said)
        refused = scene.slave.roles.sends_log.refused.total() if scene.slave.roles.sends_log else 0
        assert scene.master.roles.slave is not None
        assert scene.master.roles.slave.client.status().refused + refused >= 2
        await scene.master.stop()

        world, settings, asked = scene.nodes["master"].world, settings_of(scene), list[int]()
        async with StoppedStore(world, settings) as opened:
            at = await shared_end(opened, asks(scene, asked), 0)
            assert at is not None
            going = await cutting.what_goes(opened, at, lambda *_: None)
        assert len(asked) < 60
        assert going.records[("T", 0)] == going.records[("U", 0)] == 15
        assert own[:at] == there[:at]
        assert going.end == len(own)
        before = scene.nodes["master"].files.list("/store")
        kept = await cutting.cut(world, settings, going)
        assert set(scene.nodes["master"].files.list("/store")) - set(before) == {kept.rpartition("/")[2]}
        async with StoppedStore(world, settings) as opened:
            assert (await verify(opened)).findings.damages == []
        async with StoppedStore(
            world, dataclasses.replace(settings, root=kept, commit_log_paths=(kept + "/commitlog",))
        ) as gone:
            read = [record.body.decode() async for record in records(gone)]
        assert [body for body in read if body.startswith("lost")] == [f"lost-{number:03}" for number in range(30)]

        await scene.start_master(**AS_SLAVE)
        await eventually(lambda: log_bytes(scene.master.store) == log_bytes(scene.slave.store))
        await eventually(lambda: scene.slave.roles.sends_log and scene.slave.roles.sends_log.slaves())
        await eventually(lambda: scene.master.store.dispatcher.behind == 0)
        for topic in "TU":
            assert await bodies(scene, "master", topic) == await bodies(scene, "slave", topic)
        assert (await scene.ask("slave", send("U", b"after"))).code == 0, "its slave is back"
        # No group has consumed what is not here: nothing is passed over when this one is master again.
        await asyncio.sleep(12)
        assert scene.master.offsets.query("g", "U", 0) <= 0
        link, end = (await ha_status(scene, "master")).ha_client_runtime_info, scene.slave.store.log.end
        assert (link.master_flush_offset, link.max_offset, link.behind_seconds, link.trouble) == (end, end, 0, None)
        assert link.transferred_byte_in_second > 0


@in_virtual_time
async def test_a_store_that_has_nothing_in_common_or_is_too_old_is_emptied() -> None:
    async with pair(brokerRole="SYNC_MASTER", slaveTimeout="100", haCopyFromFirstFile="true") as scene:
        await parted(scene, 6, 4)
        world, settings = scene.nodes["master"].world, settings_of(scene)
        async with StoppedStore(world, settings) as opened:
            assert await shared_end(opened, asks(scene, []), opened.runs[-1].end) is None
        kept = await cutting.empty(world, settings)
        files = scene.nodes["master"].files
        assert set(files.list("/store")) <= {"lock", kept.rpartition("/")[2]}
        kept_settings = dataclasses.replace(settings, root=kept, commit_log_paths=(kept + "/commitlog",))
        async with StoppedStore(world, kept_settings) as gone:
            read = [record.body.decode() async for record in records(gone)]
        assert [body for body in read if body.startswith("lost")] == [f"lost-{number:03}" for number in range(6)]
        await scene.start_master(**AS_SLAVE)
        await eventually(lambda: log_bytes(scene.master.store) == log_bytes(scene.slave.store))


@in_virtual_time
async def test_a_store_in_use_or_changed_since_is_left_alone() -> None:
    async with pair(brokerRole="SYNC_MASTER", slaveTimeout="100") as scene:
        await parted(scene, 4, 0)
        world, settings = scene.nodes["master"].world, settings_of(scene)
        await scene.start_master(**AS_SLAVE)
        own = log_bytes(scene.master.store)
        for doing in (cutting.empty(world, settings), cutting.cut(world, settings, cutting.Going(0))):
            with pytest.raises(StoreError, match="Lock failed"):
                await doing
        await scene.master.stop()
        with pytest.raises(StoreError, match="has changed since"):
            await cutting.cut(world, settings, cutting.Going(0, 0, len(own) - 1))
        await scene.start_master(**AS_SLAVE)
        assert log_bytes(scene.master.store) == own
        assert b"U@g" in scene.nodes["master"].files.read("/store/config/consumerOffset.json")

"""consumequeue_ext, written in turn by Java 4.9.4 and by our broker: each finds the units of the other."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq.broker.store.queues.ext_units import ExtUnit
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.stopped_store import StoppedStore, fitted
from rmq.broker.store.stopped.verify import verify
from rmq.broker.store.store import Store
from rmq.protocol.command import Command
from rmq.protocol.message import decode_record
from rmq.protocol.tags import string_hash
from rmq.runtime.world import World
from tests.support.interop import Row, Scene, assert_same
from tests.support.peers import Client, Cluster, start_cluster
from tests.support.raw_peer import RawPeer

#: So small that a thousand messages roll its files.
EXT_SIZE = 8192
EXT = {
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": str(EXT_SIZE),
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
}
TOPIC = "ext-exchange"
#: Who has the store, and whether it is stopped then, or killed.
TURNS = (("java-4.9.4", True), ("ours", False), ("java-4.9.4", False), ("ours", True), ("java-4.9.4", False))
#: Bytes of a bit map with Java's defaults: 112 bits.
MAP = 14


@pytest.fixture
def store() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rmq-ext-"))
    yield folder / "store"
    shutil.rmtree(folder)


def register_filter(cluster: Cluster) -> None:
    """A consumer whose SQL92 subscription wants tag A."""
    subscription = {
        "topic": TOPIC, "subString": "TAGS = 'A'", "expressionType": "SQL92", "subVersion": 1,
        "classFilterMode": False, "tagsSet": [], "codeSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": "g-sql", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    beat = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}

    async def send() -> None:
        host, _, port = cluster.broker_addr.rpartition(":")
        async with RawPeer(host, int(port)) as peer:
            assert (await peer.ask(Command(34, body=json.dumps(beat).encode()))).code == 0

    asyncio.run(send())


def look(root: Path) -> list[tuple[str, ExtUnit]]:
    """(tag, unit) of every message of the topic, read here; the store is verified before, and not changed."""

    async def main() -> list[tuple[str, ExtUnit]]:
        world = World.real()
        settings = fitted(world.files, StoreSettings(str(root), ext_file_size=EXT_SIZE, index_enable=False), ())
        async with StoppedStore(world, settings) as stopped:
            found = await verify(stopped)
            assert found.findings.damages == []
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        store = Store(
            world, fitted(world.files, StoreSettings(str(copy), ext_file_size=EXT_SIZE, index_enable=False), ())
        )
        await store.load()
        assert store.ext is not None
        units = []
        for queue in store.queues.all(TOPIC):
            for index in range(queue.min, queue.next):
                entry = await store.queues.entries_cold(queue, index, 1)
                record = await store.messages.at(int.from_bytes(entry[:8], "big"))
                assert record is not None
                message = decode_record(record)
                code = string_hash(message.properties["TAGS"])
                assert int.from_bytes(entry[12:], "big", signed=True) == code
                (unit,) = await store.ext.units_cold(queue, index, 1)
                assert unit is not None
                assert (unit.tags_code, unit.store_timestamp) == (code, message.store_timestamp)
                units.append((message.properties["TAGS"], unit))
        await store.stop()
        shutil.rmtree(copy)
        return units

    return asyncio.run(main())


def test_each_reads_the_units_of_the_other(store: Path, clients: Callable[[str, str], Client]) -> None:
    """Of each that was stopped, and of each that was killed."""
    reader = clients("java-4.9.8", "reader")
    paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    sent: list[Row] = []
    for turn, (kind, stopped) in enumerate(TURNS):
        with start_cluster(kind, properties={**EXT, **paths}, our_namesrv=True) as cluster:
            scene = Scene(cluster, reader, reader)
            if turn == 0:
                reader.call("topic", namesrv=cluster.namesrv, topic=TOPIC, queues=4)
                register_filter(cluster)
            else:
                reader.call("route", namesrv=cluster.namesrv, topic=TOPIC)
            sent += scene.produce(TOPIC, "async", tags=("A", "B"), prefix=f"turn-{turn}")
            assert_same(sent, scene.read(TOPIC, len(sent)))
            # A filter by tag reads the hash in the unit, not the entry's own.
            wanted = [row for row in sent if row.tag == "A"]
            member = scene.subscribe(TOPIC, f"g-units-{turn}", expression="A")
            assert_same(wanted, member.received(len(wanted)))
            member.stop()
            if not stopped:
                cluster.brokers[0].daemon.kill()
                continue
            cluster.brokers[0].daemon.stop()
            units = look(store)
            assert len(units) == len(sent)
            if turn == 0:
                assert {len(unit.bit_map) for _, unit in units} == {MAP}
                assert {any(unit.bit_map) for tag, unit in units if tag == "A"} == {True}
                assert {any(unit.bit_map) for tag, unit in units if tag == "B"} == {False}

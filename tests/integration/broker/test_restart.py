"""What the broker keeps over a restart, on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq.protocol import fastjson
from rmq.protocol.command import Command
from rmq.protocol.errors import StoreError
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import send

TOPIC = {"topic": "T1", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6", "topicFilterType": "MULTI_TAG"}
SEND = {name: text for name, text in (send("T1").ext or {}).items() if text is not None}
OFFSET = {"consumerGroup": "G1", "topic": "T1", "queueId": "1"}


async def ask(cluster: Cluster, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    client = RemotingClient(cluster.world)
    try:
        return await client.request(cluster.broker_addr, Command(code, ext=dict(ext) if ext else None, body=body), 60.0)
    finally:
        await client.close()


async def fill(cluster: Cluster) -> None:
    assert (await ask(cluster, 17, TOPIC)).code == 0
    assert (await ask(cluster, 200, body=json.dumps({"groupName": "G1", "retryMaxTimes": 3}).encode())).code == 0
    assert (await ask(cluster, 15, {**OFFSET, "commitOffset": "7"})).code == 0


async def test_topics_groups_and_offsets_come_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        topics = (await ask(cluster, 21)).body
        groups = (await ask(cluster, 201)).body
        await cluster.stop_broker(cluster.brokers[0])
        await cluster.start_broker()
        assert fastjson.loads((await ask(cluster, 21)).body) == fastjson.loads(topics)
        assert fastjson.loads((await ask(cluster, 201)).body) == fastjson.loads(groups)
        answer = await ask(cluster, 14, OFFSET)
        assert (answer.code, answer.ext) == (0, {"offset": "7"})
        assert (await ask(cluster, 215, {"topic": "T1"})).code == 0
        answer = await ask(cluster, 14, OFFSET)
        assert answer.ext == {"offset": "0"}


async def test_a_topic_that_is_changed_keeps_the_offsets_on_it_and_one_made_anew_has_none(tmp_path: Path) -> None:
    """The topic has no message and so no queue yet, neither before nor after the restart."""

    async def offset(cluster: Cluster) -> int | None:
        answer = await ask(cluster, 14, {**OFFSET, "setZeroIfNotFound": "false"})
        return int((answer.ext or {})["offset"]) if answer.code == 0 else None

    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        assert (await ask(cluster, 17, {**TOPIC, "writeQueueNums": "3"})).code == 0
        assert await offset(cluster) == 7
        await cluster.stop_broker(cluster.brokers[0])
        await cluster.start_broker()
        assert (await ask(cluster, 17, {**TOPIC, "perm": "4"})).code == 0
        assert await offset(cluster) == 7
        await cluster.stop_broker(cluster.brokers[0])
        (tmp_path / "broker-0" / "config" / "topics.json").unlink()
        (tmp_path / "broker-0" / "config" / "topics.json.bak").unlink()
        await cluster.start_broker()
        assert await offset(cluster) == 7
        assert (await ask(cluster, 17, TOPIC)).code == 0
        assert await offset(cluster) is None


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset"])
async def test_a_damaged_file_falls_back_on_its_backup(tmp_path: Path, name: str) -> None:
    """Field case B005."""
    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        await cluster.stop_broker(cluster.brokers[0])
        file = tmp_path / "broker-0" / "config" / f"{name}.json"
        backup = file.with_name(file.name + ".bak")
        backup.write_bytes(file.read_bytes())
        for junk in (b"", bytes(range(256))):
            file.write_bytes(junk)
            app = await cluster.start_broker()
            assert app.topics.get("T1") is not None
            assert app.groups.get("G1") is not None
            assert app.offsets.query("G1", "T1", 1) == 7
            await cluster.stop_broker(app)
        file.write_bytes(b"\x00junk")
        backup.write_bytes(b"\x00junk")
        with pytest.raises(StoreError, match="restore one of them"):
            await cluster.start_broker()


async def test_offsets_of_a_topic_go_with_it_and_do_not_come_back(tmp_path: Path) -> None:
    """Field case B024: what consumers of a deleted topic go on telling, before and after a restart."""
    offsets = tmp_path / "broker-0" / "config" / "consumerOffset.json"
    told = {**OFFSET, "commitOffset": "7"}
    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        assert (await ask(cluster, 215, {"topic": "T1"})).code == 0
        for _ in range(2):
            assert (await ask(cluster, 15, told)).code == 0
            await cluster.stop_broker(cluster.brokers[0])
            assert b"T1@G1" not in offsets.read_bytes()
            await cluster.start_broker()
        await cluster.stop_broker(cluster.brokers[0])
        # A broker that was killed after the topic had gone, and Java's, which keep them.
        offsets.write_text('{"offsetTable":{"T1@G1":{1:7},"T2@G1":{1:7}}}')
        await cluster.start_broker()
        assert (await ask(cluster, 17, TOPIC)).code == 0
        assert fastjson.loads((await ask(cluster, 43)).body) == {"offsetTable": {"T2@G1": {1: 7}}}
        assert (await ask(cluster, 15, told)).code == 0
        assert (await ask(cluster, 14, OFFSET)).ext == {"offset": "7"}


async def test_offsets_stay_when_only_the_table_of_topics_is_lost(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        assert (await ask(cluster, 310, SEND, b"x")).code == 0
        await cluster.stop_broker(cluster.brokers[0])
        for file in (tmp_path / "broker-0" / "config").glob("topics.json*"):
            file.unlink()
        await cluster.start_broker()
        assert (await ask(cluster, 17, TOPIC)).code == 0
        assert (await ask(cluster, 14, OFFSET)).ext == {"offset": "7"}

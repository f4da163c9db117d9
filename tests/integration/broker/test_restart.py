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

TOPIC = {"topic": "T1", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6", "topicFilterType": "MULTI_TAG"}
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

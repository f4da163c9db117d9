"""The store of a group's member in Java's 4.9.4: a plain broker has its topics, and messages that nobody asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from rmq.aio import AdminClient, Message, Producer
from rmq.broker.topics.changes import APPLIED
from rmq.protocol.names import TABLE_CHANGES_TOPIC
from rmq.runtime import patience
from tests.support.consumers import bodies_of
from tests.support.peers import Client, start_cluster
from tests.support.peers.cluster import BROKER_DEFAULTS
from tests.support.raft.processes import FILE_SIZE, ProcessGroup

#: As tests have Java's files.
SIZES = {key: BROKER_DEFAULTS[key] for key in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")}
SENT = {b"%d" % number for number in range(40)}


async def test_java_opens_the_store_of_a_member(tmp_path: Path, clients: Callable[[str, str], Client]) -> None:
    clients("java-4.9.4", "tested")  # skips where there is no Java
    async with ProcessGroup(tmp_path, settings=SIZES) as group, AdminClient(namesrv=group.namesrv) as admin:
        leader = await group.leader()
        at = f"127.0.0.1:{group.ports[leader]}"
        await admin.create_and_update_topic(at, "Kept", read_queue_nums=3, write_queue_nums=3)
        await admin.create_and_update_topic(at, "Gone")
        await admin.delete_topic_in_broker([at], "Gone")
        async with Producer("p", namesrv=group.namesrv) as producer:
            for body in SENT:
                await producer.send(Message("Kept", body))
        await group.stop()
    store = group.store(leader)
    assert json.loads((store / "config" / "topics.json").read_text())[APPLIED] > 0
    assert (store / "consumequeue" / TABLE_CHANGES_TOPIC / "0").is_dir()
    paths = {
        "storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(FILE_SIZE),
    }  # fmt: skip
    cluster = await asyncio.to_thread(lambda: start_cluster("java-4.9.4", properties=paths, our_namesrv=True))
    try:
        async with AdminClient(namesrv=cluster.namesrv) as admin:
            topics = (await admin.topic_configs(cluster.broker_addr)).topic_config_table
        assert topics["Kept"].read_queue_nums == 3
        assert "Gone" not in topics
        assert TABLE_CHANGES_TOPIC not in topics
        async with (
            bodies_of("Kept", cluster.namesrv, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as got,
            patience.timeout(30),
        ):
            while True:
                if got == SENT:
                    break
                await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(cluster.stop)

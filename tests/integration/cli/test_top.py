"""`rmq top` on a running cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rmq.aio import AdminClient, Message, Producer, PullConsumer, SubscriptionGroupConfig
from rmq.cli.command import invoke
from rmq.cli.rmq import command
from rmq.testing.cluster import Cluster


async def top(cluster: Cluster, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    line = ["top", "-n", cluster.namesrv_addr, "--every", "0.2", "--rounds", "1", *words]
    assert await asyncio.to_thread(invoke, command, "rmq", line) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


async def test_what_is_there_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        for number in range(12):
            await producer.send(Message("T", str(number)))
        await producer.send(Message("Alone", b"x"))
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            await admin.create_and_update_subscription_group(cluster.broker_addr, SubscriptionGroupConfig("g"))
        async with PullConsumer("g", namesrv=cluster.namesrv_addr) as consumer:
            for queue in await consumer.fetch_subscribe_message_queues("T"):
                consumer.update_consume_offset(queue, 1)
        sending = asyncio.create_task(_send(producer))
        found = json.loads(await top(cluster, capsys, "-o", "json"))
        sending.cancel()
        assert [row["broker"] for row in found["brokers"]] == ["broker-0"]
        topics = {row["topic"]: row for row in found["topics"]}
        assert topics["T"]["inTps"] > 0
        assert (topics["Alone"]["messages"], topics["Alone"]["inTps"], topics["Alone"]["groups"]) == (1, 0.0, 0)
        (row,) = found["groups"]
        assert (row["group"], row["topic"], row["outTps"], row["doneIn"]) == ("g", "T", 0.0, "never")
        assert row["lag"] >= 4
        lines = (await top(cluster, capsys, "-g", "g")).splitlines()
        assert [line.split()[0] for line in lines if line] == ["broker", "broker-0", "group", "g", "topic", "T"]
        assert "no broker has a group nobody" in await top(cluster, capsys, "-g", "nobody", code=3)
        assert "None" in await top(cluster, capsys, "-t", "None", code=3)


async def _send(producer: Producer) -> None:
    while True:
        await producer.send(Message("T", b"more"))
        await asyncio.sleep(0.005)

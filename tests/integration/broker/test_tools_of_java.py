"""What Java's tools of either generation look for by name (requests 26, 28, 208 and 321)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmq.protocol import fastjson
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import send

OF_4, OF_5 = 409, 479
#: Read by exportConfigs of 4.9 and 5.3, which ends where one is missing; and the number of processors of exportMetrics.
CONFIGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
    "clientCallbackExecutorThreads",
)  # fmt: skip
HEARTBEAT = (
    '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
    '"groupName":"sql","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],'
    '"expressionType":"SQL92","subString":"a > 1","subVersion":7,"tagsSet":[],"topic":"T"}],"unitMode":false}],'
    '"producerDataSet":[]}'
)


async def test_what_java_s_tools_read_by_name(tmp_path: Path) -> None:
    # A key that does nothing here, given by a file, is told as it is all the same.
    settings = {"filterServerNums": "3", "enablePropertyFilter": "true", "autoCreateTopicEnable": "true"}
    async with Cluster(tmp_path, settings=settings) as cluster:
        client = RemotingClient(cluster.world)

        async def ask(code: int, version: int = OF_5, body: bytes = b"", **ext: str) -> Command:
            answer = await client.request(
                cluster.broker_addr, Command(code, ext=dict(ext), body=body, version=version), 60.0
            )
            assert answer.code == 0, answer.remark
            return answer

        try:
            lines = (await ask(26)).body.decode().splitlines()
            told = dict(line.split("=", 1) for line in lines)
            assert len(told) == len(lines)
            assert all(told[key] for key in CONFIGS)
            assert (told["filterServerNums"], told["useTLS"]) == ("0", "false")
            assert told["clientCallbackExecutorThreads"] == str(len(os.sched_getaffinity(0)))

            older, newer = [fastjson.loads((await ask(28, version)).body)["table"] for version in (OF_4, OF_5)]
            besides = {key: newer[key] for key in newer.keys() - older.keys()}
            assert besides.pop("getTransferredTps") == newer["getTransferedTps"]
            assert besides == {
                "brokerActive": "true", "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0",
                **{f"{pool}ThreadPoolQueue{what}": text for pool in ("ack", "litePull")
                   for what, text in (("Size", "0"), ("Capacity", "100000"), ("HeadWaitTimeMills", "0"))},
            }  # fmt: skip

            answer = await client.request(cluster.broker_addr, send("T"), 60.0)
            assert answer.code == 0, answer.remark
            await ask(15, consumerGroup="sql", topic="T", queueId="0", commitOffset="1")
            for version, pulled in ((OF_4, None), (OF_5, 1)):
                body = fastjson.loads((await ask(208, version, consumerGroup="sql", topic="T")).body)
                assert {queue.get("pullOffset", None) for queue in body["offsetTable"].values()} <= {
                    pulled,
                    pulled and 0,
                }

            await ask(34, body=HEARTBEAT.encode())
            body = fastjson.loads(
                (await ask(321, topic="T", queueId="0", index="0", count="1", consumerGroup="sql")).body
            )
            data = fastjson.loads(body["filterData"].encode())
            assert (data["expression"], data["clientVersion"], data["dead"]) == ("a > 1", 7, False)
            assert data["bloomFilterData"]["bitNum"] == 112
            assert abs(data["bornTime"] - time.time() * 1000) < 3_600_000
            assert body["filterData"].startswith('{\n\t"bloomFilterData":{\n\t\t"bitNum":112,')
        finally:
            await client.close()


@pytest.mark.parametrize("version", [OF_4, OF_5])
async def test_a_slave_is_not_active(version: int, tmp_path: Path) -> None:
    async with Cluster(tmp_path, slaves=1) as cluster:
        client = RemotingClient(cluster.world)
        try:
            host, port = cluster.brokers[1].address
            answer = await client.request(f"{host}:{port}", Command(28, version=version), 60.0)
            table = fastjson.loads(answer.body)["table"]
            assert table.get("brokerActive") == ("false" if version == OF_5 else None)
            assert "timerCongestNum" not in table
        finally:
            await client.close()

"""How far a group is, on many topics at once (requests 208 and 317)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmq.protocol import fastjson
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import send

#: More than are looked at together.
TOPICS = [f"Topic{number}" for number in range(40)]


def _table(stats: Any) -> dict[tuple[str, int], tuple[int, int, bool]]:
    """(topic, queue id) -> broker offset, consumer offset, whether a time is known."""
    found = {}
    for key, value in stats["offsetTable"].items():
        queue = fastjson.loads(key.encode()) if isinstance(key, str) else dict(key)
        found[queue["topic"], queue["queueId"]] = (
            value["brokerOffset"], value["consumerOffset"], value["lastTimestamp"] > 0,
        )  # fmt: skip
    return found


async def test_a_group_on_more_topics_than_are_looked_at_together(tmp_path: Path) -> None:
    expected = {}
    async with Cluster(tmp_path) as cluster:
        client = RemotingClient(cluster.world)

        async def answered(command: Command) -> Command:
            answer = await client.request(cluster.broker_addr, command, 60.0)
            assert answer.code == 0, answer.remark
            return answer

        async def ask(code: int, ext: dict[str, str]) -> Command:
            return await answered(Command(code, ext=dict(ext)))

        try:
            await answered(Command(200, body=b'{"groupName":"G"}'))
            for number, topic in enumerate(TOPICS):
                await ask(17, {"topic": topic, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
                               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
                               "defaultTopic": "TBW102"})  # fmt: skip
                for _ in range(3):
                    await answered(send(topic))
                at = number % 4
                offset = {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": str(at)}
                await ask(15, offset)
                expected[topic, 0] = (3, at, at > 0)
                expected[topic, 1] = (0, 0, False)
            stats = fastjson.loads((await ask(208, {"consumerGroup": "G"})).body)
            assert _table(stats) == expected
            chosen = fastjson.loads((await ask(208, {"consumerGroup": "G", "topic": TOPICS[3]})).body)
            assert _table(chosen) == {key: value for key, value in expected.items() if key[0] == TOPICS[3]}
            all_groups: Any = fastjson.loads((await ask(317, {"isOrder": "false"})).body)
            assert all_groups["totalDiff"] == sum(high - at for high, at, _ in expected.values())
        finally:
            await client.close()

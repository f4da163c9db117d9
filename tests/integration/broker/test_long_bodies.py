"""Bodies as long as a frame: what is parsed of them in one go is bounded, whatever the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster

#: Requests with messages as bodies, which are stored as they are.
MESSAGES = {10, 310, 320, 324, 325, 326}
#: 30 ms of the loop, at most.
AT_ONCE = 1 << 20
PARTS = ("topicConfigList", "groupConfigList", "consumerDataSet", "producerDataSet", "mqSet", "acks")


async def test_no_request_has_more_than_a_part_of_its_body_parsed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    loads = orjson.loads

    def counted(data: bytes) -> Any:
        parsed.append(len(data))
        return loads(data)

    async with Cluster(tmp_path) as cluster:
        monkeypatch.setattr(orjson, "loads", counted)
        client = RemotingClient(cluster.world)
        refused = set()
        bodies = [b'{"%b":[%b{}]}' % (part.encode(), b"{}," * 400_000) for part in PARTS]
        try:
            for code in cluster.brokers[0].router.codes():
                for body in bodies if code not in MESSAGES else ():
                    answer = await client.request(cluster.broker_addr, Command(code, body=body), 60.0)
                    if (answer.remark or "").startswith("a body of "):
                        refused.add(code)
        finally:
            await client.close()
    assert refused == {18, 34, 41, 42, 46, 200, 225, 400, 401, 200151}
    assert max(parsed) <= AT_ONCE


async def test_ten_thousand_topics_and_groups_of_one_request_are_taken(tmp_path: Path) -> None:
    topics = [
        {
            "attributes": {"+message.type": "NORMAL"}, "order": False, "perm": 6, "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG", "topicName": f"TopicOfSomeTeam-{number}", "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for number in range(10_000)
    ]  # fmt: skip
    groups = [{"groupName": f"GroupOfSomeTeam-{number}", "retryMaxTimes": 16} for number in range(10_000)]
    async with Cluster(tmp_path) as cluster:
        client = RemotingClient(cluster.world)
        try:
            for code, content in ((18, {"topicConfigList": topics}), (225, {"groupConfigList": groups})):
                body = json.dumps(content).encode()
                answer = await client.request(cluster.broker_addr, Command(code, body=body), 60.0)
                assert (answer.code, answer.remark) == (0, None)
            for code, name in ((21, b'"TopicOfSomeTeam-9999"'), (201, b'"GroupOfSomeTeam-9999"')):
                assert name in (await client.request(cluster.broker_addr, Command(code), 60.0)).body
        finally:
            await client.close()

"""What a running Java 4.9.4 was asked and answered: our types read all of it, and write bodies equal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol import batch, message
from rmq.protocol.bodies.body import Body
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import ConsumerConnection, ProducerConnection, ProducerTableInfo
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from rmq.protocol.bodies.kv import GetConsumerListByGroupResponseBody, GroupList, KVTable, TopicList
from rmq.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq.protocol.bodies.offset import ConsumerOffsetTable, DelayOffsetTable, QueryCorrectionOffsetBody
from rmq.protocol.bodies.reset import ResetOffsetBody
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfigTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import BodyError, FrameError, HeaderError, ProtocolError
from rmq.protocol.frame import FrameDecoder
from rmq.protocol.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "answers-4.9.4.jsonl").read_text("utf-8").splitlines()
]
RAW = [case for case in CASES if "raw" in case]
ANSWERED = [case for case in CASES if "raw" not in case]

ANSWER_BODIES: dict[int, type[Body]] = {
    21: TopicConfigTable, 28: KVTable, 38: GetConsumerListByGroupResponseBody, 41: LockBatchResponseBody,
    43: ConsumerOffsetTable, 45: DelayOffsetTable, 103: KVTable, 105: TopicRouteData, 106: ClusterInfo,
    202: TopicStatsTable, 203: ConsumerConnection, 204: ProducerConnection, 206: TopicList, 208: ConsumeStats,
    222: ResetOffsetBody, 224: TopicList, 300: GroupList, 303: QueryConsumeTimeSpanBody, 304: TopicList,
    305: TopicList, 308: QueryCorrectionOffsetBody, 311: TopicList, 312: TopicList, 313: TopicList,
    315: BrokerStatsData, 317: ConsumeStatsList, 321: QueryConsumeQueueResponseBody, 322: DataVersion,
    328: ProducerTableInfo, 307: ConsumerRunningInfo,
}  # fmt: skip
REQUEST_BODIES: dict[int, type[Body]] = {
    34: HeartbeatData, 41: LockBatchRequestBody, 42: UnlockBatchRequestBody, 46: CheckClientRequestBody,
    103: RegisterBrokerBody, 200: SubscriptionGroupConfig, 322: DataVersion,
}  # fmt: skip
#: Codes whose body is Java properties text.
PROPERTIES_TEXT = {26, 319, 25, 318}


@pytest.mark.parametrize("case", RAW, ids=[case["id"] for case in RAW])
def test_bytes_close_the_connection_where_java_closes_it(case: dict[str, Any]) -> None:
    decoder = FrameDecoder()
    if case["raw"].endswith(" 16777216 bytes"):  # recorded in short: the first case's header and a long body
        data = bytes.fromhex("00fffffc") + bytes.fromhex(RAW[0]["raw"])[4:]
        data += bytes(16_777_216 - len(data))
    else:
        data = bytes.fromhex(case["raw"])
    decoder.receive_data(data)
    commands = []
    if case["closed"]:
        # A TLS greeting reads as a length far beyond the limit.
        with pytest.raises(FrameError):
            decoder.next_command()
        return
    while (command := decoder.next_command()) is not None:
        commands.append(command)
    assert len(commands) >= len(case["answers"])
    assert commands


@pytest.mark.parametrize("case", ANSWERED, ids=[case["id"] for case in ANSWERED])
def test_headers_and_bodies(case: dict[str, Any]) -> None:
    asked = case.get("asked")
    succeeded = case["code"] == ResponseCode.SUCCESS and case["flag"] & 1
    if not case["flag"] & 1:  # what the broker pushed to a client
        header = REQUEST_HEADERS[case["code"]]
        assert header is not None
        assert header.decode(case["ext"]).encode().items() >= case["ext"].items()
        return
    if asked is None:
        return
    kind = REQUEST_HEADERS.get(asked)
    if kind is not None and succeeded and case["id"] not in REFUSED_BY_US:
        kind.decode(case.get("asked_ext") or {})
    answer = RESPONSE_HEADERS.get(asked)
    if answer is not None and succeeded:
        assert answer.decode(case["ext"]).encode().items() >= case["ext"].items()
    if succeeded and "asked_body" in case and asked in REQUEST_BODIES:
        compressed = asked == RequestCode.REGISTER_BROKER and case["asked_ext"].get("compressed") == "true"
        if not compressed:
            REQUEST_BODIES[asked].decode(case["asked_body"].encode())
    if succeeded and asked == RequestCode.SEND_BATCH_MESSAGE and "asked_base64" in case:
        data = base64.b64decode(case["asked_base64"])
        assert batch.decode(data)
    if "records" in case:
        data = bytes.fromhex(case["records"])
        records = message.decode_records(data, check_crc=True)
        assert b"".join(map(message.encode_record, records)) == data
    if "body" in case and asked not in PROPERTIES_TEXT and case["body"] != "null":
        data = case["body"].encode()
        decoded = ANSWER_BODIES[asked].decode(data)
        if case["id"] in WITH_HOLES:
            return
        if isinstance(decoded, TopicRouteData):
            assert decoded.encode(standard=data.startswith(b'{"brokerDatas":[{"brokerAddrs":{"')) == data
        elif isinstance(decoded, QueryConsumeTimeSpanBody):
            assert QueryConsumeTimeSpanBody.decode(decoded.encode()) == decoded  # texts in local time
        else:
            assert decoded.encode() == data


#: Requests that a live 4.9.4 takes although a field is missing, which we answer with an error (protocol.md 2.1, 2.4).
REFUSED_BY_US = {
    "namesrv.kv.put.no_value",
    "namesrv.kv.delete.no_namespace",
    "namesrv.qdv.noext",
    "namesrv.qdv.no_brokerName",
    "namesrv.qdv.no_clusterName",
    "namesrv.qdv.no_brokerId",
    "namesrv.topics.by_cluster.noext",
    "namesrv.hostile.no_brokerName",
    "namesrv.hostile.no_brokerAddr",
    "namesrv.hostile.no_clusterName",
    "namesrv.hostile.unreg.no_brokerName",
    "namesrv.hostile.unreg.no_brokerAddr",
    "broker.send.v1.no_producerGroup",
    "broker.send.v1.no_defaultTopicQueueNums",
    "broker.send.v2.no_a",
    "broker.send.v2.no_c",
    "broker.send.v2.no_d",
    "broker.offset.query.no_consumerGroup",
    "broker.offset.update.no_consumerGroup",
    "broker.offset.update.no_topic",
    "broker.unserved.301",
}
#: Bodies with a null key or a missing name in them, after the requests above.
WITH_HOLES = {"namesrv.hostile.cluster", "namesrv.hostile.route", "broker.conns.producers_all"}


def test_damage_is_told_by_errors_that_are_answered() -> None:
    assert issubclass(BodyError, HeaderError)
    assert issubclass(HeaderError, ProtocolError)

"""What the broker writes for itself, ours and Java's, nobody else writes, makes, changes, deletes or has offsets on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rmq.broker.app import BrokerApp
from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.ids import offset_msg_id
from rmq.protocol.names import BROKER_GROUPS, BROKER_TOPICS
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, send, subscribe

TOPICS = [*sorted(BROKER_TOPICS), "rmq_sys_REVIVE_LOG_DefaultCluster", "%RETRY%CID_RMQ_SYS_TIMER"]
#: Operators read these, with groups of their own.
READ = {"TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
GROUPS = sorted(BROKER_GROUPS)


def body(**content: object) -> bytes:
    return json.dumps(content).encode()


def sent(topic: str, code: int, props: str = "", content: bytes = b"9000000000000") -> Command:
    command = send(topic, content, props=props)
    command.code = code
    if code in (10, 324):
        named = zip(
            ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
             "flag", "properties", "reconsumeTimes", "unitMode", "batch"), "abcdefghijkm", strict=True,
        )  # fmt: skip
        command.ext = {name: (command.ext or {})[letter] for name, letter in named}
    if code == 320:
        (command.ext or {})["m"] = "true"
    return command


def writes(topic: str) -> list[Command]:
    """Whatever could change a topic or what is known of it."""
    packed = batch.encode([(0, b"9000000000000", {"TAGS": "d"})])
    config = {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    return [
        *(sent(topic, code) for code in (10, 310, 324, 325)),
        sent(topic, 320, content=packed),
        sent(topic, 310, "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01K\x02"),
        sent(topic, 310, "DELAY\x011\x02"),
        sent(topic, 310, "TIMER_DELAY_MS\x01600000\x02"),
        Command(17, ext={**fields, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}),
        Command(18, body=body(topicConfigList=[config])),
        Command(215, ext={"topic": topic}),
    ]


def uses(topic: str, group: str) -> list[Command]:
    """Whatever could change what a group is to a topic."""
    offset = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "7"}
    reset = {"topic": topic, "group": group, "timestamp": "-1", "isForce": "true"}
    pop = {"consumerGroup": group, "topic": topic, "queueId": "0", "maxMsgNums": "1", "invisibleTime": "60000"}
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    return [
        Command(15, ext=offset),
        Command(314, ext={"srcGroup": "G", "destGroup": group, "topic": topic, "offline": "false"}),
        Command(222, ext=reset),
        Command(222, ext={**reset, "queueId": "0", "offset": "0"}),
        Command(353, ext={"group": group, "topic": topic, "readable": "false"}),
        Command(401, body=body(**mode)),
        Command(200050, ext={**pop, "pollTime": "0", "bornTime": "0", "initMode": "0"}),
    ]


def on_groups(group: str) -> list[Command]:
    committing = pull(group)
    (committing.ext or {}).update(sysFlag="5", commitOffset="7")
    back = {"group": group, "offset": "0", "delayLevel": "0", "maxReconsumeTimes": "16", "unitMode": "false"}
    return [
        Command(200, body=body(groupName=group)),
        Command(225, body=body(groupConfigList=[{"groupName": group}])),
        Command(207, ext={"groupName": group, "cleanOffset": "true"}),
        Command(36, ext=back),
        committing,
    ]


def known(app: BrokerApp) -> object:
    """Everything that a refused request must leave as it is."""
    own = [queue for queue in app.store.queues if app.topics.system.refuses_send(queue.topic)]
    return (
        {(queue.topic, queue.id): queue.next for queue in own},
        {config.topic_name: dataclasses.asdict(config) for config in app.topics.all()},
        app.groups.encode(),
        [(g, t) for g in ("G", *GROUPS) for t in ("T", *TOPICS) if app.offsets.query(g, t, 0) == 7],
    )


async def test_nobody_else_writes_there(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        app = cluster.brokers[0]
        async with RawPeer(*app.address) as peer:
            # Every one of them is in use.
            for more in ("TIMER_DELAY_MS\x01600000\x02", "DELAY\x011\x02", "", "TRAN_MSG\x01true\x02PGROUP\x01P\x02"):
                assert (await peer.ask(send(props=more))).code == 0
            assert (await peer.ask(pull("G"))).code == 0
            assert (await peer.ask(Command(15, ext={"consumerGroup": "G", "topic": "T", "queueId": "0",
                                                    "commitOffset": "1"}))).code == 0  # fmt: skip
            app.topics.create_for_send_back("rmq_sys_POP_JOURNAL", 1, 6, 0)
            before = known(app)
            for topic in TOPICS:
                for command in writes(topic):
                    answer = await peer.ask(command)
                    assert answer.code in (1, 16), (topic, command, answer)
                if topic not in READ:
                    for command in uses(topic, "G"):
                        assert (await peer.ask(command)).code == 16, (topic, command)
            for group in GROUPS:
                for command in (*uses("T", group), *on_groups(group)):
                    assert (await peer.ask(command)).code == 16, (group, command)
                assert (await peer.ask(subscribe(group))).code == 0
            assert known(app) == before


async def test_a_record_is_not_taken_there_by_another_way(tmp_path: Path) -> None:
    """As a message of a transaction that is resumed, or as one of an internal topic that is given back."""
    async with Cluster(tmp_path) as cluster:
        app = cluster.brokers[0]
        async with RawPeer(*app.address) as peer:
            forged = "REAL_TOPIC\x01rmq_sys_wheel_timer_done\x02REAL_QID\x010\x02PGROUP\x01P\x02UNIQ_KEY\x01K\x02"
            assert (await peer.ask(send(body=b"9000000000000", props=forged))).code == 0
            host, port = app.settings.broker_ip1, app.settings.listen_port
            answer = await peer.ask(Command(323, ext={"msgId": offset_msg_id(host, port, 0)}))
            assert answer.code == 16, answer
            waits = app.store.log.end
            assert (await peer.ask(send(props="TIMER_DELAY_MS\x01600000\x02"))).code == 0
            assert (await peer.ask(pull("G"))).code == 0
            back = {"group": "G", "offset": str(waits), "delayLevel": "0", "maxReconsumeTimes": "16"}
            assert (await peer.ask(Command(36, ext={**back, "unitMode": "false"}))).code == 16
            assert app.store.queues.get("rmq_sys_wheel_timer_done", 0) is None


async def test_what_clients_may_do_with_topics_of_the_system(tmp_path: Path) -> None:
    settings = {"traceTopicEnable": "true", "msgTraceTopicName": "rmq_sys_mine"}
    async with Cluster(tmp_path, settings=settings) as cluster:  # noqa: SIM117
        async with RawPeer(*cluster.brokers[0].address) as peer:
            for topic in ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn", "rmq_sys_mine", "BenchmarkTest", "TBW102"):
                assert (await peer.ask(send(topic))).code == 0, topic
            assert (await peer.ask(pull("CID_RMQ_SYS_X", "rmq_sys_mine"))).code == 0
            for topic in READ - {"TRANS_CHECK_MAX_TIME_TOPIC"}:
                offset = {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": "0"}
                assert (await peer.ask(Command(15, ext=offset))).code == 0, topic


async def test_traces_are_not_put_among_the_broker_s_own_records(tmp_path: Path) -> None:
    settings = {"traceTopicEnable": "true", "msgTraceTopicName": "rmq_sys_wheel_timer_done"}
    with pytest.raises(ConfigError, match="msgTraceTopicName='rmq_sys_wheel_timer_done'"):
        async with Cluster(tmp_path, settings=settings):
            pass

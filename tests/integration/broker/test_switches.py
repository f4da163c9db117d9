"""Settings that switch parts of the broker off or on, each seen from a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, send, subscribe


async def permission_told(cluster: Cluster, topic: str) -> int:
    """The permission that the nameserver tells clients."""
    host, port = cluster.namesrvs[0].address
    async with RawPeer(host, port) as peer:
        answer = await peer.ask(Command(105, ext={"topic": topic}))
    assert answer.code == 0, answer
    return TopicRouteData.decode(answer.body).queue_datas[0].perm


async def test_broker_permission_masks_what_is_registered_and_stops_pulls(tmp_path: Path) -> None:
    """Field case B121."""
    async with Cluster(tmp_path) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send())).code == 0
            assert await permission_told(cluster, "T") == 6
            assert (await peer.ask(Command(25, body=b"brokerPermission=4"))).code == 0
            while await permission_told(cluster, "T") != 4:
                pass
            # Java refuses only sends to ordered topics itself: others are kept away by the route.
            assert (await peer.ask(send())).code == 0
            broker.settings.update("brokerPermission=2")
            answer = await peer.ask(pull())
            assert answer.code == 16
            assert answer.remark == f"the broker[{broker.settings.broker_ip1}] pulling message is forbidden"


async def test_transactional_messages_are_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            half = send(props="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01ABC\x02")
            (half.ext or {})["f"] = "4"
            assert (await peer.ask(half)).code == 0
            broker.settings.update("rejectTransactionMessage=true")
            answer = await peer.ask(half)
            assert answer.code == 16
            assert answer.remark == f"the broker[{broker.settings.broker_ip1}] sending transaction message is forbidden"
            assert (await peer.ask(send())).code == 0


@pytest.mark.parametrize(("enabled", "name"), [("false", ""), ("true", ""), ("true", "MyTraces")])
async def test_the_topic_of_traces(tmp_path: Path, enabled: str, name: str) -> None:
    named = {"msgTraceTopicName": name} if name else {}
    topic = name or "RMQ_SYS_TRACE_TOPIC"
    async with Cluster(tmp_path, settings={"traceTopicEnable": enabled, **named}) as cluster:
        config = cluster.brokers[0].topics.get(topic)
        if enabled == "false":
            assert config is None
            return
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
        assert topic in cluster.brokers[0].topics.system
        assert await permission_told(cluster, topic) == 6
        async with RawPeer(*cluster.brokers[0].address) as peer:
            assert (await peer.ask(send(topic))).code == 0
            assert (await peer.ask(Command(215, ext={"topic": topic}))).code != 0


async def test_retry_topics_are_made_though_senders_make_no_others(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings={"autoCreateTopicEnable": "false"}) as cluster:
        topics = cluster.brokers[0].topics
        async with RawPeer(*cluster.brokers[0].address) as peer:
            assert (await peer.ask(send("Other"))).code == 17
            for group, unit, flag in (("g", {}, 0), ("u", {"k": "true"}, 2)):
                request = send(f"%RETRY%{group}")
                assert request.ext is not None
                request.ext.update(unit)
                assert (await peer.ask(request)).code == 0
                made = topics.get(f"%RETRY%{group}")
                assert made is not None
                assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.topic_sys_flag) == (1, 1, 6, flag)


async def test_groups_that_read_too_far_back_are_switched_off(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        broker = cluster.brokers[0]
        slow = broker.front.delivery.slow_readers
        async with RawPeer(*broker.address) as peer:
            for _ in range(3):
                assert (await peer.ask(send(body=b"x" * 1000))).code == 0
            for group in ("NEAR", "FAR"):
                assert (await peer.ask(subscribe(group))).code == 0
            broker.settings.update("consumerFallbehindThreshold=1000")
            assert (await peer.ask(pull("FAR", offset=0))).code == 0
            slow.judge()
            assert (await peer.ask(pull("FAR", offset=0))).code == 0

            broker.settings.update("disableConsumeIfConsumerReadSlowly=true")
            far = pull("FAR", offset=0)
            (far.ext or {})["maxMsgNums"] = "1"
            assert (await peer.ask(far)).code == 0
            assert (await peer.ask(pull("NEAR", offset=2))).code == 0
            broker.settings.update("consumerFallbehindThreshold=1500")
            slow.judge()
            answer = await peer.ask(far)
            assert answer.code == 16
            assert answer.remark == "subscription group no permission, FAR"
            assert (await peer.ask(pull("NEAR", offset=2))).code == 0
            slow.judge()
            assert (await peer.ask(pull("NEAR", offset=2))).code == 0


async def test_auto_creation_is_switched_off_and_on_and_is_not_told_when_it_is_off(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send("A"))).code == 0
            assert (await peer.ask(Command(25, body=b"autoCreateTopicEnable=false"))).code == 0
            assert (await peer.ask(send("B"))).code == 17
            while await permission_told(cluster, "TBW102"):
                pass
            assert (await peer.ask(Command(25, body=b"autoCreateTopicEnable=true"))).code == 0
            assert (await peer.ask(send("B"))).code == 0
            assert await permission_told(cluster, "B") == 6

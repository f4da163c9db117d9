"""Where a send gets to besides the topic of its header: queues that messages name, clients that wait for a reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.protocol import batch, properties
from rmq.protocol.command import Command
from rmq.protocol.permissions import publish_topic
from rmq.testing.cluster import Cluster
from tests.support.accounts import SECRET, by, home
from tests.support.raw_peer import RawPeer, send

#: Every group is everybody's, topics are not: of light queues one.
ACCOUNTS = f"""\
accounts:
- accessKey: operator
  secretKey: {SECRET}
  admin: true
- accessKey: owner-of-T
  secretKey: {SECRET}
  defaultGroupPerm: SUB
  topicPerms:
  - T=PUB|SUB
  - '%LMQ%own=PUB'
"""
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
NAMED = "INNER_MULTI_DISPATCH\x01"
_PLAIN = batch.encode([(0, b"x", {})])


def _of(code: int, body: bytes, shared: str, **more: str) -> Command:
    return Command(code, ext={**(send("T").ext or {}), "i": shared, **more}, body=body)


@pytest.mark.parametrize("code", [310, 325])
async def test_every_queue_that_a_message_names_is_its_senders_to_write(tmp_path: Path, code: int) -> None:
    other, own = f"{NAMED}%LMQ%other", f"{NAMED}%LMQ%own"
    swallowed = batch.encode([(0, f"{NAMED}%RETRY%".encode(), {"INNER_MULTI_DISPATCH": "%LMQ%other"})])
    accounts = ACCOUNTS.replace("  - T=", "  - DefaultCluster_REPLY_TOPIC=PUB\n  - T=")
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path, accounts), **LIGHT)
        async with RawPeer(*broker.address) as peer:
            for refused in (
                _of(code, b"x", other),
                _of(code, _PLAIN, other, m="true"),
                _of(code, swallowed, "", m="true"),
            ):
                answer = await peer.ask(by("owner-of-T", refused))
                assert "No default permission for topic:%LMQ%other" in (answer.remark or ""), refused
            assert broker.store.queues.get("%LMQ%other", 0) is None
            # One that names its own may; words of a body name nothing.
            await peer.ask(by("owner-of-T", _of(code, _PLAIN, own, m="true")))
            await peer.ask(by("owner-of-T", _of(code, batch.encode([(0, other.encode(), {})]), own, m="true")))
            queue = broker.store.queues.get("%LMQ%own", 0)
            assert queue is not None
            assert queue.visible == 2


async def test_a_reply_is_pushed_for_those_alone_who_may_reply(tmp_path: Path) -> None:
    """The topic that its header names is the sender's to choose."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path, ACCOUNTS))
        async with RawPeer(*broker.address) as peer:
            reply = properties.encode({"REPLY_TO_CLIENT": "somebody"})
            answer = await peer.ask(by("owner-of-T", _of(325, b"x", reply)))
            assert "No default permission for topic:DefaultCluster_REPLY_TOPIC" in (answer.remark or "")


async def test_a_producer_is_known_with_what_its_account_may(tmp_path: Path) -> None:
    """Anybody may call himself a producer of a group: whom checks of its transactions go to, with their messages."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path, ACCOUNTS))
        async with RawPeer(*broker.address) as peer:
            beat = b'{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[]}'
            assert (await peer.ask(by("owner-of-T", Command(34, body=beat)))).code == 0
            (channel,) = broker.members.producers.group("P") or ()
            assert channel.grant is not None
            assert channel.grant.allows(publish_topic("T"))
            assert not channel.grant.allows(publish_topic("Other"))

"""Every setting that request 318 takes while running, by what it does."""

from __future__ import annotations

import json
from pathlib import Path

from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, send


def test_which_they_are() -> None:
    """Another one wants a test here."""
    assert {line.key for line in NamesrvSettings.lines() if line.live} == {"orderMessageEnable"}


async def test_whether_routes_say_the_order_of_queues(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        async with RawPeer(*cluster.brokers[0].address) as peer:
            assert (await peer.ask(send())).code == 0
        async with RawPeer(*cluster.namesrvs[0].address) as peer:

            async def order() -> str | None:
                answer = await peer.ask(Command(105, ext={"topic": "T"}))
                while answer.code == 17:  # the broker is registering it
                    answer = await peer.ask(Command(105, ext={"topic": "T"}))
                found: str | None = json.loads(answer.body).get("orderTopicConf")
                return found

            put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
            assert (await peer.ask(Command(100, ext=dict(put)))).code == 0
            assert await order() is None
            assert (await peer.ask(Command(318, body=b"orderMessageEnable=true"))).code == 0
            assert await order() == "broker-a:4"
            assert (await peer.ask(Command(318, body=b"orderMessageEnable=false"))).code == 0
            assert await order() is None

"""A broker and two name servers: what changes is told to both, and everything to one that comes back."""

from __future__ import annotations

from pathlib import Path

from rmq.namesrv.app import NamesrvApp
from rmq.protocol.bodies.topic import TopicConfig
from rmq.testing.cluster import Cluster
from tests.support.virtual import eventually


async def test_changes_reach_both_and_everything_one_that_comes_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path, namesrvs=2) as cluster:
        (broker,) = cluster.brokers

        def all_know() -> bool:
            wanted = broker.topics.data_version
            return all(
                app.routes.version_of(cluster.broker_addr) == wanted
                and set(app.routes.topics()) >= set(broker.topics.names())
                for app in cluster.namesrvs
            )

        await eventually(all_know)
        for name in ("A", "B", "C"):
            broker.topics.put(TopicConfig(name, 4, 4))
            await eventually(all_know)
        gone = cluster.namesrvs.pop()
        await gone.stop()
        broker.topics.put(TopicConfig("D", 4, 4))
        await eventually(all_know)
        gone.settings.listen_port = gone.address[1]
        back = NamesrvApp(cluster.world, gone.settings)
        await back.start()
        cluster.namesrvs.append(back)
        await eventually(all_know)
        broker.topics.put(TopicConfig("E", 4, 4))
        await eventually(all_know)

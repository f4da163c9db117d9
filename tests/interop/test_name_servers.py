"""Topics that brokers of both makes make one by one, at name servers of both: ours may be told the changes alone."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import ExitStack

import pytest

from rmq.aio import AdminClient
from rmq.protocol.errors import ResponseError
from rmq.runtime import patience
from tests.support.interop import fresh
from tests.support.peers import ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import start_broker

#: Queues at a broker, by its name.
Queues = dict[str, int]
BROKERS = ("of-java", "of-python")


async def routes(admin: AdminClient, topics: list[str], brokers: Collection[str]) -> dict[str, Queues]:
    """What a name server answers of topics and some brokers; nothing of those that it does not know."""
    found: dict[str, Queues] = {}
    for topic in topics:
        try:
            route = await admin.topic_route(topic)
        except ResponseError:
            found[topic] = {}
        else:
            found[topic] = {
                queue.broker_name: queue.read_queue_nums for queue in route.queue_datas if queue.broker_name in brokers
            }
    return found


async def told(admins: dict[str, AdminClient], wanted: dict[str, Queues], brokers: Collection[str] = BROKERS) -> None:
    """Wait until every name server knows exactly this of some brokers."""
    seen: dict[str, dict[str, Queues]] = {}
    wanted = {topic: {name: of[name] for name in of if name in brokers} for topic, of in wanted.items()}
    try:
        async with patience.timeout(90):  # Java brokers tell of all again every thirty
            while any(seen.get(name) != wanted for name in admins):
                for name, admin in admins.items():
                    seen[name] = await routes(admin, list(wanted), brokers)
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail("\n".join(f"{name} knows {known}, wanted {wanted}" for name, known in seen.items()))


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("version", ["4.9.4", "5.3.3"])
def test_both_brokers_at_both_name_servers(version: str) -> None:
    kind = f"java-{version}"
    with ExitStack() as stack:
        try:
            java = stack.enter_context(start_cluster(kind, brokers=0))
        except ToolMissing as missing:
            skip_or_fail(missing)
        ours = stack.enter_context(start_cluster("ours", brokers=0))
        at_both = {"namesrvAddr": f"{java.namesrv};{ours.namesrv}"}
        brokers = {
            name: start_broker(cluster, name, at_both) for name, cluster in zip(BROKERS, (java, ours), strict=True)
        }
        java.brokers.append(brokers["of-java"])
        ours.brokers.append(brokers["of-python"])

        async def change() -> None:
            wanted: dict[str, Queues] = {}

            async def make(at: AdminClient, name: str, topic: str, queues: int) -> None:
                addr = brokers[name].addr
                await at.create_and_update_topic(addr, topic, read_queue_nums=queues, write_queue_nums=queues)
                wanted.setdefault(topic, {})[name] = queues

            async with AdminClient(namesrv=java.namesrv) as at_java, AdminClient(namesrv=ours.namesrv) as at_ours:
                admins = {kind: at_java, "ours": at_ours}
                topics = [fresh("told", version) for _ in range(4)]
                for queues, topic in enumerate(topics, 1):
                    for name in brokers:
                        await make(at_ours, name, topic, queues)
                        await told(admins, wanted)
                for name in brokers:
                    await make(at_ours, name, topics[0], 8)  # a change of what they know
                    await told(admins, wanted)
                for name, broker in brokers.items():
                    await at_ours.delete_topic_in_broker([broker.addr], topics[1])
                    await make(at_ours, name, fresh("told", version), 2)  # behind one that is gone
                    await told(admins, wanted)
                # No broker tells of a topic that has gone: name servers keep it until they are asked.
                for admin in (at_java, at_ours):
                    await admin.delete_topic_in_name_servers(topics[1])
                wanted[topics[1]] = {}
                await told(admins, wanted)
                # One of several at once, each by a connection of its own.
                more = [fresh("told", version) for _ in range(8)]
                await asyncio.gather(
                    *(
                        at_ours.create_and_update_topic(brokers["of-python"].addr, topic, read_queue_nums=3)
                        for topic in more
                    )
                )
                wanted.update({topic: {"of-python": 3} for topic in more})
                await told(admins, wanted)
                # A name server that comes back knows nothing of any of it; Java's broker tells it within half a minute.
                ours.namesrv_daemon.stop()
                ours.namesrv_daemon.start()
                brokers["of-python"].daemon.stop()
                brokers["of-python"].daemon.start()
            async with AdminClient(namesrv=java.namesrv) as at_java, AdminClient(namesrv=ours.namesrv) as at_ours:
                admins = {kind: at_java, "ours": at_ours}
                await told(admins, wanted, BROKERS[1:])
                await make(at_ours, "of-python", fresh("told", version), 1)
                await told(admins, wanted, BROKERS[1:])

        asyncio.run(change())

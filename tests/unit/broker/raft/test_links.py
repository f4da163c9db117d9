"""What members of a group say to each other when their connections open."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
async def test_whom_a_member_meets_while_it_connects_is_told_all_the_same() -> None:
    """A member that was not told could not take part, for good if the other is gone by then."""
    cluster = GroupCluster()
    cluster.waits = True
    async with cluster:
        network: Any = cluster.simulation.nodes["n1"].world.network
        connect = network.connect

        async def slowly(factory: Any, host: str, port: int, **named: Any) -> Any:
            made = await connect(factory, host, port, **named)
            if host == cluster.addresses["n2"]:  # as on a busy loop: it is open, and the member does not know it yet
                await asyncio.sleep(2)
            return made

        network.connect = slowly
        for name in ("n0", "n2", "n1"):
            await cluster.begin(name)
        groups = [app.group for app in cluster.members.values()]
        await eventually(lambda: all(group is not None and group.takes_part for group in groups), 10)

"""What members of a group say to each other when their connections open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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


@in_virtual_time
async def test_a_port_where_no_member_listens_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """That of a broker's clients, here: it takes the connection, and closes it at the first bytes."""
    cluster = GroupCluster(seed=9)
    cluster.waits = True
    async with cluster:
        await cluster.begin("n0")
        wrong = {"n0": 10911, "n1": 40911, "n2": 40911}
        peers = ";".join(f"{name}-{at}:{wrong[name]}" for name, at in cluster.addresses.items())
        await cluster.begin("n1", dLegerPeers=peers)
        await asyncio.sleep(3)
    told = "it closes the connection and says nothing: no member listens there, perhaps; it is tried again"
    assert any(line.startswith("connecting to n0 of the group") and line.endswith(told) for line in caplog.messages)


@in_virtual_time
async def test_a_member_that_came_back_is_told_when_it_is_there_and_not_when_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "rmq.broker.raft.links")
    cluster = GroupCluster(seed=3)
    async with cluster:
        await cluster.led_by()
        await asyncio.sleep(60)
        await cluster.kill("n2")
        await asyncio.sleep(2)
        await cluster.begin("n2")
        again = "connecting to n2 of the group works again"
        await eventually(lambda: sum(line.startswith(again) for line in caplog.messages) == 2, 3)
        await asyncio.sleep(60)
        caplog.clear()
        await cluster.kill("n2")
        await asyncio.sleep(2)
        told = [line.partition(":")[0] for line in caplog.messages]
        assert told == ["connecting to n2 of the group fails"] * 2

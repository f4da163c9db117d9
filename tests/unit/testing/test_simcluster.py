"""What a cluster in virtual time takes, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.protocol.errors import WrongType
from rmq.runtime import patience
from rmq.testing import SimCluster
from rmq.testing.simloop import SimLoop


def run(work: Any) -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(work())


def test_a_cut_is_of_that_broker_set_alone() -> None:
    async def work() -> None:
        async with SimCluster(brokers=11) as cluster:
            cluster.cut(1)
            nodes, clients = cluster.simulation.nodes, cluster.world
            reached = {}
            for name in ("broker-0", "broker-1", "broker-10"):
                try:
                    async with patience.timeout(1.0):
                        transport, _ = await clients.network.connect(asyncio.Protocol, nodes[name].address, 10911)
                    transport.close()
                    reached[name] = True
                except (OSError, TimeoutError):
                    reached[name] = False
            assert reached == {"broker-0": True, "broker-1": False, "broker-10": True}

    run(work)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"seconds": "1"}, WrongType, "seconds is '1': give a number"),
        ({"minutes": None}, WrongType, "minutes is None: give a number"),
        ({"hours": True}, WrongType, "hours is True: give a number"),
        ({"seconds": -1}, ValueError, "time does not go back"),
        ({"days": float("nan")}, ValueError, "time does not go back"),
        ({"days": float("inf")}, ValueError, "time does not go back"),
    ],
)
def test_time_is_a_number(given: dict[str, Any], error: type[Exception], said: str) -> None:
    async def work() -> None:
        async with SimCluster() as cluster:
            with pytest.raises(error, match=said):
                await cluster.advance(**given)
            with pytest.raises(WrongType, match="a topic is a text, not int"):
                await cluster.messages(3)  # type: ignore[arg-type]
            with pytest.raises(WrongType, match="number is 'x'"):
                await cluster.kill_broker("x")  # type: ignore[arg-type]

    run(work)

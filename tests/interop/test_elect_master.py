"""mqadmin of Java 5.3.3 has another member lead a group of ours, as it does with Java's own controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.runtime import patience
from tests.support.peers import Client
from tests.support.raft.processes import NAMES, ProcessGroup


async def test_javas_tool_gives_the_lead_to_a_member(tmp_path: Path, clients: Callable[[str, str], Client]) -> None:
    tool = clients("java-5.3.3", "tested")
    async with ProcessGroup(tmp_path) as group:

        async def java(*words: str, says: Callable[[list[str]], bool]) -> list[str]:
            """What the tool says, asked again until it says that: a member may not have heard yet who leads now."""
            lines: list[str] = []
            for _ in range(60):
                said = await asyncio.to_thread(tool.call, "mqadmin", namesrv=group.namesrv, args=list(words))
                lines = [line.rstrip() for line in said["output"].splitlines()]
                told = [line for line in lines if line.lstrip().startswith("#") or " leads " in line]
                if says(told):
                    return told
                await asyncio.sleep(0.5)
            pytest.fail(f"{words}: {lines}")

        def address(name: str) -> str:
            return f"127.0.0.1:{group.ports[name]}"

        old = await group.leader()
        heir = next(name for name in NAMES if name != old)
        metadata = [
            "#ControllerGroup\tgroup",
            f"#ControllerLeaderId\t{old}",
            f"#ControllerLeaderAddress\t{address(old)}",
        ]
        told = await java("getControllerMetaData", "-a", address(heir), says=lambda told: told[:3] == metadata)
        assert len(told) == 6

        words = ("-b", str(int(heir[1:]) + 1), "-bn", "group", "-c", "DefaultCluster")
        given = ["#ClusterName\tDefaultCluster", "#BrokerName\tgroup", f"#BrokerMasterAddr\t{address(heir)}"]
        # Asked of one that follows: the tool looks for the leader itself.
        told = await java("electMaster", "-a", address(heir), *words, says=lambda told: told[:3] == given)
        assert told[3].startswith("#MasterEpoch\t")
        assert len([line for line in told if line.startswith("\t#Broker\t")]) == 3
        async with patience.timeout(30):
            while True:
                if await group.leader() == heir:
                    break
                await asyncio.sleep(0.1)
        already = f"{heir} leads group already"
        await java("electMaster", "-a", address(old), *words, says=lambda told: any(already in line for line in told))

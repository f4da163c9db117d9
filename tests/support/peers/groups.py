"""A group of brokers that elects its master, ours or Java's DLedger, as real processes behind one interface."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World

from .cluster import NO_TLS, Broker, Cluster, start_broker, start_cluster
from .ports import free_port
from .process import PATIENCE, ProcessFailed

__all__ = ["GROUP", "Group", "start_group"]

GROUP = "group"


class Group:
    """A name server of ours, and members that are started together.

    members: by dLegerSelfId. cluster: what they belong to; its brokers are the members.
    """

    def __init__(self, cluster: Cluster, members: Mapping[str, Broker]) -> None:
        self.cluster = cluster
        self.members = dict(members)
        #: Members that were killed and not started again.
        self.dead: set[str] = set()

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv

    def leader(self, but: str = "", *, within: float = PATIENCE) -> str:
        """Wait until the name server has a master of the group that is alive; its name.

        :param but: a member that does not count: the one that led before.
        :param within: seconds.
        :raises ProcessFailed: there is none.
        """
        until = time.monotonic() + within
        while time.monotonic() < until:
            address = asyncio.run(self._master())
            for name, member in self.members.items():
                if member.addr == address and name not in self.dead and name != but:
                    return name
            time.sleep(0.05)
        raise ProcessFailed(f"{self.cluster.kind}: no member leads; {self.cluster.logs()}")

    async def _master(self) -> str | None:
        async with RemotingClient(World.real()) as client:
            answer = await client.request(self.namesrv, Command(RequestCode.GET_BROKER_CLUSTER_INFO), 10)
        table = fastjson.loads(answer.body)["brokerAddrTable"].get(GROUP)
        addresses = {} if table is None else table["brokerAddrs"]
        return next((addr for number, addr in addresses.items() if int(number) == 0), None)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.members[name].daemon.kill()
        self.dead.add(name)

    def start(self, name: str) -> None:
        """Start it again; returns when it says that it has started."""
        self.members[name].daemon.start()
        self.dead.discard(name)

    def stop(self) -> None:
        """All of it. Safe to call twice."""
        self.cluster.stop()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_group(
    kind: str = "ours",
    *,
    count: int = 3,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = NO_TLS,
) -> Group:
    """Start it, and wait until a member leads.

    :param kind: as of ``start_cluster``.
    :param properties: of every member, over ``BROKER_DEFAULTS``.
    :raises ToolMissing: no java or mvn.
    :raises ProcessFailed: a member did not start.
    """
    cluster = start_cluster(kind, brokers=0, our_namesrv=True)
    try:
        names = [f"n{number}" for number in range(count)]
        peers = ";".join(f"{name}-127.0.0.1:{free_port()}" for name in names)
        made = {
            "enableDLegerCommitLog": "true", "dLegerGroup": GROUP, "dLegerPeers": peers, "brokerName": GROUP,
            **(properties or {}),
        }  # fmt: skip
        # Ours begins once each has met each.
        with ThreadPoolExecutor(count) as pool:
            started = list(
                pool.map(lambda name: start_broker(cluster, name, {**made, "dLegerSelfId": name}, java_options), names)
            )
        cluster.brokers += started
        group = Group(cluster, dict(zip(names, started, strict=True)))
        group.leader()
        return group
    except BaseException:
        cluster.stop()
        raise

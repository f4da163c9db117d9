"""A real nameserver and broker in the test process, over loopback, with a store in a temporary folder.

::

    async with Cluster(tmp_path) as cluster:
        producer = rmq.aio.Producer("group", namesrv=cluster.namesrv_addr)

    with BlockingCluster(tmp_path) as cluster:          # the same on a thread of its own, for blocking code
        producer = rmq.Producer("group", namesrv=cluster.namesrv_addr)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.client.checks import check_word, typed
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.errors import WrongType
from rmq.protocol.keywords import keywords
from rmq.runtime.background import LoopThread
from rmq.runtime.system import check_serves
from rmq.runtime.world import World

__all__ = ["BlockingCluster", "Cluster"]

T = TypeVar("T")

_HOST = "127.0.0.1"
#: Small files: a test cluster starts in milliseconds and takes little room. Patient queues: no sends are shed when the
#: machine is busy for a second.
_TEST_DEFAULTS: dict[str, str] = {
    "listenPort": "0",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "syncFlushTimeout": "60000",
}


@typed()
class Cluster:
    """One or more nameservers and brokers on the running loop.

    :param folder: where the stores are; kept after :meth:`stop`, so that a second cluster finds them.
    :param brokers: broker sets, named ``broker-0`` and so on.
    :param slaves: slaves of each.
    :param namesrvs: nameservers.
    :param settings: Java key -> text for every broker, such as ``{"flushDiskType": "SYNC_FLUSH"}``.
    :param world: the real one when not given.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        brokers: int = 1,
        slaves: int = 0,
        namesrvs: int = 1,
        settings: dict[str, str] | None = None,
        world: World | None = None,
    ) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise WrongType(f"folder is {folder!r:.60}: give a path")
        if settings is not None and not isinstance(settings, Mapping):
            raise WrongType(f"settings is {settings!r:.60}: give texts by their Java keys")
        for key, value in (settings or {}).items():
            check_word(value, f"the setting {key}")
        self.folder: str = os.fspath(folder)
        self.world: World = world if world is not None else World.real()
        self.settings: dict[str, str] = {**_TEST_DEFAULTS, **(settings or {})}
        self.namesrvs: list[NamesrvApp] = []
        self.brokers: list[BrokerApp] = []
        self._broker_count = brokers
        self._slave_count = slaves
        self._namesrv_count = namesrvs

    @property
    def namesrv_addr(self) -> str:
        """What clients take: ``host:port;host:port``."""
        return ";".join(_text(app.address) for app in self.namesrvs)

    @property
    def broker_addr(self) -> str:
        """``host:port`` of the first broker, as routes say it."""
        broker = self.brokers[0]
        return f"{broker.settings.broker_ip1}:{broker.address[1]}"

    def _machine(self, name: str) -> tuple[World, str]:
        """The world and the address of a name server or a broker."""
        return self.world, _HOST

    async def start(self) -> None:
        """Start nameservers, then brokers; when it returns, the brokers are registered.

        :raises StoreError: in the real world, on a system without POSIX.
        """
        if self.world.stalls is not None:
            check_serves()
        try:
            for number in range(self._namesrv_count):
                await self.start_namesrv(number)
            for number in range(self._broker_count):
                await self.start_broker(number)
                for broker_id in range(1, self._slave_count + 1):
                    await self.start_slave(number, broker_id)
        except BaseException:
            await self.stop()
            raise

    async def start_namesrv(self, number: int = 0, **settings: str) -> NamesrvApp:
        """Start one more nameserver.

        :param settings: Java keys for this one.
        """
        world, host = self._machine(f"namesrv-{number}")
        home = os.path.join(self.folder, f"namesrv-{number}")
        made = NamesrvSettings.from_sources(
            overrides={
                "bindAddress": host,
                "listenPort": "0",
                "kvConfigPath": os.path.join(home, "kvConfig.json"),
                "configStorePath": os.path.join(home, "namesrv.properties"),
                **settings,
            }
        )
        app = NamesrvApp(world, made)
        await app.start()
        self.namesrvs.append(app)
        return app

    async def start_broker(self, number: int = 0, **settings: str) -> BrokerApp:
        """Start one more broker; the same number finds the same store.

        :param settings: Java keys for this one.
        """
        return await self._start(f"broker-{number}", {"brokerName": f"broker-{number}", **settings})

    async def _start(self, machine: str, settings: dict[str, str]) -> BrokerApp:
        world, host = self._machine(machine)
        made = BrokerSettings.from_sources(
            overrides={
                "brokerIP1": host,
                "brokerIP2": host,
                "bindAddress": host,
                **self.settings,
                "namesrvAddr": self.namesrv_addr,
                "storePathRootDir": os.path.join(self.folder, machine),
                **settings,
            }
        )
        app = BrokerApp(world, made)
        await app.start()
        self.brokers.append(app)
        return app

    async def start_slave(self, number: int = 0, broker_id: int = 1, **settings: str) -> BrokerApp:
        """Start a slave of a broker set, which serves pulls; the same numbers find the same store.

        :param settings: Java keys for this one.
        """
        made = {
            "brokerName": f"broker-{number}",
            "brokerRole": "SLAVE",
            "brokerId": str(broker_id),
            "slaveReadEnable": "true",
        }
        return await self._start(f"broker-{number}-{broker_id}", {**made, **settings})

    async def stop_broker(self, app: object) -> None:
        """Stop one of ``brokers`` cleanly."""
        for one in [one for one in self.brokers if one is app]:
            self.brokers.remove(one)
            await one.stop()

    async def stop(self) -> None:
        """Stop brokers, then nameservers, the newest first."""
        while self.brokers:
            await self.brokers.pop().stop()
        while self.namesrvs:
            await self.namesrvs.pop().stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"{host}:{port}"


@keywords
class BlockingCluster:
    """:class:`Cluster` on a loop thread of its own; takes the same arguments."""

    def __init__(self, folder: str | os.PathLike[str], **arguments: Any) -> None:
        Cluster(folder, **arguments)  # what it does not take is refused here, where it is given
        self._folder = folder
        self._arguments = arguments
        self._thread: LoopThread | None = None
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster; its coroutines run with :meth:`call`."""
        if self._cluster is None:
            raise RuntimeError("the cluster is not started")
        return self._cluster

    @property
    def namesrv_addr(self) -> str:
        return self.cluster.namesrv_addr

    @property
    def broker_addr(self) -> str:
        return self.cluster.broker_addr

    def call(self, what: Callable[[Cluster], Any], timeout: float = 120.0) -> Any:
        """Run ``what(cluster)``, which returns a coroutine, on the cluster's loop.

        :param timeout: seconds.
        """
        if self._thread is None:
            raise RuntimeError("the cluster is not started")
        return self._thread.call(what(self.cluster), timeout)

    def start(self) -> None:
        self._thread = LoopThread("rmq-test-cluster")
        self._cluster = Cluster(self._folder, **self._arguments)
        try:
            self._thread.call(self._cluster.start(), 120)
        except BaseException:
            self._thread.stop()
            raise

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._cluster is not None:
            try:
                thread.call(self._cluster.stop(), 120)
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

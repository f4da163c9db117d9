"""The nameserver, wired: state, handlers, transport and the scan for silent brokers (Java: NamesrvController)."""

from __future__ import annotations

import logging

from rmq.auth.control import AccessControl
from rmq.namesrv.access import NAMESRV_ACCESS
from rmq.namesrv.brokers import BrokerService
from rmq.namesrv.configuration import ConfigService
from rmq.namesrv.kv import KVService
from rmq.namesrv.kvconfig import KVConfig
from rmq.namesrv.lookup import LookupService
from rmq.namesrv.metrics import NamesrvMetrics
from rmq.namesrv.routes import RouteTable
from rmq.namesrv.settings import NamesrvSettings, expand
from rmq.protocol.errors import ConfigError
from rmq.protocol.names import TRACE_TOPIC
from rmq.remoting.health import Observer
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.ending import Parts
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["NamesrvApp"]

#: Seconds until the first scan for silent brokers, and between scans (store-and-broker.md 9.3).
FIRST_SCAN = 5.0
SCAN_PERIOD = 10.0

log = logging.getLogger(__name__)


class NamesrvApp:
    """One nameserver: ``await start()``, serve, ``await stop()``; or ``async with``.

    :param settings: as read; live keys may be changed by request 318.
    :param config: the file that changed keys are written to; ``configStorePath`` when not given.
    """

    def __init__(self, world: World, settings: NamesrvSettings, *, config: str | None = None) -> None:
        self.settings = settings
        self.routes = RouteTable()
        self.kv = KVConfig(world, expand(settings.kv_config_path))
        self._brokers = BrokerService(self.routes, self.kv, world.clock, settings)
        self._router = Router(
            [
                self._brokers,
                LookupService(self.routes, self.kv, settings),
                KVService(self.kv, settings, self.routes.departed),
                ConfigService(world, settings, config or expand(settings.config_store_path)),
            ]
        )
        settings.check_acl()
        self.access: AccessControl | None = None
        if settings.acl_enable:
            self.access = AccessControl(world, settings, NAMESRV_ACCESS, TRACE_TOPIC)
            self._router.guard = self.access.guard
        self._server = Server(
            world,
            self._router,
            Limits(
                idle_seconds=float(settings.server_channel_max_idle_time_seconds),
                unread=settings.unread_answers_max_bytes,
            ),
            tls=settings.server_tls(),
            settings=settings,
            name="namesrv",
        )
        self._server.on_close.append(self._brokers.on_close)
        if self.access is not None:
            self._server.on_close.append(self.access.quotas.closed)
        self._begun = Parts("the nameserver")
        self._tasks = TaskOwner("namesrv")
        metrics = NamesrvMetrics(
            self.routes, lambda: len(self._server.connections), self._server.unread, self._server.cut_off, self.access
        )
        self.observer = Observer(world, settings, "namesrv", missing=lambda: None, metrics=metrics.page)
        self.observer.services.watch(self._tasks, *([] if self.access is None else [self.access.tasks]))
        self._address: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was taken."""
        if self._address is None:
            raise RuntimeError("the nameserver is not started")
        return self._address

    @property
    def codes(self) -> list[int]:
        """Every request code that is answered here."""
        return self._router.codes()

    async def start(self) -> None:
        """Read the key-value settings and listen.

        :raises StoreError: the key-value settings cannot be read.
        :raises ConfigError: the port is taken, or the address is not one of this machine.
        """
        try:
            await self._start()
        except BaseException:
            await self._begun.unwind()
            raise
        log.info("the nameserver listens on %s:%d", *self.address)

    async def _start(self) -> None:
        begins = self._begun.push
        if self.access is not None:
            await self.access.load()
            begins("access control", self.access.stop)
            self.access.start()
        begins("the observer", self.observer.stop)
        await self.observer.start()
        await self.kv.load()
        begins("the server", self._server.stop)
        await self._listen()
        begins("its own tasks", self._tasks.close)
        self._tasks.every(SCAN_PERIOD, self._brokers.scan, "scan", first=FIRST_SCAN)
        begins("its readiness", self.observer.leaving)
        self.observer.serving()

    async def _listen(self) -> None:
        host, port = self.settings.bind_address, self.settings.listen_port
        try:
            self._address = await self._server.start(host, port, backlog=self.settings.server_socket_backlog)
        except OSError as error:
            where = f"{host or '*'}:{port}"
            raise ConfigError(
                f"the nameserver cannot listen on {where}: {error.strerror or error}: "
                "stop what has it, or set another listenPort or bindAddress"
            ) from error

    async def stop(self) -> list[str]:
        """Stop accepting, answer what is in flight, close every connection.

        :returns: what did not end as it should.
        """
        failed = await self._begun.unwind()
        log.info("the nameserver stopped")
        return failed

    async def __aenter__(self) -> NamesrvApp:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

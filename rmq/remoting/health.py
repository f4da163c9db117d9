"""What a daemon tells its operators over HTTP: probes, metrics and the lag of its loop, with the settings for it.

``/health/live`` answers while the process serves at all, ``/health/ready`` once clients may be sent to it, ``/metrics``
with Prometheus' text. All of it is off until ``metricsExporterType=PROM`` (RocketMQ 5's keys).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain

from rmq.config.settings import INT_MAX, setting
from rmq.protocol.errors import ConfigError
from rmq.remoting.health_http import Answer, HttpListener
from rmq.remoting.lag import LoopLag
from rmq.remoting.limit_settings import LimitSettings
from rmq.remoting.limits import Rationed
from rmq.remoting.metrics import CONTENT_TYPE, Family, Labels, render
from rmq.runtime.aside import logger
from rmq.runtime.services import Services
from rmq.runtime.world import World

__all__ = ["Observer", "ObserverSettings"]

log = logger(__name__)

#: Pages of metrics rendered at a time: each holds its whole text.
_RENDERED_AT_ONCE = 2
#: Bytes of a file with a token in it.
_LONGEST_TOKEN = 4_096
_LOOPBACK = "127.0.0.1"


class ObserverSettings(LimitSettings):
    """The keys of this part, for every daemon."""

    metrics_exporter_type: str = setting(
        "DISABLE",
        key="metricsExporterType",
        doc="PROM serves /metrics, /health/live and /health/ready over HTTP; DISABLE does not.",
    )
    metrics_prom_exporter_port: int = setting(
        5557, key="metricsPromExporterPort", minimum=0, maximum=65535, doc="Port of /metrics and /health."
    )
    metrics_prom_exporter_host: str = setting(
        "127.0.0.1",
        key="metricsPromExporterHost",
        doc="Address they are served on; 0.0.0.0 or :: is every one. Probes from other machines need one of those.",
    )
    metrics_token_file: str = setting(
        "",
        key="metricsTokenFile",
        unit="path",
        doc="A file with a token: /metrics is told to those alone who send it (Authorization: Bearer), and whoever is "
        "healthy to everybody. It is read at each request.",
    )
    loop_stall_warn_mills: int = setting(
        50,
        key="loopStallWarnMills",
        unit="ms",
        minimum=0,
        maximum=INT_MAX,
        doc="Standstills of the event loop beyond it are counted and logged with what it ran; 0 = do not look.",
    )

    def check_observer(self) -> None:
        """Refuse exporters that are not served here.

        :raises ConfigError: names the key and what to do.
        """
        if self.metrics_exporter_type not in ("DISABLE", "PROM"):
            raise self.refused(
                "metricsExporterType", "must be DISABLE or PROM; other exporters can read /metrics of PROM"
            )


class Observer:
    """The observed side of one daemon.

    :param name: of the daemon, in log lines.
    :param missing: why clients may not be sent here yet, or None when they may.
    :param metrics: by the query's parameters, the labels of every sample and the metrics; asked once it serves.
    """

    def __init__(
        self,
        world: World,
        settings: ObserverSettings,
        name: str,
        *,
        missing: Callable[[], str | None],
        metrics: Callable[[Mapping[str, str]], Awaitable[tuple[Labels, Iterable[Family]]]],
    ) -> None:
        self._settings = settings
        self._name = name
        self._missing = missing
        self._told = metrics
        self._rendering = 0
        self._serving = False
        self._state = "starting"
        pages = {"/health/live": self._live, "/health/ready": self._ready, "/metrics": self._metrics}
        self._world = world
        self._http = HttpListener(world, pages, f"{name}-http", admit=self._admit)
        self._complaints = Rationed(world.clock)
        #: The daemon's background services: it is not ready without one of them.
        self.services = Services(name)
        limit = settings.loop_stall_warn_mills
        self.lag = LoopLag(world, limit, name) if limit > 0 and world.stalls is not None else None
        #: Where it listens; None when it does not.
        self.address: tuple[str, int] | None = None

    async def start(self) -> None:
        """Listen, when that is configured: from the beginning of the daemon's start on.

        :raises ConfigError: an exporter that is not served, a port that is taken, or an address of another machine.
        """
        settings = self._settings
        settings.check_observer()
        if settings.metrics_exporter_type != "PROM":
            return
        host, port = settings.metrics_prom_exporter_host or _LOOPBACK, settings.metrics_prom_exporter_port
        if settings.metrics_token_file:
            try:
                await self._token()
            except ValueError as error:
                raise settings.refused("metricsTokenFile", str(error)) from None
        elif host not in (_LOOPBACK, "::1", "localhost"):
            log.warning("metrics are told to whoever reaches %s:%d: metricsTokenFile asks for a token", host, port)
        try:
            self.address = await self._http.start(host, port)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {host or '*'}:{port}: {error.strerror or error}: "
                "stop what listens there, or set another metricsPromExporterPort"
            ) from error
        log.info("metrics and health of the %s on http://%s:%d", self._name, *self.address)

    def serving(self) -> None:
        """The daemon has started: its metrics can be told, and its loop is watched."""
        self._serving = True
        if self.lag is not None:
            self.lag.start()

    def leaving(self) -> None:
        """The daemon begins to stop: it lives, and nobody is to be sent to it any more."""
        self._serving = False
        self._state = "stopping"
        if self.lag is not None:
            self.lag.stop()

    async def stop(self) -> None:
        self.address = None
        await self._http.stop()

    async def _token(self) -> bytes:
        """:raises ValueError: the file of the token cannot be read, or has none."""
        path = self._settings.metrics_token_file
        try:
            token = (await self._world.offload(self._world.files.read, path, _LONGEST_TOKEN)).strip()
        except OSError as error:
            raise ValueError(f"it cannot be read: {error.strerror or error}") from None
        if not token:
            raise ValueError("it is empty: a token is expected")
        return token

    async def _admit(self, path: str, authorization: bytes) -> Answer | None:
        """Probes are answered to everybody: they tell nothing of topics, and who sends them knows no secret."""
        if path != "/metrics" or not self._settings.metrics_token_file:
            return None
        scheme, _, given = authorization.partition(b" ")
        try:
            token = await self._token()
        except ValueError as error:
            self._complaints.say(log.warning, "metricsTokenFile=%s: %s", self._settings.metrics_token_file, error)
            return Answer(503, b"the token cannot be read; the log says more\n")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token):
            return None
        return Answer(401, b"send the token: Authorization: Bearer ...\n")

    async def _live(self, query: Mapping[str, str]) -> Answer:
        return Answer(200, b"alive\n")

    async def _ready(self, query: Mapping[str, str]) -> Answer:
        missing = self.services.missing or self._missing() if self._serving else f"the {self._name} is {self._state}"
        return Answer(200, b"ready\n") if missing is None else Answer(503, f"not ready: {missing}\n".encode())

    def _running(self) -> Family:
        services = self.services
        states = {**dict.fromkeys(services.running, 1), **dict.fromkeys(services.ended, 0)}
        return Family(
            "rmq_service_running",
            "gauge",
            "1 while a background service runs, 0 when it has ended before its time",
            [("", (("service", name),), value) for name, value in states.items()],
        )

    async def _metrics(self, query: Mapping[str, str]) -> Answer:
        if not self._serving or self._rendering >= _RENDERED_AT_ONCE:
            return Answer(503, b"starting, stopping, or asked too often at a time\n")
        self._rendering += 1
        try:
            lag = self.lag.families() if self.lag is not None else []
            labels, families = await self._told(query)
            body = await render(chain(families, [self._running()], lag), labels)
        finally:
            self._rendering -= 1
        return Answer(200, body, CONTENT_TYPE)

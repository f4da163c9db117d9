"""``/livez`` and ``/readyz`` of an application, for whoever restarts it or sends it work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from rmq.protocol.errors import ConfigError
from rmq.remoting.client import split_address
from rmq.remoting.health_http import Answer, HttpListener
from rmq.runtime.aside import logger

if TYPE_CHECKING:
    from rmq.app.application import App

__all__ = ["Health"]

log = logger(__name__)

_JSON = "application/json"


class Health:
    """The two pages of one application.

    ``/livez`` answers 200 while its loop runs. ``/readyz`` answers 200 while it receives, 503 with the reason before,
    while it stops, and while nobody answers from whom a consumer would get messages; its JSON has, by group, the
    queues that are ours, the messages held and the lag.

    :param address: ``host:port``; port 0 takes a free one.
    :raises ConfigError: it is no address.
    """

    def __init__(self, app: App, address: str) -> None:
        host, colon, port = address.rpartition(":")
        # Port 0 is no address to send to, but one to listen on.
        self._host, self._port = (host.strip("[]"), 0) if colon and host and port == "0" else split_address(address)
        self._app = app
        self._http = HttpListener(app.world, {"/livez": self._live, "/readyz": self._ready}, f"{app.name}-health")
        #: Where it listens; None when it does not.
        self.address: tuple[str, int] | None = None

    async def start(self) -> None:
        """:raises ConfigError: the address is taken, or not this machine's."""
        try:
            self.address = await self._http.start(self._host, self._port)
        except OSError as error:
            raise ConfigError(
                f"the health of {self._app.name} cannot be served on {self._host}:{self._port}: "
                f"{error.strerror or error}: stop what listens there, or give another health="
            ) from error
        log.info("health of %s on http://%s:%d/readyz", self._app.name, *self.address)

    async def stop(self) -> None:
        self.address = None
        await self._http.stop()

    async def _live(self, query: Mapping[str, str]) -> Answer:
        return Answer(200, b"alive\n")

    async def _ready(self, query: Mapping[str, str]) -> Answer:
        missing = self._app.missing
        told = {"ready": missing is None, "missing": missing, "groups": self.groups()}
        return Answer(200 if missing is None else 503, orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE), _JSON)

    def groups(self) -> dict[str, dict[str, Any]]:
        """By group: its queues here, what is held, the lag."""
        return {
            group: {
                "queues": len(consumer.assignment),
                "held": sum(held.count for held in consumer._inner.process_queues().values()),
                "lag": sum(consumer.lag().values()),
            }
            for group, consumer in self._app.consumers.items()
        }

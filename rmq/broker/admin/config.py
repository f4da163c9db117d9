"""The broker's configuration over the wire (requests 25, 26; store-and-broker.md 10.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmq.broker.roles.role import Role
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.settings import StoreSettings
from rmq.broker.topics.table import TopicTable
from rmq.broker.topics.versions import following
from rmq.config.edit import edit_file
from rmq.config.sources import parse_update
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ResponseError
from rmq.protocol.headers.admin import GetBrokerConfigResponse
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.runtime.world import World

__all__ = ["ConfigAdmin"]

log = logging.getLogger(__name__)


class ConfigAdmin:
    """Handlers of 25 and 26.

    :param store: the store's copy of the settings it reads while running.
    :param role: what the broker is now.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        topics: TopicTable,
        store: StoreSettings,
        role: Callable[[], Role],
    ) -> None:
        self._world = world
        self._settings = settings
        self._topics = topics
        self._store = store
        self._role = role
        self._writing = asyncio.Lock()
        self._version = DataVersion(counter=0, timestamp=world.clock.now_ms())
        settings.on_update.append(self._applied)

    def _applied(self, keys: list[str]) -> None:
        self._settings.apply_to(self._store)
        if "brokerPermission" in keys:
            self._topics.touch()
        if "autoCreateTopicEnable" in keys:
            self._topics.auto_creation_changed()

    @handles(RequestCode.UPDATE_BROKER_CONFIG)
    async def update(self, conn: Conn, request: Command) -> Command:
        """25: change keys that may change while running, here and in the file.

        Unknown keys are dropped, as in Java. A value that is wrong, or a key that needs a restart, is refused with all
        of the request; Java takes no notice of the one and pretends the other.
        """
        if not request.body:
            return request.reply(ResponseCode.SUCCESS)
        try:
            content = request.body.decode()
            refused = self._settings.forbidden(content)
        except (UnicodeDecodeError, ConfigError, ValueError) as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from None
        if refused:
            log.warning("%s may not change %s", conn.peer, ", ".join(refused))
            raise ResponseError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            applied = self._settings.update(content)
        except ConfigError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changes the configuration: %s", conn.peer, ", ".join(applied) or "nothing")
        self._version = following(self._version, self._world.clock.now_ms())
        await self._save(content)
        return request.reply(ResponseCode.SUCCESS)

    async def _save(self, content: str) -> None:
        """Put the changes into the file the broker was started with, leaving the rest of it as it is."""
        settings = self._settings
        path = settings.broker_config_path or settings.config_path("broker.properties")
        if path.endswith((".yaml", ".yml")):
            log.warning("%s is not changed: only .properties files are", path)
            return
        known = {
            given.key: (given.value or "").strip()
            for given in parse_update(content)
            if settings.line(given.key) is not None or given.key in settings.inert
        }
        if not known:
            return
        try:
            async with self._writing:
                await self._world.offload(edit_file, self._world.files, path, known)
        except (OSError, ValueError) as error:
            log.error("the change is not in %s, it is lost at the next start: %s", path, error)

    @handles(RequestCode.GET_BROKER_CONFIG)
    def get(self, conn: Conn, request: Command) -> Command:
        """26: every key with its value."""
        told = self._told_besides()
        lines = [line for line in self._settings.dump().splitlines() if line.partition("=")[0] not in told]
        lines += [f"{key}={text}" for key, text in told.items()]
        return request.reply(
            ResponseCode.SUCCESS,
            header=GetBrokerConfigResponse(version=self._version.encode().decode()),
            body="".join(f"{line}\n" for line in lines).encode(),
        )

    def _told_besides(self) -> dict[str, str]:
        """Java's keys that are no settings here, but that its tools look for: exportConfigs ends where one is missing.

        What they say is so, whatever a file gives them; in a group that elects its master, what a member is, too.
        """
        role = self._role()
        of_group = {
            "brokerId": str(role.broker_id),
            "brokerRole": "SYNC_MASTER" if role.leads else "SLAVE",
        }  # as Java's DLedger brokers tell it
        return {
            **(of_group if self._settings.enable_dleger_commit_log else {}),
            "filterServerNums": "0",
            "useTLS": "true" if self._settings.tls_enable else "false",
            # exportMetrics prints it as cpuNum: Java has as many of these threads as it has processors.
            "clientCallbackExecutorThreads": str(self._world.identity.processors()),
        }

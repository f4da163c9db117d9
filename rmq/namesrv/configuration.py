"""Reading and changing the nameserver's settings: 318, 319 (protocol.md 2.1, store-and-broker.md 10.1).

Only live keys change, all of a request or none; the file gets the changed lines and keeps the others. Keys that name
paths, or the black list itself, are refused with 16: by them a stranger could have files written anywhere (field case
B110).
"""

from __future__ import annotations

import asyncio
import logging

from rmq.config.edit import edit_file
from rmq.config.sources import parse_update
from rmq.namesrv.settings import JAVA_DEFAULTS, NamesrvSettings
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ResponseError
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.runtime.world import World

__all__ = ["ConfigService"]

log = logging.getLogger(__name__)


class ConfigService:
    """Handlers over the settings object that the whole nameserver reads.

    :param path: the file that changed keys are written to: .properties; one in YAML is left alone.
    """

    def __init__(self, world: World, settings: NamesrvSettings, path: str) -> None:
        self._world = world
        self._settings = settings
        self._path = path
        self._writing = asyncio.Lock()

    @handles(RequestCode.GET_NAMESRV_CONFIG)
    def get(self, conn: Conn, request: Command) -> Command:
        inert = "".join(f"{key}={value}\n" for key, value in JAVA_DEFAULTS.items())
        return request.reply(ResponseCode.SUCCESS, body=(self._settings.dump() + inert).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG)
    async def update(self, conn: Conn, request: Command) -> Command:
        if not request.body:
            return request.reply(ResponseCode.SUCCESS)
        try:
            content = request.body.decode()
            given = parse_update(content)
        except (UnicodeDecodeError, ConfigError) as error:
            log.warning("%s sent settings that cannot be read: %s: nothing changed", conn.peer, error)
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        refused = self._settings.forbidden(content)
        if refused:
            log.warning("%s tried to change %s: refused", conn.peer, ", ".join(refused))
            raise ResponseError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        unknown = [
            item.key for item in given if item.key not in self._settings.inert and self._settings.line(item.key) is None
        ]
        if unknown:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"{', '.join(unknown)}: no such setting; nothing changed")
        try:
            applied = self._settings.update(content)
        except ConfigError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"{error}; nothing changed") from None
        log.info("%s changed %s", conn.peer, ", ".join(applied) or "nothing that has an effect")
        async with self._writing:
            await self._world.offload(self._write, {item.key: (item.value or "").strip() for item in given})
        return request.reply(ResponseCode.SUCCESS)

    def _write(self, changes: dict[str, str]) -> None:
        if self._path.lower().endswith((".yaml", ".yml")):
            log.warning("%s is YAML and stays as it is: the change lasts until the restart", self._path)
            return
        try:
            edit_file(self._world.files, self._path, changes)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            log.error("%s cannot be written: %s: the change lasts until the restart", self._path, why)

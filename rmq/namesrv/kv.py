"""Handlers of the key-value settings: 100, 101, 102, 219 (protocol.md 2.1)."""

from __future__ import annotations

import logging

from rmq.config import values
from rmq.namesrv.departed import Departed
from rmq.namesrv.kvconfig import KVConfig
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError, StoreError
from rmq.protocol.headers.namesrv import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)
from rmq.protocol.names import DEPARTED_BROKERS
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["KVService"]

log = logging.getLogger(__name__)

#: Bytes of a namespace, and of a key: topics, mostly.
_LONGEST_NAME = 255


class KVService:
    """Handlers; the entries and their file are :class:`KVConfig`'s. One namespace is no file's: brokers that left."""

    def __init__(self, kv: KVConfig, settings: NamesrvSettings, departed: Departed) -> None:
        self._kv = kv
        self._departed = departed
        self._settings = settings

    @handles(RequestCode.PUT_KV_CONFIG, header=PutKVConfigRequest)
    async def put(self, conn: Conn, request: Command, header: PutKVConfigRequest) -> Command:
        for field, text in (("namespace", header.namespace), ("key", header.key)):
            if fault := values.fault(text, _LONGEST_NAME):
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the field {field} is {values.shown(text)}: {fault}")
        if header.namespace == DEPARTED_BROKERS:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{DEPARTED_BROKERS} is kept by the name server: delete alone"
            )
        try:
            await self._kv.put(header.namespace, header.key, header.value, self._settings.max_kv_bytes)
        except StoreError as error:
            raise _not_written(error) from error
        log.info("%s put %s in %s", conn.peer, header.key, header.namespace)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_KV_CONFIG, header=GetKVConfigRequest)
    def get(self, conn: Conn, request: Command, header: GetKVConfigRequest) -> Command:
        left = header.namespace == DEPARTED_BROKERS
        value = self._departed.table().get(header.key) if left else self._kv.get(header.namespace, header.key)
        if value is None:
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
                header=GetKVConfigResponse(value=None),
            )
        return request.reply(ResponseCode.SUCCESS, header=GetKVConfigResponse(value=value))

    @handles(RequestCode.DELETE_KV_CONFIG, header=DeleteKVConfigRequest)
    async def delete(self, conn: Conn, request: Command, header: DeleteKVConfigRequest) -> Command:
        if header.namespace == DEPARTED_BROKERS:
            self._departed.forget(header.key)
        try:
            await self._kv.delete(header.namespace, header.key)
        except StoreError as error:
            raise _not_written(error) from error
        log.info("%s deleted %s of %s", conn.peer, header.key, header.namespace)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, header=GetKVListByNamespaceRequest)
    def table(self, conn: Conn, request: Command, header: GetKVListByNamespaceRequest) -> Command:
        left = header.namespace == DEPARTED_BROKERS
        table = (self._departed.table() or None) if left else self._kv.table(header.namespace)
        if table is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return request.reply(ResponseCode.SUCCESS, body=KVTable(table=table).encode())


def _not_written(error: StoreError) -> ResponseError:
    log.error("%s", error)
    return ResponseError(ResponseCode.SYSTEM_ERROR, "the key-value settings cannot be written: nothing changed")

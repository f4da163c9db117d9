"""Name servers: their key-value store, their settings, and the right to write to a broker.

Each keeps these for itself: all of them are told, and each says for itself what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmq.client.admin import settings_text
from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking
from rmq.client.checks import typed
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)

__all__ = ["ORDER_TOPIC_CONFIG", "NameServers"]

#: Where the queue counts of ordered topics are: a key a topic, ``broker-a:4;broker-b:4``.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


@typed()
class NameServers(Asking):
    """Operations on name servers."""

    async def kv_config(self, namespace: str, key: str) -> str | None:
        """One entry; None when there is none."""
        try:
            reply = await self._ask_namesrv(RequestCode.GET_KV_CONFIG, GetKVConfigRequest(namespace=namespace, key=key))
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return reply.header(GetKVConfigResponse).value

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """All entries of a namespace; empty for one that is not there."""
        try:
            reply = await self._ask_namesrv(
                RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequest(namespace=namespace)
            )
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        return KVTable.decode(reply.body).table

    async def put_kv_config(self, namespace: str, key: str, value: str) -> Answers[None]:
        """Set an entry on every name server (updateKvConfig)."""
        header = PutKVConfigRequest(namespace=namespace, key=key, value=value)
        return await self._ask_name_servers(RequestCode.PUT_KV_CONFIG, header, b"", lambda reply: None)

    async def delete_kv_config(self, namespace: str, key: str) -> Answers[None]:
        """Take an entry away on every name server; where it is not there, nothing is said (deleteKvConfig)."""
        header = DeleteKVConfigRequest(namespace=namespace, key=key)
        return await self._ask_name_servers(RequestCode.DELETE_KV_CONFIG, header, b"", lambda reply: None)

    async def wipe_write_perm_of_broker(self, broker_name: str) -> Answers[int]:
        """Take the right to write from every topic of a broker: producers leave it, consumers read on (wipeWritePerm).

        :returns: of how many topics, by name server.
        """
        header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
        return await self._ask_name_servers(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            header,
            b"",
            lambda reply: reply.header(WipeWritePermOfBrokerResponse).wipe_topic_count,
        )

    async def add_write_perm_of_broker(self, broker_name: str) -> Answers[int]:
        """Give the right to write back (addWritePerm). :returns: to how many topics, by name server."""
        header = AddWritePermOfBrokerRequest(broker_name=broker_name)
        return await self._ask_name_servers(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            header,
            b"",
            lambda reply: reply.header(AddWritePermOfBrokerResponse).add_topic_count,
        )

    async def name_server_config(self) -> Answers[dict[str, str]]:
        """The settings of every name server, key by key (getNamesrvConfig)."""
        return await self._ask_name_servers(
            RequestCode.GET_NAMESRV_CONFIG, None, b"", lambda reply: settings_text.read(reply.body)
        )

    async def cluster_infos(self, *, timeout: float = 5.0) -> Answers[ClusterInfo]:
        """What each name server knows of the cluster; where they differ, a broker registers with some of them only.

        :param timeout: seconds that each has, at most ``mq_client_api_timeout``.
        """
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return await self._ask_name_servers(code, None, b"", lambda reply: ClusterInfo.decode(reply.body), timeout)

    async def update_name_server_config(self, values: Mapping[str, str]) -> Answers[None]:
        """Change settings of every name server while it runs (updateNamesrvConfig)."""
        body = settings_text.write(values)
        return await self._ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, None, body, lambda reply: None)

"""Brokers: who they are, their figures, their settings, and what they throw away when told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmq.client.admin import settings_text
from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking
from rmq.client.checks import several_texts, typed
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.stats import BrokerStatsData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import NotFound, ResponseError
from rmq.protocol.headers.admin import ViewBrokerStatsDataRequest

__all__ = ["Brokers"]

#: A broker that looks through its files for what has expired may take so many times as long as for another call.
_CLEANING = 10


@typed()
class Brokers(Asking):
    """Operations on brokers."""

    async def masters(self, cluster: str) -> dict[str, str]:
        """Broker name to master address of one cluster. :raises NotFound: there is no such cluster."""
        info = await self.cluster_info()
        if cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NotFound(f"there is no cluster {cluster} at this name server (known: {known})")
        found = {}
        for name in sorted(info.cluster_addr_table[cluster]):
            broker = info.broker_addr_table.get(name)
            if broker is not None and 0 in broker.broker_addrs:
                found[name] = broker.broker_addrs[0]
        return found

    async def brokers(self, cluster: str) -> list[str]:
        """The addresses of a cluster's brokers, masters and slaves, by name and id.

        :raises NotFound: there is no such cluster, or it has no broker now.
        """
        masters = await self.masters(cluster)
        info = await self.cluster_info()
        sets = (info.broker_addr_table.get(name) for name in sorted(info.cluster_addr_table.get(cluster, ())))
        found = [addr for one in sets if one is not None for _, addr in sorted(one.broker_addrs.items())]
        if not found and not masters:
            raise NotFound(f"the cluster {cluster} has no broker")
        return found

    async def broker_runtime_stats(self, broker_addr: str) -> dict[str, str]:
        """A broker's figures by name (brokerStatus; protocol.md 4.12)."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body).table

    async def broker_runtime_stats_of(self, broker_addrs: Iterable[str]) -> Answers[dict[str, str]]:
        """The same of several brokers, asked side by side."""
        return await self._ask_each(
            broker_addrs,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            None,
            b"",
            lambda reply: KVTable.decode(reply.body).table,
        )

    async def view_broker_stats(self, broker_addr: str, name: str, key: str) -> BrokerStatsData | None:
        """One figure of a broker over the last minute, hour and day (statsAll); None: it has counted nothing.

        :param name: TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, ...
        :param key: the topic; for a figure of a group topic@group.
        """
        header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        try:
            reply = await self._client.call(broker_addr, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except ResponseError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return None
        return BrokerStatsData.decode(reply.body)

    async def view_broker_stats_of(
        self, broker_addrs: Iterable[str], name: str, key: str
    ) -> Answers[BrokerStatsData | None]:
        """The same of several brokers, asked side by side."""
        header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        addresses = {address: address for address in several_texts(broker_addrs, "broker_addrs")}
        nothing = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        replies, failed = await self._ask_all(addresses, RequestCode.VIEW_BROKER_STATS_DATA, header, accept=nothing)
        return Answers(
            {one: None if reply.code else BrokerStatsData.decode(reply.body) for one, reply in replies.items()}, failed
        )

    # -- settings ------------------------------------------------------------------------------------------------------

    async def broker_config(self, broker_addr: str) -> str:
        """A broker's settings as properties text."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_CONFIG)
        return reply.body.decode()

    async def broker_settings(self, broker_addrs: Iterable[str]) -> Answers[dict[str, str]]:
        """The settings of brokers, key by key (getBrokerConfig)."""
        return await self._ask_each(
            broker_addrs, RequestCode.GET_BROKER_CONFIG, None, b"", lambda reply: settings_text.read(reply.body)
        )

    async def update_broker_config(self, broker_addrs: Iterable[str], values: Mapping[str, str]) -> Answers[None]:
        """Change settings of brokers while they run; they write them to their files, too (updateBrokerConfig).

        A broker of ours refuses what it does not know or cannot take; Java's says that all is well.

        :raises ClientError: nothing is to be changed.
        """
        body = settings_text.write(values)
        return await self._ask_each(broker_addrs, RequestCode.UPDATE_BROKER_CONFIG, None, body, lambda reply: None)

    # -- cleaning ------------------------------------------------------------------------------------------------------

    async def clean_expired_consume_queue(self, broker_addr: str) -> None:
        """Delete queue files of which every message has expired (cleanExpiredCQ)."""
        await self._client.call(broker_addr, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout=self._times(_CLEANING))

    async def delete_expired_commit_log(self, broker_addr: str) -> None:
        """Delete commit log files that have expired, whatever the hour is (deleteExpiredCommitLog)."""
        await self._client.call(broker_addr, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout=self._times(_CLEANING))

    async def clean_unused_topic(self, broker_addr: str) -> None:
        """Delete the queues of topics that the broker does not have any more (cleanUnusedTopic)."""
        await self._client.call(broker_addr, RequestCode.CLEAN_UNUSED_TOPIC, timeout=self._times(_CLEANING))

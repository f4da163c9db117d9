"""Replication: what masters and slaves tell of each other."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking
from rmq.client.checks import typed
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.codes import RequestCode

__all__ = ["Replication"]


@typed()
class Replication(Asking):
    """Operations on replication."""

    async def broker_ha_status(self, broker_addr: str) -> HARuntimeInfo:
        """A master's slaves and how far each is, or how far a slave is (haStatus; Java: HARuntimeInfo)."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(reply.body)

    async def broker_ha_status_of(self, broker_addrs: Iterable[str]) -> Answers[HARuntimeInfo]:
        """The same of several brokers, asked side by side."""
        return await self._ask_each(
            broker_addrs, RequestCode.GET_BROKER_HA_STATUS, None, b"", lambda reply: HARuntimeInfo.decode(reply.body)
        )

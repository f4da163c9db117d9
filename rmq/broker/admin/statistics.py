"""Statistics of one topic or group (request 315)."""

from __future__ import annotations

from rmq.broker.stats import BrokerStats, Summary
from rmq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.admin import ViewBrokerStatsDataRequest
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["StatisticsAdmin"]


class StatisticsAdmin:
    """Handler of 315."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, header=ViewBrokerStatsDataRequest)
    def view(self, conn: Conn, request: Command, header: ViewBrokerStatsDataRequest) -> Command:
        """315: what a counter did in the last day, hour and minute."""
        found = self._stats.summaries(header.stats_name, header.stats_key)
        if found is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        day, hour, minute = (_item(summary) for summary in found)
        return request.reply(ResponseCode.SUCCESS, body=BrokerStatsData(day, hour, minute).encode())


def _item(summary: Summary) -> BrokerStatsItem:
    return BrokerStatsItem(avgpt=summary.avgpt, sum=summary.sum, tps=summary.tps)

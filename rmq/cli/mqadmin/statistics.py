"""brokerConsumeStats, statsAll: how far groups are, and how much goes through topics (mqadmin.md B.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from rmq.cli.mqadmin.absent import miss_absent, nobody
from rmq.cli.mqadmin.failures import NOT_THERE
from rmq.cli.mqadmin.progress import NOT_ONLINE
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, flag
from rmq.cli.mqadmin.text import cut, seconds
from rmq.client.admin.asking import address_of
from rmq.protocol.bodies.stats import BrokerStatsData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError

__all__ = ["broker_consume_stats", "stats_all"]

#: Topics looked at at the same time.
_AT_ONCE = 16


@admin_command(
    "brokerConsumeStats",
    click.option("-b", "--brokerAddr", "broker", required=True, metavar="ADDR", help="The broker, host:port."),
    click.option("-t", "--timeoutMillis", "millis", type=click.IntRange(1), default=50_000, metavar="MS",
                 help="How long the broker has for it."),
    click.option("-l", "--level", "level", type=int, default=0, metavar="N", help="Queues so far behind only."),
    flag("-o", "--order", "order", default=False, help="Ordered topics alone"),
)  # fmt: skip
async def broker_consume_stats(
    admin: AdminClient, out: Output, broker: str, millis: int, level: int, order: bool
) -> int:
    """How far every group is in each queue of a broker."""
    found = await admin.consume_stats_in_broker(broker, is_order=order, timeout=millis / 1000)
    rows = [
        (group, queue, one)
        for table in found.consume_stats_list
        for group, many in sorted(table.items())
        for stats in many
        for queue, one in sorted(stats.offset_table.items())
        if one.broker_offset - one.consumer_offset >= level
    ]

    def classic() -> Iterator[str]:
        columns = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}".format
        yield columns(*("#Topic", "#Group", "#Broker Name", "#QID"),
                      *("#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"))  # fmt: skip
        for group, queue, one in rows:
            if one.last_timestamp <= 0:
                continue  # nothing was ever consumed there: Java's tool leaves it out
            yield columns(
                *(cut(queue.topic, 64), group, cut(queue.broker_name, 32), queue.queue_id),
                *(one.broker_offset, one.consumer_offset, one.broker_offset - one.consumer_offset),
                seconds(one.last_timestamp),
            )
        yield ""
        yield f"Diff Total: {found.total_diff}"

    return out.value(
        {
            "brokerAddr": broker,
            "diffTotal": found.total_diff,
            "queues": [
                {"topic": queue.topic, "group": group, "brokerName": queue.broker_name, "queueId": queue.queue_id,
                 "brokerOffset": one.broker_offset, "consumerOffset": one.consumer_offset,
                 "lastTimestamp": one.last_timestamp}
                for group, queue, one in rows
            ],
        },
        classic,
        key="queues",
    )  # fmt: skip


@dataclass(slots=True)
class _Figures:
    """A topic, or a group of it; a group is None where there is none."""

    topic: str
    group: str | None
    accumulation: int = 0
    in_tps: float = 0.0
    out_tps: float = 0.0
    in_day: int = 0
    out_day: int = 0

    def line(self) -> str:
        if self.group is None:
            return (f"{cut(self.topic, 64):<64}  {'':<64} {0:>12} {self.in_tps:>11.2f} {'':>11} {self.in_day:>14} "
                    f"{'NO_CONSUMER':>14}")  # fmt: skip
        return (
            f"{cut(self.topic, 64):<64}  {cut(self.group, 64):<64} {self.accumulation:>12} {self.in_tps:>11.2f} "
            f"{self.out_tps:>11.2f} {self.in_day:>14} {self.out_day:>14}"
        )

    def as_json(self) -> dict[str, object]:
        return {"topic": self.topic, "group": self.group, "accumulation": self.accumulation, "inTps": self.in_tps,
                "outTps": self.out_tps, "in24Hours": self.in_day, "out24Hours": self.out_day}  # fmt: skip


@admin_command(
    "statsAll",
    click.option("-a", "--activeTopic", "active", is_flag=True, help="Topics with messages in the last day alone."),
    click.option("-t", "--topic", "only", metavar="NAME", help="This topic alone."),
)
async def stats_all(admin: AdminClient, out: Output, active: bool, only: str | None) -> int:
    """How much goes into topics and out to groups, and what is not consumed yet."""
    if only is not None:
        await admin.topic_route(only)
        topics = [only]
    else:
        names = (await admin.topic_list()).topic_list
        topics = sorted(name for name in names if not name.startswith(("%RETRY%", "%DLQ%")))
    info = await admin.cluster_info()
    await miss_absent(admin, out)
    addresses = {name: address_of(one.broker_addrs) for name, one in info.broker_addr_table.items() if one.broker_addrs}
    if not topics and (code := nobody(info)):
        out.rows([], list)
        return code
    gate, crowd = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_AT_ONCE)

    async def look(topic: str) -> list[_Figures]:
        async with gate:
            try:
                return await _figures(admin, out, topic, addresses, crowd)
            except RMQError as error:
                if not isinstance(error, ResponseError) or error.code != ResponseCode.TOPIC_NOT_EXIST:
                    out.failed(topic, error)
                return []

    rows = [one for some in await asyncio.gather(*map(look, topics)) for one in some]
    rows = [one for one in rows if not active or one.in_day > 0 or one.out_day > 0]

    def classic() -> Iterator[str]:
        yield "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}".format(
            *("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
        )
        for one in rows:
            yield one.line()

    return out.rows([one.as_json() for one in rows], classic)


async def _figures(
    admin: AdminClient, out: Output, topic: str, addresses: Mapping[str, str], crowd: asyncio.Semaphore
) -> list[_Figures]:
    """A topic, or each of its groups.

    :param addresses: by broker name. :param crowd: taken for each group that is looked at beside others.
    """
    told = await admin.topic_groups(topic)
    out.lacks(told)
    # Every broker of the topic was asked, and its route need not be.
    masters = {addresses[name]: name for name in (*told.found, *told.failed) if name in addresses}
    groups = sorted({group for some in told.found.values() for group in some})
    put = await _sum(admin, out, masters, "TOPIC_PUT_NUMS", topic)
    if not groups:
        return [_Figures(topic, None, in_tps=put[0], in_day=put[1])]

    async def look(group: str) -> _Figures:
        async with crowd:
            got, waits = await asyncio.gather(
                _sum(admin, out, masters, "GROUP_GET_NUMS", f"{topic}@{group}"), _waiting(admin, out, topic, group)
            )
        return _Figures(topic, group, waits, put[0], got[0], put[1], got[1])

    return await asyncio.gather(*map(look, groups))


async def _waiting(admin: AdminClient, out: Output, topic: str, group: str) -> int:
    """Messages of a topic that a group has not consumed."""
    try:
        stats = await admin.consume_stats(group, topic)
    except ResponseError as error:
        if error.code not in (*NOT_THERE, *NOT_ONLINE):  # it has no offset there, or is gone
            out.failed(group, error)
        return 0
    out.lacks(stats)
    return sum(max(0, one.broker_offset - one.consumer_offset) for one in stats.offset_table.values())


async def _sum(admin: AdminClient, out: Output, masters: dict[str, str], name: str, key: str) -> tuple[float, int]:
    """A figure over the brokers that tell it: a second of the last minute, and all of the day.

    :param masters: address -> broker name, by which those are named that do not.
    """
    answers = await admin.view_broker_stats_of(masters, name, key)
    for address, error in answers.failed.items():
        out.failed(masters[address], error)
    found = list(answers.found.values())
    return sum(one.stats_minute.tps for one in found if one), sum(_day(one) for one in found if one)


def _day(one: BrokerStatsData) -> int:
    """What a broker has counted over the longest time that it tells of."""
    for part in (one.stats_day, one.stats_hour, one.stats_minute):
        if part.sum:
            return int(part.sum)
    return 0

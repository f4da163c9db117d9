"""The command: looks again and again, and shows what went on between."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterable
from typing import Any

import click

from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.output import Output, as_table
from rmq.cli.mqadmin.session import AdminClient, admin_command
from rmq.cli.mqadmin.watching import Rounds
from rmq.cli.top.figures import BrokerFigures, Stand, View, between
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic, reply_topic

__all__ = ["top"]

#: Topics that nobody consumes and that are looked at one by one, at most; and so many at a time.
_TOPICS, _AT_ONCE = 100, 16
#: Rows of each table where no terminal says how many fit.
_ROWS = 20


@admin_command(
    "top",
    click.option("-g", "--group", metavar="NAME", help="This group alone."),
    click.option("-t", "--topic", metavar="NAME", help="This topic alone."),
    click.option("--by", type=click.Choice(["lag", "in", "out"]), default="lag", show_default=True,
                 help="What groups are ordered by."),
    click.option("--every", "every", type=click.FloatRange(0.2, 3_600), default=2.0, show_default=True,
                 metavar="SECONDS", help="The time between two looks, over which is counted."),
    click.option("--rounds", "rounds", type=click.IntRange(1), metavar="N", help="End after N; else Ctrl-C."),
)  # fmt: skip
async def top(
    admin: AdminClient, out: Output, group: str | None, topic: str | None, by: str, every: float, rounds: int | None
) -> int:
    """What goes into brokers and topics now, and how far groups are behind, again and again.

    Numbers are counted between two looks. A group is "done in" the time that it needs at this pace.
    """
    ctx = click.get_current_context()
    looking = _Looking(admin, out, group, topic, ctx.params["timeout"])
    await miss_absent(admin, out)
    absent = dict(out.missing)
    last = await looking.look()
    await asyncio.sleep(every)

    async def once() -> int:
        nonlocal last
        out.missing.clear()
        out.missing.update(absent)
        new = await looking.look()
        view = between(last, new, by=by, whole=not out.missing)
        last = new
        return out.value(view.table(), lambda: _lines(view, looking.left, whole=not out.missing))

    if out.form == "table":
        out.form = "classic"
    return await Rounds(every, rounds).run(once, ctx)


class _Looking:
    """Looks at a cluster.

    :param seconds: that a broker is waited for. :ivar left: topics that were not looked at, since there are too many.
    """

    def __init__(self, admin: AdminClient, out: Output, group: str | None, topic: str | None, seconds: float) -> None:
        self._admin, self._out, self._seconds = admin, out, seconds
        self._group, self._topic = group, topic
        self.left = 0

    async def look(self) -> Stand:
        """:raises NotFound: the group or the topic that was asked for is not there."""
        admin = self._admin
        info = await admin.cluster_info()
        stand = Stand(admin.world.clock.monotonic())
        masters = {
            name: one.broker_addrs[min(one.broker_addrs)]
            for name, one in info.broker_addr_table.items()
            if one.broker_addrs
        }
        figures = await admin.broker_runtime_stats_of(masters.values())
        self._out.lacks(figures)
        for name, address in masters.items():
            if (told := figures.found.get(address)) is not None:
                stand.brokers[name] = _figures(told)
            else:
                stand.silent.append(name)
        answering = [address for address in masters.values() if address in figures.found]
        await asyncio.gather(*(self._groups(address, stand) for address in answering))
        own = {*info.cluster_addr_table, *info.broker_addr_table, *map(reply_topic, info.cluster_addr_table)}
        await self._topics(stand, own)
        if self._group is not None and self._group not in stand.groups and not self._out.missing:
            raise NotFound(
                f"no broker has a group {self._group} that has consumed: mqadmin consumerProgress shows those that have"
            )
        return stand

    async def _groups(self, address: str, stand: Stand) -> None:
        try:
            told = await self._admin.consume_stats_in_broker(address, timeout=self._seconds)
        except RMQError as error:
            self._out.failed(address, error)
            return
        for one in told.consume_stats_list:
            for group, parts in one.items():
                if self._group in (None, group):
                    table = stand.groups.setdefault(group, {})
                    for part in parts:
                        table.update(
                            {queue: (at.broker_offset, at.consumer_offset) for queue, at in part.offset_table.items()
                             if self._topic in (None, queue.topic)}
                        )  # fmt: skip

    async def _topics(self, stand: Stand, own: set[str]) -> None:
        """Ends of queues of topics that no group has told of."""
        if self._topic is not None:
            names = [self._topic]
        elif self._group is not None:
            return
        else:
            known = {queue.topic for table in stand.groups.values() for queue in table} | own
            names = [
                name for name in sorted((await self._admin.topic_list()).topic_list)
                if name not in known and not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
            ]  # fmt: skip
        self.left = max(0, len(names) - _TOPICS)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ends(name: str) -> None:
            async with gate:
                try:
                    stats = await self._admin.topic_stats(name)
                except ResponseError:
                    if self._topic is not None:
                        raise
                    return  # it went away since it was listed
                except RMQError as error:
                    self._out.failed(name, error)
                    return
                self._out.lacks(stats)
                stand.ends.update({queue: one.max_offset for queue, one in stats.offset_table.items()})

        await asyncio.gather(*map(ends, names[:_TOPICS]))


def _figures(told: dict[str, str]) -> BrokerFigures:
    def number(name: str) -> float:
        try:
            return float(told.get(name, "0"))
        except ValueError:
            return 0.0

    return BrokerFigures(
        int(number("putMessageTimesTotal")),
        int(number("msgGetTotalTodayNow")),
        max(number("commitLogDiskRatio"), 0.0),
        int(number("sendThreadPoolQueueHeadWaitTimeMills")),
        _elected(told),
    )


def _elected(told: dict[str, str]) -> str:
    """How a group that elects its master is, as the one that was asked sees it."""
    if "raftMember" not in told:
        return ""
    leader = told.get("raftLeader", "unknown")
    others = told.get("raftMembersConnected", "?")
    return f"{'nobody' if leader == 'unknown' else leader} leads, {others} others there"


def _lines(view: View, left: int, *, whole: bool) -> Iterable[str]:
    """The three tables; on a terminal as many rows of each as fit in a third."""
    room = max(3, (shutil.get_terminal_size().lines - 12) // 2) if sys.__stdout__ and sys.__stdout__.isatty() else _ROWS
    yield from as_table(_headed(view.brokers))
    yield ""
    groups = view.groups if whole else [{**row, "lag": f"{row['lag']} or more"} for row in view.groups]
    yield from _table("group", groups, room, 0)
    yield ""
    yield from _table("topic", view.topics, room, left)


_HEADS = {"inTps": "in/s", "outTps": "out/s", "waitMs": "wait ms", "doneIn": "done in"}


def _headed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As people read them."""
    return [{_HEADS.get(name, name): value for name, value in row.items()} for row in rows]


def _table(what: str, rows: list[dict[str, Any]], room: int, left: int) -> Iterable[str]:
    yield from as_table(_headed(rows[:room])) if rows else [f"no {what}"]
    if len(rows) > room:
        yield f"... {len(rows) - room} rows more"
    if left:
        yield f"... {left} topics that nobody consumes are not looked at: -t shows one"

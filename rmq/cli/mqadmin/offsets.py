"""resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset (mqadmin.md B.1; field cases B018, B020)."""

from __future__ import annotations

import asyncio

import click

from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, flag
from rmq.cli.mqadmin.text import cut
from rmq.cli.mqadmin.times import GIVEN, moment_or_now
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.client.admin.reset import TO_END, OffsetReset
from rmq.protocol.queue import MessageQueue

__all__ = ["clone_group_offset", "reset_offset_by_time", "skip_accumulated_message"]

_group = click.option("-g", "--group", "group", required=True, metavar="NAME", help="The group.")
_force = flag("-f", "--force", "force", default=True, help="Forward as well")


@admin_command(
    "resetOffsetByTime",
    _group,
    _topic,
    click.option(
        "-s",
        "--timestamp",
        "timestamp",
        callback=moment_or_now,
        metavar="TIME",
        help="now (the end), milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS.",
    ),
    _force,
    click.option("-c", "--cplus", "cplus", is_flag=True, help="Members are C++ clients: brokers of ours know them."),
    click.option("-b", "--broker", "broker", metavar="NAME", help="With -q and -o: brokerName of the queue."),
    click.option("-q", "--queue", "queue", type=click.IntRange(0), metavar="ID", help="One queue only."),
    click.option("-o", "--offset", "offset", type=int, metavar="N", help="The offset that this queue goes to."),
)
async def reset_offset_by_time(
    admin: AdminClient,
    out: Output,
    group: str,
    topic: str,
    timestamp: int | None,
    force: bool,
    broker: str | None,
    queue: int | None,
    offset: int | None,
    cplus: bool,
) -> int:
    """Move a group on a topic: all of it to a time with -s, or one queue to an offset with -b, -q and -o.

    Members that are online go there at once; of a group that is offline the stored offsets are changed.
    """
    one_queue = (broker, queue, offset)
    if broker is not None and queue is not None and offset is not None and timestamp is None:
        done = [await admin.reset_offset(group, MessageQueue(topic, broker, queue), offset)]
    elif timestamp is not None and one_queue == (None, None, None):
        done = await admin.reset_offset_by_timestamp(topic, group, timestamp, force=force)
    else:
        raise click.UsageError("give a time with -s, or one queue with -b, -q and -o", click.get_current_context())
    lines = await _lines(admin, done, None if queue is not None or force else timestamp)
    if timestamp is not None:
        whose = "group" if _told(done) else "consumerGroup"
        given = click.get_current_context().meta.get(GIVEN, timestamp)
        lines.insert(
            0,
            f"rollback consumer offset by specified {whose}[{group}], topic[{topic}], force[{str(force).lower()}], "
            f"timestamp(string)[{given}], timestamp(long)[{timestamp}]",
        )
    return out.rows([_as_json(one) for one in done], lambda: lines)


def _told(done: list[OffsetReset]) -> bool:
    return any(one.clients for one in done)


async def _lines(admin: AdminClient, done: list[OffsetReset], timestamp: int | None) -> list[str]:
    """Java's columns: others where nobody is online, and the stored offsets were changed.

    :param timestamp: where the group was asked to go, when it may stand before that.
    """
    if _told(done):
        columns = "{:<40}  {:<40}  {:<40}".format
        rows = [columns(cut(one.queue.broker_name, 32), one.queue.queue_id, one.new_offset) for one in done]
        return [columns("#brokerName", "#queueId", "#offset"), *rows]
    columns = "{:<20}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}".format
    lines = [
        columns("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    ]

    async def bounds(one: OffsetReset) -> tuple[int, int]:
        high = await admin.max_offset(one.queue)
        if timestamp is None:
            return high, one.new_offset
        return high, high if timestamp == TO_END else await admin.search_offset(one.queue, timestamp)

    for one, (high, target) in zip(done, await asyncio.gather(*map(bounds, done)), strict=True):
        old = "none" if one.old_offset is None else one.old_offset
        lines.append(columns(cut(one.queue.broker_name, 32), one.queue.queue_id, high, old, target, one.new_offset))
    return lines


def _as_json(one: OffsetReset) -> dict[str, object]:
    return {
        "topic": one.queue.topic,
        "brokerName": one.queue.broker_name,
        "queueId": one.queue.queue_id,
        "oldOffset": one.old_offset,
        "offset": one.new_offset,
        "clients": one.clients,
    }


@admin_command("skipAccumulatedMessage", _group, _topic, _force)
async def skip_accumulated_message(admin: AdminClient, out: Output, group: str, topic: str, force: bool) -> int:
    """Move a group to the end of a topic: what it has not consumed yet it will not get."""
    done = await admin.reset_offset_by_timestamp(topic, group, TO_END, force=force)
    lines = await _lines(admin, done, None if force else TO_END)
    return out.rows([_as_json(one) for one in done], lambda: lines)


@admin_command(
    "cloneGroupOffset",
    click.option("-s", "--srcGroup", "source", required=True, metavar="NAME", help="The group that has the offsets."),
    click.option("-d", "--destGroup", "destination", required=True, metavar="NAME", help="The group that gets them."),
    _topic,
    click.option("-o", "--offline", "offline", is_flag=False, type=bool, metavar="BOOL", default="false",
                 help="Taken for Java's sake: members that are online are never told (true|false)."),
)  # fmt: skip
async def clone_group_offset(
    admin: AdminClient, out: Output, source: str, destination: str, topic: str, offline: bool
) -> int:
    """Give a group the offsets that another has on a topic."""
    if source == destination:
        raise click.UsageError("-s and -d are the same group", click.get_current_context())
    copied = await admin.clone_group_offset(source, destination, topic)
    return out.done(
        {"srcGroup": source, "destGroup": destination, "topic": topic,
         "queues": [{"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
                    for queue, offset in copied.items()]},
        [f"clone group offset success. srcGroup[{source}], destGroup=[{destination}], topic[{topic}]"],
    )  # fmt: skip

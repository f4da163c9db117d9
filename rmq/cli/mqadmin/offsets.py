"""resetOffsetByTime: a group to a time, to the end, or one queue to an offset (field cases B018, B020)."""

from __future__ import annotations

from datetime import datetime

import click

from rmq.cli.mqadmin.session import admin_command, cut, print_json
from rmq.client.admin import AdminClient
from rmq.client.reset import TO_END, OffsetReset
from rmq.protocol.queue import MessageQueue

__all__ = ["reset_offset_by_time"]

#: Java's form: a date, a hash sign, a time with milliseconds.
_FORMS = ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


def _time(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Milliseconds since the epoch of what ``-s`` says."""
    if text is None:
        return None
    if text in ("now", "-1"):
        return TO_END
    if text.isdecimal():
        return int(text)
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).timestamp() * 1000)
        except ValueError:
            continue
    raise click.BadParameter(f"{text}: now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS", ctx, param)


@admin_command(
    "resetOffsetByTime",
    click.option("-g", "--group", "group", required=True, metavar="NAME", help="The group."),
    click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic."),
    click.option(
        "-s",
        "--timestamp",
        "timestamp",
        callback=_time,
        metavar="TIME",
        help="now (the end), milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS.",
    ),
    click.option(
        "-f", "--force", "force", type=bool, metavar="BOOL", default=True, help="Forward as well (true|false)."
    ),
    click.option("-b", "--broker", "broker", metavar="NAME", help="With -q and -o: brokerName of the queue."),
    click.option("-q", "--queue", "queue", type=click.IntRange(0), metavar="ID", help="One queue only."),
    click.option("-o", "--offset", "offset", type=int, metavar="N", help="The offset that this queue goes to."),
)
async def reset_offset_by_time(
    admin: AdminClient,
    group: str,
    topic: str,
    timestamp: int | None,
    force: bool,
    broker: str | None,
    queue: int | None,
    offset: int | None,
    json: bool,
) -> None:
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
    if json:
        print_json([_as_json(one) for one in done])
        return
    columns = "{:<40}  {:<8}  {:<20}  {:<20}  {}".format
    click.echo(columns("#brokerName", "#queueId", "#old offset", "#offset", "#how"))
    for one in done:
        old = "none" if one.old_offset is None else one.old_offset
        how = f"told {one.clients} clients" if one.clients else "offline: stored"
        click.echo(columns(cut(one.queue.broker_name, 40), one.queue.queue_id, old, one.new_offset, how))


def _as_json(one: OffsetReset) -> dict[str, object]:
    return {
        "topic": one.queue.topic,
        "brokerName": one.queue.broker_name,
        "queueId": one.queue.queue_id,
        "oldOffset": one.old_offset,
        "offset": one.new_offset,
        "clients": one.clients,
    }

"""The command ``rmq explain``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import click

from rmq.cli.doctor.command import group_of
from rmq.cli.doctor.group import Group
from rmq.cli.doctor.group import of_group as findings_of
from rmq.cli.explain.facts import due_of, facts_of, found, groups_of, levels_of, real_topic
from rmq.cli.explain.story import Told, ago, clock, of_group
from rmq.cli.finding import Finding
from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import plain
from rmq.client.message import MessageExt
from rmq.protocol.errors import RMQError
from rmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmq.protocol.queue import MessageQueue

__all__ = ["explain"]

#: An offset id or a unique id: 16 bytes with an IPv4 address, 28 with an IPv6 one.
_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{56}")
#: Queues of a group that are named one by one.
_QUEUES = 32


@admin_command(
    "explain",
    click.argument("what", metavar="MESSAGE|GROUP"),
    click.option("-t", "--topic", metavar="NAME", help="Where to look for the message; else in every topic."),
    click.option("-g", "--group", metavar="NAME", help="What this group does with the message, alone."),
)
async def explain(admin: AdminClient, out: Output, what: str, topic: str | None, group: str | None) -> int:
    """Say where a message is, or a group: who has it, whether the filter matched, which try, and what happens next.

    A MESSAGE is an id, of either kind; anything else is a GROUP.
    """
    if _ID.fullmatch(what):
        return await _message(admin, out, what, topic, group)
    if topic is not None or group is not None:
        raise click.UsageError(f"{what!r} is no message id: -t and -g are for one", click.get_current_context())
    return await _group(admin, out, what)


# -- a message --------------------------------------------------------------------------------------------------------


async def _message(admin: AdminClient, out: Output, msg_id: str, topic: str | None, only: str | None) -> int:
    message = await found(admin, msg_id, topic)
    await miss_absent(admin, out)
    now = admin.world.clock.now_ms()
    kept = _kept(message, await levels_of(admin) if message.topic == SCHEDULE_TOPIC else [], now)
    told: list[Told] = []
    if kept is None:
        names = await groups_of(admin, out, message.topic)
        if only is not None and only not in names and not out.missing:
            raise NotFound(
                f"the group {only} has no offset on {message.topic} and no member that wants it "
                f"({', '.join(names) or 'nobody'} has)"
            )
        levels = await levels_of(admin)

        async def look(name: str) -> Told | None:
            try:
                return of_group(message, await facts_of(admin, out, name, message, levels), now)
            except RMQError as error:
                out.failed(name, error)
                return None

        names = names if only is None else [only]
        told = [one for one in await asyncio.gather(*map(look, names)) if one is not None]

    def lines() -> Iterator[str]:
        yield from _where(message, now, kept is not None)
        if kept is not None:
            yield f"  {kept[0]}"
            yield f"  next: {kept[1]}"
        for one in told:
            yield f"{one.group}: {one.state}"
            yield f"  {one.what}"
            yield f"  next: {one.next}"
        if kept is None and not told and not out.missing:
            yield f"no group consumes {message.topic}: it stays until its time is over (fileReservedTime)"

    def classic() -> Iterator[str]:
        return map(plain, lines())

    about = {
        "messageId": message.msg_id, "offsetMessageId": message.offset_msg_id, "topic": real_topic(message),
        "brokerName": message.broker_name, "queueId": message.queue_id, "offset": message.queue_offset,
        "storeTimestamp": message.store_timestamp, "tags": message.tags, "keys": message.keys,
        "kept": None if kept is None else {"what": kept[0], "next": kept[1]},
    }  # fmt: skip
    if out.form == "table":
        out.form = "classic"
    return out.value({"message": about, "groups": [one.table() for one in told]}, classic, key=None)


def _where(message: MessageExt, now: int, kept: bool) -> Iterator[str]:
    where = f"{message.broker_name}/{message.queue_id} at {message.queue_offset}"
    if kept:  # a queue of the broker's own
        where = f"kept by {message.broker_name}"
    yield f"{message.msg_id} of {real_topic(message)}: {where}"
    marks = [f"{name} {value}" for name, value in (("tag", message.tags), ("keys", message.keys)) if value]
    size = f"{len(message.body)} bytes"
    stored = f"stored {clock(message.store_timestamp)}, {ago(now - message.store_timestamp)} ago"
    yield f"  {', '.join([stored, size, *marks])}"
    host, port = message.born_host
    took = message.store_timestamp - message.born_timestamp
    # Clocks of two machines: what is less than nothing says only that they differ.
    late = f", sent {ago(took)} before" if took >= 0 else f"; the clock of its sender is {ago(-took)} ahead"
    yield f"  from {host}:{port}{late}"


def _kept(message: MessageExt, levels: list[int], now: int) -> tuple[str, str] | None:
    """What a message waits for that nobody can consume yet, and what comes next; None: it can be."""
    if message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        due = due_of(message, levels)
        if due is None:
            return "it waits for its time", "it is delivered then"
        if due <= now:
            return f"its time was {ago(now - due)} ago", f"{message.broker_name} delivers it now, or has just done so"
        return f"it waits for its time, {clock(due)}", f"it is delivered in {ago(due - now)}"
    if message.topic == HALF_TOPIC:
        checked = message.properties.get("TRANSACTION_CHECK_TIMES", "0")
        group = message.properties.get("PGROUP", "its producer group")
        return (
            f"it is half a transaction of {group}, asked for {checked} times: it was not committed, or was rolled back",
            f"{message.broker_name} asks members of {group} what became of it, 15 times at most",
        )
    return None


# -- a group ----------------------------------------------------------------------------------------------------------


async def _group(admin: AdminClient, out: Output, name: str) -> int:
    group = await group_of(admin, name, out)
    table = {} if group.stats is None else group.stats.offset_table
    owners = {
        queue: member
        for member, info in group.infos.items()
        for queue, held in info.mq_table.items()
        if not held.droped
    }
    rows = [
        {
            "topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id,
            "offset": one.consumer_offset, "end": one.broker_offset,
            "lag": max(0, one.broker_offset - one.consumer_offset) if one.consumer_offset >= 0 else None,
            "member": owners.get(queue), "lastTimestamp": one.last_timestamp,
        }
        for queue, one in sorted(table.items())
    ]  # fmt: skip
    findings = sorted(findings_of(group), key=lambda one: not one.wrong)

    def classic() -> Iterator[str]:
        yield from map(plain, _lines(group, owners, findings))

    if out.form == "table":
        out.form = "classic"
    about = {"group": name, "members": sorted(group.online), "lag": group.lag(), "queues": rows,
             "findings": [one.table() for one in findings]}  # fmt: skip
    return out.value(about, classic)


def _lines(group: Group, owners: dict[MessageQueue, str], findings: list[Finding]) -> Iterator[str]:
    members = f"{len(group.online)} member{'s' if len(group.online) != 1 else ''}" if group.online else "nobody online"
    model = ", broadcasting" if group.broadcasting else ""
    # Brokers that do not answer have what they have: it is no less than this.
    least = "at least " if group.missing else ""
    yield f"{group.name}: {members}{model}, {least}{group.lag()} messages wait"
    table = {} if group.stats is None else group.stats.offset_table
    for topic in sorted({queue.topic for queue in table}):
        done = sum(
            info.status_table[topic].consume_ok_tps for info in group.infos.values() if topic in info.status_table
        )
        pace = f"its members finish {done:.1f} a second{_until(group, topic, done)}"
        yield f"{topic}: {least}{group.lag(topic)} wait, {pace}"
        queues = [queue for queue in sorted(table) if queue.topic == topic]
        for queue in queues[:_QUEUES]:
            one = table[queue]
            lag = max(0, one.broker_offset - one.consumer_offset)
            where = f"at {one.consumer_offset} of {one.broker_offset}" if one.consumer_offset >= 0 else "no offset"
            owner = owners.get(queue, "no member" if group.online and not group.broadcasting else "")
            oldest = ""
            if lag and 0 < one.last_timestamp < group.now:
                oldest = f", what it consumed last was stored {ago(group.now - one.last_timestamp)} ago"
            yield f"  {queue.broker_name}/{queue.queue_id}: {where}, {lag} wait{oldest}{f'; {owner}' if owner else ''}"
        if len(queues) > _QUEUES:
            yield f"  ... {len(queues) - _QUEUES} queues more"
    if findings:
        yield "why:"
        for finding in findings:
            yield f"  {finding.line()}"
    elif group.lag():
        yield "next: what waits is consumed; nothing is wrong as far as servers and members tell"
    else:
        yield "next: it waits for messages; nothing is wrong as far as servers and members tell"


def _until(group: Group, topic: str, done: float) -> str:
    lag = group.lag(topic)
    pace = done - group.arriving.get(topic, 0.0)
    if not lag or pace <= 0 or group.missing:
        return ""
    return f", and are at the end in {ago(int(lag / pace * 1000))}"

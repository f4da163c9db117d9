"""consumerProgress: how far groups are (mqadmin.md B.1; field cases B023, B119)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from rmq.cli.mqadmin.absent import miss_absent, nobody
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import cut, seconds
from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import ConsumeStats
from rmq.protocol.codes import ResponseCode, version_name
from rmq.protocol.errors import NotFound, ResponseError, RMQError, TransportError
from rmq.protocol.queue import MessageQueue

__all__ = ["NOT_ONLINE", "brokers_of", "consumer_progress", "members_of", "progress_of"]

RETRY = "%RETRY%"
#: A group that is offline or has no offsets: 206 in 4.9, 213 in 5.x (mqadmin.md).
NOT_ONLINE = (ResponseCode.CONSUMER_NOT_ONLINE, 213)
#: Groups looked at at the same time.
_AT_ONCE = 16


@admin_command(
    "consumerProgress",
    click.option("-g", "--groupName", "group", metavar="NAME", help="The group; without it every group."),
    click.option(
        "-s",
        "--showClientIP",
        "show_ip",
        type=bool,
        metavar="BOOL",
        default="false",
        help="Which client has each queue.",
    ),
    click.option("-t", "--topicName", "topic", metavar="NAME", help="Of this topic alone."),
)
async def consumer_progress(
    admin: AdminClient, out: Output, group: str | None, show_ip: bool, topic: str | None
) -> int:
    """How far a group is in each queue; without -g, a line for every group."""
    if group is None:
        return await _every_group(admin, out)
    progress = await progress_of(admin, group, topic)
    owners = await _owners(admin, progress) if show_ip else None
    await miss_absent(admin, out)
    out.lacks(progress.connection, progress.stats)
    if progress.connection is None and not progress.stats.offset_table and not out.missing:
        await refuse_unknown(admin, out, group)
    if not progress.stats.offset_table and out.missing:
        progress = replace(progress, state="not known: brokers that may have its offsets do not answer")

    def classic() -> Iterator[str]:
        return _lines(progress, owners) if progress.stats.offset_table else iter([f"{group}: {progress.state}"])

    return out.value(_as_json(progress, owners), classic, key="queues" if progress.stats.offset_table else None)


@dataclass(frozen=True, slots=True)
class Progress:
    """A group's offsets and clients, and a word for what it is when there are none."""

    group: str
    stats: ConsumeStats
    connection: ConsumerConnection | None
    state: str

    @property
    def diff(self) -> int:
        """Messages not consumed yet; queues whose offset is unknown (-1) are left out."""
        table = self.stats.offset_table.values()
        return sum(one.broker_offset - one.consumer_offset for one in table if one.consumer_offset >= 0)


async def progress_of(admin: AdminClient, group: str, topic: str | None = None) -> Progress:
    """What is known of a group: never used, offline and broadcasting are states, not errors."""
    connection: ConsumerConnection | None = None
    try:
        connection = await admin.consumer_connections(group)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return Progress(group, ConsumeStats(), None, "never connected")
        if error.code not in NOT_ONLINE:
            raise
    stats = ConsumeStats()
    try:
        stats = await admin.consume_stats(group, topic)
    except ResponseError as error:
        if error.code not in (*NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            raise
    if connection is not None and connection.message_model == "BROADCASTING":
        state = "broadcast (offsets are local)"
    else:
        members = connection is not None and connection.connection_set
        state = "connected, no offsets yet" if members else "offline, no offsets"
    return Progress(group, stats, connection, state)


async def refuse_unknown(admin: AdminClient, out: Output, group: str) -> None:
    """:param out: gets brokers that do not say whether they have it. :raises NotFound: none has such a group."""
    masters = [
        data.broker_addrs[0] for data in (await admin.cluster_info()).broker_addr_table.values()
        if 0 in data.broker_addrs
    ]  # fmt: skip
    tables = await admin.subscription_groups_of(masters)
    out.lacks(tables)
    if not tables.failed and not any(group in one.subscription_group_table for one in tables.found.values()):
        raise NotFound(f"no broker knows the group {group}, and nobody of it was ever connected")


async def _owners(admin: AdminClient, progress: Progress) -> dict[MessageQueue, str]:
    """Queue -> address of the client that has it, as far as the clients tell."""
    owners: dict[MessageQueue, str] = {}
    if progress.connection is None:
        return owners
    brokers = await brokers_of(admin, progress.group, progress.connection)
    for client in progress.connection.connection_set:
        for addr in brokers:
            try:
                info = await admin.consumer_running_info(progress.group, client.client_id, addr)
            except (ResponseError, TransportError):
                continue  # perhaps it is connected to another one
            owners.update(dict.fromkeys(info.mq_table, client.client_id.partition("@")[0]))
            break
    return owners


async def brokers_of(admin: AdminClient, group: str, connection: ConsumerConnection) -> list[str]:
    """Addresses of the brokers through which members of a group can be asked: those that told of them."""
    missing = getattr(connection, "missing", {})
    route = await admin.topic_route(RETRY + group)
    return [
        one.broker_addrs[min(one.broker_addrs)]
        for one in route.broker_datas
        if one.broker_addrs and one.broker_name not in missing
    ]


async def members_of(
    admin: AdminClient, group: str, connection: ConsumerConnection
) -> dict[str, ConsumerRunningInfo | str]:
    """What each member of a group that is connected says of itself, or why it says nothing."""
    through = await brokers_of(admin, group, connection)
    some = asyncio.Semaphore(_AT_ONCE)

    async def ask(client_id: str) -> ConsumerRunningInfo | str:
        said = "no broker reaches it"
        async with some:
            for address in through:
                try:
                    return await admin.consumer_running_info(group, client_id, address)
                except RMQError as error:
                    said = str(error)
        return said

    members = sorted(one.client_id for one in connection.connection_set)
    return dict(zip(members, await asyncio.gather(*map(ask, members)), strict=True))


def _lines(progress: Progress, owners: dict[MessageQueue, str] | None) -> Iterator[str]:
    columns = ("{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  " + ("" if owners is None else "{:<20} ") + "{:<20}  {}").format
    ip_title = [] if owners is None else ["#Client IP"]
    titles = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *ip_title, "#Diff", "#LastTime"]
    yield columns(*titles)
    for queue, one in sorted(progress.stats.offset_table.items()):
        unknown = one.consumer_offset < 0
        yield (
            columns(
                cut(queue.topic, 64),
                cut(queue.broker_name, 32),
                queue.queue_id,
                one.broker_offset,
                "unknown" if unknown else one.consumer_offset,
                *([] if owners is None else [owners.get(queue, "N/A")]),
                "unknown" if unknown else one.broker_offset - one.consumer_offset,
                seconds(one.last_timestamp),
            )
        )
    yield ""
    yield (f"Consume TPS: {progress.stats.consume_tps:.2f}")
    yield (f"Diff Total: {progress.diff}")


def _as_json(progress: Progress, owners: dict[MessageQueue, str] | None) -> dict[str, object]:
    return {
        "group": progress.group,
        "state": progress.state if not progress.stats.offset_table else "known",
        "consumeTps": progress.stats.consume_tps,
        "diffTotal": progress.diff,
        "queues": [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "brokerOffset": one.broker_offset,
                "consumerOffset": one.consumer_offset,
                "diff": one.broker_offset - one.consumer_offset if one.consumer_offset >= 0 else None,
                "lastTimestamp": one.last_timestamp,
                **({} if owners is None else {"clientIP": owners.get(queue)}),
            }
            for queue, one in sorted(progress.stats.offset_table.items())
        ],
    }


async def _every_group(admin: AdminClient, out: Output) -> int:
    names = sorted(t.removeprefix(RETRY) for t in (await admin.topic_list()).topic_list if t.startswith(RETRY))
    await miss_absent(admin, out)
    if not names and (code := nobody(await admin.cluster_info())):
        out.rows([], list)
        return code
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> Progress | None:
        async with gate:
            try:
                return await progress_of(admin, name)
            except RMQError as error:
                out.failed(name, error)
                return None

    found = [one for one in await asyncio.gather(*map(look, names)) if one is not None]
    out.lacks(*(part for one in found for part in (one.connection, one.stats)))
    found.sort(key=lambda one: (-one.diff, one.group))

    def classic() -> Iterator[str]:
        columns = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}".format
        yield columns("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
        for one in found:
            count = len(one.connection.connection_set) if one.connection else 0
            tps = int(one.stats.consume_tps)
            yield columns(cut(one.group, 64), count, _version(one), _type(one), _model(one), tps, one.diff)

    return out.rows(
        [
            {
                "group": one.group,
                "clients": len(one.connection.connection_set) if one.connection else 0,
                "version": _version(one),
                "type": _type(one),
                "model": _model(one),
                "consumeTps": one.stats.consume_tps,
                "diffTotal": one.diff,
            }
            for one in found
        ],
        classic,
    )


def _version(one: Progress) -> str:
    if one.connection is None or not one.connection.connection_set:
        return "OFFLINE"
    return version_name(min(client.version for client in one.connection.connection_set))


def _type(one: Progress) -> str:
    kind = one.connection.consume_type if one.connection else None
    return {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(kind or "", "")


def _model(one: Progress) -> str:
    return (one.connection.message_model or "") if one.connection else ""

"""startMonitoring: every group, again and again, and a line for what an operator has to know of.

Java's tool writes the same to its log only; ours prints it, and ``-o ndjson`` gives a line of JSON for each finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

import click

from rmq.cli.mqadmin.absent import nobody
from rmq.cli.mqadmin.progress import NOT_ONLINE, brokers_of
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError, TransportError

__all__ = ["start_monitoring"]

RETRY = "%RETRY%"
_AT_ONCE = 16
#: A queue that was not pulled for so long stands still.
_STILL_MS = 120_000
Finding = dict[str, object]


@admin_command(
    "startMonitoring",
    click.option("-i", "--interval", "interval", type=click.FloatRange(0.1, 86_400), default=60.0, metavar="SECONDS",
                 help="Between two rounds."),
    click.option("-l", "--level", "level", type=click.IntRange(1), default=100_000, metavar="N",
                 help="Messages not consumed from which a group is told of."),
    click.option("--rounds", "rounds", type=click.IntRange(1), metavar="N", help="End after so many; else Ctrl-C."),
)  # fmt: skip
async def start_monitoring(admin: AdminClient, out: Output, interval: float, level: int, rounds: int | None) -> int:
    """Watch every group, and tell of those that are behind, stand still, fail, or whose members are at odds.

    Ends with 1 when the last round had something to tell.
    """
    if code := nobody(await admin.cluster_info()):
        return code
    done = 0
    with out.stream() as put:
        while True:
            found = await _round(admin, level)
            for finding in found:
                at = datetime.fromtimestamp(admin.world.clock.now_ms() / 1000)
                put(finding, f"{at:%Y-%m-%d %H:%M:%S} {finding['group']}: {finding['what']}")
            done += 1
            if rounds is not None and done >= rounds:
                return 1 if found else 0
            await asyncio.sleep(interval)


async def _round(admin: AdminClient, level: int) -> list[Finding]:
    groups = sorted(
        name.removeprefix(RETRY) for name in (await admin.topic_list()).topic_list if name.startswith(RETRY)
    )
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(group: str) -> list[Finding]:
        async with gate:
            try:
                return [
                    {"group": group, "kind": kind, "what": what} async for kind, what in _findings(admin, group, level)
                ]
            except RMQError as error:
                return [{"group": group, "kind": "unknown", "what": f"cannot be looked at: {error}"}]

    return [one for some in await asyncio.gather(*map(look, groups)) for one in some]


async def _findings(admin: AdminClient, group: str, level: int) -> AsyncIterator[tuple[str, str]]:
    try:
        stats = await admin.consume_stats(group)
    except ResponseError as error:
        if error.code in (*NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            return
        raise
    for name, why in stats.missing.items():
        yield "partial", f"{name} does not tell: {why}"
    behind: dict[str, int] = {}
    for queue, one in stats.offset_table.items():
        behind[queue.topic] = behind.get(queue.topic, 0) + max(0, one.broker_offset - one.consumer_offset)
    for topic, count in sorted(behind.items()):
        if count >= level:
            yield "undone", f"{count} messages of {topic} are not consumed"
    try:
        connection = await admin.consumer_connections(group)
    except ResponseError as error:
        if error.code not in NOT_ONLINE:
            raise
        if sum(behind.values()):
            yield "offline", f"nobody is online, and {sum(behind.values())} messages wait"
        return
    now = admin.world.clock.now_ms()
    addresses = await brokers_of(admin, group, connection)
    subscriptions: dict[str, list[str]] = {}
    for client in connection.connection_set:
        info = await _told(admin, group, client.client_id, addresses)
        if info is None:
            yield "silent", f"{client.client_id} does not answer"
            continue
        wanted = sorted(f"{one.topic}:{one.sub_string}" for one in info.subscription_set
                        if not one.topic.startswith(RETRY))  # fmt: skip
        subscriptions.setdefault(", ".join(wanted), []).append(client.client_id)
        for kind, what in _member(client.client_id, info, now):
            yield kind, what
    if len(subscriptions) > 1:
        said = "; ".join(f"{wanted} by {', '.join(names)}" for wanted, names in sorted(subscriptions.items()))
        yield "mixed", f"members subscribe different things: {said}"


async def _told(admin: AdminClient, group: str, client: str, addresses: list[str]) -> ConsumerRunningInfo | None:
    """What a member tells, through the first broker that it is connected to."""
    for address in addresses:
        try:
            return await admin.consumer_running_info(group, client, address)
        except (ResponseError, TransportError):
            continue
    return None


def _member(client: str, info: ConsumerRunningInfo, now: int) -> Iterator[tuple[str, str]]:
    for queue, state in sorted(info.mq_table.items()):
        still = now - state.last_consume_timestamp
        if state.cached_msg_count and state.last_consume_timestamp and still > _STILL_MS:
            yield (
                "blocked",
                (f"{client} has {state.cached_msg_count} messages of {queue} and consumed none for {still // 1000} s"),
            )
    for topic, status in sorted(info.status_table.items()):
        if status.consume_failed_msgs:
            yield "failed", f"{client} failed {status.consume_failed_msgs} messages of {topic} in the last hour"

"""consumerStatus: what the members of a group tell of themselves, and whether they agree (field case B032)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.progress import NOT_ONLINE, brokers_of, refuse_unknown
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import cut
from rmq.protocol.bodies.connection import Connection
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.codes import ResponseCode, version_name
from rmq.protocol.errors import ClientError, ResponseError, TransportError

__all__ = ["consumer_status", "differences"]


@admin_command(
    "consumerStatus",
    click.option("-g", "--consumerGroup", "group", required=True, metavar="NAME", help="The group."),
    click.option("-i", "--clientId", "client_id", metavar="ID", help="One member, with everything that it tells."),
    click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="Ask through this broker, host:port."),
    click.option("-s", "--jstack", "jstack", is_flag=True, help="With the stacks of its threads."),
)
async def consumer_status(
    admin: AdminClient, out: Output, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> int:
    """The members of a group; fails when they subscribe different things, and says how they differ.

    A group without members is offline, or never connected: that is no failure.
    """
    addrs = [] if broker is None else [broker]
    try:
        connection = await admin.consumer_connections(group, broker)
        addrs = addrs or await brokers_of(admin, group, connection)
        out.lacks(connection)
        connections = connection.connection_set
    except ResponseError as error:
        if error.code not in (*NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            raise
        if client_id is None:  # a state, not an error (field case B119)
            state = "offline" if error.code in NOT_ONLINE else "never connected"
            if state != "offline" and broker is None:
                await refuse_unknown(admin, out, group)
            nobody = {"group": group, "members": [], "differences": [], "state": state}
            return out.value(nobody, lambda: iter([f"{group}: {state}"]))
        connections = []
    members = {one.client_id: one for one in connections if client_id in (None, one.client_id)}
    if not members and out.missing and client_id is None:
        out.complain()
        raise ClientError(f"no member of {group} is known to the brokers that answer")
    if not members:
        out.complain()
        raise NotFound(f"the group {group} has no member {client_id} that is online")
    told: dict[str, ConsumerRunningInfo | str] = {}
    for name in sorted(members):
        for addr in addrs:
            try:
                told[name] = await admin.consumer_running_info(group, name, addr, jstack=jstack)
                break
            except (ResponseError, TransportError) as error:
                told.setdefault(name, str(error))  # perhaps it is connected to another broker
    infos = {name: info for name, info in told.items() if isinstance(info, ConsumerRunningInfo)}
    differs = differences(infos)
    members_told = [
        {
            "clientId": name,
            "version": version_name(members[name].version),
            **(_as_json(info) if isinstance(info, ConsumerRunningInfo) else {"error": info}),
        }
        for name, info in told.items()
    ]
    value = {"group": group, "members": members_told, "differences": differs}

    def classic() -> Iterator[str]:
        yield from _table(members, told)
        if client_id is not None or jstack:
            for info in infos.values():
                yield from _info(info)

    table = [_in_table(member) for member in members_told]
    code = out.value(value, classic, key="members", table=table)
    if differs:
        raise ClientError(
            f"members of {group} subscribe different things, so messages are lost or stay where they are: "
            + ", ".join(differs)
        )
    return code


def _table(members: dict[str, Connection], told: dict[str, ConsumerRunningInfo | str]) -> Iterator[str]:
    columns = "{:<10}  {:<40}  {:<20}  {}".format
    yield (columns("#Index", "#ClientId", "#Version", "#Subscription"))
    for number, (name, info) in enumerate(told.items(), 1):
        what = _subscription(info) if isinstance(info, ConsumerRunningInfo) else f"does not answer: {info}"
        yield (columns(number, cut(name, 40), version_name(members[name].version), what))


def _by_topic(info: ConsumerRunningInfo) -> dict[str, str]:
    """Topic -> expression, without retry topics: those have everybody's group in their name."""
    found = {}
    for data in info.subscription_set:
        if not data.topic.startswith("%RETRY%"):
            found[data.topic] = data.sub_string if data.is_tag_type else f"{data.expression_type} {data.sub_string}"
    return found


def _subscription(info: ConsumerRunningInfo) -> str:
    return ", ".join(f"{topic}:{expression}" for topic, expression in sorted(_by_topic(info).items()))


def differences(infos: dict[str, ConsumerRunningInfo]) -> list[str]:
    """A line for each topic that the members do not subscribe alike."""
    tables = {name: _by_topic(info) for name, info in infos.items()}
    lines = []
    for topic in sorted({topic for table in tables.values() for topic in table}):
        members: dict[str, list[str]] = {}
        for name, table in tables.items():
            members.setdefault(table.get(topic, "not subscribed"), []).append(name)
        if len(members) > 1:
            parts = "; ".join(f"{expression} by {', '.join(names)}" for expression, names in sorted(members.items()))
            lines.append(f"{topic}: {parts}")
    return lines


def _as_json(info: ConsumerRunningInfo) -> dict[str, object]:
    return {
        "subscription": _by_topic(info),
        "properties": info.properties,
        "queues": [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "commitOffset": state.commit_offset,
                "cachedMsgCount": state.cached_msg_count,
            }
            for queue, state in sorted(info.mq_table.items())
        ],
        **({"jstack": info.jstack} if info.jstack else {}),
    }


def _info(info: ConsumerRunningInfo) -> Iterator[str]:
    yield ""
    for key, value in sorted(info.properties.items()):
        yield (f"{key:<40}: {value}")
    yield ""
    columns = "{:<32}  {:<32}  {:<4}  {:<20}  {}".format
    yield (columns("#Topic", "#Broker Name", "#QID", "#Commit Offset", "#Cached"))
    for queue, state in sorted(info.mq_table.items()):
        row = (cut(queue.topic, 32), cut(queue.broker_name, 32), queue.queue_id, state.commit_offset)
        yield (columns(*row, state.cached_msg_count))
    if info.jstack:
        yield ""
        yield (info.jstack)


def _in_table(member: dict[str, object]) -> dict[str, object]:
    """A member on one line: how many queues it has, and how many messages wait in it."""
    queues = member.get("queues")
    if not isinstance(queues, list):
        return member
    return {
        "clientId": member["clientId"],
        "version": member["version"],
        "subscription": member["subscription"],
        "queues": len(queues),
        "waiting": sum(one["cachedMsgCount"] for one in queues),
    }

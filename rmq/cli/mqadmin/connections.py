"""consumerConnection, producerConnection, producer (mqadmin.md B.1)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.progress import NOT_ONLINE
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import plain
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.protocol.bodies.connection import Connection
from rmq.protocol.codes import ResponseCode, version_name
from rmq.protocol.errors import ResponseError

__all__ = ["consumer_connection", "producer", "producer_connection"]


def _as_json(one: Connection) -> dict[str, object]:
    return {
        "clientId": one.client_id,
        "clientAddr": one.client_addr,
        "language": one.language,
        "version": version_name(one.version),
    }


@admin_command(
    "consumerConnection",
    click.option("-g", "--consumerGroup", "group", required=True, metavar="NAME", help="The group."),
    click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="Those connected to this broker, host:port."),
)
async def consumer_connection(admin: AdminClient, out: Output, group: str, broker: str | None) -> int:
    """The clients of a group and what they subscribe."""
    try:
        found = await admin.consumer_connections(group, broker)
    except ResponseError as error:
        if error.code not in NOT_ONLINE:
            raise
        raise NotFound(f"the group {group} has no member that is online") from error
    out.lacks(found)

    def classic() -> Iterator[str]:
        columns = "{:<36} {:<22} {:<10} {}".format
        yield columns("#ClientId", "#ClientAddr", "#Language", "#Version")
        for one in found.connection_set:
            version = version_name(one.version)
            yield columns(plain(one.client_id), one.client_addr, one.language or "null", version)
        yield ""
        yield "Below is subscription:"
        yield f"{'#Topic':<20} #SubExpression"
        for data in found.subscription_table.values():
            yield f"{data.topic:<20} {plain(data.sub_string)}"
        yield ""
        yield f"ConsumeType: {found.consume_type}"
        yield f"MessageModel: {found.message_model}"
        yield f"ConsumeFromWhere: {found.consume_from_where}"

    return out.value(
        {
            "group": group,
            "clients": [_as_json(one) for one in found.connection_set],
            "subscription": {data.topic: data.sub_string for data in found.subscription_table.values()},
            "consumeType": found.consume_type,
            "messageModel": found.message_model,
            "consumeFromWhere": found.consume_from_where,
        },
        classic,
        key="clients",
    )


@admin_command(
    "producerConnection",
    click.option("-g", "--producerGroup", "group", required=True, metavar="NAME", help="The group."),
    _topic,
)
async def producer_connection(admin: AdminClient, out: Output, group: str, topic: str) -> int:
    """The clients of a producer group that the brokers of a topic know."""
    try:
        found = await admin.producer_connections(group, topic)
    except ResponseError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        raise NotFound(
            f"no broker of {topic} knows a producer group {group}: producers tell of theirs to brokers they send to"
        ) from error
    out.lacks(found)

    def classic() -> Iterator[str]:
        for number, one in enumerate(found.connection_set, 1):
            version = version_name(one.version)
            yield f"{number:04}  {plain(one.client_id):<32} {one.client_addr:<22} {one.language or 'null':<8} {version}"

    return out.rows([_as_json(one) for one in found.connection_set], classic)


@admin_command(
    "producer",
    click.option("-b", "--broker", "broker", required=True, metavar="ADDR", help="The broker, host:port."),
)
async def producer(admin: AdminClient, out: Output, broker: str) -> int:
    """Every producer that a broker knows, by group."""
    table = (await admin.producers(broker)).data

    def classic() -> Iterator[str]:
        for group, clients in table.items():
            if not clients:
                yield f"producer group ({group}) instances are empty"
            for one in clients:
                yield (
                    f"producer group ({group}) instance : clientId={plain(one.client_id)},remoteIP={one.remote_ip}, "
                    f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
                )

    return out.rows([{"group": group, **one.to_object()} for group, some in table.items() for one in some], classic)

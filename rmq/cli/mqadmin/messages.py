"""queryMsgById, queryMsgByKey (mqadmin.md B.1; field cases B093, B118)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Collection

import click

from rmq.cli.mqadmin.session import address, admin_command, print_json, stamp
from rmq.client.admin import AdminClient
from rmq.client.decode import decode_messages
from rmq.client.lookup import query_message
from rmq.client.message import Message, MessageExt
from rmq.client.producer import Producer
from rmq.protocol import ids, properties
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ClientError, ProtocolError, ResponseError, RMQError, TransportError
from rmq.protocol.headers.client import ConsumeMessageDirectlyRequest
from rmq.protocol.headers.message import ViewMessageRequest

__all__ = ["query_msg_by_id", "query_msg_by_key"]

#: An offset id is the broker's address and port and a position: 16 bytes for IPv4, 28 for IPv6 (protocol.md 5.6).
ID_LENGTHS = (32, 56)
_id = click.option("-i", "--msgId", "msg_id", required=True, metavar="ID", help="Offset id or unique id.")


@admin_command(
    "queryMsgById",
    _id,
    click.option("-t", "--topic", "topic", metavar="NAME", help="Where to look for a unique id; else in every topic."),
    click.option("-g", "--consumerGroup", "group", metavar="NAME", help="Have a member of this group consume it now."),
    click.option("-d", "--clientId", "client", metavar="ID", help="This member; without it every one."),
    click.option("-s", "--sendMessage", "again", type=bool, metavar="BOOL", default=False, help="Send a copy of it."),
    click.option("-u", "--unitName", "unit_name", metavar="NAME", help="The unit of the name servers."),
)
async def query_msg_by_id(
    admin: AdminClient,
    msg_id: str,
    topic: str | None,
    group: str | None,
    client: str | None,
    again: bool,
    json: bool,
) -> None:
    """A message by its offset id or its unique id."""
    if client is not None and group is None:
        raise click.UsageError("-d names a member of the group given with -g", click.get_current_context())
    message = await _find(admin, msg_id, topic)
    if group is not None:
        await _consume_now(admin, message, group, client, json)
        return
    if again:
        await _send_again(admin, message, json)
        return
    if json:
        print_json(_as_json(message))
        return
    path = _keep_body(message)
    for name, value in (
        ("OffsetID:", message.offset_msg_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.properties.get('TAGS', 'null')}]"),
        ("Keys:", f"[{message.properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.commit_log_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", stamp(message.born_timestamp)),
        ("Store Timestamp:", stamp(message.store_timestamp)),
        ("Born Host:", address(message.born_host)),
        ("Store Host:", address(message.store_host)),
        ("System Flag:", message.sys_flag),
        ("Properties:", "{" + ", ".join(f"{k}={v}" for k, v in message.properties.items()) + "}"),
        ("Message Body Path:", path),
    ):
        click.echo(f"{name:<20} {value}")


@admin_command(
    "queryMsgByKey",
    click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic."),
    click.option("-k", "--msgKey", "key", required=True, metavar="KEY", help="A key the producer gave."),
)
async def query_msg_by_key(admin: AdminClient, topic: str, key: str, json: bool) -> None:
    """The messages of a topic that have a key."""
    result = await admin.query_message(topic, key, 64)
    found = result.messages
    if not found:
        raise ResponseError(ResponseCode.QUERY_NOT_FOUND, result.remark)
    if result.remark:
        click.echo(result.remark, err=True)
    if json:
        print_json([_as_json(message) for message in found])
        return
    click.echo(f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}")
    for message in found:
        click.echo(f"{message.msg_id:<50} {message.queue_id:>4} {message.queue_offset:>40}")


# -- finding ---------------------------------------------------------------------------------------------------


async def _find(admin: AdminClient, msg_id: str, topic: str | None) -> MessageExt:
    """The message with an id of either kind; only brokers that a name server knows are ever asked."""
    info = await admin.cluster_info()
    away: dict[str, str] = {}
    if len(msg_id) in ID_LENGTHS:
        try:
            host, port, offset = ids.decode_offset_msg_id(msg_id)
        except (ProtocolError, ValueError):
            raise ClientError(f"{msg_id!r} is no message id: hexadecimal digits are expected") from None
        message = await _by_offset(admin, info, offset, msg_id, away)
        if message is not None:
            return message
        if (owner := address((host, port))) in away:
            raise ClientError(f"the broker of this id does not answer: {away[owner]}")
    elif not msg_id:
        raise ClientError("the message id is empty")
    said: dict[str, None] = {}
    message = await _by_unique_id(admin, msg_id, topic, said, away)
    if message is None:
        where = f"the topic {topic}" if topic else "any topic"
        raise ResponseError(
            ResponseCode.QUERY_NOT_FOUND,
            "; ".join([f"{msg_id} is neither the offset id of a message on a broker of this cluster nor a unique id in "
                       f"{where}", *said, *(f"not looked for where nobody answers: {why}" for why in away.values())]),
        )  # fmt: skip
    return message


async def _by_offset(
    admin: AdminClient, info: ClusterInfo, offset: int, msg_id: str, away: dict[str, str]
) -> MessageExt | None:
    """Ask the brokers of the cluster: the one whose address the id holds, and those that may have taken over its store
    (a broker that came back at another address); only a message that bears the very id counts.

    :param away: gets the addresses that do not answer, and why.
    """
    addrs = {addr: name for name, broker in info.broker_addr_table.items() for addr in broker.broker_addrs.values()}

    async def ask(addr: str) -> MessageExt | None:
        header = ViewMessageRequest(offset=offset)
        try:
            reply = await admin._client.call(addr, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except TransportError as error:
            away[addr] = f"{addrs[addr]} ({addr}): {error}"
            return None
        except RMQError:
            return None
        found = decode_messages(reply.body, addrs[addr])
        return next((message for message in found if message.offset_msg_id == msg_id.upper()), None)

    found = await asyncio.gather(*map(ask, addrs))
    return next((message for message in found if message is not None), None)


async def _by_unique_id(
    admin: AdminClient, msg_id: str, topic: str | None, said: dict[str, None], away: Collection[str]
) -> MessageExt | None:
    """The message with a unique id.

    :param said: gets what the brokers of one topic say when they have none: an index may be incomplete.
    :param away: addresses of brokers that do not answer.
    """
    topics = [topic] if topic else (await admin.topic_list()).topic_list
    for name in topics:
        try:
            if away:
                result = await query_message(admin._client, name, msg_id, 1, without=away)
            else:
                result = await admin.query_message(name, msg_id, 1)
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                continue
            raise
        except ClientError:
            continue  # the topic went meanwhile
        if topic and not result.messages:
            said[result.remark] = None
        for message in result.messages:
            if message.msg_id == msg_id:
                return message
    return None


# -- acting ----------------------------------------------------------------------------------------------------


async def _consume_now(admin: AdminClient, message: MessageExt, group: str, client: str | None, json: bool) -> None:
    """Have members of a group consume the message, through the broker that holds it."""
    info = await admin.cluster_info()
    broker = info.broker_addr_table.get(message.broker_name)
    if broker is None or not broker.broker_addrs:
        raise ClientError(f"the broker {message.broker_name}, which holds the message, is not registered")
    addr = broker.broker_addrs[min(broker.broker_addrs)]
    members = (
        [client] if client else [one.client_id for one in (await admin.consumer_connections(group)).connection_set]
    )
    results: dict[str, object] = {}
    for member in members:
        header = ConsumeMessageDirectlyRequest(
            consumer_group=group, client_id=member, msg_id=message.offset_msg_id, broker_name=message.broker_name
        )
        reply = await admin._client.call(addr, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout=30.0)
        result = ConsumeMessageDirectlyResult.decode(reply.body)
        results[member] = result.to_object()
        if not json:
            flags = f"order={str(result.order).lower()}, autoCommit={str(result.auto_commit).lower()}"
            click.echo(
                f"{member}: ConsumeMessageDirectlyResult [{flags}, consumeResult={result.consume_result}, "
                f"remark={result.remark or 'null'}, spentTimeMills={result.spent_time_mills}]"
            )
    if json:
        print_json(results)


async def _send_again(admin: AdminClient, message: MessageExt, json: bool) -> None:
    """Send a copy to the topic: body, tags, keys, flag and the application's properties."""
    own = {name: value for name, value in message.properties.items() if name not in properties.RESERVED}
    copy = Message(message.topic, message.body, tags=message.tags, keys=message.keys, flag=message.flag, properties=own)
    async with Producer("ReSendMsgById", namesrv=";".join(admin.name_server_addresses)) as producer:
        result = await producer.send(copy)
    if json:
        print_json({"originalMsgId": message.msg_id, "msgId": result.msg_id, "status": result.send_status.name})
        return
    click.echo(f"prepare resend msg. originalMsgId={message.msg_id}")
    queue = result.message_queue
    click.echo(
        f"SendResult [sendStatus={result.send_status.name}, msgId={result.msg_id}, offsetMsgId={result.offset_msg_id}, "
        f"messageQueue={queue}, queueOffset={result.queue_offset}]"
    )


# -- showing ---------------------------------------------------------------------------------------------------


def _keep_body(message: MessageExt) -> str:
    """Write the body where Java's tool does, readable by this user alone."""
    folder = os.path.join(tempfile.gettempdir(), "rocketmq", "msgbodys")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # A producer chooses the unique id: it names a file only when it cannot be a path.
    path = os.path.join(folder, message.msg_id if message.msg_id.isalnum() else message.offset_msg_id)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(file, "wb") as target:
        target.write(message.body)
    return path


def _as_json(message: MessageExt) -> dict[str, object]:
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "bornHost": address(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": address(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "properties": message.properties,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }

"""queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset (mqadmin.md B.1; field cases B093, B118)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import click

from rmq.cli.mqadmin.failures import NotFound, Partial
from rmq.cli.mqadmin.message_text import as_json, in_table, sheet
from rmq.cli.mqadmin.output import complain
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, producing
from rmq.cli.mqadmin.text import address
from rmq.cli.mqadmin.times import moment
from rmq.cli.mqadmin.tracks import Track, tracks_of
from rmq.client.admin.answers import Answers
from rmq.client.decode import decode_messages
from rmq.client.lookup import FOREVER, query_message
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.results import QueryResult, SendResult
from rmq.protocol import ids, properties
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ClientError, ProtocolError, ResponseError, RMQError, TransportError
from rmq.protocol.headers.message import ViewMessageRequest

__all__ = [
    "find_message",
    "message_now",
    "query_msg_by_id",
    "query_msg_by_key",
    "query_msg_by_offset",
    "query_msg_by_unique_key",
    "result_text",
    "say",
    "when_indexed",
]

T = TypeVar("T")

#: An offset id is the broker's address and port and a position: 16 bytes for IPv4, 28 for IPv6 (protocol.md 5.6).
ID_LENGTHS = (32, 56)
_MOST = 64
#: Messages that are asked for by one unique id: brokers compare hashes, and another message may have the same.
_OF_ONE = 32
#: An id of this age or less may not be in the index yet; seconds between two looks at it.
_YOUNG_MS = 10_000
_AGAIN = (0.02, 0.05, 0.1, 0.2, 0.4)
#: Topics in which an id is looked for at the same time.
_AT_ONCE = 16
_id = click.option("-i", "--msgId", "msg_id", required=True, metavar="ID", help="Offset id or unique id.")
_topic = click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic.")
_group = click.option(
    "-g", "--consumerGroup", "group", metavar="NAME", help="Have a member of this group consume it now."
)
_client = click.option("-d", "--clientId", "client", metavar="ID", help="This member; without it every one.")


@admin_command(
    "queryMsgById",
    _id,
    click.option("-t", "--topic", "topic", metavar="NAME", help="Where to look for a unique id; else in every topic."),
    _group,
    _client,
    click.option("-s", "--sendMessage", "again", type=bool, metavar="BOOL", default="false", help="Send a copy of it."),
    click.option("-u", "--unitName", "unit_name", metavar="NAME", help="The unit of the name servers."),
)
async def query_msg_by_id(
    admin: AdminClient,
    out: Output,
    msg_id: str,
    topic: str | None,
    group: str | None,
    client: str | None,
    again: bool,
) -> int:
    """A message by its offset id or its unique id; several ids are separated by commas."""
    _one_member(group, client)
    wanted = [one for each in msg_id.split(",") if (one := each.strip())]
    found = [await find_message(admin, one, topic) for one in wanted or [msg_id]]
    if group is not None:
        return await _consume_now(admin, out, found, group, client)
    if again:
        return await _send_again(admin, out, found)
    return await _show(admin, out, found)


@admin_command(
    "queryMsgByUniqueKey",
    _id,
    _topic,
    _group,
    _client,
    click.option("-a", "--showAll", "every", is_flag=True, help="Every message with this id: a producer tried again."),
)
async def query_msg_by_unique_key(
    admin: AdminClient, out: Output, msg_id: str, topic: str, group: str | None, client: str | None, every: bool
) -> int:
    """A message by the unique id that its producer gave."""
    _one_member(group, client)

    async def look() -> tuple[QueryResult, list[MessageExt]]:
        result = await admin.query_message(topic, msg_id, _MOST if every else _OF_ONE)
        found = [message for message in result.messages if message.msg_id == msg_id]
        if not found:
            raise NotFound(result.remark or f"no message of {topic} has the unique id {msg_id}")
        return result, found

    result, found = await when_indexed(admin, msg_id, look)
    say(out, result)
    found = found if every else found[:1]
    if group is not None:
        return await _consume_now(admin, out, found, group, client)
    return await _show(admin, out, found, offset_id=False)


@admin_command(
    "queryMsgByOffset",
    _topic,
    click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name."),
    click.option("-i", "--queueId", "queue", required=True, type=click.IntRange(0), metavar="ID", help="The queue."),
    click.option("-o", "--offset", "offset", required=True, type=click.IntRange(0), metavar="N", help="In the queue."),
)
async def query_msg_by_offset(admin: AdminClient, out: Output, topic: str, broker: str, queue: int, offset: int) -> int:
    """The message at an offset of a queue."""
    place = MessageQueue(topic, broker, queue)
    if place not in await admin.fetch_subscribe_message_queues(topic):
        raise NotFound(f"the topic {topic} has no queue {queue} on {broker}: mqadmin topicRoute -t {topic} shows them")
    message = await admin.message_at(place, offset)
    if message is None:
        low, high = await admin.min_offset(place), await admin.max_offset(place)
        has = f"it has those of {low} to {high - 1}" if high > low else "it is empty"
        raise NotFound(f"queue {queue} of {topic} on {broker} has no message at offset {offset}: {has}")
    return await _show(admin, out, [message])


@admin_command(
    "queryMsgByKey",
    _topic,
    click.option("-k", "--msgKey", "key", required=True, metavar="KEY", help="A key the producer gave."),
    click.option("-b", "--beginTimestamp", "begin", callback=moment, metavar="TIME", help="Stored since then."),
    click.option("-e", "--endTimestamp", "end", callback=moment, metavar="TIME", help="Stored until then."),
    click.option("-m", "--maxNum", "most", type=click.IntRange(1, 10_000), default=_MOST, metavar="N",
                 help="Messages at most of each broker."),
)  # fmt: skip
async def query_msg_by_key(
    admin: AdminClient, out: Output, topic: str, key: str, begin: int | None, end: int | None, most: int
) -> int:
    """The messages of a topic that have a key."""
    span = (begin or 0, FOREVER if end is None else end) if (begin, end) != (None, None) else ()
    result = await admin.query_message(topic, key, most, *span)
    found = result.messages
    if not found:
        raise NotFound(result.remark)
    say(out, result)

    def classic() -> Iterator[str]:
        yield f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}"
        for message in found:
            yield f"{message.msg_id:<50} {message.queue_id:>4} {message.queue_offset:>40}"

    return out.rows([as_json(message) for message in found], classic, table=in_table)


def say(out: Output, result: QueryResult) -> None:
    """What is to be known about an answer: who has not given one, or that it was cut."""
    out.lacks(result)
    if result.remark and not result.missing:
        complain(result.remark)


def _one_member(group: str | None, client: str | None) -> None:
    if client is not None and group is None:
        raise click.UsageError("-d names a member of the group given with -g", click.get_current_context())


async def _show(admin: AdminClient, out: Output, found: list[MessageExt], *, offset_id: bool = True) -> int:
    """What is in messages, and where each group is with them."""
    tracks: list[list[Track]] = []
    for message in found:
        answers: Answers[Track] = await tracks_of(admin, message)
        out.missing.update({f"what {name} did with {message.msg_id}": why for name, why in answers.missing.items()})
        tracks.append(list(answers.found.values()))

    def classic() -> Iterator[str]:
        for message, some in zip(found, tracks, strict=True):
            yield from sheet(message, offset_id=offset_id)
            if some:
                yield ""
                yield ""
                yield "".join(str(one) for one in some)

    objects = [as_json(message) | {"tracks": [one.as_json() for one in some]}
               for message, some in zip(found, tracks, strict=True)]  # fmt: skip
    return out.value(objects[0], classic) if len(objects) == 1 else out.rows(objects, classic)


# -- finding ---------------------------------------------------------------------------------------------------


async def when_indexed(admin: AdminClient, msg_id: str, look: Callable[[], Awaitable[T]]) -> T:
    """Look for a message, and again where there is none and its id is a few seconds old.

    Brokers index behind what they store: of Java's 4.9.4 on a busy machine one of eight messages was not found by its
    unique id right behind its sending, and 17 ms later all were.

    :raises NotFound: it is not there.
    """
    for pause in _AGAIN:
        try:
            return await look()
        except NotFound:
            now = admin.world.clock.now_ms()
            made = ids.unique_id_time(msg_id, now + _YOUNG_MS)  # its maker's clock may be ahead
            if made is None or abs(now - made) > _YOUNG_MS:
                raise
        await asyncio.sleep(pause)
    return await look()


async def find_message(admin: AdminClient, msg_id: str, topic: str | None) -> MessageExt:
    """The message with an id of either kind; only brokers that a name server knows are ever asked."""
    return await when_indexed(admin, msg_id, lambda: message_now(admin, msg_id, topic))


async def message_now(admin: AdminClient, msg_id: str, topic: str | None) -> MessageExt:
    """The same, as far as brokers have indexed. :raises NotFound: there is none."""
    info = await admin.cluster_info()
    away: dict[str, str] = {}
    if len(msg_id) in ID_LENGTHS:
        try:
            host, port, offset = ids.decode_offset_msg_id(msg_id)
        except (ProtocolError, ValueError):
            raise click.UsageError(f"{msg_id!r} is no message id: hexadecimal digits are expected") from None
        message = await _by_offset(admin, info, offset, msg_id, away)
        if message is not None:
            return message
        if (owner := address((host, port))) in away:
            raise TransportError(f"the broker of this id does not answer: {away[owner]}")
    elif not msg_id:
        raise click.BadParameter("it is empty", param_hint="'-i' / '--msgId'")
    said: dict[str, None] = {}
    message = await _by_unique_id(admin, msg_id, topic, said, away)
    if message is None:
        where = f"the topic {topic}" if topic else "any topic"
        # Of what was not asked nobody knows that it is not there.
        raise (Partial if away else NotFound)(
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
            reply = await admin._unless_silent(
                addr, lambda: admin._client.call(addr, RequestCode.VIEW_MESSAGE_BY_ID, header)
            )
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
    admin: AdminClient, msg_id: str, topic: str | None, said: dict[str, None], away: dict[str, str]
) -> MessageExt | None:
    """The message with a unique id.

    :param said: gets what the brokers of one topic say when they have none: an index may be incomplete.
    :param away: gets those that do not answer, and why.
    """

    async def look(name: str) -> MessageExt | None:
        try:
            if away:
                result = await query_message(admin._client, name, msg_id, _OF_ONE, without=away)
            else:
                result = await admin.query_message(name, msg_id, _OF_ONE)
        except TransportError as error:
            away.setdefault(error.address or name, str(error))
            return None
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        except ClientError:
            return None  # the topic went meanwhile
        if topic and not result.messages:
            said[result.remark] = None
        return next((message for message in result.messages if message.msg_id == msg_id), None)

    topics = [topic] if topic else (await admin.topic_list()).topic_list
    for at in range(0, len(topics), _AT_ONCE):
        found = await asyncio.gather(*map(look, topics[at : at + _AT_ONCE]))
        if (message := next((one for one in found if one is not None), None)) is not None:
            return message
    return None


# -- acting ----------------------------------------------------------------------------------------------------


async def _consume_now(admin: AdminClient, out: Output, found: list[MessageExt], group: str, client: str | None) -> int:
    """Have members of a group consume the messages, through the broker that holds each."""
    info = await admin.cluster_info()
    connected = [] if client else (await admin.consumer_connections(group)).connection_set
    results: dict[str, object] = {}
    lines = []
    for message in found:
        broker = info.broker_addr_table.get(message.broker_name)
        if broker is None or not broker.broker_addrs:
            raise NotFound(f"the broker {message.broker_name}, which holds the message, is not registered")
        addr = broker.broker_addrs[min(broker.broker_addrs)]
        for member in [client] if client else [one.client_id for one in connected]:
            result = await admin.consume_message_directly(
                group, member, message.offset_msg_id, addr, message.broker_name
            )
            results[member] = result.to_object()
            flags = f"order={str(result.order).lower()}, autoCommit={str(result.auto_commit).lower()}"
            lines.append(
                f"{member}: ConsumeMessageDirectlyResult [{flags}, consumeResult={result.consume_result}, "
                f"remark={result.remark or 'null'}, spentTimeMills={result.spent_time_mills}]"
            )
    return out.done(results, lines)


async def _send_again(admin: AdminClient, out: Output, found: list[MessageExt]) -> int:
    """Send copies to the topic: body, tags, keys, flag and the application's properties."""
    sent = []
    lines = []
    async with producing("ReSendMsgById") as producer:
        for message in found:
            own = {name: value for name, value in message.properties.items() if name not in properties.RESERVED}
            copy = Message(
                message.topic, message.body, tags=message.tags, keys=message.keys, flag=message.flag, properties=own
            )
            result = await producer.send(copy)
            sent.append({"originalMsgId": message.msg_id, "msgId": result.msg_id, "status": result.send_status.name})
            lines += [f"prepare resend msg. originalMsgId={message.msg_id}", result_text(result)]
    return out.done(sent[0], lines) if len(sent) == 1 else out.rows(sent, lambda: iter(lines))


def result_text(result: SendResult) -> str:
    """As Java prints it."""
    return (
        f"SendResult [sendStatus={result.send_status.name}, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue={result.message_queue}, "
        f"queueOffset={result.queue_offset}]"
    )

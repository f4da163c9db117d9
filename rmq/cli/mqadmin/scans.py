"""printMsg, printMsgByQueue, consumeMessage: messages of a topic or a queue, read one after the other."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import AsyncIterator

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.message_text import as_json, in_one_line
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, flag
from rmq.cli.mqadmin.times import moment
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import PullResult, PullStatus
from rmq.protocol.errors import RMQError, TransportError

__all__ = ["consume_message", "print_msg", "print_msg_by_queue"]


def _charset(ctx: click.Context, param: click.Parameter, name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise click.BadParameter(f"{name}: there is no such character set", ctx, param) from None


_begin = click.option("-b", "--beginTimestamp", "begin", callback=moment, metavar="TIME", help="Stored since then.")
_end = click.option("-e", "--endTimestamp", "end", callback=moment, metavar="TIME", help="Stored until then.")
_coded = click.option("-c", "--charsetName", "charset", callback=_charset, default="UTF-8", metavar="NAME",
                      help="The character set of bodies.")  # fmt: skip
_tags = click.option("-s", "--subExpression", "tags", default="*", metavar="TAGS", help="TagA || TagB, or *.")
_queue = click.option("-i", "--queueId", "queue_id", required=True, type=click.IntRange(0), metavar="ID", help="Queue.")


class _Away:
    """Queues that could not be read; a broker that did not answer is not asked for its other queues."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._brokers: dict[str, TransportError] = {}

    def failed(self, queue: MessageQueue, error: RMQError) -> None:
        if isinstance(error, TransportError):
            self._brokers[queue.broker_name] = error
        self._out.failed(f"queue {queue.queue_id} of {queue.broker_name}", error)

    def names(self, queue: MessageQueue) -> bool:
        """Whether its broker did not answer before; the queue is missing then as well."""
        error = self._brokers.get(queue.broker_name)
        if error is not None:
            self.failed(queue, error)
        return error is not None


async def _bounds(admin: AdminClient, queue: MessageQueue, begin: int | None, end: int | None) -> tuple[int, int]:
    """The first offset, and the one behind the last."""
    low = await (admin.min_offset(queue) if begin is None else admin.search_offset(queue, begin))
    high = await (admin.max_offset(queue) if end is None else admin.search_offset(queue, end))
    return low, high


async def _pulls(
    admin: AdminClient, queue: MessageQueue, at: int, end: int, tags: str
) -> AsyncIterator[tuple[PullResult, list[MessageExt]]]:
    """Each answer of a queue, and its messages before ``end``."""
    while at < end:
        result = await admin.pull(queue, at, expression=tags)
        yield result, [message for message in result.messages if message.queue_offset < end]
        if result.next_begin_offset <= at:
            return
        at = result.next_begin_offset


@admin_command(
    "printMsg", _topic, _coded, _tags, _begin, _end,
    flag("-d", "--printBody", "body", default=True, help="With the body as a text"),
)  # fmt: skip
async def print_msg(
    admin: AdminClient,
    out: Output,
    topic: str,
    charset: str,
    tags: str,
    begin: int | None,
    end: int | None,
    body: bool,
) -> int:
    """Every message of a topic, queue after queue."""
    away = _Away(out)
    with out.stream() as put:
        for queue in sorted(await admin.fetch_subscribe_message_queues(topic)):
            if away.names(queue):
                continue
            try:
                low, high = await _bounds(admin, queue, begin, end)
                put(None, f"minOffset={low}, maxOffset={high}, {queue}")
                async for result, messages in _pulls(admin, queue, low, high, tags):
                    for message in messages:
                        put(as_json(message), in_one_line(message, body=body, charset=charset))
                    if result.status is not PullStatus.FOUND:
                        at = result.next_begin_offset
                        put(None, f"{queue} no matched msg. status={result.status.value}, offset={at}")
            except RMQError as error:
                away.failed(queue, error)
            put(None, "--------------------------------------------------------")
    return out.code


@admin_command(
    "printMsgByQueue",
    _topic,
    click.option("-a", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name."),
    _queue,
    _coded,
    _tags,
    _begin,
    _end,
    flag("-p", "--print", "shown", default=False, help="Print the messages"),
    flag("-d", "--printBody", "body", default=False, help="With the body as a text"),
    flag("-f", "--calculate", "tally", default=False, help="Count them by tag"),
)
async def print_msg_by_queue(
    admin: AdminClient,
    out: Output,
    topic: str,
    broker: str,
    queue_id: int,
    charset: str,
    tags: str,
    begin: int | None,
    end: int | None,
    shown: bool,
    body: bool,
    tally: bool,
) -> int:
    """The messages of one queue: printed with -p true, counted by tag with -f true."""
    if not shown and not tally:
        raise click.UsageError("say what to do: -p true prints, -f true counts by tag", click.get_current_context())
    queue = MessageQueue(topic, broker, queue_id)
    low, high = await _bounds(admin, queue, begin, end)
    counted: Counter[str] = Counter()
    with out.stream() as put:
        async for _, messages in _pulls(admin, queue, low, high, tags):
            for message in messages:
                counted[message.tags or "null"] += 1
                if shown:
                    put(as_json(message), in_one_line(message, body=body, charset=charset))
        for tag, count in counted.most_common() if tally else ():
            put({"tag": tag, "count": count}, f"Tag: {tag:<30} Count: {count}")
    return out.code


@admin_command(
    "consumeMessage",
    _topic,
    click.option("-b", "--brokerName", "broker", metavar="NAME", help="The broker's name."),
    click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), metavar="ID", help="With -b: this queue."),
    click.option("-o", "--offset", "offset", type=click.IntRange(0), metavar="N", help="With -i: from this offset."),
    click.option("-g", "--consumerGroup", "group", metavar="NAME",
                 help="Taken for Java's sake: nobody's offset moves, whatever the group."),
    click.option("-s", "--beginTimestamp", "begin", callback=moment, metavar="TIME", help="Stored since then."),
    click.option("-e", "--endTimestamp", "end", callback=moment, metavar="TIME", help="Stored until then."),
    click.option("-c", "--MessageNumber", "count", type=click.IntRange(1), default=128, metavar="N",
                 help="Messages at most."),
)  # fmt: skip
async def consume_message(
    admin: AdminClient,
    out: Output,
    topic: str,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
    begin: int | None,
    end: int | None,
    count: int,
) -> int:
    """Messages of a topic or a queue, from an offset, a time or the oldest on; offsets of groups stay as they are."""
    ctx = click.get_current_context()
    if (broker is None) != (queue_id is None):
        raise click.UsageError("-b and -i name a queue together", ctx)
    if offset is not None and (queue_id is None or begin is not None or end is not None):
        raise click.UsageError("-o is an offset of the queue that -b and -i name, and goes with no time", ctx)
    queues = sorted(await admin.fetch_subscribe_message_queues(topic))
    if broker is not None and queue_id is not None:
        wanted = MessageQueue(topic, broker, queue_id)
        if wanted not in queues:
            raise NotFound(f"the topic {topic} has no queue {queue_id} on {broker}")
        queues = [wanted]
    left = count
    away = _Away(out)
    with out.stream() as put:
        for queue in queues if left else ():
            if away.names(queue):
                continue
            try:
                low, high = await _bounds(admin, queue, begin, end)
                at = low if offset is None else offset
                if offset is not None and not low <= offset < high:
                    has = f"it has {low} to {high - 1}" if high > low else "it is empty"
                    raise NotFound(f"queue {queue_id} of {topic} on {broker} has no message at offset {offset}: {has}")
                if offset is None and begin is None and end is None and high - low > left:
                    put(None, f"The older {left} message of the {queue.queue_id} queue will be provided")
                until = min(high, at + left)
                async for result, messages in _pulls(admin, queue, at, until, "*"):
                    if result.status is PullStatus.FOUND:
                        put(None, "Consume ok")
                    for message in messages[:left]:
                        put(as_json(message), in_one_line(message, body=True))
                    left -= len(messages[:left])
            except TransportError as error:
                if len(queues) == 1:
                    raise
                away.failed(queue, error)
                continue
            if until == high and end is None:
                put(None, f"{queue} print msg finished. status={PullStatus.NO_NEW_MSG.value}, offset={high}")
            if not left:
                break
    return out.code

"""Offsets of the words and times that options give for the start or the end of a read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, ResponseError, RMQError, TransportError
from rmq.protocol.headers.pull import PullMessageRequest
from rmq.protocol.message import decode_record
from rmq.protocol.queue import MessageQueue
from rmq.protocol.subscription import SUB_ALL
from rmq.protocol.sysflags import PULL_SUBSCRIPTION
from rmq.spark.cluster.brokers import Brokers, require_topics
from rmq.spark.options.checked import SourceOptions
from rmq.spark.options.positions import EARLIEST, LATEST, Position
from rmq.spark.source.ranges import DataLost, Range, ranges_between

__all__ = ["offset_at_time", "queues_to_read", "ranges_of_batch", "resolve", "until_answered"]

log = logging.getLogger(__name__)

#: Seconds in which a broker that is away at the start of a read may come back.
PATIENCE = 20.0

V = TypeVar("V")


def queues_to_read(brokers: Brokers, options: SourceOptions) -> list[MessageQueue]:
    """Every queue of the topics that the options name.

    :raises ConfigError: a named topic does not exist or may not be read, or the pattern matches none.
    """
    topics: Sequence[str] = options.topics
    if options.topic_pattern is not None:
        topics = brokers.topics(options.topic_pattern)
        if not topics:
            raise ConfigError(f"the option topicPattern {options.topic_pattern!r} matches no topic")
    require_topics(brokers, topics)
    for topic in topics:
        _look_at_permissions(brokers, topic, options.fail_on_data_loss)
    return sorted(queue for topic in topics for queue in brokers.queues(topic) or ())


def _look_at_permissions(brokers: Brokers, topic: str, strict: bool) -> None:
    """:raises ConfigError: no broker lets the topic be read; with ``strict`` also: one of them does not."""
    closed, every = brokers.not_readable(topic)
    if not closed:
        return
    what = (
        f"the topic {topic} may not be read on {', '.join(closed)}: its permission there, or the broker's, is without"
    )
    if len(closed) == every:
        raise ConfigError(f"{what} reading (mqadmin updateTopic -p 6)")
    if strict:
        raise ConfigError(f"{what} reading (mqadmin updateTopic -p 6; failOnDataLoss=false reads the others)")
    log.warning("%s reading; the others are read (failOnDataLoss=false)", what)


def ranges_of_batch(brokers: Brokers, options: SourceOptions) -> list[Range]:
    """What a batch reads.

    :raises ConfigError: topics are missing, or the options name an end before the start.
    :raises DataLost: a queue ends before the start that is asked for, and that is an error.
    """
    queues = queues_to_read(brokers, options)
    start = resolve(brokers, options, options.start, queues, EARLIEST)
    end = resolve(brokers, options, options.end, queues, LATEST)
    named = options.end.queues or {} if options.end is not None else {}
    for queue in queues:
        if start[queue] <= end[queue]:
            continue
        if queue in named:
            raise ConfigError(f"{queue}: the read is to begin at {start[queue]} and to end before, at {end[queue]}")
        what = f"{queue}: the read is to begin at {start[queue]}, the queue ends at {end[queue]}"
        if options.fail_on_data_loss:
            raise DataLost(
                f"{what}: its topic was made anew, or the offset is wrong (failOnDataLoss=false goes on without it)"
            )
        log.warning("%s; going on without it (failOnDataLoss=false)", what)
    return ranges_between(start, end)


def resolve(
    brokers: Brokers, options: SourceOptions, position: Position | None, queues: Sequence[MessageQueue], default: int
) -> dict[MessageQueue, int]:
    """The offset of each queue.

    :param default: ``EARLIEST`` or ``LATEST``, for what ``position`` does not say.
    :raises ConfigError: the position names a queue that does not exist.
    :raises ConnectFailed: a broker is away.
    """
    position = position or Position()
    named = dict(position.queues or {})
    for queue in named.keys() - set(queues):
        raise ConfigError(
            f"the offsets given name queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: it does not exist"
        )
    if position.group:
        told = until_answered(brokers, queues, lambda each: brokers.group_offsets(options.group, each))
        named = {queue: offset for queue, offset in told.items() if offset is not None}
    word = default if position.word is None else position.word
    least = until_answered(brokers, queues, brokers.min_offsets)
    most = until_answered(brokers, queues, brokers.max_offsets)
    found = {}
    for queue in queues:
        low, high = least[queue], most[queue].offset
        wanted = named.get(queue)
        if position.time is not None or (position.timed and wanted is not None):
            moment = position.time if wanted is None else wanted
            assert moment is not None
            found[queue] = offset_at_time(brokers, options.group, queue, moment, low, high)
            continue
        wanted = word if wanted is None else wanted
        found[queue] = high if wanted == LATEST else low if wanted == EARLIEST else wanted
    return found


def until_answered(
    brokers: Brokers, queues: Sequence[MessageQueue], ask: Callable[[Sequence[MessageQueue]], Mapping[MessageQueue, V]]
) -> dict[MessageQueue, V]:
    """What is answered for every queue; brokers that are away for a moment are waited for.

    :raises ConnectFailed: one stays away.
    """
    found = dict(ask(queues))
    until = brokers.dial.monotonic() + PATIENCE
    while away := [queue for queue in queues if queue not in found]:
        if brokers.dial.monotonic() >= until:
            said = brokers.refused.get(away[0])
            what = f"tells no offsets: {said}" if said is not None else "does not answer"
            raise ConnectFailed(f"the broker {away[0].broker_name} of {away[0].topic} {what}")
        for queue in away:
            brokers.forget(queue)
        brokers.dial.sleep(0.2)
        found.update(ask(away))
    return found


def offset_at_time(brokers: Brokers, group: str, queue: MessageQueue, moment: int, low: int, high: int) -> int:
    """The first message of a queue that was stored at a time or later; ``high`` when there is none.

    Looked for here: what brokers answer to a search by time is the nearest message, on either side.

    :param moment: milliseconds since the epoch.
    """
    while low < high:
        middle = (low + high) // 2
        if store_time(brokers, group, queue, middle) < moment:
            low = middle + 1
        else:
            high = middle
    return low


def store_time(brokers: Brokers, group: str, queue: MessageQueue, offset: int) -> int:
    """When a message was stored, milliseconds since the epoch; 0 when it has expired."""
    endpoint = brokers.endpoint
    header = PullMessageRequest(
        consumer_group=endpoint.wrap(group),
        topic=endpoint.wrap(queue.topic),
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION,
        subscription=SUB_ALL,
        expression_type="TAG",
    )
    command = Command.request(RequestCode.PULL_MESSAGE, header)
    until = brokers.dial.monotonic() + PATIENCE
    while True:
        try:
            return _time_of(*_ask_holders(brokers, queue, command))
        except RMQError as error:
            if not error.retriable or brokers.dial.monotonic() >= until:
                raise
        brokers.suspect(queue)
        brokers.dial.sleep(0.2)


def _ask_holders(brokers: Brokers, queue: MessageQueue, command: Command) -> tuple[Command, str]:
    """The answer of the first who holds a queue and is there, and its address."""
    failure: TransportError | None = None
    for _, address in brokers.addresses(queue):
        try:
            (answer,) = brokers.ask(address, [command])
        except TransportError as error:
            failure = error
        else:
            return answer, address
    assert failure is not None
    raise failure


def _time_of(answer: Command, address: str) -> int:
    if answer.code == ResponseCode.SUCCESS:
        return decode_record(answer.body).store_timestamp
    if answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
        return 0  # expired since: older than all that are left
    raise ResponseError(answer.code, answer.remark, address)

"""What a change of a topic hides from consumers, named before it is done: messages in queues that are not read."""

from __future__ import annotations

from rmq.cli.mqadmin.output import complain
from rmq.client.admin import AdminClient
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.queue import MessageQueue

__all__ = ["warn_of_hidden"]

#: Queues named in one line; the others are counted.
_NAMED = 16


async def warn_of_hidden(admin: AdminClient, topic: str, addrs: list[str], reads: int) -> None:
    """Say on standard error which messages nobody reads once a topic has so many queues.

    :param addrs: the brokers that are to be changed.
    :param reads: queues to read, 0 when the topic is no longer readable.
    """
    try:
        route = await admin.topic_route(topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return
    hidden = _hidden(route, topic, addrs, reads)
    if not hidden:
        return
    try:
        counts = await _unread(admin, topic, hidden)
    except RMQError as error:
        complain(f"what is in the queues of {topic} that are no longer read is not known: {error}")
        return
    for whose, unread in counts.items():
        named = ", ".join(f"{queue.broker_name} queue {queue.queue_id}: {count}" for queue, count in unread[:_NAMED])
        more = f" and {len(unread) - _NAMED} more queues" if len(unread) > _NAMED else ""
        total = sum(count for _, count in unread)
        complain(
            f"{total} messages {whose} are hidden in queues of {topic} that are no longer read ({named}{more}); "
            "to have them read, lower -w alone, and -r later"
        )


def _hidden(route: TopicRouteData, topic: str, addrs: list[str], reads: int) -> list[MessageQueue]:
    """Queues that are read now and will not be."""
    changed = {one.broker_name for one in route.broker_datas if set(one.broker_addrs.values()) & set(addrs)}
    return [
        MessageQueue(topic, one.broker_name, queue_id)
        for one in route.queue_datas
        if one.broker_name in changed and one.perm & 4
        for queue_id in range(reads, one.read_queue_nums)
    ]


async def _unread(
    admin: AdminClient, topic: str, queues: list[MessageQueue]
) -> dict[str, list[tuple[MessageQueue, int]]]:
    """How many messages each group has not read in them; all there are when no group reads the topic."""
    stored = (await admin.topic_stats(topic)).offset_table
    there = [(queue, stored[queue]) for queue in queues if queue in stored]
    filled = [(queue, one) for queue, one in there if one.max_offset > one.min_offset]
    if not filled:
        return {}
    found: dict[str, list[tuple[MessageQueue, int]]] = {}
    groups = await admin.query_topic_consume_by_who(topic)
    for group in groups:
        try:
            table = (await admin.consume_stats(group)).offset_table
        except RMQError as error:
            complain(f"how far {group} has read them is not known: {error}")
            continue
        unread = [
            (queue, one.max_offset - max(one.min_offset, table[queue].consumer_offset if queue in table else 0))
            for queue, one in filled
        ]
        if unread := [(queue, count) for queue, count in unread if count > 0]:
            found[f"not read by {group}"] = unread
    if not groups:
        found["that no group has read"] = [(queue, one.max_offset - one.min_offset) for queue, one in filled]
    return found

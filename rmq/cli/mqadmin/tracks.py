"""Where each group of a topic is with a message (Java: MessageTrack)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rmq.cli.mqadmin.progress import NOT_ONLINE
from rmq.client.admin import AdminClient, Answers
from rmq.client.message import MessageExt
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import is_retry_topic
from rmq.protocol.queue import MessageQueue

__all__ = ["Track", "tracks_of"]


@dataclass(frozen=True, slots=True)
class Track:
    """One group and one message.

    :ivar kind: CONSUMED, CONSUMED_BUT_FILTERED, NOT_CONSUME_YET, CONSUME_BROADCASTING, PULL, NOT_ONLINE or UNKNOWN.
    """

    group: str
    kind: str
    why: str | None = None

    def __str__(self) -> str:
        return f"MessageTrack [consumerGroup={self.group}, trackType={self.kind}, exceptionDesc={self.why or 'null'}]"

    def as_json(self) -> dict[str, object]:
        return {"consumerGroup": self.group, "trackType": self.kind, "exceptionDesc": self.why}


async def tracks_of(admin: AdminClient, message: MessageExt) -> Answers[Track]:
    """The groups that consume its topic, by name; those whose brokers do not answer are failed."""
    answers: Answers[Track] = Answers()
    if is_retry_topic(message.topic):
        return answers
    try:
        told = await admin.topic_groups(message.topic)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return answers  # it went meanwhile
        answers.failed["every group"] = error
        return answers
    except RMQError as error:
        answers.failed["every group"] = error
        return answers

    answers.failed.update({f"every group of {name}": error for name, error in told.failed.items()})
    groups = sorted({group for some in told.found.values() for group in some})

    async def look(group: str) -> None:
        try:
            answers.found[group] = await _track(admin, message, group)
        except RMQError as error:
            answers.failed[group] = error

    await asyncio.gather(*map(look, groups))
    answers.found = {group: answers.found[group] for group in groups if group in answers.found}
    return answers


async def _track(admin: AdminClient, message: MessageExt, group: str) -> Track:
    try:
        connection = await admin.consumer_connections(group)
    except ResponseError as error:
        if error.code in NOT_ONLINE:
            return Track(group, "NOT_ONLINE", f"CODE:{int(error.code)} DESC:{error.remark}")
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return Track(group, "UNKNOWN", f"CODE:{int(error.code)} DESC:{error.remark}")
        raise
    if connection.consume_type == "CONSUME_ACTIVELY":
        return Track(group, "PULL")
    if connection.message_model == "BROADCASTING":
        return Track(group, "CONSUME_BROADCASTING")
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    offsets = (await admin.consume_stats(group, message.topic)).offset_table.get(queue)
    if offsets is None or offsets.consumer_offset <= message.queue_offset:
        return Track(group, "NOT_CONSUME_YET")
    subscription = connection.subscription_table.get(message.topic)
    tags = subscription.tags_set if subscription is not None and subscription.is_tag_type else ()
    return Track(group, "CONSUMED" if not tags or message.tags in tags else "CONSUMED_BUT_FILTERED")

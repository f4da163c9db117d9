"""Ready-made queue selectors: ``producer.send(message, selector=by_hash, arg=order_id)``.

A selector is ``selector(queues, message, arg) -> queue``; ``queues`` is sorted by broker name and queue id, the same in
every producer (field case B037).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from rmq.client.checks import several_texts
from rmq.client.message import Message, MessageQueue
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import keywords
from rmq.protocol.tags import string_hash
from rmq.runtime.world import World

__all__ = ["MessageQueueSelector", "by_hash", "by_machine_room", "by_random"]

_dice = functools.cache(lambda: World.real().random)

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]


def java_hash(arg: object) -> int:
    """What Java's ``hashCode`` gives for a text, a 32- or 64-bit number or a boolean (protocol.md 7.3)."""
    if isinstance(arg, str):
        return string_hash(arg)
    if isinstance(arg, bool):
        return 1231 if arg else 1237
    if isinstance(arg, int):
        if not -(1 << 31) <= arg < 1 << 31:
            folded = (arg ^ ((arg & 0xFFFFFFFFFFFFFFFF) >> 32)) & 0xFFFFFFFF
            return folded - (1 << 32) if folded >= 1 << 31 else folded
        return arg
    raise WrongType(f"by_hash takes a text or a number as arg, not {type(arg).__name__}: pass the sharding key")


def by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """The same arg always goes to the same queue, and to the one a Java producer would choose."""
    return queues[abs(java_hash(arg)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Any queue."""
    return _dice().choice(queues)


@keywords
def by_machine_room(rooms: Collection[str]) -> MessageQueueSelector:
    """A selector for queues of brokers named ``room@broker`` in one of ``rooms``; the arg's hash picks among them."""
    rooms = frozenset(several_texts(rooms, "rooms"))

    def select(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.split("@", 1)[0] in rooms and "@" in queue.broker_name]
        if not near:
            raise ClientError(f"no queue of {message.topic} is in the machine rooms {sorted(rooms)}")
        return by_hash(near, message, "" if arg is None else arg)

    return select

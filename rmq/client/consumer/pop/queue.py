"""What a consumer holds of one queue that it pops from (Java: PopProcessQueue). Pure: times come in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol.bodies.running import PopProcessQueueInfo
from rmq.protocol.pop import Handle, real_topic

__all__ = ["Open", "PopQueue"]


@dataclass(slots=True)
class Open:
    """A message that was given out and is not settled."""

    message: MessageExt
    #: The topic it was popped for, as brokers know it.
    topic: str
    #: What it is acknowledged by.
    handle: Handle
    #: When others may get it, by our clock: counted from the answer that brought it, whatever the broker's clock says.
    until: float

    @property
    def place(self) -> MessageQueue:
        """The queue that the broker chose."""
        return MessageQueue(self.topic, self.handle.broker_name, self.handle.queue_id)

    def lies_in(self, group: str) -> str:
        """The topic that holds it."""
        return real_topic(self.topic, group, self.handle.mark)


class PopQueue:
    """Messages popped and not yet settled. Queue id -1: the broker chooses among its queues with each pop.

    A message is open from the pop until it is settled, which happens once: acknowledged, put off, or given up because
    its invisible time is over.
    """

    __slots__ = ("_open", "dropped", "last_consume_ms", "last_pop_ms", "queue", "shown")

    def __init__(self, queue: MessageQueue, shown: MessageQueue | None = None) -> None:
        self.queue = queue
        #: As its listeners know it.
        self.shown = shown or queue
        #: No longer ours: nothing more is popped, and no listener is called.
        self.dropped = False
        self.last_pop_ms = 0
        self.last_consume_ms = 0
        #: By the message object itself: two pops of one message are two, each with its handle.
        self._open: dict[int, Open] = {}

    @property
    def count(self) -> int:
        """Messages that are open."""
        return len(self._open)

    def put(self, message: MessageExt, handle: Handle, until: float) -> None:
        self._open[id(message)] = Open(message, self.queue.topic, handle, until)

    def find(self, message: MessageExt) -> Open | None:
        return self._open.get(id(message))

    def held(self) -> list[Open]:
        return list(self._open.values())

    def late(self, message: MessageExt, now: float) -> bool:
        """It is another's by now: its invisible time is over, or it was settled."""
        held = self._open.get(id(message))
        return held is None or now >= held.until

    def settle(self, messages: Iterable[MessageExt]) -> list[Open]:
        """Take messages as done. :returns: those of them that were open."""
        return [held for message in messages if (held := self._open.pop(id(message), None)) is not None]

    def info(self) -> PopProcessQueueInfo:
        """What 307 tells of it (protocol.md 4.13)."""
        return PopProcessQueueInfo(
            droped=self.dropped, last_pop_timestamp=self.last_pop_ms, wait_ack_count=len(self._open)
        )

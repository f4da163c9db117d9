"""What a consumer holds of one queue (Java: ProcessQueue). Pure: times come in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol.bodies.running import ProcessQueueInfo

__all__ = ["LOCK_LIFE", "ProcessQueue"]

#: The client takes its lock on a queue for lost after this time without a renewal, the broker after 60 s.
LOCK_LIFE = 30.0


class ProcessQueue:
    """Messages pulled and not yet settled, and where the queue stands.

    Messages come in order of their offsets. The offset that may be committed is the first one that is not settled, so
    a message whose send-back failed holds it (field case B043).
    """

    __slots__ = (
        "broker_end",
        "consuming",
        "dropped",
        "last_consume_ms",
        "last_lock",
        "last_lock_ms",
        "last_pull_ms",
        "locked",
        "messages",
        "next_offset",
        "offset_max",
        "paused",
        "queue",
        "running",
        "shown",
        "size",
        "void",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, shown: MessageQueue | None = None) -> None:
        self.queue = queue
        #: As its listeners know it.
        self.shown = shown or queue
        #: Where the next pull starts.
        self.next_offset = next_offset
        self.messages: OrderedDict[int, MessageExt] = OrderedDict()
        #: Taken by an orderly listener and not committed.
        self.consuming: dict[int, MessageExt] = {}
        #: Bytes of the bodies held.
        self.size = 0
        self.offset_max = -1
        #: Where the queue ended at the broker when it last answered a pull; -1 = it has not yet.
        self.broker_end = -1
        #: No longer ours: nothing more is pulled, and no listener is called.
        self.dropped = False
        #: Its offsets were set by somebody else: what listeners say in the end does not count.
        self.void = False
        #: Nothing is pulled until it goes on; what is held is consumed.
        self.paused = False
        self.locked = False
        self.last_lock = 0.0
        self.last_lock_ms = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        #: Listener calls under way.
        self.running = 0

    @property
    def count(self) -> int:
        return len(self.messages) + len(self.consuming)

    @property
    def span(self) -> int:
        """From the first to the last offset held."""
        first = next(iter(self.messages), None)
        return 0 if first is None else self.offset_max - first

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Take in what a pull brought."""
        held = self.messages
        for message in messages:
            offset = message.queue_offset
            if offset not in held:
                held[offset] = message
                self.size += len(message.body)
                self.offset_max = max(self.offset_max, offset)

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """Settle messages.

        :returns: the offset that may be committed now; -1 when nothing was ever held.
        """
        held = self.messages
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self.size -= len(message.body)
        return self.commit_offset()

    def commit_offset(self) -> int:
        """The first offset not settled; -1 when nothing was ever held."""
        if self.offset_max < 0:
            return -1
        return next(iter(self.messages), self.offset_max + 1)

    def lag(self, committed: int) -> int:
        """Messages that are not settled, of those that the broker had when it last answered a pull.

        :param committed: the offset noted for the queue; -1 = none.
        """
        settled = self.commit_offset()
        return max(
            0, self.broker_end - (settled if settled >= 0 else committed if committed >= 0 else self.next_offset)
        )

    # -- orderly ------------------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[MessageExt]:
        """The first messages, for an orderly listener."""
        taken: list[MessageExt] = []
        while self.messages and len(taken) < count:
            offset, message = self.messages.popitem(last=False)
            self.consuming[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int:
        """Settle all that was taken. :returns: the offset that may be committed, -1 when nothing was taken."""
        if not self.consuming:
            return -1
        last = max(self.consuming)
        self.size -= sum(len(message.body) for message in self.consuming.values())
        self.consuming.clear()
        return last + 1

    def put_back(self, messages: Iterable[MessageExt] | None = None) -> None:
        """Give back what was taken (all of it when not said what), to be taken again in order."""
        back = sorted(
            self.consuming if messages is None else [message.queue_offset for message in messages], reverse=True
        )
        for offset in back:
            message = self.consuming.pop(offset, None)
            if message is not None:
                self.messages[offset] = message
                self.messages.move_to_end(offset, last=False)

    def lock_valid(self, now: float) -> bool:
        return self.locked and now - self.last_lock < LOCK_LIFE

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """What 307 tells of it (protocol.md 4.13)."""
        first = next(iter(self.messages), 0)
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=first,
            cached_msg_max_offset=next(reversed(self.messages), 0),
            cached_msg_count=len(self.messages),
            cached_msg_size_in_mib=self.size >> 20,
            transaction_msg_min_offset=min(self.consuming, default=0),
            transaction_msg_max_offset=max(self.consuming, default=0),
            transaction_msg_count=len(self.consuming),
            locked=self.locked,
            try_unlock_times=0,
            last_lock_timestamp=self.last_lock_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )

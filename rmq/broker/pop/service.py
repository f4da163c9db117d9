"""POP as the broker sees it: one object that makes the parts and knows their life."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmq.broker.delivery.read import Reader, ReadLimits
from rmq.broker.pop.acks import Acks
from rmq.broker.pop.checks import Checks
from rmq.broker.pop.polls import Polls
from rmq.broker.pop.requests import PopRequests
from rmq.broker.pop.revive import Reviver
from rmq.broker.pop.state import PopState
from rmq.broker.pop.take import Taker
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.pop import pop_retry_topic
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.store.state import Queue
    from rmq.remoting.conn import Conn

__all__ = ["PopService"]

#: How often positions are told to the offset table, and how often the journal is kept short, seconds.
_TELL_SECONDS = 0.5
_SHORTEN_SECONDS = 10.0


class PopService:
    """Pop consumption of a broker (Java: the Pop... processors and services).

    :param on_delivered: called with (group, topic, queue id, messages, bytes) of what is handed out.
    :param delete_topic: forgets a topic with all that is known of it.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        admission: Admission,
        on_delivered: Callable[[str, str, int, int, int], None],
        limits: ReadLimits,
        delete_topic: Callable[[str], None],
    ) -> None:
        world, settings, store, store_host = ground.world, ground.settings, ground.store, ground.store_host
        topics, groups = tables.topics, tables.groups
        self.tasks = TaskOwner("pop")
        self._topics = topics
        self._groups = groups
        self._delete_topic = delete_topic
        topics.on_change.append(self._topic_changed)
        self.state = state = PopState(world.clock, store, topics, tables.offsets, store_host)
        self.polls = polls = Polls(settings)
        self.reviver = reviver = Reviver(world, store, topics, groups, admission, state, polls, store_host)
        checks = Checks(settings, topics, groups, store, tables.filters.expressions)
        taker = Taker(world, settings, store, state, Reader(store, limits), on_delivered, reviver.changed, limits)
        #: What the router serves.
        self.handlers: tuple[object, ...] = (
            PopRequests(world.clock, checks, taker, polls),
            Acks(world.clock, state, checks, polls, reviver.changed),
        )

    async def load(self) -> None:
        """Read what is on disk; the store is recovered."""
        await self.state.load()

    def start(self) -> None:
        self.reviver.start()
        self.tasks.every(_TELL_SECONDS, self.state.tell, "positions")
        self.tasks.every(_SHORTEN_SECONDS, self.state.keep_short, "journal")

    def arrived(self, queues: Iterable[Queue]) -> None:
        """New messages are visible in these queues."""
        self.polls.arrived(queues)

    def _topic_changed(self, topic: str | None) -> None:
        """With a topic go the retries of its messages, and all that is known of them."""
        if topic is None or topic in self._topics:
            return
        self.state.forget_topic(topic)
        self._forget_counts(topic)
        if topic.startswith(RETRY_PREFIX):
            return
        for group in self._groups.all():
            retry = pop_retry_topic(group.group_name, topic)
            if retry in self._topics and self._groups.get(retry[len(RETRY_PREFIX) :]) is None:
                self._delete_topic(retry)

    def forget_group(self, group: str, *, offsets: bool) -> None:
        """With a group go the retries of what it has popped, and all that is known of them.

        :param offsets: its offsets were deleted, too.
        """
        if offsets:
            self.state.forget_group(group)
        self._forget_counts(group)
        for topic in self._topics.names():
            retry = pop_retry_topic(group, topic)
            if retry in self._topics and self._groups.get(retry[len(RETRY_PREFIX) :]) is None:
                self._delete_topic(retry)

    def _forget_counts(self, gone: str) -> None:
        self.state.forget_counts(gone)
        for pair in [pair for pair in self.reviver.retried if gone in pair]:
            del self.reviver.retried[pair]

    def closed(self, conn: Conn) -> None:
        """A connection is gone."""
        self.polls.drop(conn)

    async def close(self) -> None:
        """Answer what waits and end the tasks; :meth:`stop` follows when nobody is served any more."""
        self.polls.close()
        await self.reviver.close()
        await self.tasks.close()

    async def stop(self) -> None:
        """Bring everything to disk."""
        self._topics.on_change.remove(self._topic_changed)
        await self.state.stop()

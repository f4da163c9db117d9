"""A consumer's place in its group, from its start to its stop, however it gets its messages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from rmq.client.application import call_on
from rmq.client.consumer.listeners import ends_task
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.stores import offset_store
from rmq.client.instance import ClientInstance, ConsumerMember, connect_instance
from rmq.client.message import MessageQueue
from rmq.client.producer import Producer
from rmq.client.settings import ConsumerSettings
from rmq.client.trace import TraceHook, inner_group, inner_options
from rmq.protocol.errors import RMQError
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["Membership"]

log = logger(__name__)

#: Seconds that what was cancelled has to end: an application's coroutine may go on all the same.
_CANCEL_WAIT = 3.0


class Membership:
    """What a started consumer has: its client, the offsets of its group, and threads and tasks that end with it::

        membership = await Membership.join(consumer, world, settings)
        await membership.find_brokers()
        await membership.announce()     # brokers know it, and its queues are shared out
        membership.changed()            # the consumer has other topics than before
        await membership.leave()

    :param store: open. :param threads: for its application's functions, at most.
    :param trace: what writes the trace of its messages, if anything.
    """

    def __init__(
        self,
        consumer: ConsumerMember,
        instance: ClientInstance,
        store: OffsetStore,
        world: World,
        settings: ConsumerSettings,
        threads: int,
        trace: TraceHook | None = None,
    ) -> None:
        group = consumer.group
        self._consumer = consumer
        self._queue_listener = settings.message_queue_listener
        self.instance = instance
        self.store = store
        self._trace = trace
        self.started_ms = world.clock.now_ms()
        self.tasks = TaskOwner(f"consumer {group}")
        self.pool = world.pool(threads, f"rmq-{group}")
        #: For functions that are only told something: they do not wait for those that messages are handed to.
        self._telling = world.pool(1, f"rmq-{group}-told")

    @classmethod
    async def join(
        cls,
        consumer: ConsumerMember,
        world: World,
        settings: ConsumerSettings,
        threads: int = 1,
        trace: TraceHook | None = None,
    ) -> Membership:
        """Become a member in the client of these settings; brokers know nothing of it yet.

        :raises ClientError: no name server is known, or the group has a consumer in this client already.
        """
        group = consumer.group
        instance = connect_instance(world, settings, stable=settings.broadcasting)
        instance.add_consumer(consumer)
        try:
            await instance.acquire()
        except BaseException:
            instance.remove_consumer(group)
            raise
        try:
            store = offset_store(instance, group, settings)
            await store.open()
        except BaseException:
            await instance.leave(consumer=group)
            raise
        if trace is not None:
            trace.tracer.start(Producer(inner_group(group, "CONSUME"), world=world, **inner_options(settings)))
        return cls(consumer, instance, store, world, settings, threads, trace)

    async def find_brokers(self, *, new: bool = False) -> None:
        """Ask for the routes of its topics; one that nobody says is asked for again in its turn.

        :param new: those alone that are not known.
        """
        for topic in self._consumer.topics():
            if new and topic in self.instance.routes.own:
                continue
            try:
                await self.instance.refresh_route(topic)
            except RMQError as error:
                log.warning("the route of %s is asked for again: %s", topic, error)

    async def announce(self) -> None:
        """Tell its brokers of it, and have the queues of its group shared anew."""
        await self.instance.beats.beat()
        self.instance.spawn_rebalance()

    def changed(self) -> None:
        """It has other topics: everybody is to know, behind whoever says so."""
        if not self.tasks.closed:
            self.tasks.spawn(self._tell_of_change(), "subscription")

    async def _tell_of_change(self) -> None:
        await self.find_brokers(new=True)
        await self.announce()

    def assigned(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> asyncio.Task[None] | None:
        """Others of a topic's queues are ours than before: the application's ``message_queue_listener`` is told.

        :returns: its call, see :meth:`tell`.
        """
        log.info("group %s: %d of %d queues of %s are ours", self._consumer.group, len(mine), len(queues), topic)
        if self._queue_listener is None:
            return None
        names = self.instance.namespace
        shown = names.plain(topic), names.queues(queues), names.queues(mine)
        return self.tell("message_queue_listener", self._queue_listener, *shown)

    def tell(self, what: str, function: Callable[..., object], *arguments: object) -> asyncio.Task[None] | None:
        """Call a function of the application's that wants to know something: a plain one on a thread, so that it may
        take its time. What it raises is logged.

        :param what: names it in the log.
        :returns: the call, which nobody has to wait for; None: there is none any more.
        """
        if self.tasks.closed:
            return None
        return self.tasks.spawn(self._call(what, function, arguments), what)

    async def _call(self, what: str, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        result: object
        try:
            if inspect.iscoroutinefunction(function):
                result = function(*arguments)
            else:
                result = await call_on(self._telling, lambda: function(*arguments))
            if inspect.isawaitable(result):
                await result
        except BaseException as error:
            if ends_task(error):
                raise
            log.error("the %s of group %s raised", what, self._consumer.group, exc_info=error)

    def inside(self) -> bool:
        """Whether a function of the application calls this, on a thread of ours."""
        return self.pool.inside() or self._telling.inside()

    async def leave(self) -> None:
        """End what runs, close the offsets, and tell the brokers; each of it, whatever becomes of the others."""
        self.pool.close()
        self._telling.close()
        try:
            await self._end_tasks()
        finally:
            try:
                await self.store.close()
            finally:
                try:
                    if self._trace is not None:
                        await self._trace.tracer.stop()
                finally:
                    await self.instance.leave(consumer=self._consumer.group)

    async def forget(self) -> None:
        """The loop is closed, and its tasks have ended with it."""
        self.pool.close()
        self._telling.close()
        await self.store.close()
        if self._trace is not None:
            await self._trace.tracer.forget()

    async def _end_tasks(self) -> None:
        ending = asyncio.get_running_loop().create_task(self.tasks.close(), name="end of tasks")
        if not (await asyncio.wait({ending}, timeout=_CANCEL_WAIT))[0]:
            ending.cancel()
            log.error(
                "group %s: a listener that was cancelled goes on after %g s: it is left to itself",
                self._consumer.group,
                _CANCEL_WAIT,
            )

"""The blocking API: the same clients on a loop thread, safe to use from many threads and after fork (design.md 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from rmq.client.admin import AdminClient as AioAdminClient
from rmq.client.attempts import Done, Send, Step
from rmq.client.consumer.listeners import F, ListenerResult
from rmq.client.consumer.pull import PullConsumer as AioPullConsumer
from rmq.client.consumer.push import PushConsumer as AioPushConsumer
from rmq.client.lookup import FOREVER
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.producer import Producer as AioProducer
from rmq.client.producer import Sendable, check_callback
from rmq.client.reset import OffsetReset
from rmq.client.results import (
    GroupConnections,
    GroupStats,
    PullResult,
    QueryResult,
    SendResult,
    SendStatus,
    TopicStats,
)
from rmq.client.selectors import MessageQueueSelector
from rmq.client.settings import (
    AdminOptions,
    Duration,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from rmq.client.transaction import (
    LocalTransaction,
    TransactionCheck,
    TransactionSendResult,
    TransactionState,
    known_state,
)
from rmq.client.transaction import TransactionProducer as AioTransactionProducer
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable
from rmq.runtime.aside import logger
from rmq.runtime.bridge import Bridge, bridge, close_in_children, forget_descriptors
from rmq.runtime.signals import signal_wait

__all__ = ["AdminClient", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]

log = logger(__name__)

T = TypeVar("T")

#: Seconds between two looks whether sends under way can still end.
_LOOK_SECONDS = 5.0

A = TypeVar("A", bound=AioProducer | AioPushConsumer | AioPullConsumer | AioAdminClient)


def twin(aio: type) -> Callable[[type[T]], type[T]]:
    """Give the methods of a blocking class the documentation of their twins."""

    def copy(cls: type[T]) -> type[T]:
        for name, value in vars(cls).items():
            other = getattr(aio, name, None)
            if other is not None and getattr(value, "__doc__", None) is None and callable(value):
                value.__doc__ = other.__doc__
        return cls

    return copy


class _Blocking(Generic[A]):
    """What the blocking clients share: life, fork, and running coroutines on the loop thread."""

    #: A forked child starts it anew at first use when the parent had started it.
    _restarts = True
    #: At the end of the process it stops before the clients that its listeners may use.
    _receives = False

    def __init__(self, client: A) -> None:
        self._client = client
        self._bridge: Bridge | None = None
        self._started = False

    def _alive(self) -> A:
        """The asyncio client of this process: another one after a fork."""
        if bridge() is not self._bridge:
            self._adopt(bridge())
        return self._client

    def _adopt(self, made: Bridge) -> None:
        with made.renewing:
            if self._bridge is made:
                return
            if self._bridge is not None:
                client = self._client._renew()
                again = self._started and self._restarts
                if again:
                    made.run(client.start())
                self._client = client  # type: ignore[assignment]
                self._forked()
                self._started = again
                if again:
                    self._keep_track(made)
            self._bridge = made  # last: whatever interrupts this, the next call begins anew

    def _forked(self) -> None:
        """Forget what only the parent goes on with."""

    def _keep_track(self, made: Bridge) -> None:
        """Have it stopped when the process ends, and its sockets closed in children."""
        made.stop_at_exit(self, self._client.shutdown, first=self._receives)
        close_in_children(self._descriptors)

    def _run(self, coro: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        return bridge().run(coro, seconds)

    def __repr__(self) -> str:
        return repr(self._client)

    def start(self) -> None:
        """Begin; starting a started client does nothing. See the asyncio class for what it raises."""
        client = self._alive()
        if not self._started:
            self._run(client.start())
            self._started = True
            self._keep_track(bridge())

    def _stop(self, coro: Callable[[A], Coroutine[Any, Any, object]]) -> None:
        client = self._alive()
        if self._started:
            self._started = False
            bridge().forget(self)
            forget_descriptors(self._descriptors)
            self._run(coro(client))

    def shutdown(self) -> None:
        """End: leave the group, close the connections."""
        self._stop(lambda client: client.shutdown())

    def _descriptors(self) -> list[int]:
        instance = self._client._instance
        return [] if instance is None else instance.descriptors()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class _Lookups(_Blocking[A]):
    """The look-ups every client has."""

    @property
    def client_id(self) -> str:
        """Who this client is for brokers."""
        return self._alive().instance.client_id

    def update_name_server_address(self, namesrv: str) -> None:
        """Ask other name servers from now on: ``host:port`` list separated by ``;``."""
        client = self._alive()

        async def there() -> None:
            client.update_name_server_address(namesrv)

        self._run(there())

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer sends to. :raises ClientError: the topic does not exist."""
        return self._run(self._alive().fetch_publish_message_queues(topic))

    def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues consumers read. :raises ClientError: the topic does not exist."""
        return self._run(self._alive().fetch_subscribe_message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at a time (milliseconds since the epoch) or later."""
        return self._run(self._alive().search_offset(queue, timestamp))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of a queue will get."""
        return self._run(self._alive().max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return self._run(self._alive().min_offset(queue))

    def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of a queue was stored (milliseconds since the epoch; -1 = none)."""
        return self._run(self._alive().earliest_msg_store_time(queue))

    def view_message(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """A stored message by its offset id, or with ``topic`` by its unique id, too."""
        return self._run(self._alive().view_message(msg_id, topic))

    def query_message(self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = FOREVER) -> QueryResult:
        """Messages of a topic with a key; times are store times in milliseconds since the epoch."""
        return self._run(self._alive().query_message(topic, key, max_num, begin, end))


@twin(AioProducer)
class Producer(_Lookups[AioProducer]):
    """Sends messages; any thread may use it (Java: DefaultMQProducer).

    :param group: the producer group: one an application.
    :param options: see :class:`~rmq.client.settings.ProducerOptions`.

    ::

        with Producer("order_group", namesrv="127.0.0.1:9876") as producer:
            result = producer.send(Message("TopicTest", b"hello", tags="TagA", keys="order-1"))
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(AioProducer(group, **options))
        self.group = group
        self._under_way: set[Future[SendResult]] = set()

    def _forked(self) -> None:
        self._under_way = set()

    def send(
        self,
        message: Sendable,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        made = bridge()
        if made is not self._bridge:
            self._adopt(made)
        client = self._client
        send = client._prepare(message)
        limit = client._limit(timeout)
        attempts = client._attempts(send, queue, selector, arg, limit)
        clock = client.world.clock
        step = attempts.first(clock.monotonic())
        if isinstance(step, Send):  # without a task: the frame is made here, written and answered on the loop
            waiter = made.waiter()
            told = partial(made.answer, waiter)
            made.post(client.instance.submit, *client._submission(attempts, step, told))
            step = made.wait(waiter, step.seconds)
        if isinstance(step, Done):
            return step.result()
        return made.run(client._go_on(attempts, step), attempts.rest(clock.monotonic()))

    def send_async(
        self,
        message: Sendable,
        callback: Callable[[Future[SendResult]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> Future[SendResult]:
        """Send without waiting: a future of the result.

        :param callback: called with the future when it is done, on one of two threads kept for that.
        :raises ClientError: the message cannot be sent as it is.
        """
        client = self._alive()
        made = bridge()
        made.check()
        instance = client.instance
        check_callback(callback)
        send = client._prepare(message)
        limit = client._limit(timeout)
        future = _SendFuture(made)
        self._under_way.add(future)
        future.on_loop(self._under_way.discard)
        retries = client.settings.retry_times_when_send_async_failed
        if callback is not None:
            future.add_done_callback(callback)

        def finish(result: SendResult | BaseException) -> None:
            if not future.set_running_or_notify_cancel():
                return  # its caller has cancelled it
            if isinstance(result, SendResult):
                future.set_result(result)
            else:
                future.set_exception(result)

        def go_on(step: Step) -> None:
            if isinstance(step, Done):
                finish(step.outcome)
            elif not future.cancelled():
                made.spawn(client._go_on(attempts, step), finish)

        attempts = client._attempts(send, queue, selector, arg, limit, retries)
        step = attempts.first(client.world.clock.monotonic())
        if isinstance(step, Send):
            made.post(instance.submit, *client._submission(attempts, step, go_on))
        else:
            made.post(go_on, step)
        return future

    def send_oneway(
        self,
        message: Message | MessageExt,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> None:
        client = self._alive()
        limit = client.settings.send_msg_timeout
        self._run(client.send_oneway(message, queue=queue, selector=selector, arg=arg), limit)

    def split(
        self,
        messages: Iterable[Message | MessageExt],
        limit: int | None = None,
        oversize: list[Message | MessageExt] | None = None,
    ) -> Iterator[list[Message | MessageExt]]:
        return self._client.split(messages, limit, oversize)

    def recall_message(self, topic: str, recall_handle: str) -> str:
        return self._run(self._alive().recall_message(topic, recall_handle))

    def create_topic(self, key: str, new_topic: str, queue_num: int, topic_sys_flag: int = 0) -> None:
        self._run(self._alive().create_topic(key, new_topic, queue_num, topic_sys_flag))

    def shutdown(self) -> None:
        if self._under_way and bridge() is self._bridge:
            made = bridge()
            while wait(list(self._under_way), _LOOK_SECONDS).not_done:
                made.run(asyncio.sleep(0))  # raises when the loop that ends them does not turn
        super().shutdown()


class _SendFuture(Future[SendResult]):
    """What its users hang on it runs on the threads for callbacks, never on the loop that ends it."""

    def __init__(self, made: Bridge) -> None:
        super().__init__()
        self._made = made
        made.futures.add(self)
        self.on_loop(made.futures.discard)

    def on_loop(self, told: Callable[[Any], object]) -> None:
        """A callback of ours, which does not wait and does not raise."""
        super().add_done_callback(told)

    def add_done_callback(self, fn: Callable[[Future[SendResult]], object]) -> None:
        super().add_done_callback(lambda ended: self._made.post(self._hand_on, fn))

    def _hand_on(self, fn: Callable[[Future[SendResult]], object]) -> None:
        self._made.callbacks().submit(lambda: fn(self), _complain)


def _complain(result: object, error: BaseException | None) -> None:
    if error is not None:
        log.error("a callback of send_async raised", exc_info=error)


@twin(AioTransactionProducer)
class TransactionProducer(Producer):
    """Sends messages that are delivered when a local transaction has committed (Java: TransactionMQProducer).

    :param check: asked, on a thread of its own, how the transaction of a message ended when the broker was not told, by
        any member of the group and maybe long after.
    :param options: see :class:`~rmq.client.settings.ProducerOptions`.

    ::

        def check(message):
            return TransactionState.COMMIT if orders.has(message.keys) else TransactionState.ROLLBACK

        with TransactionProducer("order_group", check, namesrv="127.0.0.1:9876") as producer:
            def local(message):
                orders.add(message.keys)
                return TransactionState.COMMIT
            producer.send_in_transaction(Message("TopicTest", b"order", keys="order-1"), local)
    """

    _client: AioTransactionProducer

    def __init__(self, group: str, check: TransactionCheck, **options: Unpack[ProducerOptions]) -> None:
        _Lookups.__init__(self, AioTransactionProducer(group, check, **options))
        self.group = group
        self._under_way = set()

    def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout: Duration | None = None
    ) -> TransactionSendResult:
        """Store a message that nobody sees yet, do the local transaction, and tell the broker how that ended.

        :param local: does the local transaction, on this thread. When it raises, the broker is told UNKNOWN and asks
            later, and the caller gets what it raised.
        :param timeout: for storing the message; ``send_msg_timeout`` by default.
        :returns: the result, with ``local_transaction_state``: how the transaction ended.
        :raises ClientError: the message cannot be sent as it is. :raises RMQError: it was not stored: ``local`` was not
            called.
        """
        client = self._alive()
        assert isinstance(client, AioTransactionProducer)
        half = self._run(client._send_half(message, local, timeout), client._limit(timeout))
        if half.send_status is not SendStatus.SEND_OK:
            return self._run(client._end(half, TransactionState.ROLLBACK))
        try:
            state = known_state(local(message), "the local transaction")
        except BaseException:
            self._run(client._end(half, TransactionState.UNKNOWN))
            raise
        return self._run(client._end(half, state))


@twin(AioPushConsumer)
class PushConsumer(_Lookups[AioPushConsumer]):
    """Gets messages as they come and hands them to listeners on a pool of threads (Java: DefaultMQPushConsumer).

    :param group: the consumer group: the same subscriptions and the same listeners in every member.
    :param options: see :class:`~rmq.client.settings.PushConsumerOptions`.

    ::

        consumer = PushConsumer("order_consumers", namesrv="127.0.0.1:9876")

        @consumer.on("TopicTest", "TagA || TagB")
        def handle(message):            # returns nothing or ConsumeResult.SUCCESS; raising = tried again later
            print(message.body)

        consumer.run()                  # until SIGTERM; drains what it holds
    """

    _restarts = False
    _receives = True

    def __init__(self, group: str, **options: Unpack[PushConsumerOptions]) -> None:
        super().__init__(AioPushConsumer(group, **options))
        self.group = group

    def on(self, topic: str, expression: str = "*", *, sql: bool = False, batch: bool = False) -> Callable[[F], F]:
        def register(function: F) -> F:
            return self._on_loop(lambda client: client.on(topic, expression, sql=sql, batch=batch)(function))

        return register

    def _on_loop(self, call: Callable[[AioPushConsumer], T]) -> T:
        """Make a plain call: on the loop while the consumer runs there, right here otherwise."""
        client = self._alive()
        if not self._started:
            return call(client)

        async def there() -> T:
            return call(client)

        return self._run(there())

    def register_message_listener(
        self, listener: Callable[..., ListenerResult | Awaitable[ListenerResult]], *, batch: bool = False
    ) -> None:
        self._on_loop(lambda client: client.register_message_listener(listener, batch=batch))

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        self._on_loop(lambda client: client.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._on_loop(lambda client: client.unsubscribe(topic))

    def shutdown(self, timeout: Duration | None = None) -> None:
        client = self._alive()
        pool = client._pool
        if pool is not None and pool.inside():
            # Called by a listener: the shutdown waits for it, so it cannot wait for the shutdown.
            self._started = False
            bridge().forget(self)
            bridge().post(bridge().spawn, client.shutdown(timeout), _ended)
            return
        self._stop(lambda started: started.shutdown(timeout))

    def run(self) -> None:
        """Start, consume until SIGTERM, SIGINT or SIGHUP, shut down; for the main thread.

        A second signal, more than a second later, ends the process at once with exit code 1.

        :raises SystemExit: a listener did, with its code; likewise KeyboardInterrupt. Its message comes again.
        """
        with signal_wait() as came, self._alive()._exits(came.end) as exits:
            self.start()
            try:
                log.info("group %s: %s: stopping", self.group, came())
            finally:
                self.shutdown()
            for error in exits:
                raise error

    def persist_offsets(self) -> None:
        self._run(self._alive().persist_offsets())

    def suspend(self) -> None:
        self._on_loop(lambda client: client.suspend())

    def resume(self) -> None:
        self._on_loop(lambda client: client.resume())

    def update_core_pool_size(self, count: int) -> None:
        self._on_loop(lambda client: client.update_core_pool_size(count))

    def send_message_back(self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None) -> None:
        self._run(self._alive().send_message_back(message, delay_level, broker_name))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._on_loop(lambda client: client.assignment)


def _ended(result: object) -> None:
    if isinstance(result, BaseException):
        log.error("the shutdown asked for by a listener failed", exc_info=result)


@twin(AioPullConsumer)
class PullConsumer(_Lookups[AioPullConsumer]):
    """Pulls when asked to; any thread may use it (Java: DefaultMQPullConsumer).

    :param options: see :class:`~rmq.client.settings.PullConsumerOptions`.
    """

    def __init__(self, group: str, **options: Unpack[PullConsumerOptions]) -> None:
        super().__init__(AioPullConsumer(group, **options))
        self.group = group

    def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = 32,
        *,
        sql: bool = False,
        timeout: Duration | None = None,
    ) -> PullResult:
        return self._run(self._alive().pull(queue, expression, offset, max_nums, sql=sql, timeout=timeout))

    def pull_block_if_not_found(
        self, queue: MessageQueue, expression: str, offset: int, max_nums: int = 32, *, sql: bool = False
    ) -> PullResult:
        return self._run(self._alive().pull_block_if_not_found(queue, expression, offset, max_nums, sql=sql))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        self._alive().update_consume_offset(queue, offset)

    def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int:
        return self._run(self._alive().fetch_consume_offset(queue, from_store=from_store))

    def persist_offsets(self) -> None:
        self._run(self._alive().persist_offsets())

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        return self._run(self._alive().fetch_message_queues_in_balance(topic))

    def send_message_back(self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None) -> None:
        self._run(self._alive().send_message_back(message, delay_level, broker_name))


@twin(AioAdminClient)
class AdminClient(_Lookups[AioAdminClient]):
    """Asks and changes a cluster; any thread may use it (Java: DefaultMQAdminExt).

    :param options: see :class:`~rmq.client.settings.AdminOptions`.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AioAdminClient(**options))

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers asked."""
        return self._alive().name_server_addresses

    def cluster_info(self) -> ClusterInfo:
        return self._run(self._alive().cluster_info())

    def masters(self, cluster: str) -> dict[str, str]:
        return self._run(self._alive().masters(cluster))

    def broker_runtime_stats(self, broker_addr: str) -> dict[str, str]:
        return self._run(self._alive().broker_runtime_stats(broker_addr))

    def broker_config(self, broker_addr: str) -> str:
        return self._run(self._alive().broker_config(broker_addr))

    def topic_list(self) -> TopicList:
        return self._run(self._alive().topic_list())

    def topics_by_cluster(self, cluster: str) -> TopicList:
        return self._run(self._alive().topics_by_cluster(cluster))

    def topic_route(self, topic: str) -> TopicRouteData:
        return self._run(self._alive().topic_route(topic))

    def topic_stats(self, topic: str) -> TopicStats:
        return self._run(self._alive().topic_stats(topic))

    def create_and_update_topic(
        self,
        broker_addr: str,
        topic: str,
        *,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = 6,
        topic_sys_flag: int = 0,
        order: bool = False,
    ) -> None:
        self._run(
            self._alive().create_and_update_topic(
                broker_addr,
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
                order=order,
            )
        )

    def topic_configs(self, broker_addr: str) -> TopicConfigTable:
        return self._run(self._alive().topic_configs(broker_addr))

    def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        return self._run(self._alive().topic_config(broker_addr, topic))

    def query_topic_consume_by_who(self, topic: str) -> list[str]:
        return self._run(self._alive().query_topic_consume_by_who(topic))

    def create_and_update_subscription_group(self, broker_addr: str, config: SubscriptionGroupConfig) -> None:
        self._run(self._alive().create_and_update_subscription_group(broker_addr, config))

    def subscription_groups(self, broker_addr: str) -> SubscriptionGroupTable:
        return self._run(self._alive().subscription_groups(broker_addr))

    def consume_stats(self, group: str, topic: str | None = None) -> GroupStats:
        return self._run(self._alive().consume_stats(group, topic))

    def consumer_connections(self, group: str, broker_addr: str | None = None) -> GroupConnections:
        return self._run(self._alive().consumer_connections(group, broker_addr))

    def delete_subscription_group(self, broker_addr: str, group: str, *, remove_offset: bool = False) -> None:
        self._run(self._alive().delete_subscription_group(broker_addr, group, remove_offset=remove_offset))

    def consumer_running_info(
        self, group: str, client_id: str, broker_addr: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        return self._run(self._alive().consumer_running_info(group, client_id, broker_addr, jstack=jstack))

    def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int, *, force: bool = True
    ) -> list[OffsetReset]:
        return self._run(self._alive().reset_offset_by_timestamp(topic, group, timestamp, force=force))

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
        return self._run(self._alive().reset_offset(group, queue, offset))

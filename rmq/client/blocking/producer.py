"""Producers for threads: what is sent takes the shortest way to the loop and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rmq.client.attempts import Call, Done, Send, Step
from rmq.client.blocking.crossing import plain_message
from rmq.client.blocking.elsewhere import elsewhere
from rmq.client.blocking.life import twin
from rmq.client.blocking.mirror import ProducerMirror
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.producer import Producer as AioProducer
from rmq.client.producer import check_callback
from rmq.client.results import SendResult, SendStatus, TransactionSendResult, TransactionState
from rmq.client.scope import TransactionScope
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sender import Sender
from rmq.client.sending import Sendable, weight
from rmq.client.settings import (
    Duration,
    ProducerOptions,
    ProducerSettings,
    TransactionProducerOptions,
    TransactionProducerSettings,
    lists_options,
)
from rmq.client.transaction import (
    LocalTransaction,
    TransactionCheck,
    check_local,
    known_state,
)
from rmq.client.transaction import TransactionProducer as AioTransactionProducer
from rmq.protocol.keywords import NoOthers, keywords, no_such
from rmq.runtime.aside import logger
from rmq.runtime.bridge import Bridge
from rmq.runtime.window import Entry
from rmq.runtime.world import World

__all__ = ["Producer", "TransactionProducer"]

log = logger(__name__)

T = TypeVar("T")

#: A request may wait for being written as long as for its answer (:mod:`rmq.remoting.calls`): only then is it the loop
#: that stands still.
_WRITTEN_AND_ANSWERED = 2


@lists_options(ProducerSettings)
@twin(AioProducer)
@keywords
class Producer(ProducerMirror):
    """Sends messages; any thread may use it (Java: DefaultMQProducer).

    :param group: the producer group: one an application.
    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.ProducerOptions`.

    ::

        with Producer("order_group", namesrv="127.0.0.1:9876") as producer:
            result = producer.send(Message("TopicTest", b"hello", tags="TagA", keys="order-1"))
    """

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(AioProducer(group, world=world, **options))
        self.group: str = self._client.group
        self._under_way: set[Future[Any]] = set()
        self._called: set[int] = set()

    def _forked(self) -> None:
        self._under_way, self._called = set(), set()

    def send(
        self,
        message: Sendable,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
        **unknown: Unpack[NoOthers],
    ) -> SendResult:
        if unknown:
            raise no_such(Producer.send, unknown)
        client = self._client
        made = client._world.bridge()
        if made is not self._bridge:
            self._adopt(made)
            client = self._client
        sender = client._sender
        if client._settings.auto_batch and sender.joins(message := plain_message(message), selector):
            return made.run(client.send(message, queue=queue, timeout=timeout))
        send = sender.prepare(message)
        instance, limit = client._joined, client._limit(timeout)
        attempts = sender.attempts(send, queue, selector, arg, limit)
        waiter = made.waiter()
        place, clock = Entry(sender.window, weight(send)), client._world.clock
        try:
            if not sender.window.enter(place):
                made.run(_wait(place, sender, limit))
            step = attempts.first(clock.monotonic())
            while isinstance(step, Call):
                step = attempts.on(step.in_place(), clock.monotonic())
            leaves = isinstance(step, Send)
            if isinstance(step, Send):  # without a task: the frame is made here, written and answered on the loop

                def told(step: Step) -> None:
                    place.leave(answered=isinstance(step, (Done, Call)) and step.answered)
                    made.answer(waiter, step)

                sender.submissions.submit(made, instance, attempts, step, told, queue, selector, arg)
                step = made.wait(waiter, _WRITTEN_AND_ANSWERED * step.seconds)
            else:
                made.post(place.leave)
        except BaseException:  # of a selector, or of a signal handler anywhere in here: the place is others'
            made.post(place.leave)
            raise
        if isinstance(step, Done):
            return step.result()
        # What comes after the first attempt needs no place: of these there are no more than threads.
        rest = _WRITTEN_AND_ANSWERED * max(attempts.rest(clock.monotonic()), step.seconds)
        on = (
            sender.steps.go_on(attempts, step)
            if leaves
            else sender.submissions.go_on_behind(attempts, step, queue, selector, arg)
        )
        return made.run(on, rest).result()

    def send_async(
        self,
        message: Sendable,
        callback: Callable[[Future[SendResult]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
        **unknown: Unpack[NoOthers],
    ) -> Future[SendResult]:
        """Send without waiting for the answer: a future of the result.

        It waits for its turn, though, while as many are under way as ``back_pressure_for_async_send_num`` and
        ``..._size`` say.

        :param callback: called with the future when it is done, on one of two threads kept for that, or, while
            such calls take over a second, on others.
        :param timeout: from when its turn has come, see :meth:`send`.
        :raises ClientError: the message cannot be sent as it is.
        :raises TooManyRequests: its turn did not come, because nothing before it was answered for ``timeout``.
        """
        if unknown:
            raise no_such(Producer.send_async, unknown)
        client = self._alive()
        made = self._bridge_now()
        made.check()
        instance = client._joined
        check_callback(callback)
        limit, sender = client._limit(timeout), client._sender
        if client._settings.auto_batch and sender.joins(message := plain_message(message), selector):
            return self._there(made, partial(client.send, message, queue=queue, timeout=limit), callback)
        retries = client._settings.retry_times_when_send_async_failed
        if made.inside and (sender.waits or queue is not None or selector is not None):
            return self._there(made, partial(sender.send, message, queue, selector, arg, limit, retries), callback)
        send = sender.prepare(message)
        attempts = sender.attempts(send, queue, selector, arg, limit, retries)
        place = Entry(sender.window, weight(send))
        future: _Future[SendResult] = _Future(made, self._called)

        def finish(ended: Done | BaseException) -> None:
            place.leave(answered=isinstance(ended, Done) and ended.answered)
            _tell(future, ended)

        def go_on(step: Step, left: bool = True) -> None:
            if isinstance(step, Done) or future.cancelled():
                finish(step if isinstance(step, Done) else asyncio.CancelledError())
            elif left:
                made.spawn(sender.steps.go_on(attempts, step), finish)
            else:
                made.spawn(sender.submissions.go_on_behind(attempts, step, queue, selector, arg), finish)

        def its_turn(refused: BaseException | None) -> None:
            if refused is None:
                go_on(attempts.first(client._world.clock.monotonic()), False)
            else:
                _tell(future, refused)

        try:
            if not sender.window.enter(place):
                if made.inside:  # the SDK's loop sends, in a coroutine: it cannot wait here
                    self._keep(future, callback)
                    made.spawn(_wait(place, sender, limit), its_turn)
                    return future
                made.run(_wait(place, sender, limit))
            step = attempts.first(client._world.clock.monotonic())
            while isinstance(step, Call) and not made.inside:
                step = attempts.on(step.in_place(), client._world.clock.monotonic())
            self._keep(future, callback)
            if isinstance(step, Send):
                sender.submissions.submit(made, instance, attempts, step, go_on, queue, selector, arg)
            else:
                made.post(go_on, step, False)
        except BaseException:  # of a selector, or of a signal handler anywhere in here
            future.cancel()  # no shutdown waits for it
            made.post(place.leave)  # and the place is others'
            raise
        return future

    def _keep(self, future: _Future[T], callback: Callable[[Future[T]], object] | None) -> None:
        future.on_loop(self._under_way.discard)  # first: a signal handler may raise behind either
        self._under_way.add(future)
        if callback is not None:
            future.add_done_callback(callback)

    def _there(
        self,
        made: Bridge,
        function: Callable[[], Awaitable[T]],
        callback: Callable[[Future[T]], object] | None,
    ) -> Future[T]:
        """By a coroutine: a send goes into a batch with others, or the loop cannot wait for its hooks.

        It is made on the loop: here, a signal handler that raises would leave one that nobody awaits.
        """
        future: _Future[T] = _Future(made, self._called)

        async def awaited() -> T:
            return await function()

        def begin() -> None:
            if not future.cancelled():
                made.spawn(awaited(), partial(_tell, future))

        try:
            self._keep(future, callback)
            made.post(begin)
        except BaseException:  # of a signal handler: no shutdown waits for it
            future.cancel()
            raise
        return future

    def request_async(
        self,
        message: Message | MessageExt,
        callback: Callable[[Future[MessageExt]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> Future[MessageExt]:
        """:meth:`request` without waiting: a future of the reply.

        :param callback: called with the future when it is done, on one of two threads kept for that, or, while
            such calls take over a second, on others.
        """
        client = self._alive()
        made = self._bridge_now()
        made.check()
        client._joined  # noqa: B018 - raises when not started
        check_callback(callback)
        ask = partial(client.request, plain_message(message), queue=queue, selector=selector, arg=arg, timeout=timeout)
        return self._there(made, ask, callback)

    def send_oneway(
        self,
        message: Message | MessageExt,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> None:
        self._run(self._alive().send_oneway(plain_message(message), queue=queue, selector=selector, arg=arg))

    def split(
        self,
        messages: Iterable[Message | MessageExt],
        limit: int | None = None,
        oversize: list[Message | MessageExt] | None = None,
    ) -> Iterator[list[Message | MessageExt]]:
        return self._client.split(messages, limit, oversize)

    def shutdown(self) -> None:
        """Wait for the asynchronous sends and requests under way (each has its own timeout) and for their callbacks
        (unless none of them returns for five seconds), leave, close the connections."""
        made = self._bridge_now()
        if self._started and made is self._bridge:
            if self._under_way:
                made.until_ended(list(self._under_way))
            if left := made.run(made.until_called(self._called, made.callback_here)):
                log.warning("the producer %s is shut down; callbacks that have not returned: %d", self.group, left)
        super().shutdown()


async def _wait(place: Entry, sender: Sender, limit: float) -> None:
    """None is free on the caller's thread: the loop waits for it."""
    await sender.its_turn(place.size, limit)
    place.held = True


class _Future(Future[T]):
    """What its users hang on it runs on the threads for callbacks, never on the loop that ends it."""

    def __init__(self, made: Bridge, called: set[int]) -> None:
        super().__init__()
        self._made = made
        #: The numbers of its producer's callbacks that have not returned.
        self._called = called
        made.futures.add(self)
        self.on_loop(made.futures.discard)

    def result(self, timeout: float | None = None) -> T:
        return super().result(self._made.pass_time(self, timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._made.pass_time(self, timeout))

    def on_loop(self, told: Callable[[Any], object]) -> None:
        """A callback of ours, which does not wait and does not raise."""
        super().add_done_callback(told)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(lambda ended: self._made.post(self._hand_on, fn))

    def _hand_on(self, fn: Callable[[Future[T]], object]) -> None:
        called = self._called

        def ended(result: object, error: BaseException | None) -> None:
            called.discard(number)
            if error is not None:
                log.error("a callback of send_async or request_async raised", exc_info=error)

        number = self._made.callbacks().submit(lambda: fn(self), ended)
        called.add(number)


def _tell(future: _Future[Any], ended: Done | MessageExt | BaseException) -> None:
    if not future.set_running_or_notify_cancel():
        return  # its caller has cancelled it
    outcome = ended.outcome if isinstance(ended, Done) else ended
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


@lists_options(TransactionProducerSettings)
@twin(AioTransactionProducer)
@keywords
class TransactionProducer(Producer):
    """Sends messages that are delivered when a local transaction has committed (Java: TransactionMQProducer).

    :param check: asked, on a thread of its own, how the transaction of a message ended when the broker was not told, by
        any member of the group and maybe long after.
    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.TransactionProducerOptions`.

    ::

        def check(message):
            return TransactionState.COMMIT if orders.has(message.keys) else TransactionState.ROLLBACK

        with TransactionProducer("order_group", check, namesrv="127.0.0.1:9876") as producer:
            def local(message):
                orders.add(message.keys)
                return TransactionState.COMMIT
            producer.send_in_transaction(Message("TopicTest", b"order", keys="order-1"), local)
    """

    _client: AioTransactionProducer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        group: str,
        check: TransactionCheck,
        *,
        world: World | None = None,
        **options: Unpack[TransactionProducerOptions],
    ) -> None:
        ProducerMirror.__init__(
            self, AioTransactionProducer(group, elsewhere(check, self._bridge_now), world=world, **options)
        )
        self.group: str = self._client.group
        self._under_way, self._called = set(), set()

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
        check_local(local)
        half = self._run(client._send_half(plain_message(message), timeout))
        if half.send_status is not SendStatus.SEND_OK:
            return self._run(client._end(half, TransactionState.ROLLBACK, message))
        try:
            state = known_state(local(message), "the local transaction")
        except BaseException:
            self._run(client._end(half, TransactionState.UNKNOWN, message))
            raise
        return self._run(client._end(half, state, message))

    def transaction(self, message: Message, *, timeout: Duration | None = None) -> Transaction:
        """The same as a block, which does the local transaction: ``with producer.transaction(message): ...``.

        The message is stored when the block is entered, and delivered when it ends. When it raises, the broker asks
        ``check`` later: whether the database has committed is not known then. ``rollback()`` of what this gives drops
        the message at once; its ``msg_id`` is what to keep in the database for ``check`` to find.

        :param timeout: for storing the message; ``send_msg_timeout`` by default.
        :raises ClientError: the message cannot be sent as it is. :raises RMQError: it was not stored as it should be.
            Either is raised where the block is entered; nothing of it is done.
        """
        return Transaction(self, message, timeout)


class Transaction(TransactionScope):
    """What :meth:`TransactionProducer.transaction` gives."""

    def __init__(self, producer: TransactionProducer, message: Message, timeout: Duration | None) -> None:
        super().__init__()
        self._producer = producer
        self._message = message
        self._timeout = timeout

    def __enter__(self) -> Self:
        self._fresh()
        producer = self._producer
        client = producer._alive()
        assert isinstance(client, AioTransactionProducer)
        if not self._begun(producer._run(client._send_half(plain_message(self._message), self._timeout))):
            self._end(TransactionState.ROLLBACK)
            raise self._refusal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._state(error))

    def _end(self, state: TransactionState) -> None:
        producer = self._producer
        client = producer._alive()
        assert isinstance(client, AioTransactionProducer)
        assert self._half is not None
        self._result = producer._run(client._end(self._half, state, self._message))

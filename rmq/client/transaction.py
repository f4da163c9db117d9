"""The transaction producer (Java: TransactionMQProducer)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from rmq.client.attempts import send_address
from rmq.client.consumer.listeners import ends_task
from rmq.client.hooks import EndTransactionHookContext
from rmq.client.instance import ClientInstance
from rmq.client.life import ends, starts
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.producer import Producer
from rmq.client.results import SendResult, SendStatus, TransactionSendResult, TransactionState
from rmq.client.scope import TransactionScope
from rmq.client.settings import Duration, TransactionProducerOptions, TransactionProducerSettings, lists_options
from rmq.client.shown import shown
from rmq.protocol import ids
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, RMQError, WrongType
from rmq.protocol.headers.transaction import CheckTransactionStateRequest, EndTransactionRequest
from rmq.protocol.keywords import keywords
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Pool, World

__all__ = ["LocalTransaction", "Transaction", "TransactionCheck", "TransactionProducer"]

log = logger(__name__)


#: Does the local transaction, once its message is stored and not yet visible.
LocalTransaction = Callable[[Message], TransactionState | Awaitable[TransactionState]]
#: Says how the local transaction of a message ended, for a broker that was not told.
TransactionCheck = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]


@lists_options(TransactionProducerSettings)
@keywords
class TransactionProducer(Producer):
    """Sends messages that are delivered when a local transaction has committed.

    :param check: asked how the transaction of a message ended when the broker was not told, by any member of the group
        and maybe long after; a coroutine function, or a plain one, which runs on a thread.
    :param options: see :class:`~rmq.client.settings.TransactionProducerOptions`.

    ::

        def check(message):
            return TransactionState.COMMIT if orders.has(message.keys) else TransactionState.ROLLBACK

        async with TransactionProducer("order_group", check, namesrv="127.0.0.1:9876") as producer:
            async def local(message):
                orders.add(message.keys)
                return TransactionState.COMMIT
            await producer.send_in_transaction(Message("TopicTest", b"order", keys="order-1"), local)
    """

    _kind = TransactionProducerSettings
    _settings: TransactionProducerSettings  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        group: str,
        check: TransactionCheck,
        *,
        world: World | None = None,
        **options: Unpack[TransactionProducerOptions],
    ) -> None:
        if not callable(check):
            raise WrongType(f"the check of a TransactionProducer is a function, not {type(check).__name__}")
        super().__init__(group, world=world, **options)  # type: ignore[misc]  # more of them than a Producer has
        self._check = check
        self._tasks: TaskOwner | None = None
        self._pool: Pool | None = None
        self._checks = 0

    def _renew(self) -> TransactionProducer:
        """The same producer, not started: for a forked child."""
        return TransactionProducer(self.group, self._check, **self._options)

    @starts
    async def start(self) -> None:
        """Join the client instance, make itself known to every master, and answer the checks of brokers.

        Starting a started producer does nothing.

        :raises ClientError: no name server is known, or the group has a producer in this client already.
        """
        await super().start()

    async def _begin(self, instance: ClientInstance) -> None:
        await super()._begin(instance)
        self._tasks = TaskOwner(f"checks of {self.group}")
        self._pool = self._world.pool(self._settings.check_thread_pool_max_size, f"rmq-check-{self.group}")
        self._pool.keep(self._settings.check_thread_pool_min_size)
        instance.transactions[self.group] = self
        instance.sought.add(self.group)
        await instance.learn_masters()

    @ends
    async def shutdown(self) -> None:
        """Leave, and close the connections. Transactions that are not ended are asked about elsewhere."""
        instance, tasks, pool = self._instance, self._tasks, self._pool
        if instance is not None and instance.transactions.get(self.group) is self:
            del instance.transactions[self.group]
        self._tasks = self._pool = None
        try:
            if tasks is not None:
                await tasks.close()
        finally:
            if pool is not None:
                pool.close()
            await super().shutdown()

    async def _forget(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._tasks = self._pool = None
        await super()._forget()

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout: Duration | None = None
    ) -> TransactionSendResult:
        """Store a message that nobody sees yet, do the local transaction, and tell the broker how that ended.

        :param local: does the local transaction; a coroutine function, or a plain one, which must not block. When it
            raises, the broker is told UNKNOWN and asks later, and the caller gets what it raised.
        :param timeout: for storing the message; ``send_msg_timeout`` by default.
        :returns: the result, with ``local_transaction_state``: how the transaction ended.
        :raises ClientError: the message cannot be sent as it is. :raises RMQError: it was not stored: ``local`` was not
            called.
        """
        check_local(local)
        half = await self._send_half(message, timeout)
        if half.send_status is not SendStatus.SEND_OK:
            # Stored, but not as it should be: nothing has happened yet that a rollback would contradict.
            return await self._end(half, TransactionState.ROLLBACK, message)
        try:
            state = local(message)
            if inspect.isawaitable(state):
                state = await state
            state = known_state(state, "the local transaction")
        except BaseException:
            await self._end(half, TransactionState.UNKNOWN, message)
            raise
        return await self._end(half, state, message)

    def transaction(self, message: Message, *, timeout: Duration | None = None) -> Transaction:
        """The same as a block, which does the local transaction: ``async with producer.transaction(message): ...``.

        The message is stored when the block is entered, and delivered when it ends. When it raises, the broker asks
        ``check`` later: whether the database has committed is not known then. ``rollback()`` of what this gives drops
        the message at once; its ``msg_id`` is what to keep in the database for ``check`` to find.

        :param timeout: for storing the message; ``send_msg_timeout`` by default.
        :raises ClientError: the message cannot be sent as it is. :raises RMQError: it was not stored as it should be.
            Either is raised where the block is entered; nothing of it is done.
        """
        return Transaction(self, message, timeout)

    async def _send_half(self, message: Message, timeout: Duration | None) -> SendResult:
        """Store the message that nobody sees yet."""
        self._client  # noqa: B018 - raises when not started
        if not isinstance(message, (Message, MessageExt)):
            raise WrongType(f"a transaction takes a Message, not {type(message).__name__}")
        limit = self._limit(timeout)
        sender = self._sender
        send = await sender.encoded(sender.encoder.prepare_half, message, limit)
        return await sender.send(send, None, None, None, limit)

    async def _end(
        self, half: SendResult, state: TransactionState, message: Message | MessageExt
    ) -> TransactionSendResult:
        """Tell the broker; when it cannot be told it asks later."""
        queue = self._names.wrap_queue(half.message_queue)
        header = EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=ids.decode_offset_msg_id(half.offset_msg_id)[2],
            commit_or_rollback=state.value,
            msg_id=half.msg_id,
            transaction_id=half.transaction_id or half.msg_id,
            topic=queue.topic,
            bname=queue.broker_name,
        )
        command = Command.request(RequestCode.END_TRANSACTION, header).mark_oneway()
        try:
            instance = self._client
            master = await instance.find_master(MessageQueue(queue.topic, queue.broker_name, 0))
            address = send_address(master, self._settings)
            await instance.remoting.oneway(address, command)
            self._tell_hooks(message, header, half.message_queue, master, state)
        except RMQError as error:
            log.warning("the broker was not told %s of %s, it will ask: %s", state.name, half.msg_id, error)
        known = {field.name: getattr(half, field.name) for field in fields(SendResult)}
        known["transaction_id"] = half.transaction_id or half.msg_id
        return TransactionSendResult(**known, local_transaction_state=state)

    # -- checks: what the instance hands on ---------------------------------------------------------------------------

    def _asked(self, conn: Conn, header: CheckTransactionStateRequest, message: MessageExt) -> None:
        """A broker asks how the transaction of a message ended (39)."""
        tasks, pool = self._tasks, self._pool
        if tasks is None or pool is None or tasks.closed:
            return
        if self._checks >= self._settings.check_request_hold_max:
            log.warning("group %s: %d checks wait, %r is left to be asked again", self.group, self._checks, message)
            return
        self._checks += 1
        self._names.message(message)
        if inspect.iscoroutinefunction(self._check) or inspect.iscoroutinefunction(
            getattr(self._check, "__call__", None)  # noqa: B004 - an object with a coroutine __call__
        ):
            tasks.spawn(self._check_async(conn, header, message), "check")
        else:
            pool.submit(
                lambda: self._check(message), lambda state, error: self._checked(conn, header, message, state, error)
            )

    async def _check_async(self, conn: Conn, header: CheckTransactionStateRequest, message: MessageExt) -> None:
        state: object = None
        failed: BaseException | None = None
        try:
            state = await self._check(message)  # type: ignore[misc]
        except BaseException as error:
            if ends_task(error):
                raise
            failed = error
        self._checked(conn, header, message, state, failed)

    def _checked(
        self,
        conn: Conn,
        header: CheckTransactionStateRequest,
        message: MessageExt,
        state: object,
        error: BaseException | None,
    ) -> None:
        self._checks -= 1
        told = TransactionState.UNKNOWN
        if error is None:
            try:
                told = known_state(state, "the check")
            except ClientError as wrong:
                error = wrong
        if error is not None:
            log.error("group %s: the check of %r failed; it is asked again", self.group, message, exc_info=error)
        end = EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=told.value,
            from_transaction_check=True,
            msg_id=message.properties.get("UNIQ_KEY") or header.msg_id,
            transaction_id=header.transaction_id,
            topic=self._names.wrap(message.topic),
            bname=header.bname,
        )
        if not conn.closed:
            command = Command.request(RequestCode.END_TRANSACTION, end).mark_oneway()
            conn.oneway(self._client.remoting.signed(command))
            queue = MessageQueue(message.topic, message.broker_name or end.bname or "", message.queue_id)
            self._tell_hooks(message, end, queue, conn.address or conn.peer, told)

    def _tell_hooks(
        self,
        message: Message | MessageExt,
        end: EndTransactionRequest,
        queue: MessageQueue,
        address: str,
        state: TransactionState,
    ) -> None:
        """A broker was told."""
        if self._hooks.ends_transactions:
            context = EndTransactionHookContext(
                self.group,
                message,
                end.msg_id or "",
                end.transaction_id,
                queue,
                address,
                state,
                bool(end.from_transaction_check),
            )
            if self._hooks.quick:
                self._hooks.end_transaction(context)
            elif self._tasks is not None and not self._tasks.closed:
                self._tasks.spawn(self._tell_aside(context), "hooks")

    async def _tell_aside(self, context: EndTransactionHookContext) -> None:
        """Call hooks where they may take their time: nobody waits for them."""
        limit, what = self._settings.send_msg_timeout, f"a hook of {self.group}"
        try:
            await self._client.application.call(partial(self._hooks.end_transaction, context), limit, what)
        except RMQError as error:
            log.warning("%s", error)


class Transaction(TransactionScope):
    """What :meth:`TransactionProducer.transaction` gives."""

    def __init__(self, producer: TransactionProducer, message: Message, timeout: Duration | None) -> None:
        super().__init__()
        self._producer = producer
        self._message = message
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        self._fresh()
        if not self._begun(await self._producer._send_half(self._message, self._timeout)):
            await self._end(TransactionState.ROLLBACK)
            raise self._refusal()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(self._state(error))

    async def _end(self, state: TransactionState) -> None:
        assert self._half is not None
        self._result = await self._producer._end(self._half, state, self._message)


def check_local(local: object) -> None:
    """:raises ClientError: it cannot be called."""
    if not callable(local):
        raise WrongType(f"the local transaction is a function of the message, not {type(local).__name__}")


def known_state(given: object, who: str) -> TransactionState:
    """What a local transaction or a check returned. :raises ClientError: no TransactionState."""
    if isinstance(given, TransactionState):
        return given
    raise ClientError(f"{who} returned {shown(given)}: it must return a TransactionState")

"""What an application hangs into its clients: around sends, listener calls and requests, and between pull and listener.

Java's are SendMessageHook, CheckForbiddenHook, FilterMessageHook, ConsumeMessageHook and RPCHook. Of several hooks each
is called in the order in which they were given. One that raises costs itself alone: what it raised is logged, and all
goes on as if it were not there; but for ``check_send``, which raises to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from rmq.client.application import ApplicationThreads
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.results import ConsumeResult, SendResult, TransactionState
from rmq.client.shown import shown, told
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, RequestTimeout, RMQError
from rmq.protocol.properties import RESERVED
from rmq.remoting.client import Hook as RemotingHook
from rmq.runtime.aside import logger

__all__ = ["ConsumeHookContext", "EndTransactionHookContext", "Hook", "Hooks", "SendHookContext", "request_hooks"]

log = logger(__name__)

T = TypeVar("T")

#: How long what is not a send waits for a hook.
_SECONDS = 3.0
#: What a hook may raise before a send without ending more than itself: on the thread that waits a
#: Ctrl-C is for who waits. Elsewhere nothing that a hook raises is anybody else's.
_FAILS = (Exception, SystemExit, asyncio.CancelledError, GeneratorExit)
#: Letters of a property that a hook adds: a message holds 32,767 bytes of all of them.
_MOST_EXTRA = 4_096


@dataclass(slots=True)
class SendHookContext:
    """One attempt to send (Java: SendMessageContext): what is tried again at another broker has another one."""

    #: The producer group, with its namespace.
    group: str
    #: One message, or those of a batch.
    messages: Sequence[Message | MessageExt]
    queue: MessageQueue
    #: Of the broker, ``host:port``.
    address: str
    #: It is delivered when its transaction commits.
    half: bool = False
    #: After it: what the broker said, or why it said nothing good; neither of a oneway send.
    result: SendResult | None = None
    error: Exception | None = None
    #: For hooks to keep something from before to after.
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EndTransactionHookContext:
    """A broker was told how a transaction ended (Java: EndTransactionContext)."""

    #: The producer group, with its namespace.
    group: str
    #: As it was sent; of a check: as the broker has it.
    message: Message | MessageExt
    msg_id: str
    transaction_id: str | None
    queue: MessageQueue
    #: Of the broker, ``host:port``.
    address: str
    state: TransactionState
    #: The broker had asked.
    from_check: bool = False


@dataclass(slots=True)
class ConsumeHookContext:
    """One call of a listener with what it was given (Java: ConsumeMessageContext)."""

    #: The consumer group, with its namespace.
    group: str
    messages: Sequence[MessageExt]
    queue: MessageQueue
    #: After it: what was made of what it returned, those messages that come again, and what it raised.
    result: ConsumeResult | None = None
    failed: Sequence[MessageExt] = ()
    error: BaseException | None = None
    #: For hooks to keep something from before to after.
    data: dict[str, Any] = field(default_factory=dict)


class Hook:
    """Subclass it, define what you need, and give it to clients: ``Producer("g", hooks=[MyHook()])``.

    The methods may take their time. They run on the caller's thread or one of the client's own, never on its event
    loop; around a listener that runs on a thread, on that thread. Only what they are called for waits for them: a send
    whose hook has not returned when half of its time is over is not made. Sends to one queue, or of one ``arg`` of a
    selector, leave in the order in which they were called all the same.
    """

    #: Set it on a class whose methods never wait (for a lock, a file, the network): they are called in place then, on
    #: the event loop and in the tasks of coroutines, too, which costs less.
    quick: ClassVar[bool] = False

    def extra_properties(self, message: Message | MessageExt) -> Mapping[str, str]:
        """What goes with a message besides its own properties, such as the context of a trace.

        Asked once a send, on the caller's thread; the application's message stays as it is. The message's own property
        of the same name stands.
        """
        return {}

    def check_send(self, context: SendHookContext) -> None:
        """Raise to refuse an attempt: the send ends with that, and is tried nowhere else. Comes first."""

    def before_send(self, context: SendHookContext) -> None:
        """An attempt is made; its message stands already, and changes to it have no effect."""

    def after_send(self, context: SendHookContext) -> None:
        """It has ended: ``context.result`` or ``context.error``."""

    def end_transaction(self, context: EndTransactionHookContext) -> None:
        """A broker was told how a transaction ended, after a local transaction or a check."""

    def filter_messages(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterable[MessageExt]:
        """Those of pulled messages that the application gets; the others count as consumed."""
        return messages

    def before_consume(self, context: ConsumeHookContext) -> None:
        """A listener is called."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """It has ended: ``context.result``, ``failed`` and ``error``."""

    def before_request(self, address: str, command: Command) -> None:
        """Any request to a broker or name server, those of the SDK's own, too; ``command.ext`` may be changed."""

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        """It was answered; None: it was not."""


class Hooks:
    """The hooks of one client, each with the methods it defines.

    :param who: the client's group, for them and for the log.
    """

    def __init__(self, given: Sequence[Hook], who: str) -> None:
        #: Whose they are, for them and for the log.
        self.who = who
        self._extra = _defined(given, Hook.extra_properties)
        self._check_send = _defined(given, Hook.check_send)
        self._before_send = _defined(given, Hook.before_send)
        self._after_send = _defined(given, Hook.after_send)
        self._end_transaction = _defined(given, Hook.end_transaction)
        self._filter = _defined(given, Hook.filter_messages)
        self._before_consume = _defined(given, Hook.before_consume)
        self._after_consume = _defined(given, Hook.after_consume)
        self.stamps = bool(self._extra)
        #: Whether they are called in place, wherever that is.
        self.quick = all(hook.quick for hook in given)
        self.sends = bool(self._check_send or self._before_send or self._after_send)
        self.ends_transactions = bool(self._end_transaction)
        self.filters = bool(self._filter)
        self.consumes = bool(self._before_consume or self._after_consume)

    def stamped(self, message: Message | MessageExt) -> Message | MessageExt:
        """A message with what hooks let go along, or itself where that is nothing."""
        extra: dict[str, str] = {}
        for ask in self._extra:
            try:
                extra |= _sendable(ask(message))
            except _FAILS as error:
                self._failed(ask, error)
        if not extra or not isinstance(message.properties, Mapping):
            return message
        made = copy(message)
        made.properties = {**extra, **message.properties}
        return made

    def begin_send(
        self, messages: Sequence[Message | MessageExt], queue: MessageQueue, address: str, *, half: bool = False
    ) -> SendHookContext | Exception:
        """An attempt begins; an error: one of them refuses it."""
        context = SendHookContext(self.who, messages, queue, address, half)
        for check in self._check_send:
            try:
                check(context)
            except RMQError as refused:
                return refused
            except _FAILS as refused:
                error = ClientError(f"{_name(check)} refuses the message: {told(refused)}")
                error.__cause__ = refused
                return error
        for method in self._before_send:
            try:
                method(context)
            except _FAILS as error:
                self._failed(method, error)
        return context

    def end_send(self, context: SendHookContext, outcome: SendResult | Exception | None) -> None:
        if isinstance(outcome, SendResult):
            context.result = outcome
        else:
            context.error = outcome
        self._each(self._after_send, context)

    def end_transaction(self, context: EndTransactionHookContext) -> None:
        self._each(self._end_transaction, context)

    async def filtered(
        self, threads: ApplicationThreads, queue: MessageQueue, messages: list[MessageExt]
    ) -> list[MessageExt]:
        """What they leave of pulled messages, in order."""
        if self.quick:
            return self._left_of(queue, messages)
        left = await _in_time(threads, lambda: self._left_of(queue, messages), f"a hook of {self.who}")
        return messages if left is None else left

    def _left_of(self, queue: MessageQueue, messages: list[MessageExt]) -> list[MessageExt]:
        for leave in self._filter:
            if not messages:
                break
            try:
                kept = {id(message) for message in leave(queue, tuple(messages))}
            except BaseException as error:
                self._failed(leave, error)
            else:
                messages = [message for message in messages if id(message) in kept]
        return messages

    def begin_consume(self, messages: Sequence[MessageExt], queue: MessageQueue) -> ConsumeHookContext:
        context = ConsumeHookContext(self.who, tuple(messages), queue)
        self._each(self._before_consume, context)
        return context

    def end_consume(
        self,
        context: ConsumeHookContext,
        result: ConsumeResult,
        failed: Sequence[MessageExt],
        error: BaseException | None,
    ) -> None:
        context.result, context.failed, context.error = result, tuple(failed), error
        self._each(self._after_consume, context)

    def _each(self, methods: Sequence[Callable[..., Any]], context: object) -> None:
        for method in methods:
            try:
                method(context)
            except BaseException as error:
                self._failed(method, error)

    def _failed(self, method: Callable[..., Any], error: BaseException) -> None:
        log.error("group %s: %s raised, and is passed over", self.who, _name(method), exc_info=error)


def request_hooks(given: Iterable[Hook], threads: ApplicationThreads) -> list[RemotingHook]:
    """Of those that want to see requests, what a remoting client takes."""
    return [_Requests(hook, threads) for hook in given if _defined([hook], Hook.before_request, Hook.after_response)]


class RequestsAlone(Hook):
    """What a hook says to requests, and nothing else of it."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.quick = hook.quick  # type: ignore[misc]

    def before_request(self, address: str, command: Command) -> None:
        self._hook.before_request(address, command)

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        self._hook.after_response(address, command, answer)


class _Requests(RemotingHook):
    """A hook as the transport calls it."""

    def __init__(self, hook: Hook, threads: ApplicationThreads) -> None:
        self._hook = hook
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Requests) and other._hook is self._hook

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def before(self, addr: str, request: Command) -> Awaitable[None] | None:
        return self._call(self._hook.before_request, addr, request)

    def after(self, addr: str, request: Command, response: Command | None) -> Awaitable[None] | None:
        return self._call(self._hook.after_response, addr, request, response)

    def _call(self, method: Callable[..., None], addr: str, *what: Command | None) -> Awaitable[None] | None:
        def call() -> None:
            try:
                method(addr, *what)
            except BaseException as error:
                log.error("%s raised for a request to %s, and is passed over", _name(method), addr, exc_info=error)

        if self._hook.quick:
            call()
            return None
        return _in_time(self._threads, call, _name(method))


async def _in_time(threads: ApplicationThreads, call: Callable[[], T], what: str) -> T | None:
    """What it gives; None when it does not return in time, and all goes on as if it were not there."""
    try:
        return await threads.call(call, _SECONDS, what)
    except RequestTimeout as error:
        log.error("%s, and is passed over", error)
        return None


def _defined(given: Iterable[Hook], *methods: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Those of the methods that hooks have of their own."""
    return [
        getattr(hook, method.__name__)
        for hook in given
        for method in methods
        if getattr(type(hook), method.__name__) is not method
    ]


def _sendable(properties: Mapping[str, str]) -> Mapping[str, str]:
    """:raises ClientError: a property that cannot be sent: it would cost the application its message."""
    for name, value in properties.items():
        if type(name) is not str or type(value) is not str or not name or not value or name in RESERVED:
            raise ClientError(f"the property {shown(name)}={shown(value)} cannot go with a message")
        if {"\x01", "\x02"} & {*name, *value} or len(name) + len(value) > _MOST_EXTRA:
            raise ClientError(
                f"the property {shown(name)} has the control character 1 or 2, or over {_MOST_EXTRA} letters"
            )
    return properties


def _name(method: Callable[..., Any]) -> str:
    return f"the hook {getattr(method, '__qualname__', type(method).__name__)}"

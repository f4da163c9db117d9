"""Single sends that no hook is told of and that take the next queue: nearly all there are.

Each is one object that is awaited, and one more while it is under way: it is made where its place is given and ended
where its answer is read. Very many may wait, and what the interpreter's collector looks at is what they cost most.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from collections.abc import Callable, Coroutine
from copy import copy
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from rmq.client.attempts import AskRoute, Attempts, Done, Outcome, Send, Step
from rmq.client.checks import seconds
from rmq.client.results import SendResult
from rmq.client.sending import Sendable, weight
from rmq.client.settings import Duration
from rmq.protocol.errors import ConnectFailed, TransportError
from rmq.protocol.keywords import NoOthers, no_such
from rmq.runtime.awaited import Awaited, Begins, Together, gives_coroutines
from rmq.runtime.patience import Standstill

if TYPE_CHECKING:
    from rmq.client.message import MessageQueue
    from rmq.client.producer import Producer
    from rmq.client.selectors import MessageQueueSelector
    from rmq.client.sender import Sender

__all__ = ["PlainSends", "Sending", "insists_on_coroutines", "plain_where_it_can"]

S = TypeVar("S", bound=Callable[..., Coroutine[Any, Any, SendResult]])

#: Seconds that a send must have left to ask for a route by itself, when a question of others' was not answered.
_ASKS_AGAIN = 0.1


def plain_where_it_can(send: S) -> S:
    """Have a producer's ``send`` give a :class:`Sending` where that does; it is a coroutine function all the same."""

    @gives_coroutines
    @wraps(send)
    def call(
        self: Producer,
        message: Sendable,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
        **unknown: Unpack[NoOthers],
    ) -> Coroutine[Any, Any, SendResult]:
        if unknown:
            raise no_such(send, unknown)
        sends = self._sender.plain_sends
        if queue is None and selector is None and sends is not None and sends.loop is asyncio._get_running_loop():
            return Sending(sends, message, timeout)
        return send(self, message, queue=queue, selector=selector, arg=arg, timeout=timeout)

    return cast("S", call)


def insists_on_coroutines() -> bool:
    """Whether something here would take a send that is no coroutine of the language for a mistake.

    ``start_soon(producer.send, message)`` of anyio before 4.14 does.
    """
    if "anyio" not in sys.modules:
        return False
    try:
        version = importlib.metadata.version("anyio").split(".")
        return (int(version[0]), int(version[1])) < (4, 14)
    except (importlib.metadata.PackageNotFoundError, ValueError, IndexError):
        return False


class _Question:
    """Where a topic is, which is being asked."""

    __slots__ = ("still", "waiting")

    def __init__(self, waiting: list[_UnderWay]) -> None:
        #: Who wants to know.
        self.waiting = waiting
        self.still = Standstill()


class PlainSends(Together):
    """Those of one producer, from a start to a shutdown. On its loop only."""

    def __init__(self, sender: Sender, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.sender = sender
        #: Topics that are asked for.
        self._asked: dict[str, _Question] = {}

    def ask(self, topic: str, step: AskRoute, attempts: _UnderWay) -> None:
        """Wait until it is known where a topic is: one task asks, for all that come meanwhile."""
        question = self._asked.get(topic)
        if question is not None:
            attempts.stood(-question.still.seconds)  # that was before it came
            question.waiting.append(attempts)
            return
        self._asked[topic] = _Question([attempts])
        task = asyncio.get_running_loop().create_task(self._question(topic, step), name=f"where is {topic}")
        task.add_done_callback(partial(self._told, topic, step))
        self.sender.keep(task)

    async def _question(self, topic: str, step: AskRoute) -> None:
        await asyncio.sleep(0)
        now, question = self.sender.now(), self._asked[topic]
        for attempts in question.waiting:
            # Many that come together may take the loop longer than a name server: their time begins behind that.
            attempts.begin(now)
        with question.still:
            await self.sender.steps.refresh_route(topic, step)

    def _told(self, topic: str, step: AskRoute, task: asyncio.Task[None]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = ConnectFailed(f"the route of {topic} is not known: the client is shut down")
        else:
            error = task.exception()
        outcome = error if isinstance(error, Exception) else None
        now, question = self.sender.now(), self._asked.pop(topic)
        for attempts in question.waiting:
            attempts.stood(question.still.seconds)
            rest = attempts.rest(now)
            if isinstance(outcome, TransportError) and rest > _ASKS_AGAIN and not task.cancelled():
                # It came later, and has time for a question of its own.
                attempts.go_on(AskRoute(rest, step.template))
            else:
                attempts(copy(outcome))  # each says of its own queue what it is about


class Waiting(Awaited[SendResult]):
    """One send, which begins when it is awaited; what waits for its place in the window.

    :ivar size: KiB, once it has begun.
    """

    __slots__ = ("_message", "_timeout", "size")

    __name__ = "Producer.send"

    _together: PlainSends

    def __init__(self, sends: PlainSends, message: Sendable, timeout: Duration | None) -> None:
        super().__init__(sends)
        #: Its attempts once they are made, or the task that makes those after a first one.
        self._message: Sendable | _UnderWay | asyncio.Task[Done] | None = message
        self._timeout = timeout
        self.size = 0

    def wanted(self) -> None:
        sender, timeout = self._together.sender, self._timeout
        try:
            limit = sender.settings.send_msg_timeout if timeout is None else seconds(timeout)
            self.size = weight(self._message)
        except Exception as error:
            self.tell(error)
        else:
            sender.window.run(self, self.size, limit)

    def begin(self, timeout: float) -> None:
        """Its turn in the window has come, and it has its place. Never raises."""
        sends = self._together
        sender = sends.sender
        try:
            attempts = self._message = _UnderWay(
                sender.prepare(self._message),  # type: ignore[arg-type]  # it has no task yet
                sender.routes,
                sender.faults,
                sender.settings,
                timeout,
            )
            attempts.sending = self
            step = attempts.first(sender.now())
            if type(step) is Send:
                sender.steps.write(attempts, step, attempts)
            elif type(step) is AskRoute and step.template is not None:
                sends.ask(attempts.send.topic, step, attempts)
            else:
                attempts.go_on(step)
        except BaseException as error:  # whatever the message is made of
            sender.window.leave(self.size, answered=False)
            self.tell(error)

    def let_go(self) -> None:
        self._message = None

    def given_up(self) -> None:
        """What waits is never begun; what is under way has its place until it ends."""
        made = self._message
        if isinstance(made, asyncio.Task):
            made.cancel()
        else:
            self._message = None

    def goes_on(self, task: asyncio.Task[Done]) -> None:
        """A task makes the attempts that are left."""
        self._message = task


class Sending(Waiting, Begins[SendResult]):
    """The same as it is given to who calls ``send``."""

    __slots__ = ()

    future = Waiting


class _UnderWay(Attempts):
    """The attempts of a send that has its place: told how each of them ended.

    :ivar sending: what is waited for.
    """

    __slots__ = ("sending",)

    sending: Waiting

    def __call__(self, outcome: Outcome) -> None:
        """An attempt has ended, or the question where it may go."""
        sending = self.sending
        sender = sending._together.sender
        step: Step
        try:
            step = self.on(outcome, sender.now())
            if type(step) is Send and not sending.done():
                sender.steps.write(self, step, self)
                return
        except Exception as error:
            step = Done(error)
        self.go_on(step)

    def go_on(self, step: Step) -> None:
        """It has ended, or has to know more. Where nobody waits any more there are no further attempts."""
        sending = self.sending
        sender = sending._together.sender
        if type(step) is Done:
            sender.window.leave(sending.size, answered=step.answered)
            sending.tell(step.outcome)
        elif sending.done():
            sender.window.leave(sending.size, answered=False)
        else:
            task = sending.get_loop().create_task(sender.steps.go_on(self, step), name="send")
            sending.goes_on(task)
            task.add_done_callback(self._went_on)
            sender.keep(task)

    def _went_on(self, task: asyncio.Task[Done]) -> None:
        if task.cancelled():
            self.go_on(Done(ConnectFailed("the client is shut down")))
        elif (error := task.exception()) is None:
            self.go_on(task.result())
        else:
            sending = self.sending
            sending._together.sender.window.leave(sending.size, answered=False)
            sending.tell(error)

"""Single sends that no hook is told of and that take the next queue: nearly all there are.

Each is one future, of whoever waits for it, from its place in the window to its answer, and while it is under way one
object more: no coroutine of ours. It is made where its place is given and ended where its answer is read. Very many may
wait, and what the interpreter's collector looks at is what they cost most.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmq.client.attempts import AskRoute, Attempts, Done, Outcome, Send, Step
from rmq.client.results import SendResult
from rmq.client.sending import Sendable
from rmq.protocol.errors import ConnectFailed, TransportError

if TYPE_CHECKING:
    from rmq.client.sender import Sender

__all__ = ["Ended", "PlainSends", "Unfinished"]

#: Seconds that a send must have left to ask for a route by itself, when a question of others' was not answered.
_ASKS_AGAIN = 0.1


class Unfinished(NamedTuple):
    """A send that has to know more before it goes on; it has its place yet."""

    attempts: Attempts
    step: Step


#: What the future of a send is told. Errors are told as results are, and raised by who waits.
Ended = SendResult | Unfinished | BaseException


class PlainSends:
    """Those of one producer. On its loop only."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        #: Topics that are asked for, and who waits for that.
        self._asked: dict[str, list[_Sending]] = {}

    def begin(self, message: Sendable, outcome: asyncio.Future[Ended], size: int, timeout: float) -> None:
        """Its place of ``size`` KiB in the window is there: write it. Never raises."""
        sender = self._sender
        try:
            attempts = sender.attempts(sender.prepare(message), None, None, None, timeout)
            sending = _Sending(sender, attempts, outcome, size)
            step = attempts.first(sender.now())
            if type(step) is Send:
                sender.write(attempts, step, sending)
            elif type(step) is AskRoute and step.template is not None:
                self._ask(attempts.send.topic, step, sending)
            else:
                sending.end(step)
        except BaseException as error:  # whatever the message is made of
            sender.window.leave(size, answered=False)
            outcome.set_result(error)

    def _ask(self, topic: str, step: AskRoute, sending: _Sending) -> None:
        """Wait until it is known where a topic is: one task asks, for all that come meanwhile."""
        waiting = self._asked.get(topic)
        if waiting is not None:
            waiting.append(sending)
            return
        self._asked[topic] = [sending]
        task = asyncio.get_running_loop().create_task(self._question(topic, step), name=f"where is {topic}")
        task.add_done_callback(partial(self._told, topic, step))
        self._sender.keep(task)

    async def _question(self, topic: str, step: AskRoute) -> None:
        await asyncio.sleep(0)
        now = self._sender.now()
        for sending in self._asked[topic]:
            # Many that come together may take the loop longer than a name server: their time begins behind that.
            sending.attempts.begin(now)
        await self._sender.refresh_route(topic, step)

    def _told(self, topic: str, step: AskRoute, task: asyncio.Task[None]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = ConnectFailed(f"the route of {topic} is not known: the client is shut down")
        else:
            error = task.exception()
        outcome = error if isinstance(error, Exception) else None
        now = self._sender.now()
        for sending in self._asked.pop(topic):
            rest = sending.attempts.rest(now)
            if isinstance(outcome, TransportError) and rest > _ASKS_AGAIN and not task.cancelled():
                # It came later, and has time for a question of its own.
                sending.end(AskRoute(rest, step.template))
            else:
                sending(copy(outcome))  # each says of its own queue what it is about

    async def finish(self, ended: Unfinished | BaseException, size: int) -> SendResult:
        """Go on with a send that has not ended, or raise why it has without a result."""
        if isinstance(ended, BaseException):
            raise ended
        answered = False
        try:
            done = await self._sender.go_on(*ended)
            answered = done.answered
            return done.result()
        finally:
            self._sender.window.leave(size, answered=answered)

    def give_up(self, outcome: asyncio.Future[Ended], size: int) -> None:
        """Whoever waited was cancelled. What waits is never begun; what is under way has its place until it ends."""
        if not outcome.cancelled() and outcome.exception() is None and type(outcome.result()) is Unfinished:
            self._sender.window.leave(size, answered=False)


class _Sending:
    """One that has its place: told what comes of each of its attempts, and of the question where it may go."""

    __slots__ = ("_outcome", "_sender", "_size", "attempts")

    def __init__(self, sender: Sender, attempts: Attempts, outcome: asyncio.Future[Ended], size: int) -> None:
        self._sender = sender
        self.attempts = attempts
        self._outcome = outcome
        self._size = size

    def __call__(self, answer: Outcome) -> None:
        sender, attempts = self._sender, self.attempts
        step: Step
        try:
            step = attempts.on(answer, sender.now())
            if type(step) is Send and not self._outcome.done():
                sender.write(attempts, step, self)
                return
        except Exception as error:
            step = Done(error)
        self.end(step)

    def end(self, step: Step) -> None:
        """Tell who waits: it has ended, or has to know more."""
        outcome, window = self._outcome, self._sender.window
        if type(step) is Done:
            window.leave(self._size, answered=step.answered)
            if not outcome.done():  # who waited was cancelled
                outcome.set_result(step.outcome)
        elif outcome.done():
            window.leave(self._size, answered=False)
        else:
            outcome.set_result(Unfinished(self.attempts, step))

"""Single sends that no hook is told of and that take the next queue: nearly all there are.

Each is one object, from its place in the window to its answer, which whoever sends awaits: no coroutine of ours, no
future. It is made where its place is given and ended where its answer is read. Very many may wait, and what the
interpreter's collector looks at is what they cost most.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmq.client.attempts import AskRoute, Attempts, Done, Outcome, Send, Step
from rmq.client.results import SendResult
from rmq.client.sending import Sendable, weight
from rmq.protocol.errors import ConnectFailed, TransportError
from rmq.runtime.awaited import Awaited
from rmq.runtime.patience import Standstill

if TYPE_CHECKING:
    from rmq.client.sender import Sender

__all__ = ["Ended", "PlainSends", "Sending", "Unfinished"]

#: Seconds that a send must have left to ask for a route by itself, when a question of others' was not answered.
_ASKS_AGAIN = 0.1


class Unfinished(NamedTuple):
    """A send that has to know more before it goes on; it has its place yet."""

    attempts: Attempts
    step: Step


#: What whoever awaits a send is told. Errors are told as results are, and raised there.
Ended = SendResult | Unfinished | BaseException


class _Question:
    """Where a topic is, which is being asked."""

    __slots__ = ("still", "waiting")

    def __init__(self, waiting: list[Sending]) -> None:
        #: Who wants to know.
        self.waiting = waiting
        self.still = Standstill()


class PlainSends:
    """Those of one producer. On its loop only."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        #: Topics that are asked for.
        self._asked: dict[str, _Question] = {}
        #: Where they are sent.
        self.loop: asyncio.AbstractEventLoop

    def send(self, message: Sendable, timeout: float) -> Sending:
        """Send it in its turn.

        :param timeout: seconds, from when its turn has come.
        """
        self.loop = asyncio.get_running_loop()
        sending = Sending(self, message)
        self.sender.window.run(sending, sending.size, timeout)
        return sending

    def begin(self, sending: Sending, message: Sendable, timeout: float) -> None:
        """The turn of one has come: write it. Never raises."""
        sender = self.sender
        try:
            sending.attempts = attempts = sender.attempts(sender.prepare(message), None, None, None, timeout)
            step = attempts.first(sender.now())
            if type(step) is Send:
                sender.steps.write(attempts, step, sending)
            elif type(step) is AskRoute and step.template is not None:
                self._ask(attempts.send.topic, step, sending)
            else:
                sending.end(step)
        except BaseException as error:  # whatever the message is made of
            sender.window.leave(sending.size, answered=False)
            sending.tell(error)

    def _ask(self, topic: str, step: AskRoute, sending: Sending) -> None:
        """Wait until it is known where a topic is: one task asks, for all that come meanwhile."""
        question = self._asked.get(topic)
        if question is not None:
            sending.attempts.stood(-question.still.seconds)  # that was before it came
            question.waiting.append(sending)
            return
        self._asked[topic] = _Question([sending])
        task = asyncio.get_running_loop().create_task(self._question(topic, step), name=f"where is {topic}")
        task.add_done_callback(partial(self._told, topic, step))
        self.sender.keep(task)

    async def _question(self, topic: str, step: AskRoute) -> None:
        await asyncio.sleep(0)
        now, question = self.sender.now(), self._asked[topic]
        for sending in question.waiting:
            # Many that come together may take the loop longer than a name server: their time begins behind that.
            sending.attempts.begin(now)
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
        for sending in question.waiting:
            sending.attempts.stood(question.still.seconds)
            rest = sending.attempts.rest(now)
            if isinstance(outcome, TransportError) and rest > _ASKS_AGAIN and not task.cancelled():
                # It came later, and has time for a question of its own.
                sending.end(AskRoute(rest, step.template))
            else:
                sending(copy(outcome))  # each says of its own queue what it is about


class Sending(Awaited[Ended]):
    """One send: a place to wait for, and what is told how each of its attempts ended. Await it once.

    :ivar size: KiB. :ivar attempts: once its turn has come.
    """

    __slots__ = ("_message", "_sends", "attempts", "size")

    attempts: Attempts

    def __init__(self, sends: PlainSends, message: Sendable) -> None:
        super().__init__()
        self._sends = sends
        self._message: Sendable | None = message
        self.size = weight(message)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._sends.loop

    def begin(self, timeout: float) -> None:
        """Its turn in the window has come, and it has its place."""
        message, self._message = self._message, None
        assert message is not None
        self._sends.begin(self, message, timeout)

    def __call__(self, outcome: Outcome) -> None:
        """An attempt has ended, or the question where it may go."""
        sender, attempts = self._sends.sender, self.attempts
        step: Step
        try:
            step = attempts.on(outcome, sender.now())
            if type(step) is Send and not self.done():
                sender.steps.write(attempts, step, self)
                return
        except Exception as error:
            step = Done(error)
        self.end(step)

    def end(self, step: Step) -> None:
        """Tell who waits: it has ended, or has to know more. Where he was cancelled, there are no further attempts."""
        window = self._sends.sender.window
        if type(step) is Done:
            window.leave(self.size, answered=step.answered)
            self.tell(step.outcome)
        elif self.done():
            window.leave(self.size, answered=False)
        else:
            self.tell(Unfinished(self.attempts, step))

    async def finish(self) -> SendResult:
        """Go on, in the coroutine that waits, with what has not ended; or raise why it has without a result."""
        ended = self.value
        if isinstance(ended, BaseException):
            raise ended
        assert isinstance(ended, Unfinished)
        sender = self._sends.sender
        answered = False
        try:
            done = await sender.steps.go_on(*ended)
            answered = done.answered
            return done.result()
        finally:
            sender.window.leave(self.size, answered=answered)

    def give_up(self) -> None:
        """Whoever waited was cancelled. What waits is never begun; what is under way has its place until it ends."""
        if type(self.value) is Unfinished:
            self._sends.sender.window.leave(self.size, answered=False)

"""How the messages of a producer leave: alone, oneway, or joined with others.

Whatever the way, a send has a place in the window before anything is made of its message, and gives it back at its end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rmq.client.accumulator import Accumulator
from rmq.client.attempts import Attempts, Call, Done, Outcome, Send, Step
from rmq.client.checks import check_queue
from rmq.client.cluster.routes import Routes
from rmq.client.fault import LatencyFault
from rmq.client.frames import SendFrames
from rmq.client.identity import message_ids
from rmq.client.line import Line, Place
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.plain import PlainSends, insists_on_coroutines
from rmq.client.results import SendResult
from rmq.client.selectors import MessageQueueSelector, by_random
from rmq.client.sending import PreparedSend, Sendable, SendEncoder, next_opaque, weight
from rmq.client.settings import ProducerSettings
from rmq.client.shown import shown
from rmq.client.steps import Steps
from rmq.client.submitting import Submissions
from rmq.protocol import frame
from rmq.protocol.errors import (
    ResponseError,
    RMQError,
    TooManyRequests,
    TransportError,
    WrongType,
)
from rmq.runtime.aside import logger
from rmq.runtime.window import Window
from rmq.runtime.world import World

if TYPE_CHECKING:
    from rmq.client.hooks import Hooks
    from rmq.client.producer import Producer

__all__ = ["Sender", "send_window"]

log = logger(__name__)

M = TypeVar("M")
T = TypeVar("T")


#: Bytes that a connection may gather before oneway sends let it write them.
_WRITE_FIRST = 1 << 20


class Sender:
    """Sends for one producer; on its loop, but for what says "any thread".

    :param producer: whose it is. :param hooks: that are told of its sends.
    """

    def __init__(self, producer: Producer, hooks: Hooks) -> None:
        settings, world = producer._settings, producer._world
        self._producer = producer
        self.settings = settings
        self.now = world.clock.monotonic
        self._hooks = hooks
        self.faults = LatencyFault(settings.send_latency_fault_enable)
        stamp = hooks.stamped if hooks.stamps else None
        ids = message_ids(world, settings)
        self.encoder = SendEncoder(producer.group, settings, ids, world.clock.now_ms, stamp)
        self._frames = SendFrames(producer.group, settings)
        self.steps = Steps(producer, self._frames)
        self.submissions = Submissions(self, self._frames)
        #: Encoding calls functions of the application's that may take their time.
        self.waits = hooks.stamps and not hooks.quick
        #: Of sends that need no coroutine of the language. None: there are none of these, or the producer does not run.
        self.plain_sends: PlainSends | None = None
        self.window = send_window(f"the producer {producer.group}", settings, world)
        self._line = Line()
        #: Of batches that are gathered, whose messages have had their turn.
        self._joined_line = Line()
        self._accumulator: Accumulator | None = None
        if settings.auto_batch:
            self._accumulator = Accumulator(self.encoder, settings, self._send_joined, self.keep)
        self._plain = not (hooks.stamps or hooks.sends or settings.auto_batch)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The producer has been started."""
        self.plain_sends = PlainSends(self, loop) if self._plain and not insists_on_coroutines() else None
        if self.plain_sends is not None:
            self._producer._joined.remoting.on_served.append(self.plain_sends.wake_now)

    @property
    def routes(self) -> Routes:
        """:raises ClientError: the producer is not started."""
        return self._producer._joined.routes

    def end(self) -> None:
        """What is gathered leaves now: the producer is shut down."""
        if self._accumulator is not None:
            self._accumulator.end()

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A shutdown of the producer waits for a task."""
        self._producer._keep(task, None)

    # -- a message before it leaves -----------------------------------------------------------------------------------

    def prepare(self, message: Sendable) -> PreparedSend:
        """Check and encode; any thread."""
        if isinstance(message, (Message, MessageExt)):
            return self.encoder.prepare(message)
        batch = list(message) if isinstance(message, Iterable) else []
        if not all(isinstance(one, (Message, MessageExt)) for one in batch) or not isinstance(message, Iterable):
            raise WrongType(f"send takes a Message or a list of them, not {shown(message)}")
        return self.encoder.prepare_batch(batch)

    async def encoded(self, encode: Callable[[M], T], message: M, limit: float) -> T:
        """What ``encode`` makes of a message, with what hooks let go along."""
        if self.waits:
            what = f"a hook of the producer {self._producer.group}"
            application = self._producer._joined.application
            return await application.call(partial(encode, message), max(0.001, limit / 2), what)
        return encode(message)

    def joins(self, message: object, selector: MessageQueueSelector | None) -> bool:
        """Whether a send goes into a batch with others. Any thread. :raises ClientError: it can never be sent."""
        if self._accumulator is None or not self._accumulator.takes(message, selector):
            return False
        assert isinstance(message, (Message, MessageExt))
        self.encoder.item_size(message)
        return True

    def attempts(
        self,
        send: PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        retries: int | None = None,
    ) -> Attempts:
        """All attempts of one send, to be made. Any thread."""
        if selector is not None and not callable(selector):
            raise WrongType(f"the selector is {shown(selector)}: give a function of the queues, the message and arg")
        if self.settings.namespace:
            if queue is not None:
                check_queue(queue)
            names = self._producer._names
            queue, selector = names.wrap_queue(queue), names.selector(selector)
        return Attempts(
            send,
            self.routes,
            self.faults,
            self.settings,
            timeout,
            queue=queue,
            selector=selector,
            arg=arg,
            retries=retries,
            hooks=self._hooks if self._hooks.sends else None,
        )

    # -- one that is waited for ---------------------------------------------------------------------------------------

    async def its_turn(self, size: int, timeout: float) -> None:
        """Take a place of ``size`` KiB in the window, and wait for it where there is none."""
        window = self.window
        if window.take(size):
            return
        place = window.turn(size, timeout)
        try:
            await place
        except asyncio.CancelledError:
            window.give_up(place, size)
            raise

    async def send(
        self,
        message: Sendable | PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        retries: int | None = None,
        place: Place | None = None,
    ) -> SendResult:
        """Send it in its turn.

        :param place: it has one in a line; without it, the one that :meth:`place` gives.
        """
        size = weight(message)
        if place is None:
            place = self.place(queue, selector, arg)
        if place is None:
            await self.its_turn(size, timeout)
            return await self.send_now(message, queue, selector, arg, timeout, size, retries)
        with place:
            if not self.window.take(size):
                await self.its_turn(size, timeout)
            return await self.send_now(message, queue, selector, arg, timeout, size, retries, place)

    def place(self, queue: MessageQueue | None, selector: MessageQueueSelector | None, arg: object) -> Place | None:
        """Where a send stands that is called now and is to leave in order; None: queues take turns for it."""
        if queue is None and (selector is None or selector is by_random):
            return None
        return self._line.place(queue, arg)

    async def send_now(
        self,
        message: Sendable | PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        size: int,
        retries: int | None = None,
        place: Place | None = None,
    ) -> SendResult:
        """Its turn in the window has come; at the end its place of ``size`` KiB is given back.

        :param place: it leaves in a line.
        """
        answered = False
        try:
            if self._accumulator is not None and self._accumulator.takes(message, selector):
                assert isinstance(message, (Message, MessageExt))
                item = await self.encoded(self.encoder.prepare_item, message, timeout)
                if place is not None:
                    await place.come(timeout)
                joined = self._accumulator.join(item, queue, timeout)
                if place is not None:
                    place.leave()
                try:
                    result = await joined
                except ResponseError:
                    answered = True
                    raise
                answered = True
                return result
            if isinstance(message, PreparedSend):
                send = message
            elif self.waits:
                send = await self.encoded(self.prepare, message, timeout)
            else:
                send = self.prepare(message)
            attempts = self.attempts(send, queue, selector, arg, timeout, retries)
            step = attempts.first(self.now())
            if place is not None:
                if type(step) is Call and step.own and not self._producer._shares_loop:
                    step = attempts.on(step.in_place(), self.now())
                if type(step) is Send and place.first and self._producer._joined.writes_at_once(step.address):
                    reply = self.steps.exchange(attempts, step)
                    place.leave()
                    step = attempts.on(await reply, self.now())
                else:
                    step = await self.leave_in_line(attempts, step, place)
            elif type(step) is Send:  # what nearly all are: not through another coroutine
                step = attempts.on(await self.steps.exchange(attempts, step), self.now())
            else:
                step = await self.steps.until_it_leaves(attempts, await self.steps.behind_others(attempts, step))
            if type(step) is not Done:
                step = await self.steps.go_on(attempts, step)
            answered = step.answered
            return step.result()
        finally:
            self.window.leave(size, answered=answered)

    async def _send_joined(self, send: PreparedSend, queue: MessageQueue | None, timeout: float) -> SendResult:
        """A batch of sends that each have had their turn."""
        attempts = self.attempts(send, queue, None, None, timeout)
        if queue is None:
            step = await self.steps.behind_others(attempts, attempts.first(self.now()))
        else:
            with self._joined_line.place(queue, None) as place:
                step = await self.leave_in_line(attempts, attempts.first(self.now()), place)
        return (await self.steps.go_on(attempts, step)).result()

    async def leave_in_line(self, attempts: Attempts, step: Step, place: Place) -> Step:
        """The first attempt of a send that leaves in its turn in a line; the step after it."""
        if type(step) is not Send:
            step = await self.steps.until_it_leaves(attempts, await self.steps.behind_others(attempts, step))
        if isinstance(step, Done):
            return step
        outcome: Outcome
        try:
            client = self._producer._joined
            if client.writes_at_once(step.address):
                await place.come(step.seconds)
            if place.first and client.writes_at_once(step.address):
                reply = self.steps.exchange(attempts, attempts.hurried(step, self.now()))
                place.leave()
                outcome = await reply
            else:
                opaque = next_opaque()
                data = self._frames.frame(attempts.send, step.queue, opaque, None)  # signed as a command
                command, seconds = frame.decode(memoryview(data)[4:]), attempts.hurried(step, self.now()).seconds
                outcome = await client.remoting.request(step.address, command, seconds, place)
        except RMQError as error:
            outcome = error
        return attempts.on(outcome, self.now())

    # -- one that nobody waits for ------------------------------------------------------------------------------------

    async def oneway(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
    ) -> None:
        """Send it in its turn, and wait for nothing.

        :raises TooManyRequests: its turn did not come, or the broker takes nothing; nothing was sent.
        """
        size, limit = weight(message), self.settings.send_msg_timeout
        place = self.place(queue, selector, arg)
        if place is None:
            await self._oneway(message, queue, selector, arg, limit, size, None)
        else:
            with place:
                await self._oneway(message, queue, selector, arg, limit, size, place)

    async def _oneway(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        limit: float,
        size: int,
        place: Place | None,
    ) -> None:
        await self.its_turn(size, limit)
        try:
            await self._send_away(message, queue, selector, arg, limit, place)
        finally:
            # Whoever comes next waits for the connection, too: that something left is as good as an answer.
            self.window.leave(size, answered=True)

    async def _send_away(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        limit: float,
        place: Place | None,
    ) -> None:
        send = await self.encoded(self.encoder.prepare, message, limit)
        attempts = self.attempts(send, queue, selector, arg, limit)
        step = await self.steps.behind_others(attempts, attempts.first(self.now()))
        step = await self.steps.until_it_leaves(attempts, step)
        if isinstance(step, Done):
            step.result()  # raises: nothing was sent that could have one
            return
        instance = self._producer._joined
        remoting = instance.remoting
        address = step.address
        try:
            conn = await remoting.connection(address)
            hooked = bool(remoting.hooks)
            if place is not None and not hooked:
                await place.come(max(0.001, attempts.rest(self.now())))
            if conn.out_bytes > _WRITE_FIRST:
                conn.flush()
            if conn.writing_paused and not await conn.takes_again(limit):
                raise TooManyRequests(f"{address}: has taken nothing for {limit:g} s: the message was not sent")
            data = self._frames.frame(send, step.queue, next_opaque(), instance.account, oneway=True)
            if hooked:
                await remoting.oneway(address, frame.decode(memoryview(data)[4:]), limit, place)
            else:
                conn.oneway_frame(data)
            if place is not None:
                place.leave()
        except Exception as error:
            if isinstance(error, TransportError):
                # It is not sent again, but the next one is to find whoever leads by now.
                instance.routes.doubted.add(send.topic)
            await self._left(attempts, error)
            raise
        await self._left(attempts)

    async def _left(self, attempts: Attempts, error: Exception | None = None) -> None:
        """A oneway send has left, or has not."""
        if (call := attempts.left(error, self.now())) is not None:
            await self.steps.called(call)


def send_window(what: str, settings: ProducerSettings, world: World) -> Window:
    """The bound on the sends that a producer has under way."""
    if not settings.enable_backpressure_for_async_mode:
        return Window(sys.maxsize, sys.maxsize, world.clock, what)
    most, most_bytes = settings.back_pressure_for_async_send_num, settings.back_pressure_for_async_send_size
    return Window(most, most_bytes >> 10, world.clock, what)

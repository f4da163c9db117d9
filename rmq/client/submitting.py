"""Sends of the blocking producer: an attempt is encoded on the caller's thread, and made on the loop without a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.client.attempts import Attempts, Done, Send, Step
from rmq.client.frames import SendFrames
from rmq.client.line import Place
from rmq.client.message import MessageQueue
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sending import next_opaque
from rmq.protocol.command import Command
from rmq.runtime.bridge import Bridge

if TYPE_CHECKING:
    from rmq.client.instance import ClientInstance
    from rmq.client.sender import Sender

__all__ = ["Submissions"]


class Submissions:
    """Those of one producer."""

    def __init__(self, sender: Sender, frames: SendFrames) -> None:
        self._sender = sender
        self._frames = frames

    def submit(
        self,
        bridge: Bridge,
        instance: ClientInstance,
        attempts: Attempts,
        sent: Send,
        then: Callable[[Step], object],
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
    ) -> None:
        """Make an attempt without a task, in its turn if it has one. Any thread but the loop's.

        :param then: told the step after it, on the loop.
        """
        opaque = next_opaque()

        def ended(outcome: Command | Exception) -> None:
            then(attempts.on(outcome, self._sender.now()))

        data = self._frames.frame(attempts.send, sent.queue, opaque, instance.account)
        written = sent.address, data, opaque, sent.seconds, ended
        if queue is None and selector is None:
            bridge.post(instance.submit, *written)
            return

        def in_line() -> None:
            place = self._sender.place(queue, selector, arg)
            if place is None or (place.first and instance.writes_at_once(sent.address)):
                instance.submit(*written)
                if place is not None:
                    place.leave()
            else:
                bridge.spawn(self._leave_with(attempts, sent, place), left)

        def left(step: Step | Exception) -> None:
            then(Done(step) if isinstance(step, Exception) else step)

        bridge.post(in_line)

    async def _leave_with(self, attempts: Attempts, step: Step, place: Place) -> Step:
        with place:
            return await self._sender.leave_in_line(attempts, step, place)

    async def go_on_behind(
        self,
        attempts: Attempts,
        step: Step,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
    ) -> Done:
        """:meth:`go_on` of a send that has not left yet, in its turn if it has one."""
        place = self._sender.place(queue, selector, arg)
        if place is not None:
            step = await self._leave_with(attempts, step, place)
        return await self._sender.steps.go_on(attempts, step)

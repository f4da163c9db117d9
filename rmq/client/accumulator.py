"""Single sends of one topic, joined to batches (Java: ProduceAccumulator): ``auto_batch=True``.

Java holds every message back for ``batchMaxDelayMs``. Here a batch leaves when it is full, when the one before it has
been answered, or after that time; the first one leaves at the end of the loop's turn. So whoever sends one by one waits
for nothing, and the more is sent at once the larger the batches are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.results import SendResult
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sending import BatchItem, PreparedSend, SendEncoder
from rmq.client.settings import ProducerSettings
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import RETRY_PREFIX

__all__ = ["Accumulator", "results_by_message"]

#: Sends a prepared message, or several, to a queue or any, within seconds.
_Send = Callable[[PreparedSend, MessageQueue | None, float], Awaitable[SendResult]]
#: Messages that may be in one batch: topic, queue, whether the broker waits for flush and slave, seconds.
_Kind = tuple[str, MessageQueue | None, bool, float]
_Joined = tuple[BatchItem, "asyncio.Future[SendResult]"]


@dataclass(slots=True)
class _Lane:
    """The batch that is being gathered of one kind, and how many are under way."""

    waiting: list[_Joined] = field(default_factory=list)
    size: int = 0
    under_way: int = 0
    leaves: asyncio.Handle | None = None


class Accumulator:
    """Gathers the sends of one producer. On its loop only, but for :meth:`takes`.

    :param send: sends what was gathered. :param keep: owns the task that does so.
    """

    def __init__(
        self,
        encoder: SendEncoder,
        settings: ProducerSettings,
        send: _Send,
        keep: Callable[[asyncio.Task[None]], object],
    ) -> None:
        self._encoder = encoder
        self._most = min(settings.batch_max_bytes, settings.max_message_size // 2)
        self._total = settings.total_batch_max_bytes
        self._delay = settings.batch_max_delay
        self._send = send
        self._keep = keep
        self._lanes: dict[_Kind, _Lane] = {}
        #: Bytes of all that is gathered and not sent yet.
        self._held = 0

    def takes(self, message: object, selector: MessageQueueSelector | None) -> bool:
        """Whether a send is one to join. Any thread."""
        if selector is not None or not isinstance(message, (Message, MessageExt)):
            return False
        if isinstance(message, Message) and message.waits:
            return False
        body, topic = message.body, message.topic
        if not isinstance(body, (bytes, str)) or not isinstance(topic, str) or topic.startswith(RETRY_PREFIX):
            return False
        return len(body) < self._most and self._held + len(body) <= self._total

    def join(self, item: BatchItem, queue: MessageQueue | None, seconds: float) -> asyncio.Future[SendResult]:
        """Send it with others; its own result, or the error that its batch ended with."""
        kind = (item.topic, queue, item.message.wait_store_ok, seconds)
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = _Lane()
        size = len(item.data)
        if lane.waiting and lane.size + size > self._most:
            self._leave(kind, lane)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        lane.waiting.append((item, future))
        lane.size += size
        self._held += size
        if lane.size >= self._most:
            self._leave(kind, lane)
        elif lane.leaves is None:
            loop = asyncio.get_running_loop()
            if lane.under_way:
                lane.leaves = loop.call_later(self._delay, self._leave, kind, lane)
            else:
                lane.leaves = loop.call_soon(self._leave, kind, lane)
        return future

    def end(self) -> None:
        """What is gathered leaves now: the producer is shut down."""
        for kind, lane in list(self._lanes.items()):
            self._leave(kind, lane)

    def _leave(self, kind: _Kind, lane: _Lane) -> None:
        if lane.leaves is not None:
            lane.leaves.cancel()
            lane.leaves = None
        joined, lane.waiting = [one for one in lane.waiting if not one[1].done()], []
        self._held -= lane.size
        lane.size = 0
        if not joined:
            self._forget(kind, lane)
            return
        lane.under_way += 1
        self._keep(asyncio.get_running_loop().create_task(self._deliver(kind, lane, joined), name="batch"))

    async def _deliver(self, kind: _Kind, lane: _Lane, joined: list[_Joined]) -> None:
        try:
            await self._try(kind, joined)
        finally:
            for _, future in joined:
                future.cancel()  # those that have no outcome: this task was cancelled
            lane.under_way -= 1
            if lane.waiting and not lane.under_way:
                self._leave(kind, lane)
            self._forget(kind, lane)

    async def _try(self, kind: _Kind, joined: list[_Joined]) -> None:
        items = [item for item, _ in joined]
        try:
            result = await self._send(self._encoder.join(items), kind[1], kind[3])
        except ResponseError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL and len(joined) > 1:
                for one in joined:  # the broker does not say which of them: each costs itself alone
                    await self._try(kind, [one])
                return
            self._fail(joined, error)
        except Exception as error:
            self._fail(joined, error)
        else:
            for (_, future), each in zip(joined, results_by_message(result, items), strict=True):
                if not future.done():
                    future.set_result(each)

    @staticmethod
    def _fail(joined: list[_Joined], error: Exception) -> None:
        for _, future in joined:
            if not future.done():
                future.set_exception(error)

    def _forget(self, kind: _Kind, lane: _Lane) -> None:
        if not lane.waiting and not lane.under_way and self._lanes.get(kind) is lane:
            del self._lanes[kind]


def results_by_message(result: SendResult, items: list[BatchItem]) -> list[SendResult]:
    """The result of each message of a batch, which is stored as neighbours."""
    stored = result.offset_msg_id.split(",")
    if len(stored) != len(items):  # a broker that says the first one's alone
        stored = [stored[0], *[""] * (len(items) - 1)]
    status, queue, first = result.send_status, result.message_queue, result.queue_offset
    return [
        SendResult(status, item.msg_id, where, queue, at, None, result.region_id, result.trace_on)
        for at, (item, where) in enumerate(zip(items, stored, strict=True), first)
    ]

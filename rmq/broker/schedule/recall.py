"""RECALL_MESSAGE: a producer takes back a message that waits for its time (protocol.md 2.13; field case B053)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.schedule.timing import RecallHandle
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError, StoreError
from rmq.protocol.headers.message import RecallMessageRequest, RecallMessageResponse
from rmq.protocol.names import RETRY_PREFIX
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission
    from rmq.broker.schedule.timers import TimerService
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.protocol.command import Command
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["Recall"]


class Recall:
    """Takes waiting messages back.

    Unlike Java it says when there was nothing to take back: 5.3.3 answers success whatever the handle names.
    """

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        topics: TopicTable,
        store: Store,
        admission: Admission,
        timers: TimerService,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._store = store
        self._admission = admission
        self._timers = timers

    @handles(RequestCode.RECALL_MESSAGE, header=RecallMessageRequest)
    async def recall(self, conn: Conn, request: Command, header: RecallMessageRequest) -> Command | None:
        """Answer when it is sure that the message is not delivered, or why it cannot be recalled."""
        self._check_allowed(header.topic)
        handle = self._handle(header)
        indexes = await self._timers.waiting(handle.topic, handle.unique_key)
        if not indexes:
            raise ResponseError(
                ResponseCode.ILLEGAL_OPERATION,
                "recall failed, no such message waits: it is delivered or was recalled before",
            )
        try:
            end = self._timers.take_back(indexes)
        except StoreError:
            raise self._admission.unavailable() from None
        except OSError:
            if self._store.log.gate:
                raise self._admission.unavailable() from None
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "recall failed, the disk took no record of it") from None
        answer = request.reply(ResponseCode.SUCCESS, header=RecallMessageResponse(msg_id=handle.unique_key))
        if not self._store.acks.waits or request.is_oneway:
            return answer

        def otherwise(code: int) -> list[tuple[Conn, bytes]]:
            late = request.reply(ResponseCode.SYSTEM_ERROR, f"recall is not as durable as configured (code {code})")
            return [(conn, frame.encode(late))]

        self._store.acks.hold(end, [(conn, frame.encode(answer))], otherwise)
        return None

    def _check_allowed(self, topic: str) -> None:
        settings = self._settings
        if not settings.recall_message_enable:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: recallMessageEnable is false"
            )
        if not settings.broker_permission & 2:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] sending message is forbidden"
            )
        if self._store.log.gate:
            raise self._admission.unavailable()
        if topic.startswith(RETRY_PREFIX) or topic not in self._topics:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")

    def _handle(self, header: RecallMessageRequest) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as error:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, f"recall handle is invalid: {error}") from None
        if handle.topic != header.topic:
            raise ResponseError(
                ResponseCode.ILLEGAL_OPERATION, f"recall failed, topic not match: the handle is of {handle.topic}"
            )
        if handle.broker_name != self._settings.broker_name:
            raise ResponseError(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, the handle is of broker {handle.broker_name}, this is {self._settings.broker_name}",
            )
        ahead = handle.deliver_at - self._clock.now_ms()
        if handle.deliver_at < 0 or ahead > self._settings.timer_max_delay_sec * 1000 + 1000:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        if not self._settings.message_index_enable:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, "recall failed, the message is not found without messageIndexEnable"
            )
        return handle

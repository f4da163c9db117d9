"""Request-reply: an answer is pushed to the client that asked, and kept in a topic (store-and-broker.md 7.7)."""

from __future__ import annotations

import logging

from rmq.broker.groups.clients import Producers
from rmq.broker.lane.admit import Admission, Ticket
from rmq.broker.lane.answers import SendAnswers
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.store import Store
from rmq.protocol import frame, properties
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError, StoreError, TransportError
from rmq.protocol.headers.reply import ReplyMessageRequest
from rmq.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from rmq.protocol.names import reply_topic
from rmq.protocol.permissions import publish_topic
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.runtime.world import Clock

__all__ = ["ReplyAdmin"]

log = logging.getLogger(__name__)

_PUSH_SECONDS = 10.0


class ReplyAdmin:
    """Handlers of 324 and 325.

    :param admission: the rules of a send, which hold for a reply's topic, too.
    :param answers: the shape of the send path's answers.
    :param broker_addr: the address the broker registers.
    """

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        store: Store,
        producers: Producers,
        admission: Admission,
        answers: SendAnswers,
        broker_addr: str,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._store = store
        self._producers = producers
        self._admission = admission
        self._answers = answers
        self._broker_addr = broker_addr

    @handles(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
    async def reply(self, conn: Conn, request: Command) -> Command | None:
        """324, 325: push the reply to whoever waits for it; the code says whether that worked, stored or not."""
        self._answers.follow(self._settings)
        header: SendMessageRequest | SendMessageV2Request
        if request.code == RequestCode.SEND_REPLY_MESSAGE:
            header = request.header(SendMessageRequest)
        else:
            header = request.header(SendMessageV2Request)
        # Whatever topic it names: what is asked for is that clients are handed replies.
        replies = reply_topic(self._settings.broker_cluster_name)
        request.demand(publish_topic(replies), publish_topic(header.topic or ""))
        try:
            ticket = self._admission.admit(conn, header, request.body, request.version, request.grant)
        except ResponseError as refusal:
            return self._answer(request, refusal.code, refusal.remark)
        fault = await self._push(conn, header, request.body)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        answer = self._answer(request, code, fault)
        assert answer.ext is not None
        if fault is None:
            answer.ext |= {"msgId": "0", "queueId": str(ticket.queue_id), "queueOffset": "0"}
        if not self._settings.store_reply_message_enable:
            return answer
        return self._store_reply(conn, request, ticket, answer)

    def _store_reply(self, conn: Conn, request: Command, ticket: Ticket, answer: Command) -> Command | None:
        """Append it, and answer when it is as durable as configured."""
        try:
            span = self._store.append(ticket.puts)
        except (OSError, StoreError) as error:
            log.warning("a reply is not stored: %s", error)
            return answer
        index, position = span.offsets[0]
        assert answer.ext is not None
        answer.ext |= {
            "msgId": self._answers.message_id(position),
            "queueId": str(ticket.queue_id),
            "queueOffset": str(index),
        }
        if not self._store.acks.waits or request.is_oneway:
            return answer

        def otherwise(code: int) -> list[tuple[Conn, bytes]]:
            if answer.code == ResponseCode.SUCCESS:
                answer.code = code
            return [(conn, frame.encode(answer))]

        self._store.acks.hold(span.end, [(conn, frame.encode(answer))], otherwise)
        return None

    def _answer(self, request: Command, code: int, remark: str | None) -> Command:
        answer = request.reply(code, remark)
        answer.ext = dict(self._answers.ext)
        return answer

    async def _push(self, conn: Conn, header: SendMessageRequest | SendMessageV2Request, body: bytes) -> str | None:
        """Hand the reply to the client that asked; None, or why it did not arrive."""
        text = header.properties or ""
        client_id = properties.decode(text).get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        target = self._producers.client(client_id)
        if target is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock.now_ms()
        push = Command.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ReplyMessageRequest(
                producer_group=header.producer_group,
                topic=header.topic,
                default_topic=header.default_topic,
                default_topic_queue_nums=header.default_topic_queue_nums,
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                flag=header.flag,
                properties=properties.append(text, f"{properties.PUSH_REPLY_TIME}\x01{now}"),
                reconsume_times=header.reconsume_times,
                unit_mode=bool(header.unit_mode),
                born_host=conn.peer,
                store_host=self._broker_addr,
                store_timestamp=now,
            ),
            body,
        )
        try:
            answer = await target.request(push, _PUSH_SECONDS)
        except TransportError as error:
            log.warning("a reply did not reach %s: %s", client_id, error)
            return f"push reply message to {client_id}fail."
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id}fail."

"""Requests that the broker passes on to one of its clients: 307 running info, 309 consume this message now."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rmq.broker.groups.clients import Consumers
from rmq.broker.settings import BrokerSettings
from rmq.protocol.codes import RequestCode, ResponseCode, version_name
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, RequestTimeout, ResponseError, TransportError
from rmq.protocol.headers.client import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["ClientRelay"]

log = logging.getLogger(__name__)

#: Older clients do not know 307 and 309 (V3_1_8_SNAPSHOT; protocol.md 1.5).
_SINCE = 62
_SECONDS = 10.0


class ClientRelay:
    """Handlers of 307 and 309.

    :param record_at: reads one whole record at a commit-log offset, or None.
    """

    def __init__(
        self, settings: BrokerSettings, consumers: Consumers, record_at: Callable[[int], Awaitable[bytes | None]]
    ) -> None:
        self._settings = settings
        self._consumers = consumers
        self._record_at = record_at

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, header=GetConsumerRunningInfoRequest)
    async def running_info(self, conn: Conn, request: Command, header: GetConsumerRunningInfoRequest) -> Command:
        """307: what a client says about itself."""
        ask = Command(request.code, ext=dict(request.ext or {}))
        return await self._relay(request, header.consumer_group, header.client_id, ask)

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, header=ConsumeMessageDirectlyRequest)
    async def consume_directly(self, conn: Conn, request: Command, header: ConsumeMessageDirectlyRequest) -> Command:
        """309: have one client consume one message of this broker, by its offset id."""
        if header.client_id is None or header.msg_id is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "clientId and msgId must be given")
        try:
            _, _, offset = decode_offset_msg_id(header.msg_id)
        except (ProtocolError, ValueError):
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{header.msg_id[:64]!r} is not an offset message id"
            ) from None
        record = await self._record_at(offset)
        if record is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"no message with the id {header.msg_id} on this broker")
        ext = {**(request.ext or {}), "brokerName": self._settings.broker_name}
        return await self._relay(
            request, header.consumer_group, header.client_id, Command(request.code, ext=ext, body=record)
        )

    async def _relay(self, request: Command, group: str, client_id: str, ask: Command) -> Command:
        """Pass a request on, and its answer back as it is."""
        online = self._consumers.group(group)
        channel = None if online is None else online.find(client_id)
        if channel is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if channel.version < _SINCE:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(channel.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        try:
            answer = await channel.conn.request(ask, _SECONDS)
        except RequestTimeout as error:
            raise ResponseError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            ) from None
        except TransportError as error:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from None
        response = request.reply(answer.code, answer.remark, body=answer.body)
        response.ext = dict(answer.ext or {})
        return response

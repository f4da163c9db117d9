"""Replies from consumers: requests are messages, and their answers are sent where they are consumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmq.client.checks import typed
from rmq.client.instance import ClientInstance
from rmq.client.lookup import Lookups
from rmq.client.message import MessageExt
from rmq.client.producer import Producer
from rmq.client.results import SendResult
from rmq.client.settings import Duration
from rmq.protocol.names import CLIENT_INNER_PRODUCER_GROUP

__all__ = ["Replying"]


class _Inner(Producer):
    """Sends over a client that a consumer lives in, for as long as it does; brokers are not told of it."""

    def __init__(self, instance: ClientInstance) -> None:
        settings = instance.settings
        super().__init__(
            CLIENT_INNER_PRODUCER_GROUP,
            world=instance.world,
            namespace=settings.namespace,
            vip_channel=settings.vip_channel,
            unit_mode=settings.unit_mode,
        )
        self._instance = instance

    def __del__(self) -> None:
        """It has nothing of its own to shut down."""


@typed()
class Replying(Lookups):
    """What every consumer has to answer requests with."""

    #: Sends them over the consumer's own connections; made with the first one.
    _replies: Producer | None = None

    async def reply(
        self,
        request: MessageExt,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Answer a message that a producer sent by ``request()``.

        :param request: as the consumer got it.
        :param body: of the answer, and ``tags``, ``keys`` and ``properties`` as of any message.
        :param timeout: for all tries, 3 s by default.
        :raises ClientError: the message is no request, or the answer cannot be sent as it is.
        :raises ResponseError: who asked is not there any more. :raises TransportError: no broker answered.
        """
        instance = self.instance
        if self._replies is None or self._replies._instance is not instance:
            self._replies = _Inner(instance)
        return await self._replies.reply(request, body, tags=tags, keys=keys, properties=properties, timeout=timeout)

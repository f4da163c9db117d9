"""What every consumer is: a member of its group, which looks things up, and replies where it consumes requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from rmq.client.checks import typed
from rmq.client.consumer.membership import Membership
from rmq.client.instance import ClientInstance
from rmq.client.lookup import Lookups
from rmq.client.message import MessageExt
from rmq.client.producer import Producer
from rmq.client.results import SendResult
from rmq.client.settings import Duration
from rmq.protocol.errors import ClientError
from rmq.protocol.names import CLIENT_INNER_PRODUCER_GROUP

__all__ = ["Consumer"]


class _RepliesProducer(Producer):
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
class Consumer(Lookups, ABC):
    """What is the same in consumers of all kinds."""

    group: str
    #: While it is started.
    _membership: Membership | None = None
    #: Sends replies over the consumer's own connections; made with the first one.
    _replies: Producer | None = None

    @property
    def _joined(self) -> Membership:
        """:raises ClientError: the consumer is not started."""
        if self._membership is None:
            raise ClientError(f"the consumer {self.group} is not started: use it with 'with', or call start()")
        self._here(self._membership.instance)
        return self._membership

    @property
    def _instance(self) -> ClientInstance | None:
        return None if self._membership is None else self._membership.instance

    @property
    def _client(self) -> ClientInstance:
        """:raises ClientError: the consumer is not started."""
        return self._joined.instance

    def _inside(self) -> bool:
        """Whether a function of the application calls this, on a thread of the consumer's."""
        return self._membership is not None and self._membership.inside()

    @abstractmethod
    async def start(self) -> None:
        """Join the group. Starting a started consumer does nothing."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Keep the offsets, and leave the group."""

    @abstractmethod
    async def persist_offsets(self) -> None:
        """Keep the offsets now."""

    @abstractmethod
    async def _rebalance(self) -> None:
        """Take and give up queues as things stand now."""

    async def _forget(self) -> None:
        """Its loop is closed."""
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.forget()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

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
        instance = self._client
        if self._replies is None or self._replies._instance is not instance:
            self._replies = _RepliesProducer(instance)
        return await self._replies.reply(request, body, tags=tags, keys=keys, properties=properties, timeout=timeout)

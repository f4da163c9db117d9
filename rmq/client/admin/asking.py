"""How the admin client asks: a life of its own, one server, all brokers of a topic, all that were named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar, Unpack

from rmq.client.admin.answers import Answers
from rmq.client.checks import several_texts, typed
from rmq.client.instance import ClientInstance, connect_instance
from rmq.client.life import ends, starts
from rmq.client.lookup import Lookups
from rmq.client.settings import AdminOptions, AdminSettings
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ResponseError, RMQError, TransportError
from rmq.protocol.header import Header
from rmq.protocol.names import group_of_retry_topic, is_retry_topic, retry_topic
from rmq.runtime.world import World

__all__ = ["Asking", "address_of", "said"]

#: For what a broker gathers over all its queues.
_BROKER_SECONDS = 5.0
#: Who took so many seconds to fail is not asked again for so many: a look at every topic must not wait each time.
_SLOW_SECONDS = 1.0
_NOT_AGAIN_SECONDS = 10.0
#: Answers about a group: 206, and 213 of 5.x, say that there is nobody, or no offset.
_NOTHING_THERE = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE, 213)

T = TypeVar("T")


def said(failed: Mapping[str, RMQError]) -> dict[str, str]:
    """What went wrong, by name, in order."""
    return {name: str(error) for name, error in sorted(failed.items())}


def address_of(addresses: Mapping[int, str]) -> str:
    """The master's address, or that of the broker with the lowest id where there is none."""
    return addresses[min(addresses)]


@typed()
class Asking(Lookups):
    """The part of the admin client that every operation stands on."""

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminOptions]) -> None:
        self._settings: AdminSettings = AdminSettings.of(options)
        self._world: World = world or World.around()
        #: Tools that stand on this client live where it does.
        self.world: World = self._world
        self._instance: ClientInstance | None = None
        self._options = options
        #: Brokers that did not answer in time, by address: until when they are left alone, and what was said.
        self._silent: dict[str, tuple[float, TransportError]] = {}

    def _renew(self) -> Self:
        """The same client, not started: for a forked child."""
        return type(self)(**self._options)

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> ClientInstance:
        """:raises ClientError: the client is not started."""
        if self._instance is None:
            raise ClientError("the admin client is not started: use it with 'with', or call start()")
        return self._here(self._instance)

    @starts
    async def start(self) -> None:
        """:raises ClientError: no name server is known."""
        if self._instance is None:
            instance = connect_instance(self.world, self._settings)
            await instance.acquire()
            self._instance = instance

    @ends
    async def shutdown(self) -> None:
        """Close the connections."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.release()

    async def _forget(self) -> None:
        self._instance = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # -- name servers --------------------------------------------------------------------------------------------------

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers asked."""
        return self._client.name_servers.addresses

    def _times(self, factor: float) -> float:
        """Seconds for a call that may take so many times as long as others."""
        return factor * self._settings.mq_client_api_timeout

    async def _ask_namesrv(self, code: RequestCode, header: Header | None = None) -> Command:
        instance = self._client
        reply = await instance.name_servers.request(
            Command.request(code, header), instance.settings.mq_client_api_timeout
        )
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark)
        return reply

    async def _ask_name_servers(
        self,
        code: RequestCode,
        header: Header | None,
        body: bytes,
        read: Callable[[Command], T],
        timeout: float = _BROKER_SECONDS,
    ) -> Answers[T]:
        """Ask every name server, not one of them: each keeps what it is told for itself."""
        addresses = {address: address for address in self.name_server_addresses}
        return await self._ask_each(addresses, code, header, body, read, timeout)

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names and addresses (clusterList)."""
        return await self._client.name_servers.cluster_info(self._settings.mq_client_api_timeout)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Which brokers and queues serve a topic. :raises ResponseError: code 17: none does."""
        route = await self._client.name_servers.route(topic, self._settings.mq_client_api_timeout)
        if route is None:
            what = f"no broker serves the topic {topic}"
            if is_retry_topic(topic):
                what = f"no broker knows the group {group_of_retry_topic(topic)}: none has a topic {topic}"
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, what)
        return route

    # -- several brokers -----------------------------------------------------------------------------------------------

    async def _unless_silent(self, address: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask a server, unless it has left a question without an answer a moment ago.

        :raises TransportError: it does not answer, or did not.
        """
        began = self.world.clock.monotonic()
        until, failed = self._silent.get(address, (began, None))
        if failed is not None and began < until:
            raise failed
        try:
            return await ask()
        except TransportError as error:
            now = self.world.clock.monotonic()
            if now - began >= _SLOW_SECONDS:
                self._silent[address] = now + _NOT_AGAIN_SECONDS, error
            raise

    async def _ask_all(
        self,
        addresses: Mapping[str, str],
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        *,
        accept: tuple[int, ...] = (ResponseCode.SUCCESS,),
        timeout: float = _BROKER_SECONDS,
    ) -> tuple[dict[str, Command], dict[str, RMQError]]:
        """Ask brokers side by side: the answers, and what went wrong, by name.

        One that stands still costs the others nothing, and is not asked again for a while.
        """
        limit = min(timeout, self._settings.mq_client_api_timeout)

        async def ask(address: str) -> Command | RMQError:
            try:
                return await self._unless_silent(
                    address, lambda: self._client.call(address, code, header, body, timeout=limit, accept=accept)
                )
            except RMQError as error:
                return error

        outcomes = dict(zip(addresses, await asyncio.gather(*map(ask, addresses.values())), strict=True))
        failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, RMQError)}
        return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Command)}, failed

    async def _ask_each(
        self,
        addresses: Mapping[str, str] | Iterable[str],
        code: RequestCode,
        header: Header | None,
        body: bytes,
        read: Callable[[Command], T],
        timeout: float = _BROKER_SECONDS,
    ) -> Answers[T]:
        """Ask brokers side by side; an answer that cannot be read costs itself alone.

        :param addresses: by the names that the answers are to have; without names, by themselves.
        :raises ClientError: they are one text, which is not its letters, or none at all.
        """
        if not isinstance(addresses, Mapping):
            addresses = {address: address for address in several_texts(addresses, "broker_addrs")}
        named = addresses
        replies, failed = await self._ask_all(named, code, header, body, timeout=timeout)
        found: dict[str, T] = {}
        for name, reply in replies.items():
            try:
                found[name] = read(reply)
            except RMQError as error:
                failed[name] = error
        return Answers(found, {name: failed[name] for name in named if name in failed})

    async def _ask_brokers(
        self, topic: str, code: RequestCode, header: Header, *, accept: tuple[int, ...] = (ResponseCode.SUCCESS,)
    ) -> tuple[dict[str, Command], dict[str, RMQError]]:
        """Ask every broker of a topic at once: the answers, and what went wrong, by broker name.

        :raises RMQError: the one of the first of them, when none has answered.
        """
        addresses = await self._brokers_of(topic)
        answers, failed = await self._ask_all(addresses, code, header, accept=accept)
        if any(isinstance(error, TransportError) for error in failed.values()):
            # Others may have taken their places, and a name server that has not heard of it is not believed any more.
            now = await self._brokers_of(topic)
            moved = {name: now[name] for name in failed if name in now and now[name] != addresses[name]}
            more, failing = await self._ask_all(moved, code, header, accept=accept)
            answers.update(more)
            failed = {name: error for name, error in {**failed, **failing}.items() if name not in more}
        if failed and not answers:
            raise next(iter(failed.values()))
        return answers, failed

    async def _brokers_of(self, topic: str) -> dict[str, str]:
        """Whom to ask about a topic, by broker name. :raises ResponseError: code 17: none serves it."""
        route = await self.topic_route(topic)
        return {one.broker_name: address_of(one.broker_addrs) for one in route.broker_datas if one.broker_addrs}

    async def _ask_group(
        self, group: str, code: RequestCode, header: Header
    ) -> tuple[list[Command], dict[str, RMQError]]:
        """Ask every broker that has a group's retry topic; one that knows nothing of the group has nothing to add.

        :raises ResponseError: code 206: none of them does. :raises RMQError: none of them answers.
        """
        answers, failed = await self._ask_brokers(retry_topic(group), code, header, accept=_NOTHING_THERE)
        found = [reply for reply in answers.values() if reply.code == ResponseCode.SUCCESS]
        if not found and not failed:
            code_, remark = next(
                ((reply.code, reply.remark) for reply in answers.values()),
                (ResponseCode.CONSUMER_NOT_ONLINE, f"no broker has the group {group}"),
            )
            raise ResponseError(code_, remark)
        return found, failed

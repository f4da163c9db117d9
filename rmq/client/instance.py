"""What the clients of one id share: connections, routes, members (Java: MQClientInstance)."""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from rmq.auth.credentials import Signer
from rmq.client.account import Access, access_of
from rmq.client.answers import Answers
from rmq.client.application import ApplicationThreads
from rmq.client.cluster.routes import Routes, no_such_topic
from rmq.client.heartbeats import Heartbeats
from rmq.client.hooks import request_hooks
from rmq.client.identity import client_id
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.nameservers import NameServers, parse_addresses
from rmq.client.namespace import Namespace
from rmq.client.openings import Openings
from rmq.client.outages import Outages, outages_of
from rmq.client.route_questions import RouteQuestions
from rmq.client.settings import ClientSettings
from rmq.protocol import frame
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ClientError,
    ConnectFailed,
    ResponseError,
    RMQError,
    TransportError,
    WrongType,
)
from rmq.protocol.header import Header
from rmq.protocol.headers.transaction import CheckTransactionStateRequest
from rmq.protocol.names import is_retry_topic
from rmq.remoting.calls import Done, Reply, reply_to
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.ending import Stop, end_each
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["ClientInstance", "ConsumerMember", "connect_instance", "instances_of"]

log = logger(__name__)

#: Seconds after which a subscribed topic that no broker has is looked for again; twice as long each time.
_FIRST_LOOK = 0.25
#: Seconds for which a broker that could not be reached is not read from while another of its set is there.
_AWAY = 30.0
#: Seconds between two questions who serves a broker's queues, while calls to it fail.
_ASK_AGAIN = 0.9
#: What slaves say of what a master does, ours and Java's: it may have been one when the route was asked for.
_OF_SLAVES = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)


class ConsumerMember(Protocol):
    """What a consumer of any kind shows to the instance it belongs to (Java: MQConsumerInner)."""

    @property
    def group(self) -> str: ...

    def heartbeat_data(self) -> ConsumerData: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""
        ...

    async def rebalance(self) -> None: ...

    async def persist_offsets(self) -> None: ...

    # What brokers ask of it (answers.py).

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo: ...

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None: ...

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult: ...


class TransactionMember(Protocol):
    """A producer that knows how transactions ended."""

    def _asked(self, conn: Conn, header: CheckTransactionStateRequest, message: MessageExt) -> None: ...


#: Client id, name servers, namespace, account: who has another one has connections of its own.
_Key = tuple[str, str | None, str | None, Access]
#: Which instance of a process has the consumer of a group, by process, client id, name servers and group: those on
#: other loops are other instances.
_claims: dict[tuple[object, ...], weakref.ref[ClientInstance]] = {}
_instances: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, ClientInstance]] = (
    weakref.WeakKeyDictionary()
)


def connect_instance(world: World, settings: ClientSettings, *, stable: bool = False) -> ClientInstance:
    """The instance of this client's id on the running loop, made when there is none."""
    loop = asyncio.get_running_loop()
    table = _instances.setdefault(loop, {})
    identity = client_id(world, settings, stable=stable)
    access = access_of(settings, world.files)
    key = (identity, settings.namesrv, settings.namespace, access)
    instance = table.get(key)
    if instance is None:
        # What one client of a process noticed needs no other to tell of it, whatever its loop, but one that comes as
        # somebody else: its own account or TLS may be why a broker does not answer it.
        where = loop if _alone(world) else world.identity.pid
        instance = table[key] = ClientInstance(world, settings, identity, outages_of(where, access), access)
    hooks = instance.remoting.hooks
    hooks += [hook for hook in request_hooks(settings.hooks, instance.application) if hook not in hooks]
    return instance


def instances_of(namesrv: str | None, world: World) -> list[ClientInstance]:
    """The instances of this process with these name servers, on whatever loop that can still run."""
    if _alone(world):
        loops = [asyncio.get_running_loop()]
    else:
        loops = [loop for one in _instances.keyrefs() if (loop := one()) is not None and not loop.is_closed()]
    return [
        instance
        for loop in loops
        for (_, servers, *_), instance in list(_instances.get(loop, {}).items())
        if servers == namesrv and instance.pid == instance.world.identity.pid
        if _alone(instance.world) is _alone(world)
    ]


def _alone(world: World) -> bool:
    """Virtual time: a loop of it is a process of its own, and its name servers' addresses are its own, too."""
    return world.stalls is None


class ClientInstance:
    """Connections, routes and heartbeats of the clients with one id; lives while one of them does.

    Only its own loop touches it, but for what threads that encode sends read of its ``routes``.
    """

    def __init__(
        self,
        world: World,
        settings: ClientSettings,
        identity: str,
        outages: Outages | None = None,
        access: Access | None = None,
    ) -> None:
        self.world = world
        #: Where all of it runs; None: it was made outside of one.
        self.loop = asyncio._get_running_loop()
        self.settings = settings
        self.client_id = identity
        self.namespace = Namespace(settings.namespace)
        #: The process it was made in; a forked child has a copy that is the parent's to end.
        self.pid = world.identity.pid
        access = access or access_of(settings, world.files)
        #: Signs what is encoded without a command, as ``remoting`` signs commands; None: nothing is signed.
        self.account = access.account
        self.remoting = RemotingClient(world, tls=access.peer())
        if access.account is not None:
            self.remoting.signer = Signer(access.account).sign
        self.remoting.router.add(Answers(self))
        self.application = ApplicationThreads(world, identity)
        self.beats = Heartbeats(self)
        #: What all clients of a process know together that come as the same: one of them tells of a broker.
        self.outages = outages or Outages()
        self.remoting.on_close.append(self.beats.lost)
        self.remoting.on_close.append(self._master_lost)
        self.name_servers = NameServers(
            world, self.remoting, parse_addresses(settings.namesrv or ""), settings.unit_name
        )
        self.routes = routes = Routes(world.random)
        self.name_servers.suspects = lambda address: routes.suspects(address, world.clock.monotonic())
        self._questions = RouteQuestions(
            world.clock, self.name_servers, self.routes, self._brokers_moved, self._topic_grown
        )
        #: Called when brokers came, or have other addresses.
        self.on_moved: list[Callable[[], object]] = []
        #: Broker name -> master of the whole cluster, kept while a producer is ``sought``.
        self.masters: dict[str, str] = {}
        #: Broker name -> when it was last asked for because it was not sure who serves its queues.
        self._asked_at: dict[str, float] = {}
        self.producers: set[str] = set()
        #: Those of them that brokers may ask how a transaction ended.
        self.transactions: dict[str, TransactionMember] = {}
        #: Those that any master may have to find: to ask how a transaction ended, to hand over a reply.
        self.sought: set[str] = set()
        #: Requests that wait for their replies, by correlation id; None says that the wait is over.
        self.requests: dict[str, asyncio.Future[MessageExt | None]] = {}
        self._introduction: asyncio.Task[None] | None = None
        self.consumers: dict[str, ConsumerMember] = {}
        self.changed_at: dict[str, float] = {}
        self._openings = Openings(self.remoting, world.clock)
        self.users = 0
        self._tasks: TaskOwner | None = None
        self._rebalance_now = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """One more client uses this instance; the first one starts it.

        :raises ClientError: no name server is known.
        """
        self.users += 1
        try:
            if not self.name_servers.addresses:
                await self.name_servers.lookup()
            await self.name_servers.resolve()
        except BaseException:
            await self.release()
            raise
        if self._tasks is not None:
            return
        self._tasks = tasks = TaskOwner(f"client {self.client_id}")
        settings = self.settings
        if self.name_servers.needs_lookup:
            tasks.every(120.0, self.name_servers.lookup, "address server", first=10.0)
        tasks.every(settings.poll_name_server_interval, self.refresh_routes, "routes")
        self.beats.begin(tasks, settings.heartbeat_broker_interval)
        tasks.every(settings.persist_consumer_offset_interval, self._persist, "offsets")
        tasks.spawn(self._rebalance_loop(), "rebalance")

    async def release(self) -> None:
        """One client fewer; the last one ends the tasks and closes the connections."""
        self.users -= 1
        if self.users > 0:
            return
        table = _instances.get(asyncio.get_running_loop(), {})
        for key in [key for key, instance in table.items() if instance is self]:
            del table[key]
        self._questions.end()
        parts: dict[str, Stop] = {"the heartbeats": self.beats.end}
        if self._tasks is not None:
            parts["its tasks"] = self._tasks.close
        parts["its connections"] = self.remoting.close
        parts["its application's threads"] = self.application.close
        await end_each("the client", parts)

    def forget(self) -> None:
        """Its loop is closed, and all that it had there has ended with it, without a goodbye."""
        if self.loop is not None:
            table = _instances.get(self.loop, {})
            for key in [key for key, instance in table.items() if instance is self]:
                del table[key]

    def spawn_rebalance(self) -> None:
        """Rebalance at once: a group changed."""
        self._rebalance_now.set()

    async def _rebalance_loop(self) -> None:
        interval = float(getattr(self.settings, "rebalance_interval", 20.0))
        wait = interval
        look = _FIRST_LOOK
        #: By group: what was told of its last rebalance, which failed.
        told: dict[str, str] = {}
        while True:
            try:
                async with patience.timeout(wait):
                    await self._rebalance_now.wait()
            except TimeoutError:
                pass
            self._rebalance_now.clear()
            for consumer in list(self.consumers.values()):
                try:
                    await consumer.rebalance()
                    told.pop(consumer.group, None)
                except RMQError as error:
                    level = logging.DEBUG if told.get(consumer.group) == str(error) else logging.WARNING
                    log.log(level, "rebalance of group %s: %s", consumer.group, error)
                    told[consumer.group] = str(error)
                except Exception:
                    log.exception("rebalance of group %s failed; the next one comes in its turn", consumer.group)
            if self._lacks_topics():
                wait = min(look, interval)
                look *= 2
            else:
                wait, look = interval, _FIRST_LOOK

    def _lacks_topics(self) -> bool:
        """A consumer waits for a topic that no broker has yet: who starts it before its first message need not wait."""
        wanted = {topic for consumer in self.consumers.values() for topic in consumer.topics()}
        return any(topic not in self.routes.own and not is_retry_topic(topic) for topic in wanted)

    async def _persist(self) -> None:
        for consumer in list(self.consumers.values()):
            await consumer.persist_offsets()

    def descriptors(self) -> list[int]:
        """The file descriptors of the open connections: a forked child closes its copies."""
        found = []
        for address in self.remoting.addresses:
            conn = self.remoting.connected(address)
            handle = None if conn is None else conn._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            if handle is not None:
                found.append(int(handle.fileno()))
        return found

    # -- members ------------------------------------------------------------------------------------------------------

    def add_producer(self, group: str) -> None:
        """:raises ClientError: the group already has a producer here."""
        if group in self.producers:
            raise ClientError(
                f"the producer group {group} already has a producer with client id {self.client_id}: "
                "use that one, or give this one another instance_name"
            )
        self.producers.add(group)

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """:raises ClientError: the group already has a consumer here."""
        if consumer.group in self.consumers:
            raise ClientError(
                f"the consumer group {consumer.group} already has a consumer with client id {self.client_id}: "
                "use that one, or give this one another instance_name"
            )
        self.consumers[consumer.group] = consumer
        if not _alone(self.world):
            # Two of one id would have the same share of the queues: every message would come twice.
            key = self._claim(consumer.group)
            claimed = _claims.setdefault(key, weakref.ref(self))()  # one step for threads: one of them has it
            if claimed is not None and claimed is not self and claimed._consumes(consumer.group):
                del self.consumers[consumer.group]
                raise ClientError(
                    f"the consumer group {consumer.group} already has a consumer with client id {self.client_id} in "
                    "this process, on another event loop or with another account: give this one another instance_name"
                )
            _claims[key] = weakref.ref(self)

    def remove_consumer(self, group: str) -> None:
        """It is no member any more, or has not become one."""
        self.consumers.pop(group, None)
        key = self._claim(group)
        if (claim := _claims.get(key)) is not None and claim() is self:
            del _claims[key]

    def _claim(self, group: str) -> tuple[object, ...]:
        return self.pid, self.client_id, self.settings.namesrv, group

    def _consumes(self, group: str) -> bool:
        return group in self.consumers and self.loop is not None and not self.loop.is_closed()

    def answered(self, correlation: str, message: MessageExt) -> bool:
        """A reply has come. :returns: whether somebody waits for it.

        Brokers send it to one of the connections of the client id that asked, which may be on another loop.
        """
        if self._take(correlation, message):
            return True
        for other in instances_of(self.settings.namesrv, self.world):
            if other is self or other.client_id != self.client_id or correlation not in other.requests:
                continue
            if other.loop is not None and not other.loop.is_closed():
                other.loop.call_soon_threadsafe(other._take, correlation, message)
                return True
        return False

    def _take(self, correlation: str, message: MessageExt) -> bool:
        waiting = self.requests.get(correlation)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(message)
        return True

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """The end of a member: tell every broker, then :meth:`release`, also when the caller is cancelled meanwhile."""
        if producer is not None:
            self.producers.discard(producer)
            self.sought.discard(producer)
            if not self.sought:
                self.masters = {}
        if consumer is not None:
            self.remove_consumer(consumer)
        try:
            await self.beats.goodbye(producer, consumer)
        finally:
            await self.release()

    # -- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        timeout: float | None = None,
        *,
        accept: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask one broker.

        :param timeout: seconds; ``mq_client_api_timeout`` when not given.
        :param accept: the response codes that are answers.
        :raises ResponseError: any other code. :raises TransportError: no answer. :raises ClientError: no address.
        """
        if not isinstance(address, str):
            raise WrongType(f"the address of a broker is a text, host:port, not {type(address).__name__}")
        limit = self.settings.mq_client_api_timeout if timeout is None else timeout
        try:
            reply = await self.remoting.request(address, Command.request(code, header, body), limit)
        except TransportError:
            self.suspect(address)
            raise
        self.outages.answered(address)
        if reply.code not in accept:
            if reply.code in _OF_SLAVES:
                self.suspect(address)
            raise ResponseError(reply.code, reply.remark, address)
        self.routes.trust(address)
        return reply

    def suspect(self, address: str) -> None:
        """Whoever is there may not be, or not be any more, what the routes say; see :meth:`Routes.suspect`."""
        self.routes.suspect(address, self.world.clock.monotonic())

    def writes_at_once(self, address: str) -> bool:
        """Whether :meth:`submit` writes a frame where it is called: nothing has to be opened or asked before."""
        return not self.remoting.hooks and self.remoting.connected(address) is not None

    def submit(self, address: str, data: bytes, opaque: int, timeout: float, done: Done) -> None:
        """Send a frame that is encoded and signed already; ``done`` is told once how it ended. Only on the loop; never
        raises."""
        remoting = self.remoting
        if remoting.hooks:
            # Hooks see a command and may change it, so the frame is taken apart again for them, and signed anew.
            remoting.call(address, frame.decode(memoryview(data)[4:]), timeout, done)
            return
        conn = remoting.connected(address)
        if conn is None:
            if self._tasks is None or self._tasks.closed:
                done(ConnectFailed(f"{address}: the client is shut down"))
            else:
                self._openings.submit(self._tasks, address, data, opaque, timeout, done)
            return
        try:
            conn.call_frame(data, opaque, timeout, done)
        except Exception as error:
            done(error)

    def exchange(self, address: str, data: bytes, opaque: int, timeout: float) -> Reply:
        """:meth:`submit`, to be waited for: an answer, or why there is none."""
        reply: Reply = asyncio.get_running_loop().create_future()
        self.submit(address, data, opaque, timeout, reply_to(reply))
        return reply

    # -- routes -------------------------------------------------------------------------------------------------------

    def answers(self, broker_name: str) -> bool:
        """Whether a broker of that name is known and, as far as anybody here has noticed, answers."""
        addrs = self.routes.broker_addrs.get(broker_name, {})
        return any(not self.outages.away(address) for address in addrs.values())

    async def refresh_routes(self) -> None:
        """Ask again for the route of every topic in use, of name servers where their names lead by now."""
        await self.name_servers.resolve()
        if self.sought:
            await self.learn_masters()
        await self._questions.ask_all({topic for consumer in self.consumers.values() for topic in consumer.topics()})

    def refresh_route(
        self, topic: str, timeout: float | None = None, template: tuple[str, int] | None = None
    ) -> Coroutine[Any, Any, bool]:
        """Ask for a topic's route: see :meth:`RouteQuestions.ask`, and so for what it raises.

        :param timeout: seconds; ``mq_client_api_timeout`` when not given.
        """
        limit = self.settings.mq_client_api_timeout if timeout is None else timeout
        return self._questions.ask(topic, limit, template)

    def _brokers_moved(self) -> None:
        for told in list(self.on_moved):
            told()
        if self.sought:
            # The next master may have to find us at once: the reply to what a send has just found it for, say.
            here = {name: addrs[0] for name, addrs in self.routes.broker_addrs.items() if 0 in addrs}
            self.masters = {**self.masters, **here}
            self.beats.soon(0.0)
        elif self.producers or self.consumers:
            self.beats.soon()

    def _master_lost(self, conn: Conn) -> None:
        """Another one may lead by now: the next send of each topic that it had asks first. One that is oneway would not
        learn of it by itself."""
        self.routes.doubt(conn.address)
        self.suspect(conn.address)

    def _topic_grown(self, topic: str) -> None:
        """Its new queues are read from at once, not when the next rebalance has its turn."""
        if any(topic in consumer.topics() for consumer in self.consumers.values()):
            self.spawn_rebalance()

    async def learn_masters(self) -> None:
        """Ask for every master there is, which a producer that is sought is known to."""
        try:
            info = await self.name_servers.cluster_info(self.settings.mq_client_api_timeout)
        except RMQError as error:
            log.warning("the masters are not known: checks of transactions may be late, replies be lost: %s", error)
            return
        brokers = info.broker_addr_table.items()
        masters = {name: broker.broker_addrs[0] for name, broker in brokers if 0 in broker.broker_addrs}
        new = set(masters.values()) - set(self.masters.values())
        self.masters = masters
        if new:
            await self.beats.beat()

    async def be_known(self, producer: str, wait: float) -> None:
        """Have every master know us before one has to hand over a reply.

        :param wait: seconds at most that this takes: a broker that does not answer holds nobody up.
        """
        self.sought.add(producer)
        if self.masters and self.beats.told(self.masters.values()):
            return
        if self._introduction is None or self._introduction.done():
            assert self._tasks is not None
            self._introduction = self._tasks.spawn(self._introduce(), "introduction")
        await asyncio.wait({self._introduction}, timeout=wait)

    async def _introduce(self) -> None:
        if not self.masters:
            await self.learn_masters()
        else:
            await self.beats.beat()

    async def _look_where(self, queue: MessageQueue, timeout: float | None) -> None:
        """Ask who serves a queue's broker name now, where that is not sure; where nobody says, who was known has to do.

        :param timeout: seconds that it may take; see :meth:`refresh_route`.
        """
        name, now = queue.broker_name, self.world.clock.monotonic
        if name in self.routes.unsure and now() >= self._asked_at.get(name, -math.inf) + _ASK_AGAIN:
            try:
                await self.refresh_route(queue.topic, timeout)
            except RMQError as error:
                log.debug("who serves %s now: %s", queue, error)
            finally:
                self._asked_at[name] = now()

    async def find_master(self, queue: MessageQueue) -> str:
        """The master's address of a queue's broker; asks for the route when it is not known, or not sure.

        :raises ConnectFailed: the broker has no master now. :raises ClientError: there is no such topic.
        """
        await self._look_where(queue, None)
        address = self.routes.master_addr(queue.broker_name)
        if address is None:
            there = await self.refresh_route(queue.topic)
            address = self.routes.master_addr(queue.broker_name)
            if address is None and not there:
                raise no_such_topic(queue.topic)
        if address is None:
            raise ConnectFailed(f"the broker {queue.broker_name} of {queue.topic} has no master now").about(queue=queue)
        return address

    async def find_reader(
        self, queue: MessageQueue, broker_id: int = 0, *, only_this: bool = False, timeout: float | None = None
    ) -> tuple[str, int]:
        """(address, broker id) to read a queue from (protocol.md 7.3).

        :param broker_id: the one the broker suggested; where it is not there, the next slave, then any.
        :param timeout: seconds for the question where it is, if that has to be asked; see :meth:`refresh_route`.
        :raises ConnectFailed: nobody serves the queue now. :raises ClientError: there is no such topic.
        """
        await self._look_where(queue, timeout)
        for again in (False, True):
            known = self.routes.broker_addrs.get(queue.broker_name, {})
            # A master that is away is in the route for up to two minutes: what can be reached is read meanwhile.
            reached = {i: addr for i, addr in known.items() if not self.remoting.unreachable(addr, _AWAY)}
            addrs = reached or known
            if broker_id in addrs:
                return addrs[broker_id], broker_id
            if broker_id > 0 and broker_id + 1 in addrs:
                return addrs[broker_id + 1], broker_id + 1
            if addrs and not only_this:
                found = min(addrs)
                return addrs[found], found
            if not again and not await self.refresh_route(queue.topic, timeout):
                raise no_such_topic(queue.topic)
        raise ConnectFailed(f"no broker named {queue.broker_name} serves {queue.topic} now").about(queue=queue)

"""The broker's word to its name servers: here I am, with these topics (store-and-broker.md 9.1).

Each name server has a link of its own, so one that does not answer delays no other. A link that is busy when a topic
changes registers once more afterwards: any number of changes cost one registration at a time.

A name server of ours says that it holds all that it was told; from then on it is sent what changed since that version,
at each period, too: that is nothing most times. It takes an increment only of the version that it holds and refuses any
other, whatever was lost, came late or was forgotten in a restart; whatever is not acknowledged is followed by
everything. A Java name server, which would take any increment, is always sent everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ConfigError, ProtocolError, ResponseError, TransportError
from rmq.protocol.headers.namesrv import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
)
from rmq.protocol.names import MASTER_ID
from rmq.protocol.sysflags import PERM_READ_WRITE
from rmq.remoting.client import RemotingClient, split_address
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Repeated
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["MasterAddresses", "Registrar"]

log = logging.getLogger(__name__)

_FIRST_PERIODIC = 10.0
_SHORTEST_PERIOD, _LONGEST_PERIOD = 10_000, 60_000
_UNREGISTER_SECONDS = 3.0
#: Pauses after a failure, seconds; then the usual rhythm.
_RETRIES = (0.5, 1.0, 2.0, 5.0)
#: Changed topics up to which an increment is sent: more are as well read with all the others.
_MOST_CHANGES = 400
_ADDRESS_SERVER_SECONDS = 120.0
_ADDRESS_SERVER_TIMEOUT = 3.0


class MasterAddresses(NamedTuple):
    """Where a slave finds its master, ``host:port``; None where nobody says so."""

    #: What clients are told: where the slave asks for tables.
    broker: str | None = None
    #: Where the log is sent from.
    ha: str | None = None


class _Link:
    """What is known of one name server."""

    __slots__ = (
        "address", "asked", "broker_id", "busy", "failures", "held", "master", "order_topics", "reachable",
        "registered", "retry",
    )  # fmt: skip

    def __init__(self, address: str) -> None:
        self.address = address
        #: A registration runs.
        self.busy = False
        #: Another one was asked for meanwhile.
        self.asked = False
        #: It holds a registration of ours, as far as we know.
        self.registered = False
        #: The id that we have registered with.
        self.broker_id: int | None = None
        #: The version of all our topics that it has acknowledged to hold; None is that everything is to be sent.
        self.held: DataVersion | None = None
        #: None until the first attempt has ended.
        self.reachable: bool | None = None
        self.failures = 0
        self.retry: asyncio.TimerHandle | None = None
        self.order_topics: frozenset[str] | None = None
        #: What it said last of a slave's master.
        self.master = MasterAddresses()


class Registrar:
    """Registers with every name server: at start, every 30 s, and at once when a topic changes.

    :param world: clock and network (for the address server).
    :param client: calls the name servers; whoever made it closes it.
    :param broker_addr: ``host:port`` that clients are told.
    :param ha_addr: ``host:port`` that slaves are told.
    :param broker_id: says as what it registers now; :meth:`announce` tells that this has changed.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        topics: TopicTable,
        client: RemotingClient,
        *,
        broker_addr: str,
        ha_addr: str,
        broker_id: Callable[[], int],
    ) -> None:
        self._world = world
        self._settings = settings
        self._topics = topics
        self._client = client
        self._broker_addr = broker_addr
        self._ha_addr = ha_addr
        self._broker_id = broker_id
        #: Whether nobody else can be the master by now: one that has a successor, and has not heard of it, would take
        #: its place at the name servers, and leave that empty.
        self.surely_leads: Callable[[], bool] = lambda: True
        self.tasks = TaskOwner("registration")
        self._links: dict[str, _Link] = {}
        self._fetched: list[str] = []
        self._complained: set[str] = set()
        self._remarks = Repeated(world.clock)
        self._scheduled = False
        self._running = False
        # The body of the newest registration: (data version, permission, compressed) and bytes.
        self._body: tuple[tuple[int, int, int, bool], bytes] | None = None

    @property
    def addresses(self) -> list[str]:
        """The name servers registered with."""
        return list(self._links)

    @property
    def master(self) -> MasterAddresses:
        """Where a slave's master is, as the first name server says that knows one; a master is told of none."""
        for link in self._links.values():
            if link.master.broker not in (None, self._broker_addr):
                return link.master
        return MasterAddresses()

    @property
    def missing(self) -> str | None:
        """Why clients do not find this broker, or None when they do: one name server that knows it is enough."""
        if not self._links or any(link.registered for link in self._links.values()):
            return None
        return f"registered with none of {', '.join(self._links)}"

    async def find_name_servers(self) -> None:
        """Know :attr:`addresses`, before :meth:`start`."""
        if self._settings.fetch_namesrv_addr_by_address_server:
            await self._ask_address_server()
        self._follow_addresses()

    async def start(self) -> None:
        """Register with all name servers; returns when each has answered or failed once."""
        if not self._links:
            await self.find_name_servers()
        if self._settings.fetch_namesrv_addr_by_address_server:
            self.tasks.every(_ADDRESS_SERVER_SECONDS, self._ask_address_server, "address server")
        self._running = True
        self._topics.on_change.append(self._topic_changed)
        self._settings.on_update.append(self._settings_changed)
        self._client.on_close.append(self._connection_lost)
        if not self._links:
            log.warning("no name server is configured (namesrvAddr): clients will not find this broker")
        await asyncio.gather(*(self._attempt(link) for link in self._links.values()))
        self.tasks.every(self._period, self._periodic, "periodic", first=_FIRST_PERIODIC)

    async def stop(self) -> None:
        """Unregister everywhere, waiting at most 3 s."""
        if not self._running:
            await self.tasks.close()
            return
        self._running = False
        self._topics.on_change.remove(self._topic_changed)
        self._settings.on_update.remove(self._settings_changed)
        self._client.on_close.remove(self._connection_lost)
        links = list(self._links.values())
        for link in links:
            if link.retry is not None:
                link.retry.cancel()
        await self.tasks.close()
        await asyncio.gather(*(self._unregister(link) for link in links if link.reachable))

    def _period(self) -> float:
        return min(max(self._settings.register_name_server_period, _SHORTEST_PERIOD), _LONGEST_PERIOD) / 1000

    # -- whom

    def _follow_addresses(self) -> None:
        """Make links for the configured name servers, and let go of those that are no longer."""
        wanted = _split(self._settings.namesrv_addr) or self._fetched
        for address in wanted:
            if address in self._links:
                continue
            try:
                split_address(address)
            except ConfigError as error:
                if address not in self._complained:
                    self._complained.add(address)
                    log.error("namesrvAddr: %s", error)
                continue
            self._links[address] = _Link(address)
        for address in [address for address in self._links if address not in wanted]:
            link = self._links.pop(address)
            if link.retry is not None:
                link.retry.cancel()
            log.info("name server %s is no longer ours", address)
            if link.reachable and not self.tasks.closed:
                self.tasks.spawn(self._leave(link), f"leave {address}")

    async def _leave(self, link: _Link) -> None:
        await self._unregister(link)
        self._client.disconnect(link.address, "no longer a name server of this broker")

    async def _ask_address_server(self) -> None:
        domain = self._settings.rmq_address_server_domain
        host = domain if ":" in domain else f"{domain}:8080"
        url = f"http://{host}/rocketmq/{self._settings.rmq_address_server_sub_group}"
        try:
            status, body = await self._world.network.http_get(url, {}, _ADDRESS_SERVER_TIMEOUT)
        except (OSError, ValueError) as error:
            log.warning("the address server %s does not answer: %s", url, error)
            return
        found = _split(body.decode("utf-8", "replace").strip()) if status == 200 else []
        if not found:
            log.warning("the address server %s names no name server: status %d", url, status)
            return
        if found != self._fetched:
            log.info("name servers from the address server: %s", ";".join(found))
            self._fetched = found
            self._follow_addresses()
            self._register_soon()

    # -- when

    def _topic_changed(self, topic: str | None) -> None:
        self._register_soon()

    def _settings_changed(self, keys: list[str]) -> None:
        if "namesrvAddr" in keys:
            self._follow_addresses()
            self._register_soon()

    def announce(self) -> None:
        """The broker's id is another one, or a slave knows no master: speak to every name server soon."""
        self._register_soon()

    def _register_soon(self) -> None:
        """All changes of this turn of the loop make one registration."""
        if self._running and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._register_now)

    def _register_now(self) -> None:
        self._scheduled = False
        for link in self._links.values():
            self._kick(link)

    def _kick(self, link: _Link) -> None:
        if link.busy:
            link.asked = True
        elif self._running and not self.tasks.closed:
            self.tasks.spawn(self._attempt(link), f"register {link.address}")

    def _connection_lost(self, conn: Conn) -> None:
        """The name server drops us with the connection, or it restarted and knows nothing: register anew at once."""
        link = self._links.get(conn.address)
        if link is not None and self._running:
            link.registered = False
            link.held = None
            self._again_later(link, _RETRIES[0])

    def _again_later(self, link: _Link, seconds: float) -> None:
        if link.retry is not None:
            link.retry.cancel()

        def due() -> None:
            link.retry = None
            if self._links.get(link.address) is link:
                self._kick(link)

        link.retry = asyncio.get_running_loop().call_later(seconds, due)

    async def _periodic(self) -> None:
        self._follow_addresses()
        force = self._settings.force_register
        await asyncio.gather(*(self._turn(link, force) for link in self._links.values()))

    async def _turn(self, link: _Link, force: bool) -> None:
        if link.busy:
            return
        # Only a registration tells a slave where its master is.
        if force or self._broker_id() != MASTER_ID or not link.registered or await self._is_behind(link):
            await self._attempt(link)

    # -- what

    async def _attempt(self, link: _Link) -> None:
        """Register with one name server, once more when something changed meanwhile."""
        if link.busy:
            link.asked = True
            return
        if self._broker_id() == MASTER_ID and not self.surely_leads():
            self._again_later(link, _RETRIES[0])
            return
        link.busy = True
        try:
            while True:
                link.asked = False
                try:
                    await self._register(link)
                except (TransportError, ResponseError, ProtocolError) as error:
                    self._failed(link, error)
                    return
                self._succeeded(link)
                if not link.asked or not self._running:
                    return
        finally:
            link.busy = False

    def _failed(self, link: _Link, error: Exception) -> None:
        link.registered = False
        if link.reachable is not False:
            log.warning("cannot register with name server %s, trying on: %s", link.address, error)
        link.reachable = False
        if link.failures < len(_RETRIES) and self._running:
            self._again_later(link, _RETRIES[link.failures])
        link.failures += 1

    def _succeeded(self, link: _Link) -> None:
        if link.reachable is not True:
            log.info("registered with name server %s as %s", link.address, self._broker_addr)
        link.registered = link.reachable = True
        link.failures = 0

    async def _register(self, link: _Link) -> None:
        """Tell a name server what it does not know: the changes, or everything when it does not take them."""
        held, link.held = link.held, None
        if link.broker_id != self._broker_id():
            held = None  # what it holds is another broker's
        increment = None if held is None else self._increment_body(held)
        if increment is not None:
            try:
                await self._send(link, increment, held)
                return
            except ResponseError as error:
                log.info("name server %s is told everything: %s", link.address, error)
        await self._send(link, self._registration_body(), None)

    async def _send(self, link: _Link, body: bytes, increment_of: DataVersion | None) -> None:
        settings = self._settings
        version = self._topics.data_version
        broker_id = self._broker_id()
        request = Command.request(
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequest(
                broker_name=settings.broker_name,
                broker_addr=self._broker_addr,
                cluster_name=settings.broker_cluster_name,
                ha_server_addr=self._ha_addr,
                broker_id=broker_id,
                compressed=settings.compressed_register,
                body_crc32=crc32(body) & 0x7FFFFFFF,
                increment_of=None if increment_of is None else increment_of.encode().decode(),
            ),
            body,
        )
        answer = await self._client.ask(link.address, request, settings.register_broker_timeout_mills / 1000)
        if answer.remark:
            self._remarks.say(
                (link.address, answer.remark), log.warning, "name server %s: %s", link.address, answer.remark
            )
        link.broker_id = broker_id
        told = answer.header(RegisterBrokerResponse)
        link.master = MasterAddresses(told.master_addr or None, told.ha_server_addr or None)
        if told.takes_increments:
            link.held = version
        link.order_topics = frozenset(KVTable.decode(answer.body).table) if answer.body else None
        tables = [other.order_topics for other in self._links.values() if other.order_topics is not None]
        if tables:
            self._topics.set_order_topics(frozenset().union(*tables))

    def _registration_body(self) -> bytes:
        version = self._topics.data_version
        permission = self._settings.broker_permission
        compressed = self._settings.compressed_register
        key = (version.counter, version.timestamp, permission, compressed)
        if self._body is None or self._body[0] != key:
            self._body = (key, self._build(permission, compressed))
        return self._body[1]

    def _increment_body(self, since: DataVersion) -> bytes | None:
        """The changes since a version, or None when everything is to be sent."""
        changed = self._topics.changed_since(since)
        if changed is None or len(changed) > _MOST_CHANGES:
            return None
        return self._build(self._settings.broker_permission, self._settings.compressed_register, changed)

    def _build(self, permission: int, compressed: bool, topics: list[str] | None = None) -> bytes:
        """A registration's body with all topics, or with those of a list that exist."""
        if not compressed and permission & PERM_READ_WRITE == PERM_READ_WRITE:
            return b'{"filterServerList":[],"topicConfigSerializeWrapper":%s}' % self._topics.encode(topics)
        if topics is None:
            configs: Iterable[TopicConfig] = self._topics.told()
        else:
            wanted = frozenset(topics)
            configs = [config for config in self._topics.told() if config.topic_name in wanted]
        if permission & PERM_READ_WRITE != PERM_READ_WRITE:
            # A broker that may not be read or written says so of each topic; the copy keeps nothing but the queues.
            configs = [
                TopicConfig(
                    topic_name=config.topic_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm & permission,
                )
                for config in configs
            ]
        table = TopicConfigTable(self._topics.data_version, {config.topic_name: config for config in configs})
        return RegisterBrokerBody(topic_config_serialize_wrapper=table).encode(compressed)

    async def _is_behind(self, link: _Link) -> bool:
        """Whether the name server holds other topics than ours (322); asking keeps a current registration alive."""
        settings = self._settings
        version = self._topics.data_version
        request = Command.request(
            RequestCode.QUERY_DATA_VERSION,
            QueryDataVersionRequest(
                broker_name=settings.broker_name,
                broker_addr=self._broker_addr,
                cluster_name=settings.broker_cluster_name,
                broker_id=self._broker_id(),
            ),
            version.encode(),
        )
        try:
            answer = await self._client.request(link.address, request, settings.register_broker_timeout_mills / 1000)
            if answer.code != ResponseCode.SUCCESS:
                return False
            held = DataVersion.decode(answer.body) if answer.body else None
            return answer.header(QueryDataVersionResponse).changed or (held is not None and held != version)
        except (TransportError, ProtocolError) as error:
            log.debug("%s does not say what it holds: %s", link.address, error)
            return True

    async def _unregister(self, link: _Link) -> None:
        settings = self._settings
        request = Command.request(
            RequestCode.UNREGISTER_BROKER,
            UnRegisterBrokerRequest(
                broker_name=settings.broker_name,
                broker_addr=self._broker_addr,
                cluster_name=settings.broker_cluster_name,
                broker_id=self._broker_id() if link.broker_id is None else link.broker_id,
            ),
        )
        try:
            answer = await self._client.request(link.address, request, _UNREGISTER_SECONDS)
        except TransportError as error:
            log.warning("cannot unregister from name server %s: %s", link.address, error)
        else:
            if answer.code != ResponseCode.SUCCESS:
                log.warning("name server %s does not unregister us: %s", link.address, answer.remark)


def _split(text: str) -> list[str]:
    return [address.strip() for address in text.split(";") if address.strip()]

"""What brokers and operators ask about brokers: 103, 104, 322, 205, 327 (protocol.md 2.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from hashlib import sha256
from typing import NamedTuple

from rmq.config import values
from rmq.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from rmq.namesrv.routes import Registration, RouteTable
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    at_once,
    check_size,
)
from rmq.protocol.codes import Language, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ProtocolError, ResponseError
from rmq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Rationed, Repeated
from rmq.remoting.router import SHORT, handles
from rmq.runtime.world import Clock

__all__ = ["BrokerService"]

#: V3_0_11: brokers before it send their topics alone, without the list of filter servers (protocol.md 1.5).
FILTER_SERVERS_SINCE = 37
#: How a compressed body begins, and JSON never does: a 5.3.3 broker compresses and says that it does not.
ZLIB = b"\x78"
_INT31 = 0x7FFFFFFF
#: Bytes of a name or an address: it goes into every route of the broker's topics.
_LONGEST_NAME = 255
#: Bytes of a registration that is read at once: some 400 topics.
_SHORT = 65_536
#: Bytes of one that is read at all: some 50,000 topics, or far more of them compressed.
_LONGEST = 8 << 20

log = logging.getLogger(__name__)


class _Told(NamedTuple):
    """A long registration that was taken over: the same one again says nothing new."""

    sender: tuple[str, str, int]
    digest: bytes
    version: DataVersion


class _Body(NamedTuple):
    """What a registration's body says; None is "as before"."""

    version: DataVersion
    topics: list[TopicConfig] | None = None
    filter_servers: list[str] | None = None


class BrokerService:
    """Handlers for brokers; the state is the route table's.

    A Java broker registers all its topics every 30 s and one or all of them whenever one changes; ours sends the
    changes alone as long as what it told before is held here. A long registration that says what the last one said is
    not read; another one is read in pieces, and is void when a later request of its broker comes meanwhile.
    """

    def __init__(self, routes: RouteTable, kv: KVConfig, clock: Clock, settings: NamesrvSettings) -> None:
        self._settings = settings
        self._refusals = Rationed(clock)
        self._rivals = Repeated(clock)
        self._routes = routes
        self._kv = kv
        self._clock = clock
        self._told: dict[str, _Told] = {}
        #: Broker address -> the registration of it that is being read.
        self._reading: dict[str, Command] = {}

    @handles(RequestCode.REGISTER_BROKER, header=RegisterBrokerRequest, body=_LONGEST)
    def register(
        self, conn: Conn, request: Command, header: RegisterBrokerRequest
    ) -> Command | Coroutine[None, None, Command]:
        _check_names(header)
        _check_crc(request.body, header.body_crc32)
        increment_of = _increment_of(header)
        if increment_of is None:
            # An increment that comes late says nothing of the one that is being read.
            self._reading.pop(header.broker_addr, None)
        elif header.broker_addr in self._reading:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "all topics are being read: they are not there yet")
        if len(request.body) > _SHORT:
            sender = (header.cluster_name, header.broker_name, header.broker_id)
            digest = sha256(request.body).digest()
            told = self._told.get(header.broker_addr)
            if told is None or told != (sender, digest, self._routes.version_of(header.broker_addr)):
                return self._register_long(conn, request, header, sender, digest)
            return self._take_over(conn, request, header, _Body(told.version))
        try:
            body = at_once(_read(request, header.compressed))
        except ProtocolError as error:
            raise _unreadable(conn, header, error) from None
        return self._take_over(conn, request, header, body)

    async def _register_long(
        self, conn: Conn, request: Command, header: RegisterBrokerRequest, sender: tuple[str, str, int], digest: bytes
    ) -> Command:
        addr = header.broker_addr
        try:
            check_size(request.body)
        except ProtocolError as error:
            raise _unreadable(conn, header, error) from None
        self._reading[addr] = request
        try:
            body = await _in_turns(_read(request, header.compressed))
            if conn.closed or self._reading.get(addr) is not request:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"a later request of the broker at {addr} came first")
        except ProtocolError as error:
            raise _unreadable(conn, header, error) from None
        finally:
            if self._reading.get(addr) is request:
                del self._reading[addr]
        answer = self._take_over(conn, request, header, body)
        self._told[addr] = _Told(sender, digest, body.version)
        return answer

    def _check_room(self, conn: Conn, what: Registration, topics: int) -> None:
        """:raises ResponseError: with it there would be more than the settings allow."""
        settings = self._settings
        try:
            if topics > settings.max_topics_per_broker:
                raise ResponseError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{topics} topics: a broker may register {settings.max_topics_per_broker} (maxTopicsPerBroker)",
                )
            self._routes.check_room(what, settings.max_brokers, settings.max_clusters, settings.max_topics)
        except ResponseError as error:
            self._refusals.say(log.warning, "%s: %s is not registered: %s", conn.peer, what.broker_name, error.remark)
            raise

    def _take_over(self, conn: Conn, request: Command, header: RegisterBrokerRequest, body: _Body) -> Command:
        what = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            addr=header.broker_addr,
            ha_addr=header.ha_server_addr or "",
            version=body.version,
            topics=body.topics,
            filter_servers=body.filter_servers,
            increment_of=_increment_of(header),
        )
        self._check_room(conn, what, 0 if body.topics is None else len(body.topics))
        registered = self._routes.register(what, conn, self._clock.monotonic())
        for notice in registered.notices:
            log.info("%s", notice)
        self._tell_returned()
        if registered.rival is not None:
            # Two of one id take each other's place with each registration.
            self._rivals.say(registered.rival, log.warning, "%s", registered.rival)
        order = self._kv.table(ORDER_TOPIC_CONFIG)
        return request.reply(
            ResponseCode.SUCCESS,
            registered.rival,
            header=RegisterBrokerResponse(
                ha_server_addr=registered.ha_addr,
                master_addr=registered.master_addr,
                # A Java broker is answered as a Java name server does.
                takes_increments=True if registered.complete and request.language == Language.PYTHON else None,
            ),
            body=b"" if order is None else KVTable(table=order).encode(),
        )

    @handles(RequestCode.UNREGISTER_BROKER, header=UnRegisterBrokerRequest)
    def unregister(self, conn: Conn, request: Command, header: UnRegisterBrokerRequest) -> Command:
        self._reading.pop(header.broker_addr, None)
        if self._routes.unregister(header.broker_name, header.broker_id, header.broker_addr):
            log.info("%s id %d at %s unregistered", header.broker_name, header.broker_id, header.broker_addr)
        self._tell_returned()
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.QUERY_DATA_VERSION, header=QueryDataVersionRequest, body=SHORT)
    def query_data_version(self, conn: Conn, request: Command, header: QueryDataVersionRequest) -> Command:
        if not request.body:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "QUERY_DATA_VERSION needs a DataVersion as its body")
        try:
            asked = DataVersion.decode(request.body)
        except ProtocolError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the body is no DataVersion: {error}") from None
        held = self._routes.version_of(header.broker_addr)
        changed = held is None or held != asked or self._routes.misses(header.broker_addr)
        if not changed:
            self._routes.refresh(header.broker_addr, self._clock.monotonic())
        return request.reply(
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponse(changed=changed),
            body=b"" if held is None else held.encode(),
        )

    @handles(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header=WipeWritePermOfBrokerRequest)
    def wipe_write_perm(self, conn: Conn, request: Command, header: WipeWritePermOfBrokerRequest) -> Command:
        count = self._routes.wipe_write_perm(header.broker_name)
        log.info("%s took the write permission of %s: %d topics", conn.peer, header.broker_name, count)
        return request.reply(ResponseCode.SUCCESS, header=WipeWritePermOfBrokerResponse(wipe_topic_count=count))

    @handles(RequestCode.ADD_WRITE_PERM_OF_BROKER, header=AddWritePermOfBrokerRequest)
    def add_write_perm(self, conn: Conn, request: Command, header: AddWritePermOfBrokerRequest) -> Command:
        count = self._routes.add_write_perm(header.broker_name)
        log.info("%s gave %s its write permission back: %d topics", conn.peer, header.broker_name, count)
        return request.reply(ResponseCode.SUCCESS, header=AddWritePermOfBrokerResponse(add_topic_count=count))

    # -- called by the app -----------------------------------------------------------------------------------

    def on_close(self, conn: Conn) -> None:
        """A connection closed: the brokers that registered over it are gone."""
        for addr in self._routes.close(conn):
            log.info("the broker at %s closed its connection: dropped", addr)
        self._tell_returned()

    def _tell_returned(self) -> None:
        for name, addr in self._routes.returned():
            log.info("%s at %s has its place again", name, addr)

    def scan(self) -> None:
        """Drop brokers that have been silent for too long and close their connections."""
        silent, idle = self._routes.expire(self._clock.monotonic())
        for addr in silent:
            log.warning("the broker at %s was silent for more than 120 s: dropped", addr)
        self._tell_returned()
        for conn in idle:
            if isinstance(conn, Conn):
                conn.close("its broker was silent for more than 120 s")
        for addr in [addr for addr in self._told if self._routes.version_of(addr) is None]:
            del self._told[addr]


def _read(request: Command, compressed: bool) -> Generator[None, None, _Body]:
    """Read a registration's body, with pauses."""
    if not request.body:
        return _Body(DataVersion(counter=0, timestamp=0))
    servers = None
    if request.version >= FILTER_SERVERS_SINCE:
        body = yield from RegisterBrokerBody.reading(request.body, compressed or request.body.startswith(ZLIB))
        table, servers = body.topic_config_serialize_wrapper, body.filter_server_list
    else:
        table = TopicConfigTable.decode(request.body)
    version = table.data_version or DataVersion(counter=0, timestamp=0)
    return _Body(version, list(table.topic_config_table.values()), servers)


async def _in_turns(reading: Generator[None, None, _Body]) -> _Body:
    """Let others run whenever a reading pauses."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            read: _Body = end.value
            return read
        await asyncio.sleep(0)


def _unreadable(conn: Conn, header: RegisterBrokerRequest, error: ProtocolError) -> ResponseError:
    log.warning("%s: the registration of %s is not readable: %s", conn.peer, header.broker_addr, error)
    return ResponseError(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}")


def _increment_of(header: RegisterBrokerRequest) -> DataVersion | None:
    if header.increment_of is None:
        return None
    try:
        return DataVersion.decode(header.increment_of.encode())
    except ProtocolError as error:
        raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the field incrementOf is no DataVersion: {error}") from None


def _check_names(header: RegisterBrokerRequest) -> None:
    for key, value in (
        ("brokerName", header.broker_name),
        ("brokerAddr", header.broker_addr),
        ("clusterName", header.cluster_name),
    ):
        if not value.strip():
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the field {key} is empty")
        if fault := values.fault(value, _LONGEST_NAME):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the field {key} is {values.shown(value)}: {fault}")


def _check_crc(body: bytes, crc: int) -> None:
    """Compare with Java's CRC: 31 bits over the body as sent; 0 or nothing means unchecked."""
    if crc and crc & _INT31 != crc32(body) & _INT31:
        raise ResponseError(ResponseCode.SYSTEM_ERROR, "crc32 not match")

"""The cluster as a blocking reader and writer sees it: name servers, routes, brokers, offsets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.client.cluster.route import publish_queues, subscribe_queues
from rmq.client.cluster.turns import Doubt, Turns, knows_no_topic
from rmq.protocol import namespaces
from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    ResponseError,
    RMQError,
    TransportError,
)
from rmq.protocol.header import Header
from rmq.protocol.headers.client import UnregisterClientRequest
from rmq.protocol.headers.namesrv import GetRouteInfoRequest
from rmq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.protocol.names import MASTER_ID, is_dlq_topic, is_retry_topic, is_system_topic
from rmq.protocol.queue import MessageQueue
from rmq.protocol.subscription import build
from rmq.protocol.sysflags import PERM_READ, PERM_WRITE
from rmq.runtime.dial import Dial, RealDial
from rmq.spark.cluster.links import Link, open_link
from rmq.spark.cluster.notices import Notices
from rmq.spark.options.checked import Endpoint

if TYPE_CHECKING:
    from rmq.remoting.peer_tls import PeerTls

__all__ = ["CALL_SECONDS", "Bound", "Brokers", "connect"]

#: Seconds a call and a connection attempt may take.
CALL_SECONDS = 5.0
#: Seconds after which a route is asked for again.
ROUTE_SECONDS = 5.0
#: Seconds for which nobody reads from a slave that was silent: its master may name it with every answer.
SHUN_SECONDS = 60.0
#: Seconds for which a broker that hangs is not asked for offsets: each question would hold up the others as long again.
HANGS_SECONDS = 10.0
#: Seconds for which a name server alone is not believed that names a master which was lost or has refused.
SUSPECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a queue, and whether its master said so: a slave may be behind."""

    offset: int
    by_master: bool


@dataclass(slots=True)
class _Route:
    data: TopicRouteData
    asked: float


class Brokers:
    """Calls to one cluster; connections are opened at first use and kept."""

    def __init__(self, endpoint: Endpoint, dial: Dial | None = None) -> None:
        self.endpoint = endpoint
        self.dial: Dial = dial if dial is not None else RealDial()
        self.notices = Notices(self.dial.monotonic)
        self._tls = _peer_tls(endpoint)
        self._links: dict[str, Link] = {}
        self._routes: dict[str, _Route] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._announced: set[str] = set()
        #: Until when: addresses nobody reads from, and those that are not asked for offsets.
        self._shunned: dict[str, float] = {}
        self._hung: dict[str, float] = {}
        #: Until when: addresses at which the master may not be any more.
        self._suspected: dict[str, float] = {}
        #: What was said last about queues whose offsets were not told.
        self.refused: dict[MessageQueue, ResponseError] = {}
        self._name_servers = Turns(endpoint.name_servers, self.dial.monotonic)

    # -- connections --------------------------------------------------------------------------------------------------

    def link(self, address: str) -> Link:
        """The connection to an address. :raises ConnectFailed: it cannot be opened."""
        link = self._links.get(address)
        if link is None or link.closed:
            link = self._links[address] = open_link(self.dial, address, self.endpoint, CALL_SECONDS, self._tls)
        return link

    def call(self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
        """Ask and wait.

        :raises ResponseError: an answer that is not success. :raises TransportError: none.
        """
        reply = self.link(address).ask(Command.request(code, header, body), CALL_SECONDS)
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark, address)
        return reply

    def ask(self, address: str, commands: Sequence[Command]) -> list[Command]:
        """What is answered to questions that may be asked twice, whatever the codes.

        A connection that was open already may have ended long ago, with the server long there again: the questions are
        then asked over a new one. :raises TransportError: no answer.
        """
        kept = self._links.get(address)
        try:
            return self.link(address).ask_all(commands, CALL_SECONDS)
        except ConnectionLost:
            if kept is None or self._links.get(address) is not kept:
                raise
        return self.link(address).ask_all(commands, CALL_SECONDS)

    def close(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # -- routes -------------------------------------------------------------------------------------------------------

    def _ask_name_servers(self, code: RequestCode, header: Header | None, doubted: Doubt) -> Command:
        """What the name servers answer.

        :raises ConnectFailed: none answers. :raises ConfigError: who answers is something else.
        """
        question = self._name_servers.ask(doubted)
        while (address := question.server) is not None:
            try:
                (reply,) = self.ask(address, [Command.request(code, header)])
            except TransportError as error:
                question.failed(error)
                continue
            if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ConfigError(f"{address} is no name server (option nameServer): it does not know routes")
            question.answered(reply)
        if question.reply is None:
            servers = ";".join(self.endpoint.name_servers)
            raise ConnectFailed(f"no name server answers ({servers}, option nameServer): {question.error}")
        return question.reply

    def topics(self, pattern: str) -> list[str]:
        """The topics whose whole name matches, without system, retry and dead-letter ones; sorted."""
        matches = re.compile(pattern).fullmatch
        return [name for name in self._listed() if matches(name) and not (is_retry_topic(name) or is_dlq_topic(name))]

    def dead_letter_topics(self) -> list[str]:
        """The topics that hold dead letters, sorted."""
        return [name for name in self._listed() if is_dlq_topic(name)]

    def _listed(self) -> list[str]:
        """Every topic of the namespace but system ones, sorted."""
        reply = self._ask_name_servers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, _lists_nothing)
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark)
        space = self.endpoint.namespace
        found = set()
        for name in TopicList.decode(reply.body).topic_list:
            own = namespaces.unwrap(name, space) if space else name
            if not is_system_topic(name) and (not space or own != name):
                found.add(own)
        return sorted(found)

    def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData | None:
        """The route of a topic, a few seconds old at most; None when no broker serves the topic.

        :raises ConnectFailed: no name server answers.
        """
        known = self._routes.get(topic)
        now = self.dial.monotonic()
        if known is not None and not fresh and now - known.asked < ROUTE_SECONDS:
            return known.data
        header = GetRouteInfoRequest(topic=self.endpoint.wrap(topic), accept_standard_json_only=True)
        try:
            reply = self._ask_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, self._may_mislead)
        except ConnectFailed as error:
            if known is None or fresh:
                raise
            self.notices.warn(f"{error}; going on with the brokers known")
            known.asked = now
            return known.data
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.pop(topic, None)
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark)
        data = TopicRouteData.decode(reply.body)
        self._routes[topic] = _Route(data, now)
        for broker in data.broker_datas:
            self._addresses[broker.broker_name] = {int(number): addr for number, addr in broker.broker_addrs.items()}
        return data

    def _may_mislead(self, reply: Command) -> bool:
        """The doubt about a route: one without a master, or with one that is suspected. Another server may know better.

        A server that the members of a group cannot reach names for minutes whoever led them before.
        """
        if knows_no_topic(reply):
            return True
        if reply.code != ResponseCode.SUCCESS or len(self.endpoint.name_servers) < 2:
            return False
        masters = [data.broker_addrs.get(MASTER_ID) for data in TopicRouteData.decode(reply.body).broker_datas]
        now = self.dial.monotonic()
        return any(master is None or self._suspected.get(master, now) > now for master in masters)

    def queues(self, topic: str, perm: int = PERM_READ) -> list[MessageQueue] | None:
        """The queues of a topic that may be read (or, with PERM_WRITE, written), sorted; None: no route."""
        data = self.route(topic)
        if data is None:
            return None
        return publish_queues(topic, data) if perm == PERM_WRITE else subscribe_queues(topic, data)

    def not_readable(self, topic: str) -> tuple[list[str], int]:
        """The brokers that serve a topic and do not let it be read, and how many serve it."""
        data = self.route(topic)
        served = data.queue_datas if data is not None else []
        return sorted(each.broker_name for each in served if not each.perm & PERM_READ), len(served)

    def addresses(self, queue: MessageQueue, first: int = 0) -> list[tuple[int, str]]:
        """(broker id, address) of those who hold a queue: ``first``, then the master, then slaves.

        :raises ConnectFailed: nobody does now.
        """
        self.route(queue.topic)
        found = self._addresses.get(queue.broker_name)
        if not found:
            raise ConnectFailed(f"no broker named {queue.broker_name} serves {queue.topic} now")
        return sorted(found.items(), key=lambda each: (each[0] != first, each[0]))

    def master(self, queue: MessageQueue) -> str:
        """:raises ConnectFailed: the broker has no master now."""
        for number, address in self.addresses(queue):
            if number == 0:
                return address
        raise ConnectFailed(f"the broker {queue.broker_name} of {queue.topic} has no master now")

    def forget(self, queue: MessageQueue) -> None:
        """Ask for the route of a queue's topic again before it is used next."""
        if queue.topic in self._routes:
            self._routes[queue.topic].asked = float("-inf")

    def suspect(self, queue: MessageQueue) -> None:
        """Who was known as the master of a queue was lost, or has refused what a master does not refuse.

        The route is asked for before it is used next, as after :meth:`forget`, and a name server that names the same is
        not believed alone.
        """
        master = self._addresses.get(queue.broker_name, {}).get(MASTER_ID)
        if master is not None:
            self._suspected[master] = self.dial.monotonic() + SUSPECT_SECONDS
        self.forget(queue)

    def shun(self, address: str) -> None:
        """Read nothing from an address for a while."""
        self._shunned[address] = self.dial.monotonic() + SHUN_SECONDS

    def is_shunned(self, address: str) -> bool:
        return self._shunned.get(address, float("-inf")) > self.dial.monotonic()

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _ask_each(
        self,
        queues: Iterable[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], Header],
        empty: ResponseCode = ResponseCode.SUCCESS,
    ) -> dict[MessageQueue, tuple[int, Command]]:
        """One question a queue, those of a broker together; what nobody answered with success is left out.

        :param empty: a code that is an answer, too.
        :returns: (broker id, answer). :raises ConfigError: a broker does not know our access key, or forbids it to ask.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        found: dict[MessageQueue, tuple[int, Command]] = {}
        for group in by_broker.values():
            number, address, answers = self._ask_holder(
                group, [Command.request(code, header(queue)) for queue in group]
            )
            for queue, answer in zip(group, answers, strict=False):
                if answer.code in (ResponseCode.SUCCESS, empty):
                    found[queue] = (number, answer)
                    self.refused.pop(queue, None)
                else:
                    self._note(queue, ResponseError(answer.code, answer.remark, address))
        return found

    def _ask_holder(
        self, queues: Sequence[MessageQueue], commands: Sequence[Command]
    ) -> tuple[int, str, list[Command]]:
        """Ask who holds queues of one broker: the master, or a slave where there is none.

        Where a connection has ended, or there is no answer, the route is asked for again first: who is there by now may
        be no master any more, and have less than there is.

        :returns: (broker id, address, answers); no answers: nobody gives any.
        """
        first, failed = queues[0], set[str]()
        while True:
            try:
                holders = self.addresses(first)
            except ConnectFailed as error:
                self.notices.warn(str(error))
                return 0, "", []
            now = self.dial.monotonic()
            left = [each for each in holders if each[1] not in failed and self._hung.get(each[1], now) <= now]
            if not left:
                return 0, "", []
            number, address = left[0]
            kept = self._links.get(address)
            try:
                return number, address, self.link(address).ask_all(commands, CALL_SECONDS)
            except TransportError as error:
                if kept is None or self._links.get(address) is not kept or not isinstance(error, ConnectionLost):
                    failed.add(address)
                    self.notices.warn(str(error))
                if isinstance(error, RequestTimeout):
                    self._hung[address] = self.dial.monotonic() + HANGS_SECONDS
                self.suspect(first)

    def _note(self, queue: MessageQueue, refusal: ResponseError) -> None:
        """Keep what a broker said instead of an answer. :raises ConfigError: it will say so for ever."""
        # Java 4 says 1 and the exception's name, Java 5 a code of its own.
        if refusal.code == ResponseCode.NO_PERMISSION or "AclException" in (refusal.remark or ""):
            raise ConfigError(f"{refusal} (options accessKey and secretKey, or what this account may read)")
        self.refused[queue] = refusal
        self.notices.warn(f"{queue}: no offsets are told: {refusal}")

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bound]:
        """Where queues end: the offset their next message gets. Queues whose brokers are away are left out."""
        asked = self._ask_each(
            queues,
            RequestCode.GET_MAX_OFFSET,
            lambda queue: GetMaxOffsetRequest(topic=self.endpoint.wrap(queue.topic), queue_id=queue.queue_id),
        )
        return {
            queue: Bound(reply.header(GetMaxOffsetResponse).offset, number == 0)
            for queue, (number, reply) in asked.items()
        }

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Where queues begin: the offset of their oldest message. Queues whose brokers are away are left out."""
        asked = self._ask_each(
            queues,
            RequestCode.GET_MIN_OFFSET,
            lambda queue: GetMinOffsetRequest(topic=self.endpoint.wrap(queue.topic), queue_id=queue.queue_id),
        )
        return {queue: reply.header(GetMinOffsetResponse).offset for queue, (_, reply) in asked.items()}

    def oldest_times(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """When the oldest message of each queue was stored, milliseconds; 0: it is empty.

        Queues whose brokers are away are left out.
        """
        asked = self._ask_each(
            queues,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            lambda queue: GetEarliestMsgStoretimeRequest(
                topic=self.endpoint.wrap(queue.topic), queue_id=queue.queue_id
            ),
        )
        return {
            queue: max(0, reply.header(GetEarliestMsgStoretimeResponse).timestamp)
            for queue, (_, reply) in asked.items()
        }

    def group_offsets(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Where a group stands in queues, None where it has not been. Queues whose brokers are away are left out."""
        asked = self._ask_each(
            queues,
            RequestCode.QUERY_CONSUMER_OFFSET,
            lambda queue: QueryConsumerOffsetRequest(
                consumer_group=self.endpoint.wrap(group),
                topic=self.endpoint.wrap(queue.topic),
                queue_id=queue.queue_id,
            ),
            ResponseCode.QUERY_NOT_FOUND,
        )
        found: dict[MessageQueue, int | None] = {}
        for queue, (_, reply) in asked.items():
            if reply.code == ResponseCode.SUCCESS:
                offset = reply.header(QueryConsumerOffsetResponse).offset
                found[queue] = offset if offset is not None and offset >= 0 else None
            else:
                found[queue] = None
        return found

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Tell the masters where a group stands, for others to see.

        :raises RMQError: one was not told; the others were.
        """
        wrapped = self.endpoint.wrap(group)
        by_master: dict[str, dict[MessageQueue, int]] = {}
        failure: RMQError | None = None
        for queue, offset in offsets.items():
            try:
                by_master.setdefault(self.master(queue), {})[queue] = offset
            except RMQError as error:
                failure = error
        for address, those in by_master.items():
            try:
                self._announce(address, wrapped, those)
                self._tell(address, wrapped, those)
            except RMQError as error:
                failure = error
                self.suspect(next(iter(those)))
        if failure is not None:
            raise failure

    def _tell(self, address: str, wrapped: str, offsets: Mapping[MessageQueue, int]) -> None:
        headers = [
            UpdateConsumerOffsetRequest(
                consumer_group=wrapped,
                topic=self.endpoint.wrap(queue.topic),
                queue_id=queue.queue_id,
                commit_offset=offset,
            )
            for queue, offset in offsets.items()
        ]
        # The first of a topic alone: of first offsets that come at once a Java broker, which has threads for them,
        # keeps one and loses the others.
        first = {header.topic: header for header in reversed(headers)}
        others = [header for header in headers if header is not first[header.topic]]
        for some in filter(None, ([*first.values()], others)):
            commands = [Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header) for header in some]
            for reply in self.ask(address, commands):
                if reply.code != ResponseCode.SUCCESS:
                    raise ResponseError(reply.code, reply.remark, address)

    def _announce(self, address: str, wrapped: str, queues: Iterable[MessageQueue]) -> None:
        """Show the group to a master for a moment: mqadmin finds a group by the retry topic that this makes.

        Not for longer: a member that never consumes would be given queues of a group that others share.
        """
        if address in self._announced:
            return
        topics = sorted({self.endpoint.wrap(queue.topic) for queue in queues})
        client = f"rmq-spark@{os.getpid()}"
        data = ConsumerData(
            group_name=wrapped,
            consume_type="CONSUME_ACTIVELY",
            subscription_data_set=[build(topic, None) for topic in topics],
        )
        beat = HeartbeatData(client_id=client, consumer_data_set=[data])
        leave = UnregisterClientRequest(client_id=client, consumer_group=wrapped)
        self.call(address, RequestCode.HEART_BEAT, None, beat.encode())
        self.call(address, RequestCode.UNREGISTER_CLIENT, leave)
        self._announced.add(address)


def _lists_nothing(reply: Command) -> bool:
    return reply.code == ResponseCode.SUCCESS and not TopicList.decode(reply.body).topic_list


def _peer_tls(endpoint: Endpoint) -> PeerTls | None:
    tls = endpoint.tls
    if tls is None:
        return None
    from rmq.remoting.peer_tls import SPARK, TlsOptions

    return TlsOptions(tls.verify, tls.ca, tls.cert, tls.key, tls.password, None, tls.server_name, tls.check_host).peer(
        SPARK
    )


_connected: dict[tuple[int, Endpoint], Brokers] = {}


def connect(endpoint: Endpoint) -> Brokers:
    """The cluster's connections of this process: Spark uses its workers again and again.

    A forked child has none yet: its parent's are not its own.
    """
    found = _connected.get((os.getpid(), endpoint))
    if found is None:
        found = _connected[os.getpid(), endpoint] = Brokers(endpoint)
    return found


def missing_topics(brokers: Brokers, topics: Sequence[str]) -> list[str]:
    """Those that no broker serves."""
    return [topic for topic in topics if brokers.route(topic, fresh=True) is None]


def require_topics(brokers: Brokers, topics: Sequence[str]) -> None:
    """:raises ConfigError: a topic does not exist."""
    for topic in missing_topics(brokers, topics):
        wrapped = brokers.endpoint.wrap(topic)
        options = "option topic" if wrapped == topic else f"as {wrapped}; options topic and namespace"
        raise ConfigError(
            f"the topic {topic} does not exist: no broker has registered it ({options}; "
            "make it with mqadmin updateTopic)"
        )

"""The name servers a client asks: which there are, which one answers (protocol.md 6.5)."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Callable, Iterable

from rmq.client.cluster.turns import Doubt, Turns, knows_no_topic
from rmq.protocol import addresses
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import BrokerData, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode, version_name
from rmq.protocol.command import VERSION, Command
from rmq.protocol.errors import ClientError, ConfigError, ConnectFailed, ConnectTimeout, ResponseError, TransportError
from rmq.protocol.headers.namesrv import GetRouteInfoRequest
from rmq.protocol.names import MASTER_ID
from rmq.remoting.client import RemotingClient
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["NameServers", "parse_addresses"]

log = logger(__name__)

#: Seconds that a name's resolution may take, and the addresses of one that are asked at most.
_RESOLVE_SECONDS = 3.0
_MOST_RESOLVED = 16
#: Seconds for which a broker that could not be connected to counts as one that is not there.
_LATELY = 30.0


def parse_addresses(text: str) -> list[str]:
    """``host:port`` texts from a list separated by ``;`` or ``,``; IPv6 as ``[::1]:9876``; ``http://`` is cut.

    :raises ClientError: an address has no port.
    """
    found = []
    for item in text.replace(",", ";").split(";"):
        address = item.strip().rsplit("/", 1)[-1]
        if not address:
            continue
        try:
            addresses.parse(address)
        except ConfigError:
            raise ClientError(f"the name server address {address!r} is not host:port, such as 127.0.0.1:9876") from None
        if address not in found:
            found.append(address)
    return found


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _knows_no_broker(reply: Command) -> bool:
    return reply.code == ResponseCode.SUCCESS and not ClusterInfo.decode(reply.body).broker_addr_table


class NameServers:
    """Asks one name server while it works, the next one when it does not.

    :param addresses: from the settings; empty = ask the HTTP address server named by the environment's
        ROCKETMQ_NAMESRV_DOMAIN (and ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP).
    """

    def __init__(self, world: World, remoting: RemotingClient, addresses: Iterable[str], unit_name: str | None) -> None:
        self._world = world
        self._remoting = remoting
        self._unit_name = unit_name
        #: As they were given, and of those that are names the addresses they lead to.
        self._given: list[str] = []
        self._resolved: dict[str, list[str]] = {}
        self._turns = Turns((), world.clock.monotonic)
        #: Whether a broker refused lately what a master does not refuse, or gave no answer.
        self.suspects: Callable[[str], bool] = lambda address: False
        self.update(addresses)

    @property
    def addresses(self) -> list[str]:
        """As they were given."""
        return list(self._given)

    @property
    def needs_lookup(self) -> bool:
        """There is no list in the settings: the address server is asked."""
        return not self._given or self._looked_up

    _looked_up = False

    def update(self, addresses: Iterable[str]) -> None:
        """Take a new list; servers that are not on it are not asked again (field case B089)."""
        new = list(addresses)
        if sorted(new) != sorted(self._given):
            self._world.random.shuffle(new)
            self._given = new
            self._take()

    def _take(self) -> bool:
        """Ask whom the list leads to, and nobody else. :returns: whether that is somebody new."""
        found = [one for given in self._given for one in self._resolved.get(given, (given,))]
        new, old = list(dict.fromkeys(found)), self._turns.servers
        for gone in set(old) - set(new):
            self._remoting.disconnect(gone, "no longer a name server of ours")
        self._turns.replace(new)
        return not set(new) <= set(old)

    async def resolve(self, timeout: float = _RESOLVE_SECONDS) -> bool:
        """Look up again where the names among the servers lead; one that cannot be resolved leads where it did.

        :param timeout: seconds for all of them, which are looked up side by side.
        :returns: whether there is somebody new to ask.
        """
        names = [given for given in self._given if not _is_literal(addresses.parse(given)[0])]
        if names:
            await asyncio.gather(*(self._resolve(given, timeout) for given in names))
        return self._take()

    async def _resolve(self, given: str, timeout: float) -> None:
        host, port = addresses.parse(given)
        try:
            async with patience.timeout(timeout):
                found = await self._world.network.resolve(host)
        except (OSError, TimeoutError, UnicodeError) as error:
            log.debug("the name %s of a name server is not resolved: %s", host, error)
            return
        if found:
            self._resolved[given] = [addresses.join(one, port) for one in found[:_MOST_RESOLVED]]
            self._remoting.server_names.update(dict.fromkeys(self._resolved[given], host))

    async def lookup(self) -> None:
        """Ask the HTTP address server for the list; keeps the old one when it does not answer."""
        domain = os.environ.get("ROCKETMQ_NAMESRV_DOMAIN")
        if not domain:
            if not self._given:
                raise ClientError(
                    "no name server: give namesrv='host:port', or set NAMESRV_ADDR (or ROCKETMQ_NAMESRV_DOMAIN)"
                )
            return
        group = os.environ.get("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "nsaddr")
        url = f"http://{domain if ':' in domain else domain + ':8080'}/rocketmq/{group}"
        if self._unit_name:
            url += f"-{self._unit_name}?nofix=1"
        headers = {
            "Client-Version": version_name(VERSION),
            "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8",
            "Metaq-Client-RequestTS": str(self._world.clock.now_ms()),
        }
        try:
            status, body = await self._world.network.http_get(url, headers, 3.0)
            lines = body.decode("utf-8", "replace").strip().splitlines()
            if status != 200 or not lines:
                raise OSError(f"status {status}")
            self.update(parse_addresses(lines[0]))
            self._looked_up = True
        except (TimeoutError, OSError, ClientError) as error:
            if not self._given:
                raise ConnectFailed(f"the address server {url} gave no name servers: {error}") from error
            log.warning("the address server %s did not answer: %s", url, error)

    async def request(
        self, command: Command, timeout: float, *, doubted: Doubt | None = None, unknown: Doubt | None = None
    ) -> Command:
        """Ask the servers in turn until one answers; each but the last gets a share of the time (field case B088).

        So does the last one where it is only to confirm what another one has said.

        :param timeout: seconds for all of them together.
        :param doubted: whether an answer is believed only when every server that answers gives one like it: one that
            has just been started knows nothing.
        :param unknown: whether an answer says that names are to be looked up again; as ``doubted`` when not given.
        :raises TransportError: none answered.
        """
        unknown = unknown or doubted
        if not self._given:
            await self.lookup()
        deadline = self._world.clock.monotonic() + timeout
        try:
            reply = await self._ask(command, deadline, doubted, unknown)
            if unknown is None or not unknown(reply) or not await self._lead_elsewhere(deadline, timeout):
                return reply
        except TransportError:
            if not await self._lead_elsewhere(deadline, timeout) or self._world.clock.monotonic() >= deadline:
                raise
        return await self._ask(command, deadline, doubted, unknown)

    async def _lead_elsewhere(self, deadline: float, timeout: float) -> bool:
        """Names may lead elsewhere by now; a resolver that hangs costs what is left, or a tenth of the time."""
        left = max(deadline - self._world.clock.monotonic(), timeout / 10)
        return await self.resolve(min(left, _RESOLVE_SECONDS))

    async def _ask(self, command: Command, deadline: float, doubted: Doubt | None, unknown: Doubt | None) -> Command:
        clock = self._world.clock
        question = self._turns.ask(doubted, unknown)
        while (address := question.server) is not None:
            rest = deadline - clock.monotonic()
            if rest <= 0:
                break
            try:
                reply = await self._remoting.request(address, command, rest / question.shares)
            except TransportError as failed:
                question.failed(failed)
                log.debug("the name server %s does not answer: %s", address, failed)
            else:
                question.answered(reply)
        if question.reply is not None:
            return question.reply
        tried = ", ".join(self._turns.servers)
        late = question.error is None or isinstance(question.error, TimeoutError)
        error = (ConnectTimeout if late else ConnectFailed)(
            f"no name server answered ({tried}): {question.error or 'no time left'}"
        )
        error.of_name_server = True
        raise error.about(address=None if question.error is None else question.error.address) from question.error

    async def cluster_info(self, timeout: float) -> ClusterInfo:
        """Clusters and brokers; without any when no server that answers knows one.

        :raises TransportError: none answered. :raises ResponseError: it answered with something else.
        """
        command = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        reply = await self.request(command, timeout, doubted=self._may_mislead_about_brokers, unknown=_knows_no_broker)
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark)
        return ClusterInfo.decode(reply.body)

    async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
        """The route of a topic; None when no broker has it, as all servers that answer say.

        :raises ResponseError: the name server answered with something else.
        """
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        reply = await self.request(command, timeout, doubted=self._may_mislead, unknown=knows_no_topic)
        if reply.code == ResponseCode.SUCCESS and reply.body:
            return TopicRouteData.decode(reply.body)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        remark = (reply.remark or "no remark").strip()
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            remark += ": is this the address of a name server? Brokers know no routes"
        raise ResponseError(reply.code, remark, self._turns.turn)

    def _may_mislead(self, reply: Command) -> bool:
        """The doubt about a route whose master is not there, was not reached lately, or is none by its own word.

        Another server may know better: a master of a set that elects it is another one from one second to the next, and
        a server that the set's members cannot reach goes on naming the old one until its heartbeats are missed, for two
        minutes.
        """
        if knows_no_topic(reply):
            return True
        if reply.code != ResponseCode.SUCCESS or not reply.body or len(self._turns.servers) < 2:
            return False
        return self._doubts(TopicRouteData.decode(reply.body).broker_datas)

    def _may_mislead_about_brokers(self, reply: Command) -> bool:
        """The same of what a server says of all brokers."""
        if _knows_no_broker(reply):
            return True
        if reply.code != ResponseCode.SUCCESS or len(self._turns.servers) < 2:
            return False
        return self._doubts(ClusterInfo.decode(reply.body).broker_addr_table.values())

    def _doubts(self, brokers: Iterable[BrokerData]) -> bool:
        for master in (data.broker_addrs.get(MASTER_ID) for data in brokers):
            if master is None or self._remoting.unreachable(master, _LATELY) or self.suspects(master):
                return True
        return False

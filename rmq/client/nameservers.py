"""The name servers a client asks: which there are, which one answers (protocol.md 6.5)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rmq.protocol import addresses
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode, version_name
from rmq.protocol.command import VERSION, Command
from rmq.protocol.errors import ClientError, ConfigError, ConnectFailed, ResponseError, TransportError
from rmq.protocol.headers.namesrv import GetRouteInfoRequest
from rmq.remoting.client import RemotingClient
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["NameServers", "parse_addresses"]

log = logger(__name__)


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


class NameServers:
    """Asks one name server while it works, the next one when it does not.

    :param addresses: from the settings; empty = ask the HTTP address server named by the environment's
        ROCKETMQ_NAMESRV_DOMAIN (and ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP).
    """

    def __init__(self, world: World, remoting: RemotingClient, addresses: Iterable[str], unit_name: str | None) -> None:
        self._world = world
        self._remoting = remoting
        self._unit_name = unit_name
        self._addresses: list[str] = []
        self._at = 0
        self.update(addresses)

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    @property
    def needs_lookup(self) -> bool:
        """There is no list in the settings: the address server is asked."""
        return not self._addresses or self._looked_up

    _looked_up = False

    def update(self, addresses: Iterable[str]) -> None:
        """Take a new list; servers that are not on it are not asked again (field case B089)."""
        new = list(addresses)
        if sorted(new) != sorted(self._addresses):
            for gone in set(self._addresses) - set(new):
                self._remoting.disconnect(gone, "no longer a name server of ours")
            self._world.random.shuffle(new)
            self._addresses = new
            self._at = 0

    async def lookup(self) -> None:
        """Ask the HTTP address server for the list; keeps the old one when it does not answer."""
        domain = os.environ.get("ROCKETMQ_NAMESRV_DOMAIN")
        if not domain:
            if not self._addresses:
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
            if not self._addresses:
                raise ConnectFailed(f"the address server {url} gave no name servers: {error}") from error
            log.warning("the address server %s did not answer: %s", url, error)

    async def request(self, command: Command, timeout: float) -> Command:
        """Ask the servers in turn until one answers; each but the last gets a share of the time (field case B088).

        :param timeout: seconds for all of them together.
        :raises TransportError: none answered.
        """
        if not self._addresses:
            await self.lookup()
        clock = self._world.clock
        deadline = clock.monotonic() + timeout
        error: TransportError | None = None
        servers, first = self._addresses, self._at
        for turn in range(len(servers)):
            at = (first + turn) % len(servers)
            address = servers[at]
            rest = deadline - clock.monotonic()
            if rest <= 0:
                break
            try:
                return await self._remoting.request(address, command, rest / (len(servers) - turn))
            except TransportError as failed:
                error = failed
                # Calls side by side fail together: the first of them moves on, the others find that done.
                if self._addresses is servers and self._at == at:
                    self._at = (at + 1) % len(servers)
                log.debug("the name server %s does not answer: %s", address, failed)
        tried = ", ".join(servers)
        raise ConnectFailed(f"no name server answered ({tried}): {error or 'no time left'}") from error

    async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
        """The route of a topic; None when no broker has it.

        :raises ResponseError: the name server answered with something else.
        """
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        reply = await self.request(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout)
        if reply.code == ResponseCode.SUCCESS and reply.body:
            return TopicRouteData.decode(reply.body)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        remark = (reply.remark or "no remark").strip()
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            remark += ": is this the address of a name server? Brokers know no routes"
        raise ResponseError(reply.code, remark, self._addresses[self._at])

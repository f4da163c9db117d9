"""Looks at a running cluster for what is open: as a stranger without TLS, as one with it, and as an operator."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from rmq.auth.credentials import Signer
from rmq.auth.settings import AclSettings
from rmq.broker.settings import BrokerSettings
from rmq.cli.command import Refused
from rmq.cli.secure.authority import described, need_cryptography
from rmq.cli.secure.findings import Finding, of_certificate, of_settings, of_slaves
from rmq.client.account import Access, access_of
from rmq.client.admin import AdminClient
from rmq.client.settings import AdminSettings
from rmq.config.sources import parse_properties
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, RMQError
from rmq.remoting.certificates import client_context
from rmq.remoting.client import RemotingClient, split_address
from rmq.runtime import patience
from rmq.runtime.world import World

__all__ = ["look_at_cluster"]

_SECONDS = 5.0
#: Keys that a running daemon tells, and that matter.
_ASKED = frozenset({
    "aclEnable", "aclWhiteListSkipsChecks", "aclTraceTopicOpen", "aclUncheckedCodes", "aclConfigShowsSecrets",
    "aclCredentialsFile", "autoCreateTopicEnable", "bindAddress", "brokerIP1", "brokerIP2",
    "haAllowedAddresses", "metricsExporterType",
    "metricsPromExporterHost", "metricsTokenFile", "namesrvAddr", "tls.client.authServer", "tls.client.checkHostname",
    "tls.client.trustCertPath",
    "tls.enable",
    "tls.server.certPath", "tls.server.mode", "tls.server.need.client.auth", "tls.server.trustCertPath",
    "tls.test.mode.enable",
})  # fmt: skip
#: What anybody may ask who is let in: a list of topics, and what a broker is doing.
_OPEN = {
    NamesrvSettings: RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    BrokerSettings: RequestCode.GET_BROKER_RUNTIME_INFO,
}


#: What Java's daemons have no settings for.
_JAVAS_NAMESRV = "one of Java's knows no accounts: keep its port inside your network"
_JAVAS_HA = "one of Java's asks nobody who he is: keep that port inside your network"


async def look_at_cluster(namesrv: str, credentials: str | None, now: datetime, days: int) -> list[Finding]:
    """What is open at each name server and broker, each once.

    :param credentials: the credentials file of an operator; else what the environment says.
    :raises RMQError: nobody answers, or not to this operator.
    """
    options: Any = {"namesrv": namesrv} | ({"credentials_file": credentials} if credentials else {})
    world = World.real()
    access = access_of(AdminSettings.of(options), world.files)
    found: dict[Finding, None] = {}
    places: list[tuple[str, type[AclSettings]]] = []
    async with AdminClient(**options) as admin:
        places += [(address, NamesrvSettings) for address in admin.name_server_addresses]
        try:
            info = await admin.cluster_info()
        except RMQError as error:
            raise Refused(f"the cluster at {namesrv} cannot be looked at: {error}") from None
    slaves: dict[str, list[str]] = {}
    for brokers in info.broker_addr_table.values():
        places += [(address, BrokerSettings) for address in brokers.broker_addrs.values()]
        others = [address for number, address in brokers.broker_addrs.items() if number]
        slaves[brokers.broker_addrs.get(0, "")] = [split_address(address)[0] for address in others]
    for address, kind in dict.fromkeys(places):
        try:
            for one in await _look(world, access, address, kind, now, days, slaves.get(address, ())):
                found[one] = None
        except RMQError as error:
            raise Refused(f"{address} cannot be looked at: {error}") from None
    return list(found)


async def _look(
    world: World, access: Access, address: str, kind: type[AclSettings], now: datetime, days: int, slaves: Iterable[str]
) -> list[Finding]:
    found: list[Finding] = []
    judged, ours = await _settings(world, access, address, kind, slaves)
    careless = client_context(verify=False)
    plain = await _served(world, address, kind, None)
    if plain is not None:
        found.append(Finding(
            address, "it takes connections without TLS", "messages and signatures go in clear text",
            "set tls.server.mode=enforcing there",
        ))  # fmt: skip
    stranger = plain or await _served(world, address, kind, careless) or False
    if stranger:
        found.append(Finding(
            address, "it answers requests without an account", "whoever reaches it can do what an operator can",
            "set aclEnable=true there" if ours or kind is BrokerSettings else _JAVAS_NAMESRV,
        ))  # fmt: skip
    shown = await _certificate(world, address, careless)
    if shown is not None:
        need_cryptography()
        there = described(shown.encode())
        if there.name == there.issuer:
            found.append(Finding(
                address, f"its certificate is its own word ({there.name})", "clients can check it against nothing else",
                "set tls.server.certPath and tls.server.keyPath, or have clients trust this one (tls_ca_file)",
            ))  # fmt: skip
        found += of_certificate(address, there.ends, now, days)
    seen = {one.what for one in found}
    return found + [one for one in judged if not _told(one, seen)]


def _told(one: Finding, seen: set[str]) -> bool:
    """Whether something that was tried says the same as a setting."""
    if one.what.startswith("tls.server.mode"):
        return "it takes connections without TLS" in seen
    return one.what.endswith("without accounts") and "it answers requests without an account" in seen


async def _served(world: World, address: str, kind: type[AclSettings], tls: ssl.SSLContext | None) -> bool | None:
    """Whether a stranger gets what he asks for; None: he gets no answer at all."""
    async with RemotingClient(world, tls=tls, connect_timeout=_SECONDS, name="check") as client:
        try:
            answer = await client.request(address, Command.request(_OPEN[kind], None), _SECONDS)
        except RMQError:
            return None
    return answer.code == ResponseCode.SUCCESS


async def _certificate(world: World, address: str, context: ssl.SSLContext) -> str | None:
    """The certificate that it shows, PEM; None: it speaks no TLS."""
    host, port = split_address(address)
    try:
        async with patience.timeout(_SECONDS):
            transport, _ = await world.network.connect(asyncio.Protocol, host, port, ssl_context=context)
    except (OSError, TimeoutError):
        return None
    try:
        shown: bytes | None = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        transport.close()
    return None if shown is None else ssl.DER_cert_to_PEM_cert(shown)


async def _settings(
    world: World, access: Access, address: str, kind: type[AclSettings], slaves: Iterable[str]
) -> tuple[list[Finding], bool]:
    """What its own settings leave open, as it tells an operator, and whether it is one of ours."""
    code = RequestCode.GET_BROKER_CONFIG if kind is BrokerSettings else RequestCode.GET_NAMESRV_CONFIG
    async with RemotingClient(world, tls=access.peer(), connect_timeout=_SECONDS, name="check") as client:
        if access.account is not None:
            client.signer = Signer(access.account).sign
        answer = await client.ask(address, Command.request(code, None), _SECONDS)
    told = {item.key: item.value or "" for item in parse_properties(answer.body.decode("utf-8", "replace"), address)}
    known = {key: told[key] for key in _ASKED & told.keys() if kind.line(key) is not None}
    try:
        settings = kind.from_sources(overrides={**known, "tls.config.file": ""})
    except ConfigError as error:
        raise Refused(f"{address}: its settings cannot be judged: {error}") from None
    found = list(of_settings(address, settings))
    if "tls.server.mode" in told:
        if isinstance(settings, BrokerSettings):
            found += of_slaves(address, settings, slaves)
        return found, True
    # Java does not tell how it speaks TLS, what was tried has to do; and it cannot close its HA port.
    found = [one for one in found if "tls." not in one.what and "certificate" not in one.what]
    return [replace(one, do=_JAVAS_HA) if "HA port" in one.what else one for one in found], False

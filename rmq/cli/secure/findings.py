"""What is open, judged by settings, accounts and certificates; nothing here looks at the network."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from rmq.auth.addresses import AddressPattern
from rmq.auth.plain_acl import Account, PlainFile
from rmq.auth.settings import AclSettings
from rmq.broker.settings import BrokerSettings
from rmq.cli.finding import Finding
from rmq.cli.secure.hosts import everybody, is_address, on_this_machine
from rmq.remoting.tls import TlsMode

__all__ = ["Finding", "of_accounts", "of_certificate", "of_settings", "of_slaves", "of_use"]

#: Secrets that everybody knows: of Java's plain_acl.yml and tools.yml, and of our sample and documents.
_KNOWN = frozenset({"12345678", "a long secret", "another one", "a third one", "SecretKey", "secretKey"})
#: Java's forms, by key: what each of them opens.
_SWITCHES = {
    "aclWhiteListSkipsChecks": "white-listed addresses need no signature and no permission",
    "aclTraceTopicOpen": "every account may write to the trace topic",
    "aclUncheckedCodes": "a signature is enough for batches, locks, offsets and other requests",
    "aclConfigShowsSecrets": "an administrator's request 54 answers with the secrets of all accounts",
}
_SHORT = 16
_WHOLE_LOG = "whoever reaches it is sent the commit log: every message of every topic"


def of_settings(where: str, settings: AclSettings) -> Iterator[Finding]:
    """What a daemon's settings leave open.

    :param where: their file, or the daemon's address.
    """
    yield from _tls(where, settings)
    yield from _access(where, settings)
    if settings.metrics_exporter_type == "PROM":
        host = settings.metrics_prom_exporter_host
        if host and not on_this_machine(host) and not settings.metrics_token_file:
            yield Finding(
                where, f"metricsExporterType=PROM on {host}",
                "whoever reaches the port reads names of topics, groups and clients",
                "set metricsTokenFile, or leave metricsPromExporterHost out",
            )  # fmt: skip
    if isinstance(settings, BrokerSettings):
        yield from _broker(where, settings)


def _tls(where: str, settings: AclSettings) -> Iterator[Finding]:
    mode = settings.tls_server_mode.strip().lower()
    if mode == TlsMode.DISABLED.value:
        yield Finding(
            where, "tls.server.mode=disabled", "messages and signatures go in clear text",
            "set tls.server.mode=enforcing, tls.server.certPath and tls.server.keyPath",
        )  # fmt: skip
    elif mode != TlsMode.ENFORCING.value:
        yield Finding(
            where, "tls.server.mode=permissive", "who does not speak TLS is served in clear text",
            "set tls.server.mode=enforcing",
        )  # fmt: skip
    if mode != TlsMode.DISABLED.value and not settings.tls_server_cert_path:
        why = "TLS gets a certificate made for this run, which nobody can check"
        if not settings.tls_test_mode_enable:
            why = "TLS is refused"
        yield Finding(where, "no certificate", why, "set tls.server.certPath and tls.server.keyPath")
    calls = settings.tls_enable or mode == TlsMode.ENFORCING.value
    trust = settings.tls_client_trust_cert_path or settings.tls_server_trust_cert_path
    if calls and not settings.tls_client_auth_server and not trust:
        yield Finding(
            where, "tls.client.authServer=false", "whoever answers this daemon's calls is trusted",
            "leave it out, and set tls.client.trustCertPath",
        )  # fmt: skip
    elif calls and not settings.tls_client_check_hostname:
        yield Finding(
            where, "tls.client.checkHostname=false", "a certificate of any server is good enough for every other",
            "leave it out, and have certificates name the hosts",
        )  # fmt: skip


def _access(where: str, settings: AclSettings) -> Iterator[Finding]:
    if not settings.acl_enable:
        what, why = "a name server", "anybody registers brokers there"
        if isinstance(settings, BrokerSettings):
            what, why = "a broker", "whoever reaches it can read, write and delete"
        if on_this_machine(str(settings.get("bindAddress"))):
            why += ", from this machine alone"
        yield Finding(
            where, f"{what} without accounts", why,
            "set aclEnable=true and rocketmqHome, and write conf/plain_acl.yml there",
        )  # fmt: skip
    for key, opens in _SWITCHES.items():
        if settings.line(key) is not None and settings.get(key):
            yield Finding(where, f"{key}=true", opens, "leave it out")


def _broker(where: str, settings: BrokerSettings) -> Iterator[Finding]:
    if settings.namesrv_addr and not settings.tls_enable:
        yield Finding(
            where, "tls.enable=false", "its calls to name servers, its signature with them, go in clear text",
            "set tls.enable=true",
        )  # fmt: skip
    if settings.acl_enable and settings.namesrv_addr and not settings.acl_credentials_file:
        yield Finding(
            where, "no aclCredentialsFile", "a name server that takes it takes brokers of anybody",
            "give it an account with broker: true, and the name server accounts",
        )  # fmt: skip
    if settings.auto_create_topic_enable:
        yield Finding(
            where, "autoCreateTopicEnable=true", "a misspelt name, or whoever may send, makes topics",
            "set autoCreateTopicEnable=false, and make topics with mqadmin updateTopic",
        )  # fmt: skip
    enforced = settings.tls_server_mode.strip().lower() == TlsMode.ENFORCING.value
    shown = enforced and settings.tls_server_need_client_auth == "require"
    networks = settings.ha_networks()
    if not on_this_machine(settings.bind_address):
        if not networks and not shown:
            in_group = settings.enable_dleger_commit_log
            yield Finding(
                where, "the port of its group is open" if in_group else "the HA port is open", _WHOLE_LOG,
                f"set haAllowedAddresses to the {'members' if in_group else 'slaves'}, or "
                "tls.server.need.client.auth=require",
            )  # fmt: skip
        elif (wide := everybody(networks)) is not None:
            yield Finding(
                where, f"haAllowedAddresses names {wide}", _WHOLE_LOG, "name the addresses of slaves or members there"
            )


def of_slaves(where: str, settings: BrokerSettings, slaves: Iterable[str]) -> Iterator[Finding]:
    """Whom a master keeps from its log, who should have it: their messages are in one place.

    :param where: the master, or its settings. :param slaves: addresses; names are passed over.
    """
    networks = settings.ha_networks()
    if not networks:
        return
    for host in filter(is_address, slaves):
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        if not any(address in network for network in networks):
            yield Finding(
                where, f"a slave on {host} gets no log", "what the master has is on one machine alone",
                f"add {host} to haAllowedAddresses, or take it out of the cluster",
            )  # fmt: skip


def of_accounts(files: Iterable[PlainFile], *, skips: bool) -> Iterator[Finding]:
    """What files of accounts leave open.

    :param skips: aclWhiteListSkipsChecks is on.
    """
    operators: list[Account] = []
    for file in files:
        for pattern in file.white:
            if skips and not pattern.empty:
                yield _white(file.path, pattern, "globalWhiteRemoteAddresses")
        for account in file.accounts:
            if account.disabled:
                continue
            where = f"{account.place or file.path}: {account.access_key}"
            if account.secret_key in _KNOWN:
                yield Finding(where, "a secret of the samples", "everybody knows it", "give it one of its own")
            elif len(account.secret_key) < _SHORT:
                yield Finding(
                    where, f"a secret of {len(account.secret_key)} characters", "who records a request can guess it",
                    f"give it one of {_SHORT} or more that nobody made up",
                )  # fmt: skip
            if skips and not account.white.empty:
                yield _white(where, account.white, "whiteRemoteAddress")
            if account.admin:
                operators.append(account)
    for account in operators[1:]:
        yield Finding(
            f"{account.place}: {account.access_key}", "one more administrator",
            f"it may do everything, as {operators[0].access_key} may",
            "give it what it needs: topicPerms and groupPerms",
        )  # fmt: skip


def of_use(path: str, account: Account, *, broker: bool) -> Iterator[Finding]:
    """An account that a file names, which is more than it has to be.

    :param broker: a broker signs with it; else an application.
    """
    if account.admin:
        yield Finding(
            path, f"it signs as {account.access_key}, an administrator", "who reads the file may do everything",
            "give it an account with " + ("broker: true" if broker else "topicPerms and groupPerms"),
        )  # fmt: skip


def of_certificate(path: str, ends: datetime, now: datetime, days: int) -> Iterator[Finding]:
    """A certificate that ends within so many days."""
    if ends <= now:
        yield Finding(path, f"it has ended on {ends:%Y-%m-%d}", "nobody takes it", "renew it: rmq secure renew")
    elif ends <= now + timedelta(days=days):
        yield Finding(path, f"it ends on {ends:%Y-%m-%d}", "nobody takes it from then on", "renew it: rmq secure renew")


def _white(where: str, pattern: AddressPattern, key: str) -> Finding:
    who = "everybody" if pattern.everything else pattern.text
    return Finding(
        where, f"{key}: {pattern.text}", f"{who} needs no signature and no permission (aclWhiteListSkipsChecks)",
        "leave aclWhiteListSkipsChecks out: white lists narrow then",
    )  # fmt: skip

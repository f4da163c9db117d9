"""What a folder of ``rmq secure init`` holds, and the texts of its files.

=========================  ==========================================================================================
``ca.pem``, ``ca.key``      the authority; its key is needed for renewals alone
``server.pem``, ``.key``    the certificate of name servers and brokers
``client.pem``, ``.key``    the certificate that clients show
``namesrv.properties``      settings of the name server
``broker.properties``       settings of the broker
``broker.yml``              the account that the broker signs its own calls with
``conf/plain_acl.yml``      all accounts; the folder is ``rocketmqHome`` of both daemons
``conf/tools.yml``          account and TLS of mqadmin, Java's reads the account, too
``client.yml``              account and TLS of applications: ``credentials_file`` (SDK), ``credentialsFile`` (Spark)
``java-tls.properties``     TLS of Java clients: ``-Dtls.enable=true -Dtls.config.file=...``
=========================  ==========================================================================================
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import javaproperties

from rmq.cli.secure.authority import Issued
from rmq.cli.secure.hosts import elsewhere, is_address, on_this_machine

__all__ = ["ACCOUNTS", "CLIENT", "ENTRIES", "Plan"]

CLIENT = "application"
#: Access keys that are made: of operators, of brokers, of applications.
ACCOUNTS = ("administrator", "cluster-broker", CLIENT)
ENTRIES = ("ca.pem", "ca.key", "server.pem", "server.key", "client.pem", "client.key")
_HEAD = "# Made by rmq secure init: docs/securing.md says what each line is for.\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one ``rmq secure init`` makes; no secret is in a text of it.

    :param folder: where it is going to be, an absolute path. :param hosts: names and addresses of the servers.
    :param secrets: of each of :data:`ACCOUNTS`. :param topics: what applications may send and consume; nothing: all.
    :param groups: with which groups; nothing: all. :param demand: clients without a certificate are refused.
    """

    folder: str
    hosts: tuple[str, ...]
    namesrv_port: int
    broker_port: int
    authority: Issued
    server: Issued
    client: Issued
    secrets: tuple[str, ...] = field(repr=False)
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    demand: bool = False

    def files(self) -> dict[str, bytes]:
        """Path below the folder -> content."""
        pairs = (self.authority, self.server, self.client)
        pem = (part for pair in pairs for part in (pair.cert, pair.key))
        texts = {
            "namesrv.properties": self._namesrv(),
            "broker.properties": self._broker(),
            "broker.yml": _account(ACCOUNTS[1], self.secrets[1]),
            "client.yml": _account(CLIENT, self.secrets[2]) + _tls(""),
            "java-tls.properties": self._java(),
            "conf/plain_acl.yml": self._accounts(),
            "conf/tools.yml": _account(ACCOUNTS[0], self.secrets[0]) + _tls("../"),
        }
        return {**dict(zip(ENTRIES, pem, strict=True)), **{path: text.encode() for path, text in texts.items()}}

    @property
    def address(self) -> str:
        """What clients call: the first IPv4 address, else the first host."""
        for host in self.hosts:
            try:
                ipaddress.IPv4Address(host)
            except ValueError:
                continue
            return host
        return self.hosts[0]

    @property
    def slaves(self) -> tuple[str, ...]:
        """Addresses that the log is given to: of all servers, where there are several."""
        return elsewhere(self.hosts)

    @property
    def names_alone(self) -> bool:
        """Whether servers are named whose addresses nobody has said, which are needed for slaves on other machines."""
        return not self._at_home and len(self.hosts) > 1 and not any(map(is_address, self.hosts))

    @property
    def namesrv(self) -> str:
        """``host:port`` of the name server."""
        return f"[{self.address}]:{self.namesrv_port}" if ":" in self.address else f"{self.address}:{self.namesrv_port}"

    def commands(self) -> list[tuple[str, list[str]]]:
        """What starts the cluster and sends a message, by what it is for; those that end with ``&`` are daemons."""
        folder = shlex.quote(self.folder)
        topic = self.topics[0] if self.topics else "TopicTest"
        program = (
            f'import rmq; p = rmq.Producer("hello", credentials_file="{self.folder}/client.yml"); '
            f'p.start(); print(p.send(rmq.Message("{topic}", b"hello")).send_status.name); p.shutdown()'
        )
        environment = f"export ROCKETMQ_HOME={folder} NAMESRV_ADDR={shlex.quote(self.namesrv)}"
        return [
            ("Start it", [f"mqnamesrv -c {folder}/namesrv.properties &", f"mqbroker -c {folder}/broker.properties &"]),
            ("Look at it, and make a topic", [
                environment, "mqadmin clusterList", f"mqadmin updateTopic -c DefaultCluster -t {shlex.quote(topic)}",
            ]),
            ("Send a message", [f"python -c {shlex.quote(program)}"]),
            ("See whether anything is open", [f"rmq secure check {folder} -n {shlex.quote(self.namesrv)}"]),
        ]  # fmt: skip

    def _both(self) -> dict[str, str]:
        where = self.folder
        found = {
            "aclEnable": "true",
            "rocketmqHome": where,
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.certPath": f"{where}/server.pem",
            "tls.server.keyPath": f"{where}/server.key",
            "tls.server.trustCertPath": f"{where}/ca.pem",
            "tls.server.need.client.auth": "require" if self.demand else "optional",
        }
        if self._at_home:
            found["bindAddress"] = "127.0.0.1"
        return found

    @property
    def _at_home(self) -> bool:
        """Whether nothing but this machine is meant."""
        return all(map(on_this_machine, self.hosts))

    def _namesrv(self) -> str:
        return _properties({"listenPort": str(self.namesrv_port), **self._both()})

    def _broker(self) -> str:
        return _properties(
            {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerId": "0",
                "brokerIP1": self.address,
                "namesrvAddr": self.namesrv,
                "listenPort": str(self.broker_port),
                **self._both(),
                **({"haAllowedAddresses": ";".join(self.slaves)} if self.slaves else {}),
                "tls.enable": "true",
                "aclCredentialsFile": f"{self.folder}/broker.yml",
                "autoCreateTopicEnable": "false",
            }
        )

    def _java(self) -> str:
        return _properties(
            {
                "tls.test.mode.enable": "false",
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": f"{self.folder}/ca.pem",
                "tls.client.certPath": f"{self.folder}/client.pem",
                "tls.client.keyPath": f"{self.folder}/client.key",
            }
        )

    def _accounts(self) -> str:
        operator, broker, application = ACCOUNTS
        lines = [
            "# Made by rmq secure init; docs/acl.md says what accounts may have. Changes count within five seconds.",
            "accounts:",
            f"  - accessKey: {operator}",
            f"    secretKey: {self.secrets[0]}",
            "    admin: true",
            f"  - accessKey: {broker}",
            f"    secretKey: {self.secrets[1]}",
            "    broker: true",
            f"  - accessKey: {application}",
            f"    secretKey: {self.secrets[2]}",
            f"    defaultTopicPerm: {'DENY' if self.topics else 'PUB|SUB'}",
            f"    defaultGroupPerm: {'DENY' if self.groups else 'SUB'}",
        ]
        for key, names, permission in (("topicPerms", self.topics, "PUB|SUB"), ("groupPerms", self.groups, "SUB")):
            if names:
                lines += [f"    {key}:", *(f"      - '{name}={permission}'" for name in names)]
        return "\n".join(lines) + "\n"


def _account(key: str, secret: str) -> str:
    return f"{_HEAD}accessKey: {key}\nsecretKey: {secret}\n"


def _tls(up: str) -> str:
    """Paths are below the file."""
    return f"useTLS: true\ntlsCaFile: {up}ca.pem\ntlsCertFile: {up}client.pem\ntlsKeyFile: {up}client.key\n"


def _properties(values: dict[str, str]) -> str:
    return _HEAD + "".join(f"{key}={''.join(map(_escaped, value))}\n" for key, value in values.items())


def _escaped(character: str) -> str:
    """As a value needs it; an address stays readable."""
    return character if character in ":=#!" else javaproperties.escape(character)

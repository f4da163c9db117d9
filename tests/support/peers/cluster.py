"""A nameserver and its brokers of any make, as real processes behind one interface."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World

from .jars import JAVA_OPENS, java_classpath
from .ports import broker_port, free_port
from .process import PATIENCE, Daemon, ProcessFailed
from .tools import require

T = TypeVar("T")

KINDS = ("ours", "java-4.9.4", "java-5.3.3")

_REPOSITORY = Path(__file__).resolve().parents[3]

# Small files and patient queues: a broker sheds sends that wait for 200 ms or behind a flush of a second.
BROKER_DEFAULTS: Mapping[str, str] = {
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    "diskMaxUsedSpaceRatio": "95",
}
#: Without a key and a certificate made at each start, which cost three times as much as all else of it.
NO_TLS = ("-Dtls.server.mode=disabled",)
# Every retry after a second, so that a message reaches its dead letter queue in seconds.
FAST_RETRIES: Mapping[str, str] = {"messageDelayLevel": " ".join(["1s"] * 18)}

_LOGBACK = """<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
"""
_JAVA_MAINS = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}
_OUR_MODULES = {"namesrv": "rmq.cli.mqnamesrv", "broker": "rmq.cli.mqbroker"}


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _java_command(version: str, role: str, folder: Path, file: Path, options: Sequence[str]) -> list[str]:
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    # 4.x and 5.x look for these names under rocketmq.home.dir/conf.
    for name in ("logback_namesrv", "logback_broker", "logback_tools", "rmq.namesrv.logback", "rmq.broker.logback"):
        (conf / f"{name}.xml").write_text(_LOGBACK.format(file=folder / f"{role}.log"))
    return [
        "java",
        # A server that lives for one test never earns what the optimising compiler costs.
        *("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *JAVA_OPENS,
        f"-Drocketmq.home.dir={folder}",
        f"-Duser.home={folder}",
        *options,
        *("-cp", java_classpath(version)),
        *(_JAVA_MAINS[role], "-c", str(file)),
    ]


class Broker:
    """One broker process: its daemon, its address and its store."""

    def __init__(self, daemon: Daemon, addr: str, name: str, store: Path) -> None:
        self.daemon = daemon
        self.addr = addr
        self.name = name
        self.store = store


class Cluster:
    """A running nameserver with its brokers.

    kind: "ours" or "java-VERSION". namesrv, broker_addr: "127.0.0.1:port". brokers: all of them, the first is
    broker_addr. folder: the working folder with properties, logs and stores, removed by stop() unless keep is set.
    """

    def __init__(self, kind: str, folder: Path, namesrv: str, namesrv_daemon: Daemon) -> None:
        self.kind = kind
        self.folder = folder
        self.namesrv = namesrv
        self.namesrv_daemon = namesrv_daemon
        self.brokers: list[Broker] = []
        self.keep = False

    @property
    def broker_addr(self) -> str:
        """The address of the first broker."""
        return self.brokers[0].addr

    @property
    def java(self) -> str | None:
        """The Apache version of a Java cluster, None for ours."""
        return self.kind.removeprefix("java-") if self.kind != "ours" else None

    def logs(self, lines: int = 30) -> str:
        """The end of what every daemon printed and logged, for a failed test's message."""
        parts = []
        for file in sorted(self.folder.rglob("*")):
            if file.suffix in (".out", ".log") and file.is_file():
                text = "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
                parts.append(f"--- {file.relative_to(self.folder)}\n{text}")
        return "\n".join(parts)

    def stop(self) -> None:
        """Stop brokers, then the nameserver, and remove the folder. Safe to call twice.

        Ours get their SIGTERM; a Java broker takes 10 s for that, and is killed.
        """
        for daemon in (*(broker.daemon for broker in self.brokers), self.namesrv_daemon):
            if self.java is None:
                daemon.stop()
            else:
                daemon.kill()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _command(
    kind: str, role: str, folder: Path, file: Path, java_options: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    env = dict(os.environ)
    if kind == "ours":
        env["PYTHONPATH"] = os.pathsep.join([str(_REPOSITORY), *filter(None, [env.get("PYTHONPATH")])])
        return [sys.executable, "-m", _OUR_MODULES[role], "-c", str(file)], env
    return _java_command(kind.removeprefix("java-"), role, folder, file, java_options), env


def _on_a_free_port(start: Callable[[], T]) -> T:
    """Start a server that takes a free port; again when somebody else has taken it in between."""
    for _ in range(4):
        try:
            return start()
        except ProcessFailed as failed:
            if "in use" not in str(failed):
                raise
    return start()


def start_cluster(
    kind: str = "ours",
    *,
    brokers: int = 1,
    properties: Mapping[str, str] | None = None,
    namesrv_properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = NO_TLS,
    our_namesrv: bool = False,
    accounts: str | None = None,
) -> Cluster:
    """Start a nameserver and `brokers` masters (broker-a, broker-b, ...) as processes on free loopback ports.

    Arguments: kind is one of KINDS; properties are Java's own broker keys, over BROKER_DEFAULTS; namesrv_properties
    are the nameserver's; java_options go to both JVMs (ignored by ours; without any they are as delivered);
    our_namesrv spares the second JVM where only the broker matters; accounts are the text of the brokers'
    plain_acl.yml, with which they have access control (name servers have none, as Java's). Returns when all have
    printed their ready line.
    Errors: ToolMissing (no java or mvn), ProcessFailed (a daemon did not start; its output is in the text).
    """
    if kind not in KINDS:
        raise ValueError(f"unknown cluster kind {kind!r}: one of {', '.join(KINDS)}")
    if kind != "ours":
        require("java")
    folder = Path(tempfile.mkdtemp(prefix="rmq-cluster-"))
    try:
        cluster = _on_a_free_port(
            lambda: _start_namesrv(kind, folder, namesrv_properties or {}, java_options, ours=our_namesrv)
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        for number in range(brokers):
            name = f"broker-{chr(ord('a') + number)}"
            cluster.brokers.append(start_broker(cluster, name, properties or {}, java_options, accounts=accounts))
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _start_namesrv(
    kind: str, folder: Path, properties: Mapping[str, str], java_options: Sequence[str], *, ours: bool
) -> Cluster:
    home = folder / "namesrv"
    home.mkdir(exist_ok=True)
    port = free_port()
    file = home / "namesrv.properties"
    settings = {
        "listenPort": str(port),
        "kvConfigPath": str(home / "kvConfig.json"),
        "configStorePath": str(home / "namesrv.stored.properties"),
    }
    _write_properties(file, settings | dict(properties))
    command, env = _command("ours" if ours else kind, "namesrv", home, file, java_options)
    daemon = Daemon("namesrv", command, home, env=env)
    daemon.start()
    return Cluster(kind, folder, f"127.0.0.1:{port}", daemon)


def start_broker(
    cluster: Cluster,
    name: str,
    properties: Mapping[str, str],
    java_options: Sequence[str] = NO_TLS,
    *,
    kind: str | None = None,
    accounts: str | None = None,
) -> Broker:
    """Start one more broker of a cluster; the caller adds it to its brokers.

    Arguments: as of start_cluster; name is also the folder's, so that of a slave is another one, and its brokerName is
    among the properties; kind may be another one than the cluster's.
    """
    return _on_a_free_port(
        lambda: _start_broker(cluster, name, properties, java_options, kind or cluster.kind, accounts)
    )


def _start_broker(
    cluster: Cluster,
    name: str,
    properties: Mapping[str, str],
    java_options: Sequence[str],
    kind: str,
    accounts: str | None,
) -> Broker:
    home = cluster.folder / name
    home.mkdir(exist_ok=True)
    port = broker_port()
    store = home / "store"
    file = home / "broker.properties"
    settings = {
        **BROKER_DEFAULTS,
        "brokerName": name,
        "brokerId": "0",
        "listenPort": str(port),
        "namesrvAddr": cluster.namesrv,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    if accounts is not None:
        (home / "conf").mkdir(exist_ok=True)
        (home / "conf" / "plain_acl.yml").write_text(accounts)
        settings |= {"aclEnable": "true", "rocketmqHome": str(home)}
    _write_properties(file, settings | dict(properties))
    command, env = _command(kind, "broker", home, file, java_options)
    broker = Broker(Daemon(name, command, home, env=env), f"127.0.0.1:{port}", name, store)
    broker.daemon.start()
    if kind == "java-5.3.3":
        for namesrv in {**settings, **properties}["namesrvAddr"].split(";"):
            asyncio.run(_registered(broker, namesrv))
    return broker


async def _registered(broker: Broker, namesrv: str) -> None:
    """Have a 5.x broker register, which it does ten seconds after its start when it has not met the name server yet."""
    async with RemotingClient(World.real()) as client:
        for _ in range(int(PATIENCE)):
            answer = await client.request(namesrv, Command(RequestCode.GET_BROKER_CLUSTER_INFO), PATIENCE)
            if broker.addr.encode() in answer.body:
                return
            # It changes nothing, and all brokers of Java register when they are told their permission.
            command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
            await client.request(broker.addr, command, PATIENCE)
            await asyncio.sleep(0.2)
    raise ProcessFailed(f"{broker.name} does not register:\n{broker.daemon.tail()}")

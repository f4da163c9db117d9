"""What a group that elects its master costs, and how long it is without one: ``python -m benchmark.failover``.

Three members of ours, three of Java's DLedger, and a broker of ours alone, on the cores that there are. First their
CPU: 1 KB messages at 256 in flight, rounds interleaved and the others stopped meanwhile; CPU of all members is counted,
until every one has everything, in its queues, too, and of nothing else. A message costs more CPU where other processes
keep the other cores busy, and three members do: two brokers that are no group, loaded at once, show how much. Then
leaders are killed (``kill -9``) under two kinds of load, which see other things:

- probe: one message to each member every 10 ms, whoever leads: how long the group takes nothing.
- Java's producer 4.9.8 with ``pollNameServerInterval`` of a second, as it comes: how long an application sends nothing,
  what failed, and what its push consumer got twice.

A group that has no leader for a minute is left alone, and told. Exit code 1 when a bound of the project is broken: 60 %
of a single broker's messages a CPU second, 2.5 times those of Java's group, and from the kill to the first acknowledged
send 2 s (median) and 5 s (p99).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.program import BenchmarkError, Result, compile_load, run_load
from benchmark.replication import PATIENT, cpu_ns, end_of, judged, trails, wait_for
from benchmark.servers import JAVA, JAVA_OPTIONS, OURS, PROPERTIES, check_java
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.peers import Client, ToolMissing, start_client, start_cluster
from tests.support.peers.cluster import Broker, Cluster
from tests.support.peers.groups import Group, start_group
from tests.support.peers.process import ProcessFailed

_TOPIC = "BenchTopic"
_POLL = 1000
#: Members that are stopped for another's round find on waking that they have heard nothing for long: another leads.
_SETTLE = 60.0
#: A group without a leader for so long is given up.
_LEADERLESS = 60.0


# -- CPU ---------------------------------------------------------------------------------------------------------------


class Contender:
    """A broker or a group, stopped but for its rounds."""

    def __init__(self, name: str, cluster: Cluster, group: Group | None) -> None:
        self.name = name
        self.cluster = cluster
        self.group = group
        self._tells_lag = not name.startswith("java")
        #: CPU of all members for each message, microseconds, and messages a second, by round.
        self.cpu: list[float] = []
        self.rates: list[float] = []

    @property
    def leaders(self) -> list[Broker]:
        """Those that messages are sent to."""
        return self.cluster.brokers if self.group is None else [self.group.members[self.group.leader()]]

    def signal(self, number: int) -> None:
        for broker in self.cluster.brokers:
            os.kill(broker.daemon.pid, number)

    def _same(self) -> bool:
        brokers = self.cluster.brokers
        if self.group is not None and len({end_of(broker) for broker in brokers}) > 1:
            return False
        return not self._tells_lag or not any(trails(broker) for broker in brokers)

    def round(self, program: Path, seconds: float) -> None:
        self.signal(signal.SIGCONT)
        try:
            leaders = self._ready(program)
            wait_for(self._same, f"{self.name}: all members have everything")
            before = [cpu_ns(broker) for broker in self.cluster.brokers]
            with ThreadPoolExecutor(len(leaders)) as pool:
                results = list(pool.map(lambda leader: _load(program, leader, seconds), leaders))
            for result in results:
                if result.problem:
                    raise BenchmarkError(f"benchmark: {self.name}: {result.problem}")
            acknowledged = sum(result.acknowledged for result in results)
            wait_for(self._same, f"{self.name}: all members have everything")
            used = [cpu_ns(broker) - was for broker, was in zip(self.cluster.brokers, before, strict=True)]
            self.cpu.append(sum(used) / 1e3 / acknowledged)
            self.rates.append(sum(result.rate for result in results))
            each = ", ".join(f"{one / 1e3 / acknowledged:.1f}" for one in used)
            print(
                f"  {self.name:<12} {self.rates[-1]:>9.0f}/s  {self.cpu[-1]:>6.1f} us CPU a message ({each})",
                flush=True,
            )
        finally:
            self.signal(signal.SIGSTOP)

    def _ready(self, program: Path) -> list[Broker]:
        """Those that messages are sent to, as soon as they take them again."""
        until = time.monotonic() + _SETTLE
        while True:
            leaders = self.leaders
            try:
                if not any(run_load(program, "send", one.addr, messages=100, seconds=5).problem for one in leaders):
                    return leaders
            except BenchmarkError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.5)

    @property
    def per_second(self) -> float:
        """Messages for each second of CPU."""
        return 1e6 / statistics.median(self.cpu)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.cluster.stop()


def _load(program: Path, broker: Broker, seconds: float, warm: float = 0.5) -> Result:
    return run_load(
        program, "send", broker.addr, connections=16, in_flight=16, body=1024, seconds=seconds, warm=warm,
        server_pid=broker.daemon.pid,
    )  # fmt: skip


def throughput(program: Path, options: argparse.Namespace) -> list[tuple[str, float, str, float]]:
    """All contenders turn by turn; what is to be judged."""
    made: list[Contender] = []
    settings = {**PROPERTIES, **PATIENT}
    java = {key: value for key, value in settings.items() if key != "slaveTimeout"}
    try:
        alone = start_cluster(OURS, properties=settings, our_namesrv=True)
        made.append(Contender("alone", alone, None))
        made.append(Contender("two alone", start_cluster(OURS, brokers=2, properties=settings, our_namesrv=True), None))
        group = start_group(OURS, properties={key: value for key, value in settings.items() if key != "brokerRole"})
        made.append(Contender("group", group.cluster, group))
        if not options.no_java:
            group = start_group(JAVA, properties=java, java_options=JAVA_OPTIONS)
            made.append(Contender("java dledger", group.cluster, group))
        for one in made:
            # The JVM compiles what runs often.
            warm = 20.0 if one.name.startswith("java") and not options.quick else 1.0
            for leader in one.leaders:
                _load(program, leader, warm)
            one.signal(signal.SIGSTOP)
        for number in range(options.rounds):
            for one in made if number % 2 == 0 else made[::-1]:
                one.round(program, options.seconds)
    finally:
        for one in made:
            one.close()
    by = {one.name: one for one in made}
    for name, one in by.items():
        print(f"{name:<14}{statistics.median(one.rates):>9.0f}/s {one.per_second:>9.0f} messages a CPU second")
    checks = [("messages a CPU second, group / alone", by["group"].per_second / by["alone"].per_second, ">=", 0.6)]
    busy = by["group"].per_second / by["two alone"].per_second
    print(
        f"messages a CPU second, group / two brokers that are no group and keep the cores busy as it does: {busy:.2f}"
    )
    if "java dledger" in by:
        ratio = by["group"].per_second / by["java dledger"].per_second
        checks.append(("messages a CPU second, group / Java's group", ratio, ">=", 2.5))
    return checks


# -- failovers ---------------------------------------------------------------------------------------------------------


class Probe:
    """Sends to every member all the time, each by itself, and notes when one takes a message."""

    def __init__(self, group: Group) -> None:
        self._addresses = [member.addr for member in group.members.values()]
        #: Seconds, monotonic, of each acknowledged send.
        self.times: list[float] = []
        self._ended = False

    async def run(self) -> None:
        async with RemotingClient(World.real()) as client:
            await asyncio.gather(*(self._probe(client, address) for address in self._addresses))

    async def _probe(self, client: RemotingClient, address: str) -> None:
        ext: dict[str, str | None] = {
            "a": "probe", "b": "Probe", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "",
            "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        while not self._ended:
            begun = time.monotonic()
            with suppress(RMQError):  # it is dead, or does not lead: that is what is measured
                answer = await client.request(address, Command(310, ext=dict(ext), body=b"probe"), 1)
                if answer.code == 0:
                    self.times.append(begun)
            await asyncio.sleep(0.01)

    def end(self) -> None:
        self._ended = True


@dataclass(slots=True)
class Failovers:
    """What kills of a group's leaders did."""

    name: str
    #: Seconds from each kill to the first acknowledged send, of the probe and of Java's producer.
    probe: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)
    #: Java's sends that were acknowledged, and not; messages that its consumer got twice or more, and never.
    acknowledged: int = 0
    errors: int = 0
    duplicates: int = 0
    lost: int = 0
    #: Longest times without an acknowledged send of Java's producer, added up over the kills.
    unavailable: float = 0.0

    def lines(self) -> list[str]:
        return [
            f"{self.name:<14}{percentile(self.probe, 50):>9.2f}{percentile(self.probe, 99):>9.2f}"
            f"{percentile(self.java, 50):>11.2f}{percentile(self.java, 99):>9.2f}{self.unavailable:>13.1f}"
            f"{self.acknowledged:>14}{self.errors:>8}{self.duplicates:>12}{self.lost:>6}"
        ]


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else float("nan")


async def failovers(name: str, group: Group, client: Client, kills: int) -> Failovers:
    """Kill the leader so often, each time when all members are there; the dead one starts again."""
    found = Failovers(name)
    handle = f"{name}-{os.getpid()}"

    async def call(op: str, **words: Any) -> dict[str, Any]:
        return await asyncio.to_thread(client.call, op, handle=handle, **words)

    probe = Probe(group)
    probing = asyncio.create_task(probe.run())
    moments: list[float] = []
    await call("topic", namesrv=group.namesrv, cluster="DefaultCluster", topic=_TOPIC, queues=4)
    await call("route", namesrv=group.namesrv, topic=_TOPIC)
    await call(
        "subscribe", namesrv=group.namesrv, group=f"g-{handle}", topic=_TOPIC, expression="*", model="clustering",
        orderly=False, fail=False, poll=_POLL,
    )  # fmt: skip
    await call(
        "sendon", namesrv=group.namesrv, group=f"p-{handle}", topic=_TOPIC, prefix=handle, tags=["A"], poll=_POLL
    )
    try:
        for _ in range(kills):
            await asyncio.sleep(3)
            leader = await asyncio.to_thread(group.leader)
            moments.append(time.monotonic())
            await asyncio.to_thread(group.kill, leader)
            try:
                await asyncio.to_thread(group.leader, leader, within=_LEADERLESS)
            except ProcessFailed:
                print(f"  {name}: no member leads {_LEADERLESS:.0f} s after {leader} was killed", flush=True)
                break
            sent = len((await call("senton"))["acknowledged"])
            for _ in range(300):
                if len((await call("senton"))["acknowledged"]) > sent + 20:
                    break
                await asyncio.sleep(0.2)
            await asyncio.to_thread(group.start, leader)
            print(f"  {name}: {leader} was killed, {_after(probe.times, moments[-1]):.2f} s", flush=True)
    finally:
        sent_all = await call("sendoff")
        probe.end()
        await probing
    given = await _consumed(call, {key for key, *_ in sent_all["acknowledged"]})
    await call("unsubscribe")
    times = sorted(at / 1e9 for _, _, at in sent_all["acknowledged"])
    keys = [row[0] for row in given]
    found.acknowledged, found.errors = len(times), len(sent_all["others"])
    found.duplicates = len(keys) - len(set(keys))
    found.lost = len({key for key, *_ in sent_all["acknowledged"]} - set(keys))
    found.probe = [_after(probe.times, moment) for moment in moments]
    found.java = [_after(times, moment) for moment in moments]
    for moment, until in itertools.zip_longest(moments, moments[1:], fillvalue=float("inf")):
        around = [at for at in times if moment - 3 <= at < until]
        found.unavailable += max((b - a for a, b in itertools.pairwise(around)), default=0.0)
    return found


async def _consumed(call: Any, keys: set[str]) -> list[list[Any]]:
    """What the consumer was given, when all of it is there, or a pull that waits at a dead leader has timed out."""
    until = time.monotonic() + 45
    while True:
        rows: list[list[Any]] = (await call("received", count=0, timeout=0))["rows"]
        if keys <= {row[0] for row in rows} or time.monotonic() > until:
            return rows
        await asyncio.sleep(0.5)


def _after(times: Sequence[float], moment: float) -> float:
    return next((at - moment for at in sorted(times) if at > moment + 0.02), float("inf"))


def unavailability(options: argparse.Namespace) -> list[tuple[str, float, str, float]]:
    """Kill leaders of both groups; what is to be judged."""
    found: list[Failovers] = []
    try:
        client = start_client("java-4.9.8")
    except ToolMissing as error:
        raise BenchmarkError(f"benchmark: {error}") from None
    with client:
        for name, kind in (("group", OURS), ("java dledger", JAVA)):
            if kind == OURS or not options.no_java:
                with start_group(kind) as group:
                    found.append(asyncio.run(failovers(name.replace(" ", "-"), group, client, options.kills)))
    print(
        f"\n{'':<14}{'probe p50':>9}{'p99 s':>9}{'java p50':>11}{'p99 s':>9}{'no send, s':>13}{'acknowledged':>14}"
        f"{'errors':>8}{'duplicates':>12}{'lost':>6}"
    )
    for one in found:
        print(*one.lines(), sep="\n")
    ours = found[0]
    return [
        ("kill to the first acknowledged send, p50 s", percentile(ours.probe, 50), "<=", 2.0),
        ("the same, p99 s", percentile(ours.probe, 99), "<=", 5.0),
        ("acknowledged and never consumed", ours.lost, "<=", 0.0),
    ]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.failover", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="one short round of each, and three kills")
    parser.add_argument("--no-java", action="store_true", help="leave Java's group out")
    parser.add_argument("--rounds", type=int, help="rounds of each (5; --quick 1)")
    parser.add_argument("--seconds", type=float, help="counted time of a round (3; --quick 1)")
    parser.add_argument("--kills", type=int, help="of each group's leaders (10; --quick 3)")
    parser.add_argument("--only", choices=["cpu", "kills"], help="one half of it")
    options = parser.parse_args(words)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 3.0)
    options.kills = options.kills or (3 if options.quick else 10)
    checks: list[tuple[str, float, str, float]] = []
    try:
        if not options.no_java:
            check_java()
        if options.only != "kills":
            checks += throughput(compile_load(), options)
        if options.only != "cpu":
            checks += unavailability(options)
    except (BenchmarkError, ProcessFailed) as error:
        print(error, file=sys.stderr)
        return 2
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())

"""What a slave costs: ``python -m benchmark.replication [--quick] [--no-java] [--catch-up N]``.

Masters alone, with a slave, and with one that is waited for, rounds interleaved and the others stopped meanwhile;
Java's master and slave beside ours. Prints throughput, CPU of master and slave for each message, the latency that
waiting for a slave adds, and how fast a slave catches up with a backlog while producers go on. Exit code 1 when a bound
of the project is broken: 80 % of the throughput with a slave, 150 us more for one in flight, 70 % with 256 in flight,
half of the CPU of Java's pair, 200 MiB/s, and no more than twice the producers' p99.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmark.program import BenchmarkError, Result, compile_load, run_load
from benchmark.servers import JAVA, JAVA_OPTIONS, OURS, PROPERTIES, check_java, pin
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.peers import Cluster, ToolMissing, start_cluster
from tests.support.peers.cluster import Broker, start_broker
from tests.support.peers.process import ProcessFailed

#: A set that is stopped while another one is measured is no silent one.
PATIENT = {"haHousekeepingInterval": "3600000", "slaveTimeout": "60000", "haSlaveFallbehindMax": str(4 << 30)}
AS_SLAVE = {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE"}
_PATIENCE = 120.0
#: Parts of ``--seconds`` that each measurement of a catch-up lasts, the seconds before it counts, and the bytes a
#: second at which a slave is thought to catch up, at most.
_TURNS_OF = 6
_WARM = 0.1
_USUAL = 260 << 20
#: Takes a share of one core, by turns of a millisecond: it has nothing to do with brokers.
_STRANGER = """
import sys, time
idle = 0.001 / float(sys.argv[1]) - 0.001
while True:
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
    time.sleep(idle)
"""


def figure(broker: Broker, key: str) -> int:
    """What its runtime information says; 0 where it does not."""

    async def ask() -> int:
        async with RemotingClient(World.real()) as client:
            answer = await client.request(broker.addr, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 10)
        if answer.code:  # Java's, before its first statistics
            return -1
        return int(KVTable.decode(answer.body).table.get(key) or 0)

    return asyncio.run(ask())


def end_of(broker: Broker) -> int:
    """Where its log ends."""
    return figure(broker, "commitLogMaxOffset")


def trails(broker: Broker) -> int:
    """Bytes of its log that are in no queue yet."""
    return figure(broker, "dispatchBehindBytes")


def cpu_ns(broker: Broker) -> int:
    """CPU time of all its threads."""
    root = Path(f"/proc/{broker.daemon.pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in root.iterdir())


def written(broker: Broker) -> int:
    """Bytes that it has written: of a slave the log, and little else. It is not asked, and need not run."""
    lines = Path(f"/proc/{broker.daemon.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def wait_for(condition: Callable[[], bool], what: str, pause: float = 0.02) -> None:
    """:raises BenchmarkError: it does not hold within two minutes."""
    until = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise BenchmarkError(f"benchmark: {what}: not within {_PATIENCE:.0f} s")
        time.sleep(pause)


class Set:
    """A name server and a master, and its slave when there is one; stopped but for its rounds."""

    def __init__(self, name: str, kind: str, role: str, *, slave: bool, **properties: str) -> None:
        self.name = name
        java = JAVA_OPTIONS if kind != OURS else ()
        made = {**PROPERTIES, **PATIENT, "brokerRole": role, **properties}
        if kind != OURS:
            made = {key: value for key, value in made.items() if key != "slaveTimeout"}
        self._made, self._java = made, java
        try:
            self.cluster: Cluster = start_cluster(kind, properties=made, java_options=java, our_namesrv=True)
            self.slave: Broker | None = None
            if slave:
                self.add_slave()
        except (ToolMissing, ProcessFailed) as error:
            raise BenchmarkError(f"benchmark: {name}: {error}") from None
        self.results: dict[str, list[Result]] = {}
        #: CPU of master and slave for each message, microseconds, by round.
        self.cpu: list[tuple[float, float]] = []

    def add_slave(self) -> None:
        """Start it."""
        self.slave = start_broker(self.cluster, "broker-a-s", {**self._made, **AS_SLAVE}, self._java)
        self.cluster.brokers.append(self.slave)

    @property
    def master(self) -> Broker:
        return self.cluster.brokers[0]

    def caught_up(self) -> bool:
        """It has all of its master's log, in its queues, too."""
        return self.slave is None or (end_of(self.slave) >= end_of(self.master) and not trails(self.slave))

    def signal(self, number: int) -> None:
        for broker in self.cluster.brokers:
            os.kill(broker.daemon.pid, number)

    def pin(self, cpus: set[int]) -> None:
        for broker in self.cluster.brokers:
            pin(broker.daemon.pid, cpus)

    def round(self, program: Path, case: str, connections: int, in_flight: int, seconds: float) -> Result:
        """One round; CPU is counted until the slave has everything."""
        self.signal(signal.SIGCONT)
        try:
            wait_for(self.caught_up, f"{self.name}: the slave has its master's log")
            both = [broker for broker in (self.master, self.slave) if broker is not None]
            before = [cpu_ns(broker) for broker in both]
            result = run_load(
                program, "send", self.master.addr, connections=connections, in_flight=in_flight, body=1024,
                seconds=seconds, server_pid=self.master.daemon.pid,
            )  # fmt: skip
            if result.problem:
                raise BenchmarkError(f"benchmark: {self.name}, {case}: {result.problem}")
            wait_for(self.caught_up, f"{self.name}: the slave has its master's log")
            used = [
                (cpu_ns(broker) - was) / 1e3 / result.acknowledged for broker, was in zip(both, before, strict=True)
            ]
            if connections * in_flight == 256 and connections == 16:
                self.cpu.append((used[0], used[1] if len(used) > 1 else 0.0))
            self.results.setdefault(case, []).append(result)
            return result
        finally:
            self.signal(signal.SIGSTOP)

    def rate(self, case: str) -> float:
        return statistics.median(one.rate for one in self.results[case])

    def p50(self, case: str) -> float:
        return statistics.median(one.p50_us for one in self.results[case])

    def cpu_each(self) -> tuple[float, float]:
        """Median CPU of master and slave for each message, microseconds."""
        return statistics.median(one for one, _ in self.cpu), statistics.median(one for _, one in self.cpu)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.cluster.stop()


CASES = (("16x16", 16, 16), ("1x1", 1, 1), ("1x256", 1, 256))


def rounds(sets: Sequence[Set], program: Path, options: argparse.Namespace) -> None:
    """All cases on all sets, turn by turn."""
    cores = os.sched_getaffinity(0)
    for case, connections, in_flight in CASES:
        for one in sets:  # one in flight: across cores a virtual machine's wake-ups would be measured
            one.pin({min(cores)} if case == "1x1" else cores)
        if case == "1x1":
            os.sched_setaffinity(0, {min(cores)})
        try:
            for number in range(options.rounds):
                for one in sets if number % 2 == 0 else sets[::-1]:
                    result = one.round(program, case, connections, in_flight, options.seconds)
                    print(f"  {case:<6} {one.name:<14} {result.rate:>9.0f}/s  p50 {result.p50_us:>8.0f} us", flush=True)
        finally:
            os.sched_setaffinity(0, cores)


class Turn(NamedTuple):
    """Producers alone, beside a slave that catches up, and beside a stranger, one after the other: p99 in us."""

    quiet: float
    behind: float
    stranger: float
    #: What the slave got meanwhile, bytes a second.
    speed: float


class CatchUp:
    """A master, a backlog, and a slave that gets it in parts; it is stopped while it gets nothing.

    A turn's three measurements last as long as each other and follow at once: what else goes on on the machine, and
    what the disk still has to write, hits one as well as the others.
    """

    def __init__(self, program: Path, options: argparse.Namespace) -> None:
        self._program = program
        self._seconds = options.seconds / _TURNS_OF
        self.one = one = Set("catch-up", OURS, "ASYNC_MASTER", slave=False, haCopyFromFirstFile="true")
        try:
            size = options.backlog << 20
            run_load(
                program, "send", one.master.addr, connections=8, in_flight=16, body=4096, messages=size // 4200,
                seconds=_PATIENCE,
            )  # fmt: skip
            self._producers()  # each round is as warm as the others
            one.add_slave()
            assert one.slave is not None
            self._slave = slave = one.slave
            wait_for(lambda: end_of(slave) > 0, "the slave has begun", 0.005)
            os.kill(slave.daemon.pid, signal.SIGSTOP)
        except BaseException:
            one.close()
            raise
        #: CPU of the slave, as a share of a core; and of master and slave, ms a MiB, with the producers' messages.
        self._share = 0.25
        self.cpu: list[tuple[float, float]] = []

    def _producers(self) -> Result:
        return run_load(
            self._program, "send", self.one.master.addr, connections=4, in_flight=1, body=1024, seconds=self._seconds,
            warm=_WARM,
        )  # fmt: skip

    def _behind(self) -> tuple[float, float]:
        """p99 of producers while the slave catches up, and its speed."""
        pid, both = self._slave.daemon.pid, (self.one.master, self._slave)
        used = [cpu_ns(broker) for broker in both]
        counted = [(0.0, 0)]

        def goes_on() -> None:
            # With producers from its first byte to its last: without them it would get all there is at once.
            begun = time.monotonic()
            for until, number in ((_WARM / 2, signal.SIGCONT), (_WARM, 0), (_WARM + self._seconds, signal.SIGSTOP)):
                time.sleep(max(0.0, begun + until - time.monotonic()))
                os.kill(pid, number)
                counted.append((time.monotonic(), written(self._slave)))

        signals = threading.Thread(target=goes_on)
        signals.start()
        try:
            result = self._producers()
        finally:
            signals.join()
        (since, had), (until, has) = counted[-2:]
        (_, all_before), spent = counted[1], [cpu_ns(broker) - was for broker, was in zip(both, used, strict=True)]
        mib = (has - all_before) / (1 << 20)
        self._share = min(spent[1] / 1e9 / (until - counted[1][0]), 1.0)
        self.cpu.append((spent[0] / 1e6 / mib, spent[1] / 1e6 / mib))
        return result.p99_us, (has - had) / (until - since)

    def _beside(self) -> float:
        """p99 of producers beside a stranger that takes as much CPU as the slave did."""
        stranger = subprocess.Popen([sys.executable, "-c", _STRANGER, str(self._share)])
        try:
            return self._producers().p99_us
        finally:
            stranger.kill()
            stranger.wait()

    def turn(self) -> Turn:
        """One of each, and one line."""
        quiet = self._producers().p99_us
        behind, speed = self._behind()
        stranger = self._beside()
        print(
            f"  producers' p99, us: quiet {quiet:.0f}, catch-up {behind:.0f} at {speed / (1 << 20):.0f} MiB/s, beside "
            f"a stranger that takes {self._share:.0%} of a core, as the slave did, {stranger:.0f}; CPU of the master "
            f"{self.cpu[-1][0]:.2f} ms, of the slave {self.cpu[-1][1]:.2f} ms for each MiB", flush=True,
        )  # fmt: skip
        return Turn(quiet, behind, stranger, speed)

    def through(self) -> bool:
        """Whether nothing is left of the backlog: what was measured was no catching up then."""
        return not figure(self.one.master, "slaveBehindBytes")

    def close(self) -> None:
        self.one.close()


def catch_up(program: Path, options: argparse.Namespace) -> list[Turn]:
    """A new slave gets a backlog, in as many turns as it lasts for."""
    measured = CatchUp(program, options)
    try:
        part = int((options.seconds / _TURNS_OF + _WARM) * _USUAL)
        turns = [measured.turn() for _ in range(max(1, (options.backlog << 20) // part))]
        if measured.through():
            raise BenchmarkError("benchmark: the slave had the backlog before the producers were done: --backlog MORE")
        return turns
    finally:
        measured.close()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.replication", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of each and 128 MiB to catch up with")
    parser.add_argument("--no-java", action="store_true", help="leave Java's pair out")
    parser.add_argument("--rounds", type=int, help="rounds of each case (5; --quick 1)")
    parser.add_argument("--seconds", type=float, help="counted time of a round (3; --quick 1)")
    parser.add_argument("--backlog", type=int, help="MiB that a new slave catches up with (1024; --quick 128)")
    parser.add_argument(
        "--catch-up", type=int, metavar="N", help="N times catching up with a backlog, and nothing else"
    )
    options = parser.parse_args(words)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 3.0)
    options.backlog = options.backlog or (128 if options.quick else 1024)
    try:
        program = compile_load()
        if options.catch_up:
            return catch_ups(program, options)
        if not options.no_java:
            check_java()
        return run(program, options)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2


def run(program: Path, options: argparse.Namespace) -> int:
    sets: list[Set] = []
    try:
        for name, kind, role, slave in (
            ("alone", OURS, "ASYNC_MASTER", False),
            ("async", OURS, "ASYNC_MASTER", True),
            ("sync", OURS, "SYNC_MASTER", True),
            ("java async", JAVA, "ASYNC_MASTER", True),
        ):
            if kind == OURS or not options.no_java:
                sets.append(Set(name, kind, role, slave=slave))
                wait_for(sets[-1].caught_up, f"{name}: the slave follows")
                # The JVM compiles what runs often; a slave counts once it has reported.
                warm = 20.0 if kind != OURS and not options.quick else 1.0
                run_load(program, "send", sets[-1].master.addr, connections=16, in_flight=16, body=1024, seconds=warm)
                sets[-1].signal(signal.SIGSTOP)
        rounds(sets, program, options)
    finally:
        for one in sets:
            one.close()
    return told(sets, catch_up(program, options))


def catch_ups(program: Path, options: argparse.Namespace) -> int:
    """Catch up again and again, and judge the medians; 1 when a bound is broken."""
    return judged(bounds_of_catch_up([turn for _ in range(options.catch_up) for turn in catch_up(program, options)]))


def bounds_of_catch_up(turns: Sequence[Turn]) -> list[tuple[str, float, str, float]]:
    """What is to be kept, by the medians; what a stranger costs is printed: it says what the machine can keep."""
    stranger = statistics.median(turn.stranger / turn.quiet for turn in turns)
    beside = "producers' p99, stranger / quiet"
    print(f"{beside:<40}{stranger:>10.2f}  in {len(turns)} turns")
    return [
        ("catch-up, MiB/s", statistics.median(turn.speed for turn in turns) / (1 << 20), ">=", 200.0),
        ("producers' p99, catch-up / quiet", statistics.median(turn.behind / turn.quiet for turn in turns), "<=", 2.0),
    ]


def told(sets: Sequence[Set], turns: Sequence[Turn]) -> int:
    """Print figures and bounds; 1 when one is broken."""
    by = {one.name: one for one in sets}
    print(f"\n{'':<16}{'16x16 /s':>12}{'1x1 p50 us':>12}{'1x256 /s':>12}{'master us':>12}{'slave us':>10}")
    for name, one in by.items():
        master, slave = one.cpu_each()
        print(
            f"{name:<16}{one.rate('16x16'):>12.0f}{one.p50('1x1'):>12.0f}{one.rate('1x256'):>12.0f}{master:>12.1f}"
            f"{slave:>10.1f}"
        )
    ours = sum(by["async"].cpu_each())
    checks = [
        ("16x16 with a slave / without", by["async"].rate("16x16") / by["alone"].rate("16x16"), ">=", 0.8),
        ("1x1 p50, SYNC - ASYNC, us", by["sync"].p50("1x1") - by["async"].p50("1x1"), "<=", 150.0),
        ("1x256, SYNC / ASYNC", by["sync"].rate("1x256") / by["async"].rate("1x256"), ">=", 0.7),
        *bounds_of_catch_up(turns),
    ]
    if "java async" in by:
        checks.append(("CPU of both a message, ours / Java's", ours / sum(by["java async"].cpu_each()), "<=", 0.5))
    return judged(checks)


def judged(checks: Sequence[tuple[str, float, str, float]]) -> int:
    """Print values beside their bounds; 1 when one is broken."""
    failed = 0
    for what, value, sign, bound in checks:
        good = value >= bound if sign == ">=" else value <= bound
        failed |= not good
        print(f"{what:<40}{value:>10.2f}  {sign} {bound:<8g}{'' if good else 'MISSED'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

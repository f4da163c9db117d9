"""The run: both pairs up, rounds interleaved, figures, ratios, floors."""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark.cases import IDLE_CEILING, PULL_MESSAGES, PULL_TOPIC, START_CEILING, Case, chosen
from benchmark.program import BenchmarkError, EchoServer, Result, compile_load, run_load
from benchmark.report import Rounds, Verdict, figures, noise, ratios, table, verdicts
from benchmark.servers import (
    JAVA,
    JAVA_OPTIONS,
    OURS,
    PROPERTIES,
    Pair,
    check_java,
    file_resident_mib,
    first_acknowledged,
    pin,
    resident_mib,
)

#: Of each kind of send, before the JVM is measured.
WARM_MESSAGES = 400_000


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark",
        description="Our broker and the Java 4.9.4 broker in one run; exit code 1 when we are below a floor.",
    )
    parser.add_argument("--quick", action="store_true", help="short rounds, our side only, no floors: for tuning")
    parser.add_argument("--profile", action="store_true", help="our broker under cProfile; prints where time goes")
    parser.add_argument("--java-alone", action="store_true", help="the Java side only, no floors")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--rounds", type=int, help="rounds of each case (3; --quick 1)")
    parser.add_argument("--seconds", type=float, help="counted time of a round (3; --quick 1.5)")
    parser.add_argument("--warm", type=float, default=0.5, help="uncounted time before each round (0.5)")
    parser.add_argument("--java-warm", type=float, default=60, help="at most so long for the JVM's warm-up, s (60)")
    parser.add_argument("--no-start", action="store_true", help="leave out start time and idle memory")
    parser.add_argument("--server-cpu", type=int, help="core of the servers (the first we may use)")
    parser.add_argument("--load-cpu", type=int, help="core of the load (the last we may use)")
    parser.add_argument("--json", metavar="FILE", help="write every round's figures to FILE")
    options = parser.parse_args(words)
    options.quick |= options.profile
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1.5 if options.quick else 3.0)
    cpus = sorted(os.sched_getaffinity(0))
    options.server_cpu = cpus[0] if options.server_cpu is None else options.server_cpu
    options.load_cpu = cpus[-1] if options.load_cpu is None else options.load_cpu
    return options


class Bench:
    """One run's processes and what it has measured so far."""

    def __init__(self, options: argparse.Namespace, program: Path) -> None:
        self.options = options
        self.program = program
        self.cases: list[Case] = chosen(options.only)
        if not self.cases:
            raise BenchmarkError(f"benchmark: no case is named like {options.only}")
        self.rounds = [Rounds(case) for case in self.cases]

    def measure(self, case: Case, addr: str, pid: int, *, echo: bool = False, seconds: float | None = None) -> Result:
        options = self.options
        for left in (2, 1, 0):
            result = run_load(
                self.program,
                case.work,
                addr,
                connections=case.connections,
                in_flight=case.in_flight,
                body=case.body,
                seconds=seconds or options.seconds,
                warm=options.warm,
                topic=PULL_TOPIC if case.work == "pull" else "BenchTopic",
                server_pid=pid,
                cpu=options.server_cpu if case.one_core else options.load_cpu,
                echo=echo,
            )
            if result.problem:
                raise BenchmarkError(f"benchmark: {case.name} on {addr}: {result.problem}")
            if result.count:
                return result
            print(f"{case.name} on {addr}: nothing was answered in the counted time, {left} tries left", flush=True)
        raise BenchmarkError(f"benchmark: {case.name} on {addr}: nothing was answered in the counted time")

    def start(self, kind: str) -> Pair:
        """A pair pinned to the servers' core, its pull topic filled, asleep."""
        java = kind == JAVA
        pair = Pair(kind, JAVA_OPTIONS if java else (), cpu=self.options.server_cpu)
        try:
            for pid in pair.pids:
                pin(pid, {self.options.server_cpu})
            if any(case.work == "pull" for case in self.cases):
                self.prepare_pulls(pair)
            if java:
                self.warm_up(pair)
            pair.sleep()
        except BaseException:
            pair.close()
            raise
        return pair

    def prepare_pulls(self, pair: Pair) -> None:
        filled = run_load(
            self.program,
            "send",
            pair.addr,
            connections=4,
            in_flight=16,
            body=1024,
            messages=PULL_MESSAGES,
            seconds=120,
            topic=PULL_TOPIC,
        )
        if filled.problem:
            raise BenchmarkError(f"benchmark: {pair.kind}: filling the pull topic: {filled.problem}")

    def warm_up(self, pair: Pair) -> None:
        """Both sizes, batches and single messages, then pulls, until the JIT compiler has seen enough of them."""
        share = self.options.java_warm / 4
        wanted, sent = 0, 0
        for body, connections, in_flight in ((128, 16, 16), (1024, 16, 16), (1024, 16, 1)):
            wanted += WARM_MESSAGES
            sent += self.warm(pair, "send", body, connections, in_flight, share, messages=WARM_MESSAGES)
        if sent < wanted:
            print(
                f"warm-up of {pair.kind} ended by its time after {sent:,} of {wanted:,} messages: --java-warm raises it"
            )
        if any(case.work == "pull" for case in self.cases):
            self.warm(pair, "pull", 1024, 16, 4, share)

    def warm(
        self, pair: Pair, work: str, body: int, connections: int, in_flight: int, seconds: float, messages: int = 0
    ) -> int:
        result = run_load(
            self.program,
            work,
            pair.addr,
            connections=connections,
            in_flight=in_flight,
            body=body,
            messages=messages,
            seconds=seconds,
            topic=PULL_TOPIC if work == "pull" else "BenchTopic",
            cpu=self.options.load_cpu,
        )
        return result.acknowledged

    def all_rounds(self, sides: dict[str, Pair]) -> None:
        """Every case on every side, `rounds` times; the order of the sides turns round from round to round."""
        with EchoServer(self.program) as echo:
            pin(echo.pid, {self.options.server_cpu})
            for number in range(self.options.rounds):
                for rounds in self.rounds:
                    if rounds.case.work == "send":
                        result = self.measure(
                            rounds.case, echo.addr, echo.pid, echo=True, seconds=min(1.0, self.options.seconds)
                        )
                        rounds.echo.append(result)
                    order = list(sides.items())
                    for kind, pair in order if number % 2 == 0 else reversed(order):
                        with pair.awake():
                            result = self.measure(rounds.case, pair.addr, pair.broker_pid)
                        (rounds.java if kind == JAVA else rounds.ours).append(result)
                        if not self.options.quick:
                            print(
                                f"round {number + 1}  {rounds.case.name:22}  {kind:10}  {result.rate:10,.0f}/s"
                                f"  {result.cpu_us:8.2f} us CPU  p50 {result.p50_us:,.0f}  p99 {result.p99_us:,.0f} us",
                                flush=True,
                            )


def configurations(options: argparse.Namespace, java: bool) -> None:
    """What ran against what."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    loop = "asyncio"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        loop = f"uvloop {importlib.metadata.version('uvloop')}"
    print(f"machine   {os.cpu_count()} x {model}, Linux {platform.release()}, load average {os.getloadavg()[0]:.2f}")
    print(f"cores     servers on {options.server_cpu}, load on {options.load_cpu}; one in flight: both on the servers'")
    print("both      " + " ".join(f"{key}={value}" for key, value in PROPERTIES.items()))
    print("          one topic of 4 queues; each message its own UNIQ_KEY, one key, one tag; JSON headers")
    print(f"ours      CPython {platform.python_version()}, {loop}")
    if java:
        print(f"java      {JAVA}, {' '.join(JAVA_OPTIONS)}, serial collector (one core), warmed up before the rounds")
    print(flush=True)


def start_and_idle(bench: Bench) -> list[Verdict]:
    """Start time (median of three, taking turns) and memory of both daemons 20 s after their first message."""
    seconds: dict[str, list[float]] = {OURS: [], JAVA: []}
    idle: dict[str, tuple[float, float]] = {}
    for number in range(3):
        last = number == 2
        pairs = []
        try:
            for kind in (OURS, JAVA):
                pair, took = first_acknowledged(bench.program, kind)
                pairs.append(pair)
                seconds[kind].append(took)
                if not last:
                    pair.close()
            if last:
                time.sleep(20)
                for pair in pairs:
                    namesrv, broker = pair.pids
                    idle[pair.kind] = resident_mib(namesrv), resident_mib(broker)
        finally:
            for pair in pairs:
                pair.close()
    rows = []
    for kind in (OURS, JAVA):
        namesrv_mib, broker_mib = idle[kind]
        middle = sorted(seconds[kind])[1]
        rows.append(
            [kind, f"{middle:.2f}", f"{namesrv_mib:.0f}", f"{broker_mib:.0f}", f"{namesrv_mib + broker_mib:.0f}"]
        )
    print(table(("start and idle", "first ack s", "namesrv MiB", "broker MiB", "both MiB"), rows))
    print("(Java with a heap of 256 to 512 MiB here; resident memory 20 s after the first message)\n", flush=True)
    starts = sorted(seconds[OURS])[1] / sorted(seconds[JAVA])[1]
    memory = sum(idle[OURS]) / sum(idle[JAVA])
    return [
        Verdict("start to the first acknowledged message", starts, START_CEILING, False),
        Verdict("idle memory of nameserver and broker", memory, IDLE_CEILING, False),
    ]


def memory_table(sides: dict[str, Pair]) -> str:
    rows = []
    for kind, pair in sides.items():
        namesrv, broker = pair.pids
        rows.append(
            [
                kind,
                f"{resident_mib(namesrv):.0f}",
                f"{resident_mib(broker):.0f}",
                f"{file_resident_mib(broker):.0f}",
            ]
        )
    return table(("memory after the rounds, MiB", "namesrv", "broker", "of it mapped files"), rows)


def quick(bench: Bench, options: argparse.Namespace) -> int:
    """Our side only; optionally under the profiler."""
    pair = Pair(OURS, cpu=options.server_cpu)
    profile = Path(tempfile.mkdtemp(prefix="rmq-bench-")) / "broker.prof"
    try:
        if options.profile:
            pair.profile(profile)
        if any(case.work == "pull" for case in bench.cases):
            bench.prepare_pulls(pair)
        for pid in pair.pids:
            pin(pid, {options.server_cpu})
        bench.all_rounds({OURS: pair})
        print(figures(bench.rounds))
        print(f"\n{memory_table({OURS: pair})}\nload average {os.getloadavg()[0]:.2f}", flush=True)
        if options.profile:
            pair.end_profile(profile)
    finally:
        pair.close()
        profile.unlink(missing_ok=True)
        profile.parent.rmdir()
    return 0


def full(bench: Bench, options: argparse.Namespace) -> int:
    """Both sides, and the floors."""
    found: list[Verdict] = []
    kinds = (JAVA,) if options.java_alone else (OURS, JAVA)
    if not options.no_start and not options.java_alone:
        found += start_and_idle(bench)
    sides: dict[str, Pair] = {}
    try:
        for kind in kinds:
            sides[kind] = bench.start(kind)
        bench.all_rounds(sides)
        print(f"\n{figures(bench.rounds)}\n\n{ratios(bench.rounds)}\n\n{memory_table(sides)}\n")
    finally:
        for pair in sides.values():
            pair.close()
    print(f"echo, slowest round / fastest: {noise(bench.rounds)}; load average {os.getloadavg()[0]:.2f}\n")
    found += verdicts(bench.rounds)
    for verdict in found:
        print(verdict)
    return 0 if all(verdict.held for verdict in found) else 1


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 every floor held, 1 one did not, 2 the benchmark could not run."""
    options = arguments(words)
    try:
        bench = Bench(options, compile_load())
        if not options.quick:
            check_java()
        # As pip does at install: with PYTHONDONTWRITEBYTECODE set, each start would compile the whole tree.
        compileall.compile_dir(str(Path(__file__).parents[1] / "rmq"), quiet=2)
        configurations(options, java=not options.quick)
        code = quick(bench, options) if options.quick else full(bench, options)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmark: interrupted", file=sys.stderr)
        return 130
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(rounds) for rounds in bench.rounds], indent=1) + "\n")
    return code

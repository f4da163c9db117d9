"""``python -m benchmark.client [KIND ...]``: the SDK's CPU for a message beside Java's client. See ../README.md."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmark.client.load import TOPIC
from benchmark.program import BenchmarkError
from benchmark.servers import OURS, Pair, check_java
from rmq import AdminClient
from tests.support.peers.cache import cached, content_key
from tests.support.peers.jars import java_classpath, pom, run_tool

JAVA_VERSION = "4.9.4"
#: 4.9 pops nothing.
POPS = "5.3.3"
SOURCE = Path(__file__).parent / "java"
#: Ours -> (Java's, messages, wanted: Java's CPU over ours).
BESIDE = {
    "asyncio": ("async", 60_000, 1.0),
    "auto_batch": ("async", 60_000, 1.3),
    "threads": ("threads", 40_000, 0.7),
    "one": ("one", 10_000, None),
    "one_thread": ("one", 10_000, None),
    "push": ("push", 60_000, 1.0),
    "pop": ("pop", 60_000, None),
}
#: Ours alone: messages, the figure, and its bound.
ALONE = {"gather": (100_000, (("cpu_us", 20.0), ("peak_mib", 150.0))), "idle": (0, (("mib", 35.0),))}

Figures = dict[str, float]


def java_classes(version: str = JAVA_VERSION) -> str:
    """The class path of Load.java, compiled into the cache."""

    def build(folder: Path) -> None:
        sources = [str(file) for file in sorted(SOURCE.glob("*.java"))]
        run_tool(["javac", "-nowarn", "-d", str(folder), "-cp", java_classpath(version), *sources], folder)

    key = content_key(pom(version), SOURCE)
    return java_classpath(version, cached(f"{version}/benchmark-client-{key}", build))


def run(command: list[str], checkout: Path | None = None) -> Figures:
    """One process of a client, and what it says of itself.

    :param checkout: whose SDK it is, when not this one's.
    """
    kind, namesrv, _ = command[-3:]
    group = f"benchmark_{time.time_ns()}"
    env = dict(os.environ) | ({} if checkout is None else {"PYTHONPATH": str(checkout)}) | {"BENCHMARK_GROUP": group}
    if kind == "pop":
        with AdminClient(namesrv=namesrv) as admin:
            for broker in admin.cluster_info().broker_addr_table.values():
                admin.set_message_request_mode(next(iter(broker.broker_addrs.values())), TOPIC, group)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise BenchmarkError(f"benchmark: {' '.join(command[-3:])} failed: {done.stderr.strip()[-500:]}")
    made: Figures = json.loads(lines[-1])
    return made


def ours(kind: str, namesrv: str, count: int, checkout: Path | None = None) -> Figures:
    program = str(Path(__file__).with_name("load.py"))
    return run([sys.executable, program, kind, namesrv, str(count)], checkout)


def java(kind: str, namesrv: str, count: int) -> Figures:
    classes = java_classes(POPS if kind == "pop" else JAVA_VERSION)
    return run(["java", "-Xms512m", "-Xmx512m", "-cp", classes, "Load", kind, namesrv, str(count)])


def middle(figures: list[Figures], name: str) -> float:
    """The median of what the rounds say."""
    return statistics.median(one[name] for one in figures)


def compare(kind: str, namesrv: str, rounds: int, base: Path | None) -> str:
    """Rounds of ours, and of Java's or another checkout's, in turns; a line of the table."""
    theirs_kind, count, wanted = BESIDE[kind]
    mine: list[Figures] = []
    theirs: list[Figures] = []
    for _ in range(rounds):
        mine.append(ours(kind, namesrv, count))
        theirs.append(ours(kind, namesrv, count, base) if base else java(theirs_kind, namesrv, count))
    line = f"{kind:<12} {middle(mine, 'cpu_us'):8.1f} {middle(theirs, 'cpu_us'):8.1f}"
    ratio = middle(theirs, "cpu_us") / middle(mine, "cpu_us")
    line += f" {ratio:6.2f}" + (f"  (wanted {wanted:g})" if wanted and not base else "")
    if "p50_us" in mine[0]:
        for name in ("p50_us", "p99_us"):
            line += f"  {name[:3]} {middle(mine, name):7.0f} / {middle(theirs, name):7.0f}"
    return line


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.client", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*BESIDE, *ALONE, []], help="all of them when none is named")
    parser.add_argument("--rounds", type=int, default=3, help="of each, in turns (3)")
    parser.add_argument("--base", type=Path, help="another checkout, whose SDK is measured in Java's place")
    given = parser.parse_args()
    kinds = given.kinds or [*BESIDE, *ALONE]
    try:
        if not given.base:
            check_java()
        pair = Pair(OURS)
        try:
            namesrv = pair.cluster.namesrv
            print(f"load {os.getloadavg()[0]:.1f}; CPU us a message: ours, {given.base or 'Java'}, ratio", flush=True)
            if {"push", "pop"} & set(kinds):
                ours("asyncio", namesrv, 100_000)  # what the consumers read
            for kind in kinds:
                if kind in BESIDE:
                    print(compare(kind, namesrv, given.rounds, given.base), flush=True)
                else:
                    count, bounds = ALONE[kind]
                    made = ours(kind, namesrv, count)
                    print(f"{kind:<12}", *(f"{name} {made[name]:.1f} (at most {most:g})" for name, most in bounds))
        finally:
            pair.close()
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What access control and TLS cost a broker, Java 4.9.4 beside ours: ``python -m benchmark.secured [acl tls]``.

Sends of 1 KB, 16 connections with 16 in flight, with the load program of the main benchmark: signed by an account of
both brokers' plain_acl.yml, or through a forwarder that speaks TLS for it (``tls_forward.py``; each broker makes its
certificate itself, Java's TLS is its JDK's). Rounds are interleaved, and the broker that is not measured is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.cases import Case
from benchmark.program import BenchmarkError, Result, compile_load, run_load
from benchmark.report import Rounds, Verdict, figures, ratios
from benchmark.servers import JAVA, JAVA_OPTIONS, OURS, Pair, check_java, pin

ACCOUNT = "benchmark:12345678"
ACCOUNTS = """\
accounts:
  - accessKey: benchmark
    secretKey: 12345678
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""
#: Messages of ours for each CPU second of the broker, by Java's: the least that there may be (issue 19, "Speed").
FLOOR = 1.5
CASE = Case("send", 1024, 16, 16)


class Secured:
    """One way of the two: both brokers, and how the load reaches them."""

    def __init__(self, way: str, program: Path, options: argparse.Namespace) -> None:
        self.way = way
        self.program = program
        self.options = options
        cpus = sorted(os.sched_getaffinity(0))
        self.server_cpu, self.load_cpu = cpus[0], cpus[-1]
        self.rounds = Rounds(CASE)
        #: Of the last connections, where it is TLS.
        self.cipher = ""

    @contextlib.contextmanager
    def reached(self, pair: Pair) -> Iterator[str]:
        """Where the load goes to."""
        if self.way != "tls":
            yield pair.addr
            return
        words = [sys.executable, "-m", "benchmark.tls_forward", *pair.addr.split(":"), str(self.load_cpu)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as forwarder:
            assert forwarder.stdout is not None
            try:
                words = forwarder.stdout.readline().split()
                if words[:1] != ["port"]:
                    raise BenchmarkError("benchmark: the TLS forwarder did not start")
                yield f"127.0.0.1:{words[1]}"
            finally:
                forwarder.kill()
                self.cipher = (forwarder.stdout.readline().split() or ["", "none"])[-1]

    def load(self, pair: Pair, seconds: float, warm: float = 0.5) -> Result:
        with self.reached(pair) as addr:
            result = run_load(
                self.program,
                "send",
                addr,
                connections=CASE.connections,
                in_flight=CASE.in_flight,
                body=CASE.body,
                seconds=seconds,
                warm=warm,
                server_pid=pair.broker_pid,
                cpu=self.load_cpu,
                account=ACCOUNT if self.way == "acl" else "",
            )
        if result.problem:
            raise BenchmarkError(f"benchmark: {self.way} on {pair.kind}: {result.problem}")
        return result

    def start(self, kind: str) -> Pair:
        accounts = ACCOUNTS if self.way == "acl" else None
        pair = Pair(kind, JAVA_OPTIONS if kind == JAVA else (), cpu=self.server_cpu, accounts=accounts)
        try:
            for pid in pair.pids:
                pin(pid, {self.server_cpu})
            self.load(pair, self.options.java_warm if kind == JAVA else 2.0, warm=0.1)
            pair.sleep()
        except BaseException:
            pair.close()
            raise
        return pair

    def run(self) -> Verdict:
        pairs: list[Pair] = []
        try:
            for kind in (OURS, JAVA):
                pairs.append(self.start(kind))
            for number in range(self.options.rounds):
                for pair in pairs if number % 2 == 0 else pairs[::-1]:
                    with pair.awake():
                        result = self.load(pair, self.options.seconds)
                    (self.rounds.java if pair.kind == JAVA else self.rounds.ours).append(result)
                    print(
                        f"{self.way} round {number + 1}  {pair.kind:10}  {result.rate:10,.0f}/s"
                        f"  {result.cpu_us:8.2f} us CPU  {self.cipher}",
                        flush=True,
                    )
        finally:
            for pair in pairs:
                pair.close()
        print(f"\n{self.way}\n{figures([self.rounds])}\n\n{ratios([self.rounds])}\n")
        return Verdict(f"{self.way}: {CASE.name} messages per core", self.rounds.ratio("per_core")[0], FLOOR, True)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the floor of access control held, 1 it did not, 2 the benchmark could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.secured", description=(__doc__ or "").partition(":")[0] + "."
    )
    parser.add_argument("ways", nargs="*", metavar="acl|tls", help="what is measured (both)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="counted time of a round (3)")
    parser.add_argument("--java-warm", type=float, default=30.0, help="the JVM's warm-up, s (30)")
    options = parser.parse_args(words)
    ways = options.ways or ["acl", "tls"]
    for way in ways:
        if way not in ("acl", "tls"):
            parser.error(f"{way}: what is measured is acl or tls")
    try:
        program = compile_load()
        check_java()
        found = {way: Secured(way, program, options).run() for way in ways}
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    if "acl" not in found:
        return 0
    print(found["acl"])
    return 0 if found["acl"].held else 1


if __name__ == "__main__":
    sys.exit(main())

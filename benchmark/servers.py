"""The two pairs of nameserver and broker under test, with equal settings, and what /proc says about them."""

from __future__ import annotations

import contextlib
import os
import pstats
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmark.program import BenchmarkError, Result, run_load
from tests.support.peers import Cluster, ToolMissing, resolve_jars, start_cluster
from tests.support.peers.process import ProcessFailed

JAVA = "java-4.9.4"
OURS = "ours"

#: The same keys for both brokers: sizes as a production broker has them, not the small ones of the tests.
PROPERTIES: Mapping[str, str] = {
    "flushDiskType": "ASYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "messageIndexEnable": "true",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "sendThreadPoolQueueCapacity": "100000",
    "pullThreadPoolQueueCapacity": "100000",
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInPullQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}
#: For the throughput rounds; starts and idle memory are measured with what start_cluster gives tests (256 to 512 MiB).
JAVA_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")


def check_java() -> None:
    """Have Java and its broker's jars before anything is started.

    :raises BenchmarkError: they are not there and cannot be had.
    """
    try:
        resolve_jars(JAVA.removeprefix("java-"))
    except ToolMissing as error:
        raise BenchmarkError(f"benchmark: {JAVA}: {error}; --quick measures our side alone") from None


def pin(pid: int, cpus: set[int]) -> None:
    """Put every thread of a process on these cores; threads it makes later inherit them."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), cpus)


def resident_mib(pid: int) -> float:
    """VmRSS of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def file_resident_mib(pid: int) -> float:
    """The part of VmRSS that is mapped files (the store's, for Java), MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Pair:
    """One running nameserver and broker."""

    def __init__(
        self, kind: str, java_options: tuple[str, ...] = (), cpu: int | None = None, accounts: str | None = None
    ) -> None:
        """Start them; with ``cpu`` on that core only, seen as a machine of one core from the first instruction.

        :param accounts: the broker's plain_acl.yml, when it has access control.
        """
        before = os.sched_getaffinity(0)
        begin = time.monotonic()
        try:
            if cpu is not None:
                os.sched_setaffinity(0, {cpu})
            self.cluster: Cluster = start_cluster(
                kind, properties=PROPERTIES, java_options=java_options, accounts=accounts
            )
        except (ToolMissing, ProcessFailed) as error:
            raise BenchmarkError(f"benchmark: {kind}: {error}") from None
        finally:
            os.sched_setaffinity(0, before)
        self.kind = kind
        self.ready_seconds = time.monotonic() - begin
        self.begin = begin

    @property
    def addr(self) -> str:
        return self.cluster.broker_addr

    @property
    def broker_pid(self) -> int:
        return self.cluster.brokers[0].daemon.pid

    @property
    def pids(self) -> tuple[int, int]:
        return self.cluster.namesrv_daemon.pid, self.broker_pid

    def sleep(self) -> None:
        """Stop both processes where they are, so that they take nothing from the other pair's round."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def wake(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        self.wake()
        try:
            yield
        finally:
            self.sleep()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.wake()
        self.cluster.stop()

    def profile(self, into: Path) -> None:
        """Start the broker again under cProfile; the figures are written to ``into`` when it ends."""
        daemon = self.cluster.brokers[0].daemon
        daemon.stop()
        at = daemon.command.index("-m")
        daemon.command[at:at] = ["-m", "cProfile", "-o", str(into)]
        try:
            daemon.start()
        except ProcessFailed as error:
            raise BenchmarkError(f"benchmark: {error}") from None

    def end_profile(self, into: Path, lines: int = 45) -> None:
        """Stop the broker and print where its time went."""
        self.wake()
        self.cluster.brokers[0].daemon.stop()
        if not into.exists():
            raise BenchmarkError(f"benchmark: no profile was written; the broker said:\n{self.cluster.logs()}")
        stats = pstats.Stats(str(into))
        stats.strip_dirs().sort_stats("tottime").print_stats(lines)


def first_acknowledged(program: Path, kind: str, java_options: tuple[str, ...] = ()) -> tuple[Pair, float]:
    """Start a pair; seconds from the first process's start to the first acknowledged message."""
    pair = Pair(kind, java_options)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                result: Result = run_load(program, "send", pair.addr, messages=1, seconds=10)
                if not result.problem:
                    return pair, time.monotonic() - pair.begin
            except BenchmarkError:
                if time.monotonic() > deadline:
                    raise
    except BaseException:
        pair.close()
        raise

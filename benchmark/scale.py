"""Thousands of topics in one broker: ``python -m benchmark.scale [--topics 10000] [--queues 4]``.

Creates the topics through the protocol, one request for each as an administration client does, sends a message to
every queue, lets a group commit an offset in each, asks for everything that speaks of all of them, and prints how long
that took, what the broker needs (memory, descriptors, disk), how long its loop and the nameserver's stood still
meanwhile, and how long it takes to start again after a clean stop and after kill -9. Exit code 1 when a bound of the
project is broken (60 s, 600 MiB, 2,000 descriptors, 10 s, no standstill of a loop over 50 ms).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from benchmark.program import BenchmarkError
from benchmark.servers import OURS, PROPERTIES, resident_mib
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.topic import CreateTopicRequest
from tests.support.peers import Cluster, start_cluster
from tests.support.peers.ports import free_port
from tests.support.peers.process import ProcessFailed
from tests.support.raw_peer import RawPeer

#: Requests in flight.
_WINDOW = 64
_BOUNDS = {"created": 60.0, "memory": 600.0, "descriptors": 2000.0, "start": 10.0}
#: Milliseconds.
_STANDSTILL = 50
GROUP = "ScaleGroup"


def topic(number: int) -> str:
    return f"Scale{number:05d}"


async def all_answered(peer: RawPeer, count: int, make: Callable[[int], Command]) -> None:
    """Ask ``count`` requests, a window of them at a time."""
    room = asyncio.Semaphore(_WINDOW)

    async def one(number: int) -> None:
        async with room:
            answer = await peer.ask(make(number))
        if answer.code:
            raise BenchmarkError(f"benchmark: request {number}: code {answer.code}: {answer.remark}")

    for first in range(0, count, 1000):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + 1000))))


def creation(number: int, queues: int) -> Command:
    header = CreateTopicRequest(
        topic=topic(number), default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    return Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def message(number: int, queues: int) -> Command:
    ext = {
        "a": "P", "b": topic(number // queues), "c": "TBW102", "d": str(queues), "e": str(number % queues), "f": "0",
        "g": "1", "h": "0", "i": f"KEYS\1k{number}\2TAGS\1TagA", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE_V2, ext=dict(ext), body=bytes(100))


def commitment(number: int, queues: int) -> Command:
    ext = {
        "consumerGroup": GROUP, "topic": topic(number // queues), "queueId": str(number % queues), "commitOffset": "1"
    }  # fmt: skip
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=dict(ext))


class Watch:
    """Asks a broker something small all the time: how long the answer took at most is how long its loop stood still."""

    def __init__(self, peer: RawPeer) -> None:
        self._peer = peer
        self.worst = 0.0

    async def run(self) -> None:
        while True:
            begun = time.perf_counter()
            await self._peer.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": "none"}))
            self.worst = max(self.worst, time.perf_counter() - begun)
            await asyncio.sleep(0.002)

    def take(self) -> float:
        """The longest time since the last call, ms."""
        worst, self.worst = self.worst, 0.0
        return worst * 1000


@contextlib.asynccontextmanager
async def watched(address: str) -> AsyncIterator[Watch]:
    host, _, port = address.rpartition(":")
    async with RawPeer(host, int(port)) as peer:
        watch = Watch(peer)
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def page(port: int, path: str) -> str:
    """A page of a daemon's metrics."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


async def standstill(port: int) -> float:
    """The longest lag of a daemon's loop of late, by its own word, ms."""
    found = re.search(r"^rmq_loop_lag_seconds(?:{[^}]*})? (\S+)$", await page(port, "/metrics"), re.MULTILINE)
    return float(found[1]) * 1000 if found else float("nan")


def disk_mib(root: Path) -> tuple[float, float]:
    """Allocated and apparent size of a folder, MiB."""
    allocated = apparent = 0
    for path in root.rglob("*"):
        state = path.stat()
        allocated += state.st_blocks * 512
        apparent += state.st_size
    return allocated / (1 << 20), apparent / (1 << 20)


class Scale:
    """One run over one broker."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, metrics: int) -> None:
        self.options = options
        self.metrics = metrics
        self.namesrv = cluster.namesrv
        self.daemon = cluster.brokers[0].daemon
        self.address = cluster.brokers[0].addr
        self.store = cluster.brokers[0].store
        self.broken: list[str] = []
        self.seen: list[str] = []

    def stalls(self) -> list[str]:
        """What the daemons logged of times their loops stood still for more than 50 ms."""
        logs = sorted(Path(os.environ["RMQ_LOG_DIR"]).glob("*.log"))
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        found = [line for line in lines if "stood still" in line]
        # Where the loop was waiting for its turn, the machine had none to give.
        own = [line for line in found if "the machine was busy" not in line]
        if own:
            self.broken.append(f"standstills: {len(own)} of more than {_STANDSTILL} ms")
        return found

    def bound(self, name: str, value: float) -> None:
        if value > _BOUNDS[name]:
            self.broken.append(f"{name}: {value:.0f}, at most {_BOUNDS[name]:.0f}")

    async def timed(self, name: str, watch: Watch, work: Awaitable[object]) -> float:
        watch.take()
        begun = time.monotonic()
        await work
        took = time.monotonic() - begun
        print(f"{name:34}{took:8.1f} s    others waited at most {watch.take():6.1f} ms", flush=True)
        return took

    async def create(self) -> None:
        topics, queues = self.options.topics, self.options.queues
        host, _, port = self.address.rpartition(":")
        async with watched(self.address) as watch, RawPeer(host, int(port)) as peer:
            took = await self.timed(
                f"{topics} topics created", watch, all_answered(peer, topics, lambda n: creation(n, queues))
            )
            took += await self.timed(
                f"{topics * queues} queues, a message in each", watch,
                all_answered(peer, topics * queues, lambda n: message(n, queues)),
            )  # fmt: skip
            self.bound("created", took)
            await self.timed(f"{self.options.settle} s of nothing else", watch, asyncio.sleep(self.options.settle))
            self.needs()
            await self.ask(watch, peer)

    async def ask(self, watch: Watch, peer: RawPeer) -> None:
        """Ask for what speaks of every topic or queue."""
        queues = self.options.queues
        total = self.options.topics * queues
        await self.timed(
            f"{total} offsets committed", watch, all_answered(peer, total, lambda n: commitment(n, queues))
        )
        for path in ("/metrics", "/metrics?names=exporter", "/metrics?queues=true"):
            await self.timed(path, watch, page(self.metrics, path))
        for code, ext in (
            (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
            (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
            (RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP}),
            (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
            (RequestCode.CLEAN_UNUSED_TOPIC, {}),
        ):
            await self.timed(code.name, watch, all_answered(peer, 1, lambda _: Command(code, ext=dict(ext))))  # noqa: B023
        host, _, port = self.namesrv.rpartition(":")
        async with watched(self.namesrv) as other, RawPeer(host, int(port)) as namesrv:
            for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER):
                command = Command(code, ext={"cluster": "DefaultCluster"})
                await self.timed(f"nameserver: {code.name}", other, all_answered(namesrv, 1, lambda _: command))  # noqa: B023
            creating = all_answered(peer, 3, lambda n: creation(self.options.topics + n, queues))
            await self.timed("3 more topics, registered", other, creating)
            await self.timed("5 s after", other, asyncio.sleep(5))

    def needs(self) -> None:
        """Print what the running broker needs."""
        memory = resident_mib(self.daemon.pid)
        descriptors = len(os.listdir(f"/proc/{self.daemon.pid}/fd"))
        allocated, apparent = disk_mib(self.store)
        print(
            f"{'needs':34}{memory:8.0f} MiB  {descriptors} descriptors, {allocated:.0f} MiB on disk "
            f"(files of {apparent:.0f} MiB)",
            flush=True,
        )  # fmt: skip
        self.bound("memory", memory)
        self.bound("descriptors", descriptors)

    async def start(self, name: str) -> None:
        begun = time.monotonic()
        self.daemon.start(timeout=300)
        took = time.monotonic() - begun
        self.bound("start", took)
        lag = await standstill(self.metrics)
        print(f"{name:34}{took:8.1f} s    the loop stood still for at most {lag:6.1f} ms", flush=True)
        host, _, port = self.address.rpartition(":")
        async with RawPeer(host, int(port)) as peer:
            for number in (0, self.options.topics * self.options.queues - 1):
                at = {"topic": topic(number // self.options.queues), "queueId": str(number % self.options.queues)}
                answer = await peer.ask(Command(RequestCode.GET_MAX_OFFSET, ext=dict(at)))
                if (answer.ext or {}).get("offset") != "1":
                    raise BenchmarkError(f"benchmark: {at} has {answer.ext} after the start, 1 message is expected")

    async def run(self) -> None:
        await self.create()
        begun = time.monotonic()
        self.daemon.stop(60)
        print(f"{'stopped':34}{time.monotonic() - begun:8.1f} s", flush=True)
        await self.start("started after a clean stop")
        self.needs()
        self.daemon.kill()
        await self.start("started after kill -9")
        self.needs()
        self.seen = self.stalls()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=4, help="queues of each topic (4)")
    parser.add_argument("--settle", type=int, default=35, help="seconds before memory is looked at (35)")
    options = parser.parse_args(words)
    metrics = free_port()
    logs = tempfile.TemporaryDirectory(prefix="rmq-scale-logs-")
    os.environ["RMQ_LOG_DIR"] = logs.name
    try:
        cluster = start_cluster(
            OURS,
            properties={
                **PROPERTIES,
                "metricsExporterType": "PROM",
                "metricsPromExporterPort": str(metrics),
                "loopStallWarnMills": str(_STANDSTILL),
            },
            namesrv_properties={
                "metricsExporterType": "PROM",
                "metricsPromExporterPort": str(free_port()),
                "loopStallWarnMills": str(_STANDSTILL),
            },
        )
    except ProcessFailed as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 2
    scale = Scale(cluster, options, metrics)
    try:
        asyncio.run(scale.run())
    except (BenchmarkError, ProcessFailed) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        cluster.stop()
        logs.cleanup()
    for line in scale.seen:
        print(line)
    for line in scale.broken:
        print(f"over its bound: {line}")
    return 1 if scale.broken else 0


if __name__ == "__main__":
    sys.exit(main())

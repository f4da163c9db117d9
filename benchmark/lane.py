"""What one message costs inside the broker, without a network: ``python -m benchmark.lane [TEXT ...] [--profile]``.

A real broker with a real store, in this process; connections are real, their transports swallow what is written.
Each round hands every connection one received buffer and lets the loop run one tick: framing, decoding, checks,
append, index, answers. The figure is the least over many rounds, on the thread's CPU clock, so it hardly moves when
the machine is busy. What the kernel takes for sockets is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import logging
import pstats
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmark.cases import Case, chosen
from benchmark.micro.messages import unique_key, user_key
from benchmark.servers import PROPERTIES
from rmq.protocol.signature import signed_fields
from rmq.remoting.conn import Conn
from rmq.runtime import loop
from rmq.testing.cluster import Cluster

TOPIC = "BenchTopic"
ACCESS_KEY, SECRET_KEY = "benchmark", "a secret of the lane"
#: Different buffers of each connection, used in turn.
VARIETY = 32
_HEARTBEAT = (
    '{"clientID":"127.0.0.1@lane","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
    '"CONSUME_PASSIVELY","groupName":"bench_group","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode"'
    ':false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1700000000000,"tagsSet":[],"topic":"'
    + TOPIC
    + '"}],"unitMode":false}],"producerDataSet":[]}'
)


class Sink(asyncio.Transport):
    """A transport that takes everything at once; while ``counting`` it counts good answers and keeps the last write."""

    def __init__(self, number: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000 + number)})
        self.counting = False
        self.answers = 0
        self.last = b""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.counting:
            self.last = bytes(data)
            self.answers += self.last.count(b'{"code":0,')

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self.counting:
            self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


#: Whether requests are signed, for ``--acl``.
signing = False


def _frame(code: int, ext: str, opaque: int, body: bytes = b"") -> bytes:
    if signing:
        fields = signed_fields(json.loads(f"{{{ext}}}"), body, ACCESS_KEY, SECRET_KEY)
        ext = json.dumps(fields, separators=(",", ":"))[1:-1]
    header = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":409}}'
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def _send(number: int, body: int) -> bytes:
    properties = f"KEYS\\u0001{user_key(number)}\\u0002UNIQ_KEY\\u0001{unique_key(number)}"
    born = 1_700_000_000_000 + number
    ext = (
        f'"a":"bench_group","b":"{TOPIC}","c":"TBW102","d":"4","e":"{number % 4}","f":"0","g":"{born}","h":"0",'
        f'"i":"{properties}\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA","j":"0","k":"false","m":"false",'
        f'"n":"broker-0"'
    )
    return _frame(310, ext, number, bytes(body))


def _pull(number: int, places: int) -> bytes:
    offset = 32 * (number % places)
    ext = (
        f'"bname":"broker-0","queueId":"{number % 4}","maxMsgNums":"32","sysFlag":"3","suspendTimeoutMillis":"15000",'
        f'"commitOffset":"{32 * places}","topic":"{TOPIC}","queueOffset":"{offset}","expressionType":"TAG",'
        f'"subVersion":"1700000000000","consumerGroup":"bench_group"'
    )
    return _frame(11, ext, number)


class Bench:
    """The broker and its pretended connections."""

    def __init__(self, cluster: Cluster, rounds: int) -> None:
        self.server = cluster.brokers[0].server
        self.rounds = rounds
        self.conns: list[Conn] = []
        self.sinks: list[Sink] = []
        self.number = 0

    def connect(self, count: int) -> None:
        while len(self.conns) < count:
            sink = Sink(len(self.conns))
            conn = Conn(self.server)
            conn.connection_made(sink)
            self.sinks.append(sink)
            self.conns.append(conn)

    async def tick(self, buffers: Sequence[bytes]) -> None:
        """One received buffer for each connection, and the tick that serves them."""
        for conn, data in zip(self.conns, buffers, strict=False):
            conn.data_received(data)
        await asyncio.sleep(0)
        while self.server.ready or self.server.scheduled:  # noqa: ASYNC110 - ticks are counted, not waited for
            await asyncio.sleep(0)

    async def fill(self, count: int) -> None:
        """Messages of 1 KB for the pulls; the first of them are answered once topics.json has their topic."""
        self.connect(1)
        sink = self.sinks[0]
        sink.counting = True
        for start in range(0, count, 256):
            await self.tick([b"".join(_send(start + i, 1024) for i in range(256))])
        while sink.answers < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        sink.counting = False

    async def heartbeat(self) -> None:
        self.connect(1)
        await self.tick([_frame(34, "", 1, _HEARTBEAT.encode())])
        await asyncio.sleep(0.05)

    def buffers(self, case: Case) -> list[list[bytes]]:
        """VARIETY rounds of one buffer a connection."""
        make: Callable[[int], bytes]
        if case.work == "send":
            make = lambda number: _send(number, case.body)  # noqa: E731
        else:
            make = lambda number: _pull(number, 400)  # noqa: E731
        rounds = []
        for _ in range(VARIETY):
            row = []
            for _ in range(case.connections):
                row.append(b"".join(make(self.number + i) for i in range(case.in_flight)))
                self.number += case.in_flight
            rounds.append(row)
        return rounds

    async def measure(self, case: Case) -> tuple[float, float]:
        """Least and median CPU microseconds a message."""
        self.connect(case.connections)
        rows = self.buffers(case)
        sinks = self.sinks[: case.connections]
        for sink in sinks:
            sink.counting, sink.answers = True, 0
        for row in rows:
            await self.tick(row)
        for sink in sinks:
            sink.counting = False
            if sink.answers != case.in_flight * VARIETY:
                raise SystemExit(f"{case.name}: {sink.answers} good answers, the last write is {sink.last[:300]!r}")
        count = case.connections * case.in_flight
        again = max(1, 64 // count)
        times = []
        for number in range(self.rounds):
            row = rows[number % VARIETY]
            start = time.thread_time_ns()
            for _ in range(again):
                await self.tick(row)
            times.append((time.thread_time_ns() - start) / (count * again * 1e3))
        return min(times), statistics.median(times)


def _accounts(folder: str) -> str:
    """A file of accounts with the one that signs; the folder to be given as rocketmqHome."""
    path = Path(folder, "home", "conf", "plain_acl.yml")
    path.parent.mkdir(parents=True)
    path.write_text(
        f"accounts:\n- accessKey: {ACCESS_KEY}\n  secretKey: {SECRET_KEY}\n"
        "  defaultTopicPerm: PUB|SUB\n  defaultGroupPerm: SUB\n"
    )
    return str(path.parents[1])


async def run(cases: Sequence[Case], rounds: int, folder: str, profiler: cProfile.Profile | None) -> None:
    settings = {key: text for key, text in PROPERTIES.items() if not key.endswith("QueueCapacity")}
    if signing:
        home = _accounts(folder)
        settings |= {"aclEnable": "true", "rocketmqHome": home}
    async with Cluster(folder, settings=settings) as cluster:
        bench = Bench(cluster, rounds)
        await bench.heartbeat()
        await bench.fill(64_000 if any(case.work == "pull" for case in cases) else 1024)
        print("CPU us a message (pull: a request), least and median of the rounds; no sockets")
        for case in cases:
            if profiler is not None:
                profiler.enable()
            least, middle = await bench.measure(case)
            if profiler is not None:
                profiler.disable()
            print(f"{case.name:22} {least:8.2f} {middle:8.2f}", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.lane", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", help="cases whose name holds one of these, blanks ignored")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--profile", action="store_true", help="print the dearest functions")
    parser.add_argument("--acl", action="store_true", help="with access control: each request is signed and checked")
    options = parser.parse_args(words)
    global signing
    signing = options.acl
    cases = chosen(options.only)
    if not cases:
        parser.error(f"no case is named like {', '.join(options.only)}")
    logging.basicConfig(level=logging.WARNING)
    profiler = cProfile.Profile() if options.profile else None
    folder = tempfile.mkdtemp(prefix="rmq-lane-")
    try:
        loop.run(run(cases, options.rounds, folder, profiler))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if profiler is not None:
        pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(35)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the broker holds and how fast it is when nobody sends much: ``python -m benchmark.limits [PART ...]``.

Parts: ``idle`` (10,000 connections with heartbeats: memory), ``delivery`` (100 waiting consumers, 1,000 messages a
second: time from send to delivery), ``filter`` (SQL92 evaluations a second), ``storm`` (heartbeats of 1,000 groups at
once: the longest standstill of the loop), ``reset`` (a group of 200 members on 256 queues is reset: the same), ``held``
(5,000 held pulls while nothing is sent: what they cost). Exit code 1 when a bound of the table below is passed. The
broker runs in a process of its own, on a core of its own when there are two; the peers are raw sockets in this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rmq.filter.sql import compile_sql
from rmq.runtime import loop

TOPIC = "LimitTopic"
_HELD_SECONDS = 30
#: What a part measured that has a bound, by name.
Figures = dict[str, float]


class Daemon:
    """One daemon process; ``async with``."""

    def __init__(self, module: str, folder: str, settings: dict[str, str]) -> None:
        self._module = module
        self._file = Path(folder) / f"{module}.properties"
        self._file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        self._environment = {**os.environ, "HOME": folder, "RMQ_LOG_DIR": folder}

    async def __aenter__(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"rmq.cli.{self._module}", "-c", str(self._file),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=self._environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        if b"boot success" not in line:
            raise SystemExit(f"benchmark: {self._module} did not start; see {self._file.parent}")
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(self._process.pid, {cores[-1]})
        return self._process.pid

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await self._process.wait()


class Broker:
    """A broker without a nameserver, on free ports; ``async with``."""

    def __init__(self, folder: str) -> None:
        self.port = _free_port()
        self.metrics = _free_port()
        settings = {
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(self.port),
            "storePathRootDir": f"{folder}/store",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(self.metrics),
        }
        self._daemon = Daemon("mqbroker", folder, settings)

    async def __aenter__(self) -> Broker:
        self.pid = await self._daemon.__aenter__()
        return self

    async def __aexit__(self, *what: object) -> None:
        await self._daemon.__aexit__(*what)

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        return int(found[1]) / 1024 if found else 0.0

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def figure(self, name: str) -> float:
        """One metric of the broker's own page."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.metrics)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else float("nan")


def _elsewhere(broker: Broker) -> tuple[float, float]:
    """Processor time so far of everything but the broker and us, and what the hypervisor gave to other machines."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, stolen = (field / os.sysconf("SC_CLK_TCK") for field in fields)
    ours = sum(os.times()[:2]) + broker.cpu_seconds()
    return user + nice + system + irq + softirq - ours, stolen


async def _standstills(broker: Broker, stalls: float, before: tuple[float, float]) -> tuple[Figures, str]:
    """How often the broker's loop stood still for too long since ``stalls``; that and what else ran, in words."""
    others, stolen = (now - then for now, then in zip(_elsewhere(broker), before, strict=True))
    lag = await broker.figure("rmq_loop_lag_seconds")
    count = await broker.figure("rmq_loop_stalls_total") - stalls
    return {"standstills": count}, (
        f"longest standstill of the last 30 s {lag * 1000:.0f} ms, {count:.0f} beyond 50 ms while it lasted; "
        f"other processes ran for {others:.1f} s, other machines {stolen:.2f} s"
    )


def _free_port() -> int:
    """A port that is free together with the one two below (the VIP port)."""
    import socket

    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


def frame(code: int, opaque: int, ext: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    head = {"code": code, "extFields": ext or {}, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 409}
    header = json.dumps(head, separators=(",", ":")).encode()
    return (len(header) + len(body) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def heartbeat(client: str, groups: Sequence[str], opaque: int = 1) -> bytes:
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
    consumers = [
        {
            "groupName": group,
            "messageModel": "CLUSTERING",
            "consumeType": "CONSUME_PASSIVELY",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{**subscription, "expressionType": "TAG", "classFilterMode": False}],
            "unitMode": False,
        }
        for group in groups
    ]
    return frame(34, opaque, None, json.dumps({"clientID": client, "consumerDataSet": consumers}).encode())


class Link(asyncio.Protocol):
    """A connection that hands out whole frames."""

    def __init__(self, took: Callable[[Link, bytes], None]) -> None:
        self._took = took
        self._data = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        position = 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            self._took(self, data[position + 4 : end])
            position = end
        self._data = data[position:]


async def link(port: int, took: Callable[[Link, bytes], None]) -> Link:
    _, made = await asyncio.get_running_loop().create_connection(lambda: Link(took), "127.0.0.1", port)
    return made


async def idle(folder: str, count: int) -> Figures:
    """Memory of a broker that thousands of consumers are connected to."""
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if room != resource.RLIM_INFINITY and room < count + 100:
        count = room - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, room))
    async with Broker(folder) as broker:
        before = broker.resident_mib()
        answered = 0
        done = asyncio.Event()

        def took(_: Link, __: bytes) -> None:
            nonlocal answered
            answered += 1
            if answered % count == 0:
                done.set()

        links = []
        for start in range(0, count, 200):
            links += await asyncio.gather(*[link(broker.port, took) for _ in range(start, min(start + 200, count))])
        for turn in range(3):
            done.clear()
            for number, one in enumerate(links):
                one.transport.write(heartbeat(f"10.0.0.1@{number}", [f"group-{number % 100}"], turn + 1))
            await asyncio.wait_for(done.wait(), 120)
        after = broker.resident_mib()
        print(f"idle      {count} connections, 3 heartbeats each: {after:.0f} MiB resident ({before:.0f} without them)")
        for one in links:
            one.transport.abort()
        return {"MiB": after}


def pull_ext(group: str, topic: str, offset: int, queue: int = 0, hold_seconds: int = _HELD_SECONDS) -> dict[str, str]:
    """The fields of a pull that brings its subscription along and is held while there is nothing."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": str(hold_seconds * 1000), "subscription": "*",
        "subVersion": "1", "expressionType": "TAG",
    }  # fmt: skip


async def delivery(folder: str, seconds: int) -> Figures:
    """Time from a send to its delivery, with 100 consumers waiting, each in a group of its own."""
    groups, rate = 100, 1_000
    async with Broker(folder) as broker:
        times: list[float] = []
        waiting: dict[Link, tuple[str, int]] = {}

        def pull(one: Link) -> None:
            group, offset = waiting[one]
            one.transport.write(frame(11, 2, pull_ext(group, topic_of[one], offset)))

        def took(one: Link, data: bytes) -> None:
            now = time.perf_counter()
            size = int.from_bytes(data[:4], "big") & 0xFFFFFF
            head = json.loads(data[4 : 4 + size])
            if head["code"] == 0 and one in waiting and "nextBeginOffset" in (head.get("extFields") or {}):
                for stamp in re.findall(rb"@(\d+\.\d+)@", data[4 + size :]):
                    times.append(now - float(stamp))
                waiting[one] = (waiting[one][0], int(head["extFields"]["nextBeginOffset"]))
                pull(one)

        topic_of: dict[Link, str] = {}
        sender = await link(broker.port, lambda _, __: None)

        def send(number: int) -> bytes:
            ext = {
                "a": "p", "b": f"{TOPIC}-{number % groups}", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0",
                "h": "0", "i": "WAIT\x01true", "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            return frame(310, number, ext, b"@%.9f@" % time.perf_counter() + bytes(100))

        for number in range(groups):
            sender.transport.write(send(number))
        await asyncio.sleep(0.5)
        for number in range(groups):
            one = await link(broker.port, took)
            waiting[one] = (f"group-{number}", 1)
            topic_of[one] = f"{TOPIC}-{number}"
            pull(one)
        await asyncio.sleep(1.0)
        begun = time.perf_counter()
        before = _elsewhere(broker)
        late = 0.0
        for number in range(rate * seconds):
            due = begun + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            late = max(late, time.perf_counter() - due)
            sender.transport.write(send(number))
        await asyncio.sleep(0.5)
        others, stolen = (now - then for now, then in zip(_elsewhere(broker), before, strict=True))
        lag = await broker.figure("rmq_loop_lag_seconds")
        times.sort()

        def share(part: float) -> float:
            return times[min(len(times) - 1, int(len(times) * part))] * 1000

        print(
            f"delivery  {groups} waiting consumers, {rate} messages/s, {len(times)} of {rate * seconds} delivered: "
            f"p50 {share(0.5):.2f} ms, p99 {share(0.99):.2f} ms, p99.9 {share(0.999):.2f} ms, "
            f"most {times[-1] * 1000:.1f} ms; the broker's loop was late by {lag * 1000:.1f} ms at most, "
            f"the peers' by {late * 1000:.1f} ms; other processes ran for {others:.1f} s, other machines {stolen:.2f} s"
        )
        return {"p99 ms": share(0.99)}


async def sql(folder: str, count: int) -> Figures:
    """SQL92 conditions, on this thread."""
    table = {"a": "7", "region": "hangzhou", "price": "19.5"}
    slowest = float("inf")
    for text in ("a > 5", "a BETWEEN 1 AND 9", "region = 'hangzhou'", "a > 5 AND region IN ('x', 'hangzhou')"):
        matches = compile_sql(text).matches
        best = 0.0
        for _ in range(5):
            begun = time.perf_counter()
            for _ in range(count):
                matches(table)
            best = max(best, count / (time.perf_counter() - begun))
        print(f"filter    {text:45} {best:12,.0f} evaluations/s")
        slowest = min(slowest, best)
    return {"evaluations/s": slowest}


async def storm(folder: str, count: int) -> Figures:
    """The first heartbeats of many groups at once, then all of them again: how long the broker's loop stood still."""
    async with Broker(folder) as broker:
        answered = 0
        done = asyncio.Event()

        def took(_: Link, __: bytes) -> None:
            nonlocal answered
            answered += 1
            if answered % count == 0:
                done.set()

        links = [await link(broker.port, took) for _ in range(count)]
        await asyncio.sleep(35)  # what starting took is out of the broker's window
        probe = await link(broker.port, lambda _, __: pong.set())
        pong = asyncio.Event()
        worst: list[float] = []
        before, stalls = _elsewhere(broker), await broker.figure("rmq_loop_stalls_total")
        for turn in range(3):
            done.clear()
            for number, one in enumerate(links):
                one.transport.write(heartbeat(f"10.0.0.1@{number}", [f"group-{number}", "shared"], turn + 1))
            while not done.is_set():
                pong.clear()
                begun = time.perf_counter()
                probe.transport.write(frame(105, 1, {"topic": TOPIC}))
                await pong.wait()
                worst.append(time.perf_counter() - begun)
                await asyncio.sleep(0.001)
        figures, told = await _standstills(broker, stalls, before)
        print(
            f"storm     {count} groups, 3 heartbeats each at once: a request of another client took "
            f"{statistics.median(worst) * 1000:.1f} ms, at most {max(worst) * 1000:.0f} ms; {told}"
        )
        return figures


async def reset(folder: str, members: int) -> Figures:
    """A group with many members and queues is reset to the end, five times: how long the broker's loop stood still."""
    queues, group = 256, "group"
    async with Broker(folder) as broker:
        told = 0
        all_told = asyncio.Event()

        def took(_: Link, data: bytes) -> None:
            nonlocal told
            told += b'"code":220,' in data[:200]
            if told and told % members == 0:
                all_told.set()

        answers: asyncio.Queue[bytes] = asyncio.Queue()
        admin = await link(broker.port, lambda _, data: answers.put_nowait(data))

        async def ask(code: int, ext: dict[str, str]) -> None:
            admin.transport.write(frame(code, 1, ext))
            data = await answers.get()
            size = int.from_bytes(data[:4], "big") & 0xFFFFFF
            head = json.loads(data[4 : 4 + size])
            if head["code"] != 0:
                raise SystemExit(f"benchmark: request {code} was refused: {head.get('remark')}")

        counts = {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
        more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        await ask(17, {"topic": TOPIC, "defaultTopic": "TBW102", **counts, **more})
        for queue in range(queues):
            await ask(15, {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue), "commitOffset": "0"})
        for number in range(members):
            one = await link(broker.port, took)
            one.transport.write(heartbeat(f"10.0.0.1@{number}", [group]))
        await asyncio.sleep(35)  # what starting took is out of the broker's window
        before, stalls = _elsewhere(broker), await broker.figure("rmq_loop_stalls_total")
        begun = time.perf_counter()
        for _ in range(5):
            all_told.clear()
            await ask(222, {"topic": TOPIC, "group": group, "timestamp": "-1", "isForce": "true"})
            await all_told.wait()
        took_seconds = (time.perf_counter() - begun) / 5
        await asyncio.sleep(0.1)  # a standstill is told with the next beat
        figures, words = await _standstills(broker, stalls, before)
        print(
            f"reset     {members} members, {queues} queues: all were told after {took_seconds * 1000:.0f} ms; {words}"
        )
        return figures


async def held(folder: str, count: int) -> Figures:
    """Processor time of pulls that are held while nothing is sent."""
    seconds = 10
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, room))
    async with Broker(folder) as broker:
        await asyncio.sleep(2)
        before = broker.cpu_seconds()
        await asyncio.sleep(seconds)
        alone = broker.cpu_seconds() - before
        answered = 0

        def took(_: Link, __: bytes) -> None:
            nonlocal answered
            answered += 1

        sender = await link(broker.port, lambda _, __: None)
        send = {
            "a": "p",
            "b": TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "0",
            "h": "0",
            "i": "",
            "j": "0",
        }
        sender.transport.write(frame(310, 1, send, b"x"))
        await asyncio.sleep(0.5)
        for number in range(count):
            one = await link(broker.port, took)
            one.transport.write(frame(11, 2, pull_ext(f"group-{number}", TOPIC, 1, hold_seconds=300)))
        await asyncio.sleep(3)
        before = broker.cpu_seconds()
        await asyncio.sleep(seconds)
        with_them = broker.cpu_seconds() - before
        if answered:
            raise SystemExit(f"benchmark: {answered} pulls were not held")
        print(
            f"held      {count} held pulls, nothing sent: {with_them / seconds * 100:.1f} % of a core "
            f"({alone / seconds * 100:.1f} % without them), {broker.resident_mib():.0f} MiB resident"
        )
        return {}


PARTS: dict[str, tuple[Callable[[str, int], Awaitable[Figures]], int]] = {
    "idle": (idle, 10_000),
    "delivery": (delivery, 10),
    "filter": (sql, 100_000),
    "storm": (storm, 1_000),
    "reset": (reset, 200),
    "held": (held, 5_000),
}


#: (part, figure) -> the most that it may be, or with a minus the least.
BOUNDS = {
    ("idle", "MiB"): 300.0,
    ("delivery", "p99 ms"): 5.0,
    ("filter", "evaluations/s"): -200_000.0,
    ("storm", "standstills"): 0.0,
    ("reset", "standstills"): 0.0,
}


async def run(parts: Sequence[str]) -> int:
    passed = 0
    for part in parts:
        work, size = PARTS[part]
        folder = tempfile.mkdtemp(prefix=f"rmq-limits-{part}-")
        try:
            figures = await asyncio.wait_for(work(folder, size), 300)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for name, figure in figures.items():
            bound = BOUNDS[part, name]
            if (figure > bound) if bound >= 0 else (figure < -bound):
                passed = 1
                print(f"past its bound: {part}, {name}: {figure:,.1f}, {'at most' if bound >= 0 else 'at least'} "
                      f"{abs(bound):,.0f}")  # fmt: skip
    return passed


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.limits", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    parts = parser.parse_args(words).parts or list(PARTS)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[:-1]))
    return loop.run(run(parts))


if __name__ == "__main__":
    sys.exit(main())

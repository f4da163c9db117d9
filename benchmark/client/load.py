"""What the SDK does in one process, and what CPU that took: ``python -m benchmark.client.load KIND NAMESRV COUNT``.

Only the public interface is used, so that another checkout's SDK can be measured by the same program (PYTHONPATH).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

BODY = b"x" * 1024
TOPIC = "BenchmarkClient"
IDLE_TOPIC = "BenchmarkIdle"
#: Sends, or messages, before the figures begin.
WARM = 5_000


def measured(count: int, began: float, cpu: float, latencies: list[float] | None = None) -> dict[str, float]:
    """What was measured since."""
    took, used = time.perf_counter() - began, time.process_time() - cpu
    told = {"count": count, "cpu_us": used / count * 1e6, "per_second": count / took}
    if latencies:
        latencies.sort()
        told["p50_us"] = latencies[len(latencies) // 2] * 1e6
        told["p99_us"] = latencies[len(latencies) * 99 // 100] * 1e6
    return told


async def in_flight(namesrv: str, count: int, width: int, **options: Any) -> dict[str, float]:
    """So many coroutines send one message after the other."""
    from rmq.aio import Message, Producer

    async with Producer("benchmark", namesrv=namesrv, topics=[TOPIC], **options) as producer:
        latencies: list[float] = []

        async def several(times: int) -> None:
            clock = time.perf_counter
            for _ in range(times):
                began = clock()
                await producer.send(Message(TOPIC, BODY))
                latencies.append(clock() - began)

        await asyncio.gather(*(several(WARM // width) for _ in range(width)))
        latencies.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(several(count // width) for _ in range(width)))
        return measured(len(latencies), began, cpu, latencies)


def threads(namesrv: str, count: int, width: int) -> dict[str, float]:
    """So many threads send one message after the other."""
    from rmq import Message, Producer

    with Producer("benchmark", namesrv=namesrv, topics=[TOPIC]) as producer:

        def several(times: int, latencies: list[float]) -> None:
            clock = time.perf_counter
            for _ in range(times):
                began = clock()
                producer.send(Message(TOPIC, BODY))
                latencies.append(clock() - began)

        def all_of_them(total: int) -> list[float]:
            latencies: list[float] = []
            workers = [threading.Thread(target=several, args=(total // width, latencies)) for _ in range(width)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            return latencies

        all_of_them(WARM)
        began, cpu = time.perf_counter(), time.process_time()
        latencies = all_of_them(count)
        return measured(len(latencies), began, cpu, latencies)


async def push(namesrv: str, count: int, **options: Any) -> dict[str, float]:
    """A listener gets what is there, from the beginning."""
    from rmq.aio import PushConsumer

    group = os.environ["BENCHMARK_GROUP"]
    consumer = PushConsumer(group, namesrv=namesrv, consume_from_where="CONSUME_FROM_FIRST_OFFSET", **options)
    got, done = 0, asyncio.Event()
    marks: list[float] = []

    @consumer.on(TOPIC)
    async def handle(message: Any) -> None:
        nonlocal got
        got += 1
        if got == WARM:
            marks.extend((time.perf_counter(), time.process_time()))
        elif got == WARM + count:
            done.set()

    async with consumer:
        await asyncio.wait_for(done.wait(), 300)
        return measured(count, *marks)


async def gather(namesrv: str, count: int) -> dict[str, float]:
    """All sends at once, from a new producer."""
    from rmq.aio import Message, Producer

    async with Producer("benchmark", namesrv=namesrv) as producer:
        began, cpu = time.perf_counter(), time.process_time()
        results = await asyncio.gather(*(producer.send(Message(TOPIC, BODY)) for _ in range(count)))
        told = measured(count, began, cpu) | {"peak_mib": resident("VmHWM")}  # before the figures themselves take some
        told["stored_once"] = float(len({one.offset_msg_id for one in results}) == count)
        return told


async def idle(namesrv: str, count: int) -> dict[str, float]:
    """What a producer and a consumer hold that do nothing."""
    from rmq.aio import Message, Producer, PushConsumer

    # A topic of its own: of one with messages a new group is given those that are still at hand.
    async with Producer("benchmark", namesrv=namesrv) as producer:
        await producer.send(Message(IDLE_TOPIC, b"x"))
        consumer = PushConsumer(f"benchmark_{time.time_ns()}", namesrv=namesrv)
        consumer.on(IDLE_TOPIC)(lambda message: None)
        async with consumer:
            await asyncio.sleep(2)
            gc.collect()
            return {"mib": resident("VmRSS")}


def resident(what: str) -> float:
    """Of this process, MiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(what))


KINDS: dict[str, Callable[[str, int], Awaitable[dict[str, float]] | dict[str, float]]] = {
    "asyncio": lambda namesrv, count: in_flight(namesrv, count, 256),
    "auto_batch": lambda namesrv, count: in_flight(namesrv, count, 256, auto_batch=True),
    "threads": lambda namesrv, count: threads(namesrv, count, 64),
    "one": lambda namesrv, count: in_flight(namesrv, count, 1),
    "one_thread": lambda namesrv, count: threads(namesrv, count, 1),
    "push": push,
    "pop": lambda namesrv, count: push(namesrv, count, client_rebalance=False),
    "gather": gather,
    "idle": idle,
}


def main() -> None:
    kind, namesrv, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    made = KINDS[kind](namesrv, count)
    if not isinstance(made, dict):
        made = asyncio.run(made)  # type: ignore[arg-type]
    print(json.dumps(made))


if __name__ == "__main__":
    main()

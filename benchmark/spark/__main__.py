"""``python -m benchmark.spark [CASE...]``: reading, writing and the shortest micro-batch, printed as ratios.

Needs Java and ``rmq[spark]``; the broker is a process of its own on this machine. Exit code: 0 every floor held, 1 not.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmq
import rmq.spark
from benchmark.spark.ceiling import QUEUES, STREAM_ROWS, MemorySource
from rmq.spark.arrow.columns import TYPES
from tests.support.peers.cluster import Cluster, start_cluster

ROWS = 400_000
#: Rounds that count, behind one that only lets the JVM compile what it runs.
ROUNDS = 5
TWO = "offset,value"
ALL = ",".join([*TYPES][:11])
#: Least share of the ceiling, and of the figures of the first measurements.
SHARE = 0.6
#: Queues (or files) of a micro-batch, with two messages (or lines) each; batches a turn; of these the first, that do
#: not count; turns.
MICRO_QUEUES, MICRO_BATCHES, MICRO_WARM, MICRO_TURNS = STREAM_ROWS // 2, 12, 4, 3
#: What Spark says of a batch, and what that is.
MICRO_PARTS = {
    "latestOffset": "where it ends (asking brokers or folders)",
    "queryPlanning": "planning",
    "addBatch": "tasks, from their making to their end",
    "walCommit": "writing down what is to be read",
    "commitOffsets": "writing down that it is read",
}
LIMITS = {
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
}


class Bench:
    """The cluster, Spark, and what did not hold."""

    def __init__(self, cluster: Cluster, spark: Any) -> None:
        self.cluster = cluster
        self.spark = spark
        self.missed: list[str] = []

    def say(self, what: str, figure: float, floor: float, unit: str, *, most: bool = False) -> None:
        """One line; ``floor`` is the least (with ``most``: the greatest) that the figure may be."""
        held = figure <= floor if most else figure >= floor
        if not held:
            self.missed.append(what)
        bound = f"{'at most' if most else 'at least'} {floor:,g}"
        print(f"{what:<52} {figure:>12,.2f} {unit:<7} {bound}{'' if held else '  MISSED'}", flush=True)

    def tell(self, what: str, figure: float, unit: str) -> None:
        """One line without a floor."""
        print(f"{what:<52} {figure:>12,.2f} {unit}".rstrip(), flush=True)

    def create(self, topic: str, queues: int = QUEUES) -> None:
        with rmq.AdminClient(namesrv=self.cluster.namesrv) as admin:
            admin.create_and_update_topic(
                self.cluster.broker_addr, topic, read_queue_nums=queues, write_queue_nums=queues
            )

    def read(self, source: str, options: dict[str, str]) -> Any:
        given = {"nameServer": self.cluster.namesrv, "topic": "bench"} if source == "rocketmq" else {"rows": str(ROWS)}
        return self.spark.read.format(source).options(**given, **options).load()

    def timed(self, *works: Callable[[], object]) -> list[list[float]]:
        """Rows a second of each in some rounds, one round of all after the other; the first does not count."""
        rates: list[list[float]] = [[] for _ in works]
        for _ in range(1 + ROUNDS):
            for work, found in zip(works, rates, strict=True):
                began = time.perf_counter()
                work()
                found.append(ROWS / (time.perf_counter() - began))
        return [found[1:] for found in rates]

    def discard(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()


def fill(bench: Bench) -> None:
    bench.create("bench")
    with rmq.Producer("fill", namesrv=bench.cluster.namesrv) as producer:
        for start in range(0, ROWS, 500):
            numbers = range(start, start + 500)
            producer.send([rmq.Message("bench", b"x" * 1024, tags="A", keys=f"k{number}") for number in numbers])


def reading(bench: Bench) -> None:
    fill(bench)
    bench.discard(bench.read("rocketmq", {"columns": ALL}))  # starts workers, fills caches
    for columns, name, floor, floor32 in ((TWO, "2 columns", 150_000, 80_000), (ALL, "all 11 columns", 60_000, 45_000)):
        ours, small, ceiling, again = bench.timed(
            *(
                functools.partial(
                    lambda *frame: bench.discard(bench.read(*frame)), source, {"columns": columns, **more}
                )
                for source, more in (
                    ("rocketmq", {}),
                    ("rocketmq", {"pullBatchSize": "32"}),
                    ("rmq_ceiling", {}),
                    ("rmq_ceiling", {"again": "true"}),
                )
            )
        )
        bench.say(f"read {name}, pulls of 1,024", statistics.median(ours), floor, "rows/s")
        bench.say(f"read {name}, pulls of 32", statistics.median(small), floor32, "rows/s")
        bench.tell(f"the same rows made from memory, {name}", statistics.median(ceiling), "rows/s")
        bench.say(f"share of that, {name}, pulls of 1,024", share(ours, ceiling), SHARE, "")
        bench.tell(f"one batch sent again and again, {name}", statistics.median(again), "rows/s")
        bench.tell(f"share of that, {name}, pulls of 1,024", share(ours, again), "")
    bench.say("memory of a Python worker, greatest", max(worker_memory()), 300, "MiB", most=True)


def share(ours: list[float], ceiling: list[float]) -> float:
    """The median over the rounds: both of a round had the same neighbours."""
    return statistics.median(one / most for one, most in zip(ours, ceiling, strict=True))


def worker_memory() -> list[float]:
    """The greatest resident size so far of each of Spark's Python workers, MiB."""
    found = [0.0]
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                if b"pyspark.daemon" in (path / "cmdline").read_bytes() and os.stat(path).st_uid == os.getuid():
                    lines = (path / "status").read_text().splitlines()
                    found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
            except OSError:
                continue
    return found


def writing(bench: Bench) -> None:
    bench.create("sink")
    rows = bench.spark.range(0, ROWS, numPartitions=2).selectExpr(
        "repeat('x', 1024) as value", "cast(id as string) as keys"
    )
    sink = rows.write.format("rocketmq").option("nameServer", bench.cluster.namesrv).option("topic", "sink")
    (rates,) = bench.timed(lambda: sink.mode("append").save())
    bench.say("write", statistics.median(rates), 20_000, "rows/s")


def micro_batches(bench: Bench) -> None:
    """Ours beside two others with as many rows, a query of each in turn, so that all have the same neighbours."""
    bench.create("micro", MICRO_QUEUES)
    found: dict[str, list[dict[str, float]]] = {"ours": [], "files": [], "memory": []}
    with tempfile.TemporaryDirectory() as folder, rmq.Producer("micro", namesrv=bench.cluster.namesrv) as producer:

        def send(number: int) -> None:
            for queue in range(2 * MICRO_QUEUES):
                producer.send(rmq.Message("micro", b"%d %d" % (number, queue)))

        def write(number: int) -> None:
            for task in range(MICRO_QUEUES):
                hidden, shown = Path(folder, f".{number}-{task}"), Path(folder, "files", f"{number}-{task}")
                hidden.write_text("one\ntwo\n")
                hidden.rename(shown)

        def mark(number: int) -> None:
            Path(folder, "memory", f"{number}").touch()

        for name in ("files", "memory"):
            Path(folder, name).mkdir()
        given = {"nameServer": bench.cluster.namesrv, "topic": "micro", "startingOffsets": "earliest"}
        read = bench.spark.readStream
        frames = {
            "ours": (read.format("rocketmq").options(**given).load(), send),
            "files": (read.format("text").load(f"{folder}/files"), write),
            "memory": (read.format("rmq_ceiling").options(columns=TWO, folder=f"{folder}/memory").load(), mark),
        }
        for turn in range(MICRO_TURNS):
            for name, (frame, more) in frames.items():
                writer = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint-{name}")
                found[name] += _batches(writer.start(), more, MICRO_BATCHES * turn)[MICRO_WARM:]
    ours, files, memory = medians = [_medians(batches) for batches in found.values()]
    bench.say(f"micro-batch of {MICRO_QUEUES} queues, median", ours["triggerExecution"], 300, "ms", most=True)
    bench.tell(f"the same of Spark's file source, {MICRO_QUEUES} files", files["triggerExecution"], "ms")
    bench.tell("the same of a source in Python, from memory", memory["triggerExecution"], "ms")
    bench.tell("ours / Spark's file source", ours["triggerExecution"] / files["triggerExecution"], "")
    bench.tell("ours / a source in Python, from memory", ours["triggerExecution"] / memory["triggerExecution"], "")
    for part, what in MICRO_PARTS.items():
        line = ", ".join(f"{name} {each.get(part, 0):,.0f}" for name, each in zip(found, medians, strict=True))
        print(f"  of it {what}, ms: {line}", flush=True)


def _batches(query: Any, more: Callable[[int], None], first: int) -> list[dict[str, float]]:
    """What each part of some batches took, as Spark says, milliseconds; the query is stopped."""
    took: list[dict[str, float]] = []
    for number in range(first, first + MICRO_BATCHES):
        more(number)
        before = len(took)
        while len(took) == before:
            took = [dict(each.durationMs) for each in query.recentProgress if each.numInputRows]
            time.sleep(0.01)
    query.stop()
    return took


def _medians(batches: list[dict[str, float]]) -> dict[str, float]:
    return {part: statistics.median(each.get(part, 0) for each in batches) for part in batches[0]}


CASES: dict[str, Callable[[Bench], None]] = {"read": reading, "write": writing, "micro": micro_batches}


def main(wanted: list[str]) -> int:
    if unknown := [name for name in wanted if name not in CASES]:
        print(f"benchmark.spark: no case {unknown[0]!r}: the cases are {', '.join(CASES)}", file=sys.stderr)
        return 2
    rmq.spark.require_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers find the source that is the ceiling here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1"}
    with start_cluster("ours", properties=LIMITS) as cluster:
        spark = rmq.spark.session("benchmark", master="local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(MemorySource)
        bench = Bench(cluster, spark)
        for name in wanted or [*CASES]:
            CASES[name](bench)
        spark.stop()
    print(json.dumps({"missed": bench.missed}))
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

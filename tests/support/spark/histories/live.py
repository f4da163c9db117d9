"""Random histories of a stream in Spark itself, over a broker that is a process: small, and judged as the others are.

What a stand-in for Spark's engine cannot show is here: Spark's own log and checkpoint, its processes that plan and
read, and what reaches them of an error. A plant is a bug that is put into the process that plans.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import rmq
from rmq.spark.data_source import RocketMQDataSource
from rmq.spark.source.advance import Advance
from rmq.spark.source.readers import LIMITS, StreamReader
from tests.support.peers.cluster import Cluster
from tests.support.spark.histories import plants
from tests.support.spark.queries import to_the_end
from tests.support.spark.topics import create, delete

__all__ = ["LiveHistory", "PlantedSource"]

#: How a run goes: to its end, or the sink fails in its first batch: before it reads, after it, or when it has written.
FATES = ["done"] * 4 + ["planned", "fails", "written"]
HAPPENS = ["grow", "anew", "anew", "lose", "restart", "shrink", "shrink"]
FAILS = "the sink fails"
#: (number of the queue, offset)
Place = tuple[int, int]


class LiveHistory:
    """One query over one topic, in runs with an end; a message is known by its number.

    ``here`` are the messages of the topic as it is now and where they are, ``gone`` those of the topics of this name
    before. ``table`` is what the sink has, by batch: one that is written again takes the place of the one before.
    """

    def __init__(self, seed: int, spark: Any, cluster: Cluster, folder: Path, source: dict[str, str]) -> None:
        self._spark, self._cluster, self._checkpoint = spark, cluster, folder / "checkpoint"
        self.rng, self.topic = random.Random(seed), f"history-{folder.name}-{seed}"
        self.said = [f"seed {seed}"]
        self._source = source
        self._portion = {"maxOffsetsPerTrigger": "5"} if LIMITS and self.rng.random() < 0.6 else {}
        self.queues = self.offered = self.rng.randint(1, 2)
        self.next = 0
        self.here: dict[int, Place] = {}
        self.gone: set[int] = set()
        self.table: dict[int, list[int]] = {}
        #: Whether the topic was made anew, with messages in it before, and the query has not said so.
        self.owed = False
        #: Whether a batch is open, or one that tells of a topic made anew is to come.
        self._is_cut_off = False
        self._create()
        self.send()

    def run(self, steps: int) -> None:
        """:raises AssertionError: a promise of docs/spark/promises.md is broken."""
        self.read("done")
        for _ in range(steps):
            for what in ("send", self.rng.choice(HAPPENS), "send"):
                if what != "send" or self.rng.random() < 0.5:
                    self.said.append(what)
                    getattr(self, what)()
            self.read(self.rng.choice(FATES))
        self.widen()
        self.read("done")

    # -- what happens -------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        create(self._cluster.namesrv, self._cluster.broker_addr, self.topic, self.queues)

    def send(self) -> None:
        numbers = range(self.next, self.next + self.rng.randint(1, 12))
        self.next = numbers.stop
        with rmq.Producer("fill", namesrv=self._cluster.namesrv) as producer:
            for number in numbers:
                stored = producer.send(rmq.Message(self.topic, b"%d" % number))
                self.here[number] = stored.message_queue.queue_id, stored.queue_offset

    def grow(self) -> None:
        self.queues = self.offered = min(4, self.queues + 1)
        self._create()

    def shrink(self) -> None:
        """One queue less is offered."""
        self.offered = max(1, self.offered - 1)
        create(self._cluster.namesrv, self._cluster.broker_addr, self.topic, self.offered)

    def widen(self) -> None:
        """All queues are offered again."""
        if self.offered < self.queues:
            self.offered = self.queues
            self._create()

    def anew(self) -> None:
        delete(self._cluster.namesrv, self._cluster.broker_addr, self.topic)
        self.queues = self.offered = self.rng.randint(1, self.queues)
        self._create()
        self.gone |= self.here.keys()
        self.here.clear()
        self.owed = True
        self.send()

    def restart(self) -> None:
        (broker,) = self._cluster.brokers
        broker.daemon.stop()
        broker.daemon.start()

    def lose(self) -> None:
        """The file that says that the newest batch is finished is gone."""
        commits = self._checkpoint / "commits"
        newest = max((int(path.name) for path in commits.iterdir() if path.name.isdecimal()), default=0)
        for name in (f"{newest}", f".{newest}.crc"):
            (commits / name).unlink(missing_ok=True)

    # -- the query ----------------------------------------------------------------------------------------------------

    def read(self, fate: str) -> None:
        """A run, and the next one where it has to go on without what is lost."""
        said = self._end(fate, strict=True)
        if said is None:
            assert not self.owed, f"lost in silence: {self.said}"
            assert not self._shut(), f"ended well before {self._shut()}, whose queues are not offered: {self.said}"
            self._judge()
        elif FAILS in said:
            assert fate != "done", f"the sink failed by itself: {self.said} {said}"
        elif "DataLost" in said and self.owed:
            self.widen()
            said = self._end("done", strict=False)
            assert said is None, f"it does not go on: {self.said} {said}"
            self.owed = False
            self._judge()
        elif "the topic has fewer queues" in said:
            assert self._shut(), f"fewer queues, and nothing unread in those: {self.said} {said}"
            self.widen()
            self.read("done")
        else:
            raise AssertionError(f"it failed, and nothing was lost: {self.said} {said}")

    def _end(self, fate: str, *, strict: bool) -> str | None:
        """Read what there is; what the query failed with."""
        from pyspark.errors import StreamingQueryException

        self.said.append(fate if strict else "without what is lost")
        given = {"nameServer": self._cluster.namesrv, "topic": self.topic, "startingOffsets": "earliest"}
        loose = {} if strict else {"failOnDataLoss": "false"}
        frame = self._spark.readStream.options(**given, **loose, **self._portion, columns="value", **self._source)
        name = PlantedSource.name() if self._source else "rocketmq"
        writer = frame.format(name).load().writeStream.foreachBatch(self._sink(fate)).trigger(availableNow=True)
        # Before Spark 4.2 a run is a single batch, the open one where there is one.
        times = 1 if LIMITS or not self._is_cut_off else 2
        self._is_cut_off = True
        try:
            for _ in range(times):
                to_the_end(writer.option("checkpointLocation", str(self._checkpoint)).start)
        except StreamingQueryException as error:
            return str(error)
        self._is_cut_off = False
        return None

    def _sink(self, fate: str) -> Callable[[Any, int], None]:
        def write(frame: Any, number: int) -> None:
            if fate == "planned":
                raise RuntimeError(FAILS)
            rows = [int(bytes(row.value)) for row in frame.collect()]
            if fate == "fails":
                raise RuntimeError(FAILS)
            self.table = {batch: kept for batch, kept in self.table.items() if batch < number}
            self.table[number] = rows
            if fate == "written":
                raise RuntimeError(FAILS)

        return write

    # -- judgement ----------------------------------------------------------------------------------------------------

    def _unread(self) -> dict[int, Place]:
        rows = {row for kept in self.table.values() for row in kept}
        return {number: place for number, place in self.here.items() if number not in rows}

    def _shut(self) -> set[int]:
        """What is in the table's open batch, or not at all, of queues that are not offered."""
        open_batch = set(self.table.get(max(self.table, default=0), ()))
        return {number for number, (queue, _) in self.here.items() if queue >= self.offered} & (
            open_batch | self._unread().keys()
        )

    def _judge(self) -> None:
        rows = [row for kept in self.table.values() for row in kept]
        assert len(rows) == len(set(rows)), f"rows twice: {self.said}"
        assert set(rows) <= self.here.keys() | self.gone, f"rows that nobody sent: {self.said}"
        assert not self._unread(), f"not read: {self._unread()}: {self.said}"


class PlantedSource(RocketMQDataSource):
    """The source with the bug of ``tests.support.spark.histories.plants`` that the option ``plant`` names."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_planted"

    def __init__(self, options: dict[str, str]) -> None:
        kept = {name: value for name, value in options.items() if name.lower() != "plant"}
        super().__init__(kept)
        self._plant = next(value for name, value in options.items() if name.lower() == "plant")

    def streamReader(self, schema: StructType) -> StreamReader:
        return _Planted(self._checked(schema), schema, self._plant)


class _Planted(StreamReader):
    def __init__(self, options: Any, schema: StructType, plant: str) -> None:
        super().__init__(options, schema)
        self._plant = plant

    @property
    def advance(self) -> Advance:
        # In the process that plans alone, which is this query's: those that read serve others after it.
        if self._advance is None:
            getattr(plants, self._plant)(pytest.MonkeyPatch())
        return super().advance

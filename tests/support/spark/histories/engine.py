"""Spark's micro-batch engine as far as a source sees it: its log, its order of calls, a sink that knows batches.

What it asks, seen with Spark 4.0, 4.1, 4.2 and 4.3 by a source that writes down each call:

=====================  ==================================  =====================================================
..                     from 4.2 on                         before (``limits=False``)
=====================  ==================================  =====================================================
a run begins           nothing                             ``partitions(e, e)``, the newest planned end, open or not
first batch planned    initialOffset, latestOffset(b, l)   ``latestOffset()``
first batch read       initialOffset, ``partitions``       the same, also when it is read again
another one planned    latestOffset(b, l), ``commit(b)``   ``latestOffset()``, ``commit(b)``
``availableNow``       prepareForTriggerAvailableNow       a single batch: the open one where there is one
=====================  ==================================  =====================================================
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pyspark.sql.types as types

from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source import readers
from rmq.spark.source.readers import StreamReader
from tests.support.spark.memory import MemoryCluster

__all__ = ["Engine", "Killed"]

SCHEMA = types.StructType().add("value", "binary")


class Killed(Exception):
    """The job ends here, as with a SIGKILL or an exception of its own."""


class Engine:
    """One query over its runs.

    ``offsets`` and ``commits`` are the checkpoint's two logs; ``table`` is what the sink has, by batch: a batch that is
    written again takes the place of the one before, and of those after it.
    """

    def __init__(self, cluster: MemoryCluster, rng: random.Random, *, limits: bool = True) -> None:
        self._cluster, self._rng, self.limits = cluster, rng, limits
        self.offsets: list[str] = []
        self.commits = 0
        self.table: dict[int, list[int]] = {}
        self.reader: StreamReader | None = None
        #: Rows that tasks gave out when a batch was read last, the batch that failed then included.
        self.given_out: list[int] = []
        self._workers: Brokers | None = None
        self._given: dict[str, str] = {}
        self.began: Callable[[str], None] = lambda text: None

    # -- runs ---------------------------------------------------------------------------------------------------------

    def start(self, given: dict[str, str], *, now_only: bool = False) -> None:
        """Begin a run, in processes of its own."""
        options = SourceOptions.of(given)
        self._driver, self._workers = Brokers(options.endpoint, self._cluster), Brokers(options.endpoint, self._cluster)
        with mock.patch.object(readers, "LIMITS", self.limits):
            self.reader = StreamReader(options, SCHEMA)
        if now_only and self.limits:
            with self._asked():
                self.reader.prepareForTriggerAvailableNow()
        done = min(self.commits, len(self.offsets))
        # Nothing is read between a place and itself, which newer Sparks do not ask for.
        if self.offsets and (not self.limits or (done == len(self.offsets) and self._rng.random() < 0.5)):
            assert not self._partitions(self.offsets[-1], self.offsets[-1]), "rows between offsets and themselves"

    def stop(self) -> None:
        self.reader = None

    def lose(self, offsets: int, commits: int) -> None:
        """The newest files of the checkpoint are gone, and the table is put back with it."""
        self.stop()
        del self.offsets[len(self.offsets) - offsets :]
        # Spark goes on with the newest batch that was planned, whatever is known of the one before.
        self.commits = min(max(len(self.offsets) - 1, self.commits - commits, 0), len(self.offsets))
        self.table = {number: rows for number, rows in self.table.items() if number < len(self.offsets)}

    # -- a batch ------------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Of the batch that is open, or comes next."""
        return self.commits

    def _begin(self) -> str:
        """Where the batch begins: of the first one Spark asks for it as often as it needs it, in each run anew."""
        if self.commits:
            return self.offsets[self.commits - 1]
        begin = self._text(lambda: self._source.initialOffset())
        self.began(begin)
        return begin

    def begin(self) -> None:
        """Ask where the batch begins, before it is planned."""
        if self.limits:
            self._begin()

    def plan(self) -> bool:
        """Whether there is a batch, one that was planned before or a new one, whose range is then in the log."""
        if len(self.offsets) > self.commits:
            return True
        if self.limits:
            begin, limit = self._begin(), self._source.getDefaultReadLimit()
            end = self._text(lambda: self._source.latestOffset(json.loads(begin), limit))
        else:
            end = self._text(lambda: self._source.latestOffset())
            begin = self._begin()
        if self.commits and end == begin:
            return False
        self.offsets.append(end)
        if self.commits:
            with self._asked():
                self._source.commit(json.loads(begin))
        return True

    def read(self, between: Callable[[], None]) -> list[int]:
        """The rows of the planned batch; ``between`` is called after each task."""
        rows = self.given_out = []
        for task in self._partitions(self._begin(), self.offsets[self.commits]):
            with self._asked(self._workers):
                for found in self._source.read(pickle.loads(pickle.dumps(task))):
                    rows += [int(value.as_py()) for value in found.column("value")]
            between()
        return rows

    def write(self, rows: list[int]) -> None:
        self.table = {number: kept for number, kept in self.table.items() if number < self.commits}
        self.table[self.commits] = rows

    def commit(self) -> None:
        self.commits += 1

    @property
    def rows(self) -> list[int]:
        """What committed batches have."""
        return [row for number, rows in self.table.items() if number < self.commits for row in rows]

    # -- calls --------------------------------------------------------------------------------------------------------

    @property
    def _source(self) -> StreamReader:
        assert self.reader is not None
        return self.reader

    def _asked(self, brokers: Brokers | None = None) -> Any:
        return mock.patch.object(readers, "connect", return_value=brokers or self._driver)

    def _text(self, ask: Callable[[], dict[str, Any]]) -> str:
        with self._asked():
            return json.dumps(ask())

    def _partitions(self, begin: str, end: str) -> list[Any]:
        with self._asked():
            return list(self._source.partitions(json.loads(begin), json.loads(end)))

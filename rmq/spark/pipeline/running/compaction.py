"""Joining small files of an archive: hours that are over, a folder at a time, between two batches.

A job joins what it wrote itself: two jobs that join the same files at the same time would have each row twice.

The joined files are moved in before the small ones are removed: what dies or fails in between never loses a row, and
the manifest lets it be finished, before anything else is joined. Readers that go by the manifests (``snapshot.py``) see
each row once; those that list a folder in that moment see its rows twice, with one topic, brokerName, queueId, offset.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rmq.protocol.errors import StoreError
from rmq.spark.pipeline.archive import Compaction
from rmq.spark.pipeline.running.files import Files, Found
from rmq.spark.pipeline.running.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Compactor"]

_HOUR = re.compile(r"(?:^|/)date=(\d{4}-\d\d-\d\d)/hour=(\d\d)$")


class Compactor:
    """Looks after the folders that it is told of, and at first after all that are there."""

    def __init__(self, spark: SparkSession, files: Files, staging: Staging, rules: Compaction, codec: str) -> None:
        self._spark = spark
        self._files = files
        self._staging = staging
        self._rules = rules
        self._codec = codec
        self._folders: set[str] | None = None
        self._next: float | None = None

    def touched(self, folders: Iterable[str]) -> None:
        """Files were added to these folders."""
        if self._folders is not None:
            self._folders.update(folders)

    def due(self, now: float) -> bool:
        """Whether it is time to look. :param now: monotonic seconds."""
        if self._next is None:
            self._next = now + self._rules.every
            return False
        if now < self._next:
            return False
        self._next = now + self._rules.every
        return True

    def work(self, now: datetime) -> int:
        """Join what is to be joined; how many small files there were."""
        if not self._rules.enabled:
            return 0
        by_folder: dict[str, list[Found]] = {}
        if self._folders is None:
            for file in self._files.walk():
                by_folder.setdefault(posixpath.dirname(file.path), []).append(file)
            self._folders = set(by_folder)
        else:
            by_folder = {folder: list(self._files.walk(folder)) for folder in sorted(self._folders)}
        joined = 0
        for folder, found in by_folder.items():
            small = [one for one in found if self._own(one.path) and one.size * 2 < self._rules.target_size]
            if len(small) < self._rules.min_files:
                self._folders.discard(folder)
            elif self._closed(folder, now):
                self._join(folder, small)
                self._folders.discard(folder)
                joined += len(small)
        return joined

    def _own(self, path: str) -> bool:
        return posixpath.basename(path).startswith(self._staging.mark)

    def _closed(self, folder: str, now: datetime) -> bool:
        found = _HOUR.search(folder)
        if found is None:
            return False
        end = datetime.fromisoformat(f"{found[1]}T{found[2]}:00:00").replace(tzinfo=UTC) + timedelta(hours=1)
        return now >= end + timedelta(seconds=self._rules.closed_for) or self._rules.closed_for == 0

    def _join(self, folder: str, small: list[Found]) -> None:
        """:raises StoreError: what was written does not have the rows that were read."""
        paths = [self._files.full(one.path) for one in small]
        # Columns that only some of them have stay: a later version of the job, or other options, may have added some.
        reader = self._spark.read.option("basePath", self._files.full(folder)).option("mergeSchema", "true")
        rows = reader.parquet(*paths)
        files = max(1, math.ceil(sum(one.size for one in small) / self._rules.target_size))

        def write(stage: str) -> None:
            ordered = rows.coalesce(files).sortWithinPartitions("brokerName", "queueId", "offset")
            target = f"{stage}/{folder}"
            ordered.write.option("compression", self._codec).parquet(target)
            before, after = rows.count(), self._spark.read.parquet(target).count()
            if before != after:
                raise StoreError(f"{self._files.full(folder)}: {after} rows came out of {before}: nothing was joined")

        # A name that no file has: one that was joined before may be among those that are joined now.
        self._staging.replace(os.urandom(6).hex(), write, remove=[one.path for one in small])

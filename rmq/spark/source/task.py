"""What a task does: pull its ranges and make Arrow batches of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rmq.protocol.errors import ConnectFailed, ProtocolError, RMQError
from rmq.protocol.queue import MessageQueue
from rmq.protocol.subscription import TAG, build
from rmq.spark.arrow.decode import Records, TooMuch, decode
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source.many_ranges import pull_ranges
from rmq.spark.source.one_range import Chunk, Pulling
from rmq.spark.source.ranges import DataLost, Range, ReadAgain
from rmq.spark.source.renewal import renewed

__all__ = ["Reading"]

log = logging.getLogger(__name__)

#: Rows or bytes that are worth a batch of their own; fewer are joined with others.
ENOUGH_ROWS = 1024
ENOUGH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """How ranges become rows.

    :param tags: rows of these only; empty = all.
    """

    schema: pa.Schema
    pulling: Pulling
    tags: frozenset[str]

    @classmethod
    def of(cls, options: SourceOptions, schema: pa.Schema) -> Reading:
        """As options say."""
        pulling = Pulling(
            group=options.group,
            expression=options.expression,
            expression_type=options.expression_type,
            batch_size=options.pull_batch_size,
            patience=options.pull_timeout,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        told = build("topic", options.expression).tags_set if options.expression_type == TAG else ()
        return cls(schema, pulling, frozenset(told))

    def batches(self, brokers: Brokers, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges, in order.

        :raises DataLost: messages are missing, and that is an error. :raises RMQError: they cannot be read.
        """
        wanted = list(ranges)
        if not self.pulling.fail_on_data_loss:
            anew = self._renewed(brokers, wanted)
            wanted = [each for each in wanted if each.queue not in anew]
        waiting: list[Records] = []
        for each, chunks in pull_ranges(brokers, wanted, self.pulling):
            for records in self._range(each, chunks):
                waiting.append(records)
                if not records.lasting or _enough(waiting):
                    yield from self._rows(waiting)
                    waiting = []
        yield from self._rows(waiting)
        # Asked when all is read: what has come is then of the topic that the ranges are about.
        for queue in sorted(self._renewed(brokers, wanted)):
            raise self._of_another(queue)

    def _renewed(self, brokers: Brokers, ranges: list[Range]) -> set[MessageQueue]:
        """:raises ConnectFailed: it is not known, since a broker stays away, and a loss is an error."""
        try:
            anew = renewed(brokers, ranges)
        except ConnectFailed as error:
            if self.pulling.fail_on_data_loss:
                raise
            log.warning("%s: whether its topics were made anew is not known (failOnDataLoss=false)", error)
            return set()
        for queue in sorted(anew):
            log.warning("%s: its topic was made anew since the batch was planned", queue)
        return anew

    def _of_another(self, queue: MessageQueue) -> RMQError:
        what = f"{queue}: its topic was made anew while a batch of it was read"
        if self.pulling.fail_on_data_loss:
            return DataLost(f"{what} (failOnDataLoss=false goes on with what is there)")
        return ReadAgain(f"{what}: the batch is to be read again, which leaves the queue out (failOnDataLoss=false)")

    def _rows(self, waiting: list[Records]) -> Iterator[pa.RecordBatch]:
        if waiting:
            yield from self._decoded(Records.joined(waiting))

    def _decoded(self, records: Records) -> Iterator[pa.RecordBatch]:
        """In as many batches as it takes: how long bodies are is known once they are decompressed."""
        try:
            batch = decode(records, self.schema, self.tags)
        except TooMuch:
            first = np.arange(len(records)) < len(records) // 2
            yield from self._decoded(records.where(first))
            yield from self._decoded(records.where(~first))
            return
        if batch.num_rows:
            yield batch

    def _range(self, wanted: Range, chunks: Iterable[Chunk]) -> Iterator[Records]:
        expected = wanted.start
        for chunk in chunks:
            records = Records(wanted.queue, chunk).before(wanted.end)
            if not len(records):
                continue
            self._check(wanted, records, expected)
            expected = int(records.offsets[-1]) + 1
            yield records
        if expected < wanted.end and self._strict(wanted):
            raise self._missing(wanted, expected, wanted.end - 1)

    def _strict(self, wanted: Range) -> bool:
        return self.pulling.fail_on_data_loss and not self.pulling.filtered and not wanted.fresh

    def _missing(self, wanted: Range, first: int, last: int) -> DataLost:
        return DataLost(
            f"{wanted.queue}: messages from {first} to {last} are missing on the broker "
            "(failOnDataLoss=false goes on without them)"
        )

    def _check(self, wanted: Range, records: Records, expected: int) -> None:
        """What comes is what follows: nothing twice, and nothing left out unless that is allowed."""
        offsets = records.offsets
        if offsets[0] < expected or (np.diff(offsets) <= 0).any():
            raise ProtocolError(f"{wanted.queue}: the broker sent messages again or out of order after {expected - 1}")
        if offsets[-1] - expected + 1 != len(offsets) and self._strict(wanted):
            raise self._missing(wanted, expected, int(offsets[-1]))


def _enough(waiting: list[Records]) -> bool:
    return (
        sum(len(records) for records in waiting) >= ENOUGH_ROWS
        or sum(records.size for records in waiting) >= ENOUGH_BYTES
    )

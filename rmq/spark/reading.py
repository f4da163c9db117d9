"""What a task does: pull its ranges and make Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rmq.protocol.errors import ProtocolError
from rmq.protocol.subscription import TAG, build
from rmq.spark.brokers import Brokers
from rmq.spark.decode import Records, decode
from rmq.spark.options import SourceOptions
from rmq.spark.pulls import DataLost, Pulling, pull_range
from rmq.spark.ranges import Range

__all__ = ["Reading"]


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
        pulling = Pulling(
            group=options.group,
            expression=options.expression,
            expression_type=options.expression_type,
            batch_size=options.pull_batch_size,
            patience=options.pull_timeout,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        tags: frozenset[str] = frozenset()
        if options.expression_type == TAG:
            tags = frozenset(build("topic", options.expression).tags_set)
        return cls(schema, pulling, tags)

    def batches(self, brokers: Brokers, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges, in order.

        :raises DataLost: messages are missing, and that is an error. :raises RMQError: they cannot be read.
        """
        for each in ranges:
            expected = each.start
            for chunk in pull_range(brokers, each, self.pulling):
                records = Records(each.queue, chunk).before(each.end)
                if not len(records):
                    continue
                self._check(each, records, expected)
                expected = int(records.offsets[-1]) + 1
                batch = decode(records, self.schema, self.tags)
                if batch.num_rows:
                    yield batch
            if expected < each.end and self._strict(each):
                raise self._missing(each, expected, each.end - 1)

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

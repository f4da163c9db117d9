"""How many messages of a topic are more than plain ones: label ``message_type`` of RocketMQ 5's metrics.

Nobody looks at a plain send for it. Those who append the others, which take a longer way in any case, tell of them
here; ``normal`` is what is left of a topic's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rmq.broker.store.state import Put
from rmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.remoting.metrics import Histogram

__all__ = ["DELAY", "FIFO", "NORMAL", "SHARDING_KEY", "SIZE_BOUNDS", "TRANSACTION", "MessageKinds"]

NORMAL = "normal"
FIFO = "fifo"
DELAY = "delay"
TRANSACTION = "transaction"
#: The property that makes a message ``fifo``, as it begins in a property string.
SHARDING_KEY = b"__SHARDINGKEY\x01"

#: Bytes: the buckets of RocketMQ 5.
SIZE_BOUNDS = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)

#: Topics that hold messages of one kind only.
_OF_ONE_KIND = {SCHEDULE_TOPIC: DELAY, "rmq_sys_wheel_timer": DELAY, HALF_TOPIC: TRANSACTION}


class MessageKinds:
    """Histograms of stored sizes, by topic and kind other than ``normal``, since the broker started."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Histogram]] = {}
        self._told: dict[tuple[str, str], list[float]] = {}

    def count(self, kind: str, puts: Iterable[Put]) -> None:
        """These messages of a kind were appended."""
        for put in puts:
            kinds = self._of.setdefault(put.queue.topic, {})
            histogram = kinds.get(kind)
            if histogram is None:
                histogram = kinds[kind] = Histogram(SIZE_BOUNDS)
            hosts = len(put.born_host) + len(put.store_host) - 16
            histogram.add(put.queue.overhead + len(put.body) + len(put.properties) + hosts)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        self._of.pop(topic, None)
        for what in ("numbers", "sizes", "histograms"):
            self._told.pop((topic, what), None)

    def numbers(self, topic: str, total: float) -> Iterator[tuple[str, float]]:
        """A topic's messages by kind.

        :param total: of all kinds; what is left of it, and never less than was told before, is ``normal``.
        """
        for kind, (number,) in self._split(topic, "numbers", [total], lambda histogram: [histogram.count]):
            yield kind, number

    def sizes(self, topic: str, total: float) -> Iterator[tuple[str, float]]:
        """Their bytes by kind; arguments as above."""
        for kind, (size,) in self._split(topic, "sizes", [total], lambda histogram: [histogram.sum]):
            yield kind, size

    def histograms(self, topic: str, total: Histogram) -> Iterator[tuple[str, Histogram]]:
        """Their sizes by kind; arguments as above."""
        for kind, values in self._split(topic, "histograms", total.values(), Histogram.values):
            yield kind, Histogram.of(SIZE_BOUNDS, values)

    def _split(
        self, topic: str, what: str, total: list[float], values: Callable[[Histogram], list[float]]
    ) -> Iterator[tuple[str, list[float]]]:
        only = _OF_ONE_KIND.get(topic)
        if only is not None:
            yield only, total
            return
        others = {kind: values(histogram) for kind, histogram in self._of.get(topic, {}).items()}
        yield from others.items()
        if others:
            # All and others are not counted at the same moment, and a counter must not go back.
            normal = [max(0, left - sum(of_kind)) for left, *of_kind in zip(total, *others.values(), strict=True)]
            told = self._told.setdefault((topic, what), normal)
            total = self._told[topic, what] = [max(pair) for pair in zip(normal, told, strict=True)]
        if any(total):
            yield NORMAL, total

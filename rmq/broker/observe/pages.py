"""Which vocabulary a page of metrics is told in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from rmq.broker.observe.exporter import ExporterMetrics
from rmq.broker.observe.figures import Figures
from rmq.broker.observe.native import NativeMetrics
from rmq.broker.observe.sizes import MessageSizes
from rmq.broker.observe.waiting import WaitingMetrics
from rmq.remoting.metrics import Family, Labels

__all__ = ["BrokerMetrics"]


class BrokerMetrics:
    """The metrics of one broker.

    :param runtime: tells the runtime information (code 28), which the exporter's names need.
    """

    def __init__(self, figures: Figures, runtime: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        self.sizes = MessageSizes(figures.store.queues)
        self._stats = figures.stats
        self._waiting = WaitingMetrics(figures)
        self._native = NativeMetrics(figures, self.sizes, self._waiting)
        self._exporter = ExporterMetrics(figures, self._waiting)
        self._runtime = runtime

    async def page(self, query: Mapping[str, str]) -> tuple[Labels, Iterable[Family]]:
        """Common labels and families.

        :param query: ``names=exporter`` for rocketmq-exporter's names, else RocketMQ 5's.
        :raises ValueError: other names.
        """
        names = query.get("names", "")
        if names == "exporter":
            await self._waiting.read()
            return (), self._exporter.families(await self._runtime())
        if names not in ("", "native"):
            raise ValueError(f"names={names}: must be native or exporter")
        await self._stats.count()
        await self.sizes.count()
        await self._waiting.read()
        return self._native.labels(), self._native.families(query)

"""The nameserver's metrics. RocketMQ 5 has none, so the names are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rmq.namesrv.routes import RouteTable
from rmq.remoting.metrics import Family, Labels

__all__ = ["NamesrvMetrics"]


class NamesrvMetrics:
    """Makes the families of one page.

    :param connections: how many are open.
    """

    def __init__(self, routes: RouteTable, connections: Callable[[], int]) -> None:
        self._routes = routes
        self._connections = connections

    async def page(self, query: Mapping[str, str]) -> tuple[Labels, Iterable[Family]]:
        """Common labels and families; every vocabulary has the same."""
        return (("node_type", "namesrv"),), self._families()

    def _families(self) -> Iterator[Family]:
        info = self._routes.cluster_info()
        yield Family(
            "rmq_namesrv_brokers",
            "gauge",
            "Brokers registered, masters and slaves, by cluster",
            [
                (
                    "",
                    (("cluster", cluster),),
                    sum(
                        len(info.broker_addr_table[name].broker_addrs)
                        for name in names
                        if name in info.broker_addr_table
                    ),
                )
                for cluster, names in info.cluster_addr_table.items()
            ],
        )
        yield Family("rmq_namesrv_topics", "gauge", "Topics with a route", [("", (), len(self._routes.topics()))])
        yield Family("rmq_connections", "gauge", "Open connections", [("", (), self._connections())])

"""The nameserver's metrics. RocketMQ 5 has none, so the names are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rmq.auth.control import AccessControl
from rmq.auth.metrics import acl_families
from rmq.namesrv.routes import RouteTable
from rmq.remoting.metrics import Family, Labels
from rmq.remoting.server_metrics import closed_connections
from rmq.remoting.unread import Unread

__all__ = ["NamesrvMetrics"]


class NamesrvMetrics:
    """Makes the families of one page.

    :param connections: how many are open.
    :param unread: what their peers have not read.
    :param cut_off: how many were closed, by reason.
    """

    def __init__(
        self,
        routes: RouteTable,
        connections: Callable[[], int],
        unread: Unread,
        cut_off: Mapping[str, int],
        access: AccessControl | None = None,
    ) -> None:
        self._cut_off = cut_off
        self._routes = routes
        self._connections = connections
        self._unread = unread
        self._access = access

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
        yield from acl_families(self._access)
        yield closed_connections(self._cut_off)
        yield Family("rmq_connections", "gauge", "Open connections", [("", (), self._connections())])
        for name, meaning, value in (
            (
                "rmq_unread_bytes",
                "Bytes of answers that are being made or that peers have not read, 16 KiB and more of a connection",
                self._unread.total,
            ),
            ("rmq_waiting_requests", "Requests that wait until peers have read", self._unread.waiting),
        ):
            yield Family(name, "gauge", meaning, [("", (), value)])

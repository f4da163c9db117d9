"""clusterList, brokerStatus (mqadmin.md B.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import click

from rmq.cli.mqadmin.session import admin_command, broker_or_cluster, cut, masters_of, print_json
from rmq.client.admin import AdminClient
from rmq.protocol.errors import ClientError, ResponseError, RMQError, TransportError

__all__ = ["broker_status", "cluster_list"]

HOUR_MS = 3_600_000


@admin_command(
    "clusterList",
    click.option("-m", "--moreStats", "more", is_flag=True, help="Messages in and out, yesterday and today."),
    click.option("-i", "--interval", "interval", type=click.FloatRange(0.1, 86_400), metavar="SECONDS", help="Repeat."),
)
async def cluster_list(admin: AdminClient, more: bool, interval: float | None, json: bool) -> int:
    """Every broker, with version, throughput and disk use."""
    while True:
        code = await _cluster_list(admin, more, json)
        if interval is None:
            return code
        await asyncio.sleep(interval)
        click.echo()


async def _cluster_list(admin: AdminClient, more: bool, json: bool) -> int:
    info = await admin.cluster_info()
    rows = []
    failed = 0
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            broker = info.broker_addr_table.get(name)
            for broker_id, addr in sorted(broker.broker_addrs.items()) if broker is not None else ():
                figures: dict[str, str] = {}
                try:
                    figures = await admin.broker_runtime_stats(addr)
                except (TransportError, ResponseError) as error:
                    failed = 1
                    click.echo(f"mqadmin: {addr}: {error}", err=True)
                rows.append((cluster, name, broker_id, addr, figures))
    if json:
        print_json(
            [
                {"cluster": cluster, "brokerName": name, "brokerId": broker_id, "addr": addr, "figures": figures}
                for cluster, name, broker_id, addr, figures in rows
            ]
        )
        return failed
    if more:
        _print_more(rows)
    else:
        _print_rows(rows, admin.world.clock.now_ms())
    return failed


Row = tuple[str, str, int, str, dict[str, str]]


def _print_rows(rows: list[Row], now_ms: int) -> None:
    columns = "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}{}".format
    # Brokers of Java's do not tell, and their clusters look as Java's tool shows them.
    roles = any("brokerRole" in figures for *_, figures in rows)
    click.echo(
        columns(
            *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version"),
            *("#InTPS(LOAD)", "#OutTPS(LOAD)", "#PCWait(ms)", "#Hour", "#SPACE"),
            f" {'#Role':<8} #Behind" if roles else "",
        )
    )
    for cluster, name, broker_id, addr, figures in rows:
        earliest = _number(figures, "earliestMessageTimeStamp")
        click.echo(
            columns(
                cut(cluster, 16),
                cut(name, 22),
                broker_id,
                cut(addr, 22),
                figures.get("brokerVersionDesc", ""),
                _load(figures, _first(figures, "putTps"), "send"),
                _load(figures, _first(figures, "getTransferedTps", "getTransferredTps"), "pull"),
                figures.get("pageCacheLockTimeMills", ""),
                f"{(now_ms - earliest) / HOUR_MS:.2f}" if earliest > 0 else "-",
                f"{_number(figures, 'commitLogDiskRatio'):.4f}",
                f" {figures.get('brokerRole', '-'):<8} {_behind(figures)}" if roles else "",
            )
        )


def _behind(figures: Mapping[str, str]) -> str:
    """How far a slave is behind, or the last of a master's."""
    if "slaveBehindBytes" not in figures:
        return "-"
    return f"{figures['slaveBehindBytes']}B/{figures.get('slaveBehindSeconds', '0')}s"


def _load(figures: Mapping[str, str], tps: float, pool: str) -> str:
    """Throughput, and in brackets how many requests wait and how long the first of them has."""
    size = figures.get(f"{pool}ThreadPoolQueueSize", "")
    return f"{tps:.2f}({size},{figures.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '')}ms)"


def _print_more(rows: list[Row]) -> None:
    columns = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}".format
    click.echo(
        columns("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    )
    for cluster, name, _, _, figures in rows:
        put, got = _days(figures, "msgPutTotal"), _days(figures, "msgGetTotal")
        click.echo(columns(cut(cluster, 16), cut(name, 32), put[0], got[0], put[1], got[1]))


def _days(figures: Mapping[str, str], what: str) -> tuple[int, int]:
    """Messages of yesterday and of today, from the three totals of a broker."""
    before, morning, now = (
        int(_number(figures, f"{what}{when}")) for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
    )
    return morning - before, now - morning


def _number(figures: Mapping[str, str], name: str) -> float:
    """A figure, or 0 for one that a broker leaves out (field case B119)."""
    try:
        return float(figures.get(name, "0"))
    except ValueError:
        return 0.0


def _first(figures: Mapping[str, str], *names: str) -> float:
    """The first of the three averages in a figure such as putTps; releases spell one of the names differently."""
    for name in names:
        words = figures.get(name, "").split()
        if words:
            return _number({"value": words[0]}, "value")
    return 0.0


@admin_command("brokerStatus", broker_or_cluster)
async def broker_status(admin: AdminClient, broker: str | None, cluster: str | None, json: bool) -> int:
    """The figures of a broker, or of every broker of a cluster."""
    if broker is not None and cluster is None:
        figures = await admin.broker_runtime_stats(broker)
        if json:
            print_json({broker: figures})
        else:
            _print_figures(figures, "")
        return 0
    addrs = await masters_of(admin, broker, cluster)
    info = await admin.cluster_info()
    names = info.cluster_addr_table.get(cluster or "", [])
    every = [
        addr
        for name in sorted(names)
        if (known := info.broker_addr_table.get(name)) is not None
        for _, addr in sorted(known.broker_addrs.items())
    ]
    found: dict[str, dict[str, str]] = {}
    failed = 0
    for addr in every or addrs:
        try:
            found[addr] = await admin.broker_runtime_stats(addr)
        except RMQError as error:
            failed = 1
            click.echo(f"mqadmin: {addr}: {error}", err=True)
    if not found and not failed:
        raise ClientError(f"the cluster {cluster} has no broker")
    if json:
        print_json(found)
    else:
        for addr, figures in found.items():
            _print_figures(figures, f"{addr:<24} ")
    return failed


def _print_figures(figures: Mapping[str, str], before: str) -> None:
    for name, value in sorted(figures.items()):
        click.echo(f"{before}{name:<32}: {value}")

"""clusterList, brokerStatus, brokerConsumeStats, statsAll (mqadmin.md B.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import click

from rmq.cli.mqadmin.absent import masters_away, miss_absent, nobody
from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, broker_or_cluster, one_of
from rmq.cli.mqadmin.text import cut

__all__ = ["broker_status", "cluster_list", "repeated"]

HOUR_MS = 3_600_000
repeated = click.option(
    "-i", "--interval", "interval", type=click.FloatRange(0.1, 86_400), metavar="SECONDS", help="Repeat."
)


@admin_command(
    "clusterList",
    click.option("-m", "--moreStats", "more", is_flag=True, help="Messages in and out, yesterday and today."),
    repeated,
    click.option("-c", "--clusterName", "only", metavar="NAME", help="This cluster alone."),
)
async def cluster_list(admin: AdminClient, out: Output, more: bool, interval: float | None, only: str | None) -> int:
    """Every broker, with version, throughput and disk use."""
    while True:
        code = await _cluster_list(admin, out, more, only)
        if interval is None:
            return code
        await asyncio.sleep(interval)
        out.missing.clear()
        click.echo()


async def _cluster_list(admin: AdminClient, out: Output, more: bool, only: str | None) -> int:
    info = await admin.cluster_info()
    await miss_absent(admin, out)
    if only is not None and only not in info.cluster_addr_table:
        raise NotFound(
            f"there is no cluster {only} at this name server (known: {', '.join(sorted(info.cluster_addr_table))})"
        )
    brokers = [
        (cluster, name, broker_id, addr)
        for cluster, names in sorted(info.cluster_addr_table.items())
        if only in (None, cluster)
        for name in sorted(names)
        if (broker := info.broker_addr_table.get(name)) is not None
        for broker_id, addr in sorted(broker.broker_addrs.items())
    ]
    out.missing.update(masters_away(info, {name for _, name, *_ in brokers}))
    answers = await admin.broker_runtime_stats_of([addr for *_, addr in brokers])
    out.lacks(answers)
    rows = [(*broker, answers.found.get(broker[3], {})) for broker in brokers]
    code = out.rows(
        [
            {"cluster": cluster, "brokerName": name, "brokerId": broker_id, "addr": addr, "figures": figures}
            for cluster, name, broker_id, addr, figures in rows
        ]
        if out.form != "table"
        else [_short(row, admin.world.clock.now_ms(), more) for row in rows],
        lambda: _more_lines(rows) if more else _lines(rows, admin.world.clock.now_ms()),
    )
    return nobody(info) or code


def _short(row: Row, now_ms: int, more: bool) -> dict[str, object]:
    """What a table on a terminal shows of a broker."""
    cluster, name, broker_id, addr, figures = row
    shown: dict[str, object] = {"cluster": cluster, "broker": name, "id": broker_id, "addr": addr}
    if not figures:
        return {**shown, "version": "does not answer"}
    if more:
        put, got = _days(figures, "msgPutTotal"), _days(figures, "msgGetTotal")
        return {**shown, "in yesterday": put[0], "out yesterday": got[0], "in today": put[1], "out today": got[1]}
    earliest = _number(figures, "earliestMessageTimeStamp")
    group: dict[str, object] = {}
    if "raftMember" in figures:
        group = {"member": figures["raftMember"], "term": figures.get("raftTerm", ""), "behind": _behind(figures)}
    return {
        **shown,
        "version": figures.get("brokerVersionDesc", ""),
        "role": figures.get("brokerRole", ""),
        **group,
        "in/s": _first(figures, "putTps"),
        "out/s": _first(figures, "getTransferedTps", "getTransferredTps"),
        "hours kept": round((now_ms - earliest) / HOUR_MS, 2) if earliest > 0 else None,
        "disk": f"{_number(figures, 'commitLogDiskRatio'):.0%}",
    }


Row = tuple[str, str, int, str, dict[str, str]]


def _lines(rows: list[Row], now_ms: int) -> Iterator[str]:
    columns = "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}{}".format
    # Brokers of Java's do not tell, and their clusters look as Java's tool shows them.
    roles = any("brokerRole" in figures for *_, figures in rows)
    groups = any("raftMember" in figures for *_, figures in rows)
    yield (
        columns(
            *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version"),
            *("#InTPS(LOAD)", "#OutTPS(LOAD)", "#PCWait(ms)", "#Hour", "#SPACE"),
            f" {'#Role':<8} {'#Behind':<12}{' #Member, term' if groups else ''}".rstrip() if roles else "",
        )
    )
    for cluster, name, broker_id, addr, figures in rows:
        earliest = _number(figures, "earliestMessageTimeStamp")
        yield (
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
                _role(figures) if roles else "",
            )
        )


def _role(figures: Mapping[str, str]) -> str:
    return f" {figures.get('brokerRole', '-'):<8} {_behind(figures):<12}{_member(figures)}".rstrip()


def _behind(figures: Mapping[str, str]) -> str:
    """How far a slave is behind, or the last of a master's."""
    if "slaveBehindBytes" not in figures:
        return "-"
    seconds = figures.get("slaveBehindSeconds")
    return f"{figures['slaveBehindBytes']}B" + ("" if seconds is None else f"/{seconds}s")


def _member(figures: Mapping[str, str]) -> str:
    """Which member of a group that elects its master, and the term it is in."""
    return f" {figures['raftMember']}, {figures.get('raftTerm', '-')}" if "raftMember" in figures else ""


def _load(figures: Mapping[str, str], tps: float, pool: str) -> str:
    """Throughput, and in brackets how many requests wait and how long the first of them has."""
    size = figures.get(f"{pool}ThreadPoolQueueSize", "")
    return f"{tps:.2f}({size},{figures.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '')}ms)"


def _more_lines(rows: list[Row]) -> Iterator[str]:
    columns = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}".format
    yield (columns("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"))
    for cluster, name, _, _, figures in rows:
        put, got = _days(figures, "msgPutTotal"), _days(figures, "msgGetTotal")
        yield (columns(cut(cluster, 16), cut(name, 32), put[0], got[0], put[1], got[1]))


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
async def broker_status(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """The figures of a broker, or of every broker of a cluster."""
    one_of(broker, cluster)
    if broker is not None:
        figures = await admin.broker_runtime_stats(broker)
        return out.value({broker: figures} if out.form != "table" else dict(sorted(figures.items())),
                         lambda: _figures(figures, ""))  # fmt: skip
    answers = await admin.broker_runtime_stats_of(await admin.brokers(cluster or ""))
    out.lacks(answers)

    def classic() -> Iterator[str]:
        for addr, figures in answers.found.items():
            yield from _figures(figures, f"{addr:<24} ")

    return out.value(answers.found, classic)


def _figures(figures: Mapping[str, str], before: str) -> Iterator[str]:
    for name, value in sorted(figures.items()):
        yield f"{before}{name:<32}: {value}"

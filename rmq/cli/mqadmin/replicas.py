"""haStatus (5.x): what masters know of their slaves, and slaves of their masters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from rmq.cli.mqadmin.brokers import repeated
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, one_of
from rmq.cli.mqadmin.text import plain, seconds
from rmq.protocol.bodies.replica import HARuntimeInfo

__all__ = ["ha_status"]


@admin_command(
    "haStatus",
    click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="This broker, host:port."),
    click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Every broker of this cluster."),
    repeated,
)
async def ha_status(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, interval: float | None
) -> int:
    """The slaves of a broker, or of every broker of a cluster, and how far each is."""
    one_of(broker, cluster)
    while True:
        code = await _show(admin, out, [broker] if broker is not None else await admin.brokers(cluster or ""))
        if interval is None:
            return code
        await asyncio.sleep(interval)
        out.missing.clear()
        click.echo()


async def _show(admin: AdminClient, out: Output, addresses: list[str]) -> int:
    answers = await admin.broker_ha_status_of(addresses)
    if not answers.found:
        answers.whole()
    out.lacks(answers)

    def classic() -> Iterator[str]:
        for addr, status in answers.found.items():
            yield from _master(addr, status) if status.master else _slave(addr, status)

    if out.form == "table":
        out.form = "classic"  # several tables, one below the other
    return out.value({addr: status.to_object() for addr, status in answers.found.items()}, classic)


def _master(addr: str, status: HARuntimeInfo) -> Iterator[str]:
    for name, value in (
        ("#MasterAddr", addr),
        ("#MasterCommitLogMaxOffset", status.master_commit_log_max_offset),
        ("#SlaveNum", len(status.ha_connection_info)),
        ("#InSyncSlaveNum", status.in_sync_slave_nums),
    ):
        yield (f"{name:<26} {value}")
    for text in status.refused or ():
        yield (f"{'#Refused':<26} {plain(text)}")
    columns = "{:<24} {:>18} {:>14} {:>9} {:>22} {:>18} {:>9}".format
    if status.ha_connection_info:
        yield (
            columns(
                *("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#InSync", "#TransferSpeed(KB/s)", "#TransferFrom"),
                "#Diff(s)",
            )
        )
    for one in status.ha_connection_info:
        speed = f"{one.transferred_byte_in_second / 1024:.2f}"
        in_sync = "true" if one.in_sync else "false"
        behind = "-" if one.behind_seconds is None else one.behind_seconds
        yield (columns(one.addr or "", one.slave_ack_offset, one.diff, in_sync, speed, one.transfer_from_where, behind))


def _slave(addr: str, status: HARuntimeInfo) -> Iterator[str]:
    told = status.ha_client_runtime_info
    for name, value in (
        ("#SlaveAddr", addr),
        ("#MasterHAAddr", told.master_addr or "not connected"),
        ("#CommitLogMaxOffset", told.max_offset),
        ("#MasterFlushOffset", told.master_flush_offset),
        ("#Diff(s)", "-" if told.behind_seconds is None else told.behind_seconds),
        ("#TransferSpeed(KB/s)", f"{told.transferred_byte_in_second / 1024:.2f}"),
        ("#LastReadTime", seconds(told.last_read_timestamp)),
        ("#LastWriteTime", seconds(told.last_write_timestamp)),
        *(() if told.trouble is None else (("#Trouble", plain(told.trouble)),)),
    ):
        yield (f"{name:<26} {value}")

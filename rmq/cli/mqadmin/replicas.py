"""haStatus (5.x): what masters know of their slaves, and slaves of their masters."""

from __future__ import annotations

import asyncio

import click

from rmq.cli.mqadmin.session import admin_command, complain, plain, print_json, seconds
from rmq.client.admin import AdminClient
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.errors import ClientError, ResponseError, TransportError

__all__ = ["ha_status"]


@admin_command(
    "haStatus",
    click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="This broker, host:port."),
    click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Every broker of this cluster."),
    click.option("-i", "--interval", "interval", type=click.FloatRange(0.1, 86_400), metavar="SECONDS", help="Repeat."),
)
async def ha_status(
    admin: AdminClient, broker: str | None, cluster: str | None, interval: float | None, json: bool
) -> int:
    """The slaves of a broker, or of every broker of a cluster, and how far each is."""
    if (broker is None) == (cluster is None):
        raise click.UsageError("give a broker with -b or a cluster with -c, not both", click.get_current_context())
    while True:
        code = await _show(admin, [broker] if broker is not None else await _brokers_of(admin, cluster or ""), json)
        if interval is None:
            return code
        await asyncio.sleep(interval)
        click.echo()


async def _brokers_of(admin: AdminClient, cluster: str) -> list[str]:
    """Masters and slaves, sets in order.

    :raises ClientError: there is none.
    """
    info = await admin.cluster_info()
    sets = [info.broker_addr_table[name] for name in sorted(info.cluster_addr_table.get(cluster, ()))]
    addresses = [addr for one in sets for _, addr in sorted(one.broker_addrs.items())]
    if not addresses:
        raise ClientError(f"the cluster {cluster} has no broker")
    return addresses


async def _show(admin: AdminClient, addresses: list[str], json: bool) -> int:
    found: dict[str, HARuntimeInfo] = {}
    for addr in addresses:
        try:
            found[addr] = await admin.broker_ha_status(addr)
        except (TransportError, ResponseError) as error:
            complain(f"{addr}: {error}")
    if json:
        print_json({addr: status.to_object() for addr, status in found.items()})
    else:
        for addr, status in found.items():
            _print_master(addr, status) if status.master else _print_slave(addr, status)
    return 0 if len(found) == len(addresses) else 1


def _print_master(addr: str, status: HARuntimeInfo) -> None:
    for name, value in (
        ("#MasterAddr", addr),
        ("#MasterCommitLogMaxOffset", status.master_commit_log_max_offset),
        ("#SlaveNum", len(status.ha_connection_info)),
        ("#InSyncSlaveNum", status.in_sync_slave_nums),
    ):
        click.echo(f"{name:<26} {value}")
    for text in status.refused or ():
        click.echo(f"{'#Refused':<26} {plain(text)}")
    columns = "{:<24} {:>18} {:>14} {:>9} {:>22} {:>18} {:>9}".format
    if status.ha_connection_info:
        click.echo(
            columns(
                *("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#InSync", "#TransferSpeed(KB/s)", "#TransferFrom"),
                "#Diff(s)",
            )
        )
    for one in status.ha_connection_info:
        speed = f"{one.transferred_byte_in_second / 1024:.2f}"
        in_sync = "true" if one.in_sync else "false"
        behind = "-" if one.behind_seconds is None else one.behind_seconds
        click.echo(
            columns(one.addr or "", one.slave_ack_offset, one.diff, in_sync, speed, one.transfer_from_where, behind)
        )


def _print_slave(addr: str, status: HARuntimeInfo) -> None:
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
        click.echo(f"{name:<26} {value}")

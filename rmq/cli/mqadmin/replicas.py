"""haStatus, electMaster (5.x): what masters know of their slaves, slaves of their masters, members of their group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from rmq.cli.mqadmin.brokers import repeated
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, one_of
from rmq.cli.mqadmin.text import plain, seconds
from rmq.protocol.bodies.replica import GroupInfo, HARuntimeInfo

__all__ = ["elect_master", "ha_status"]


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
            if status.group is not None:
                yield from _group(status.group)

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


def _group(seen: GroupInfo) -> Iterator[str]:
    for name, value in (
        ("#Group", f"{seen.group}, this is {seen.me}"),
        ("#GroupRole", seen.role),
        ("#GroupLeader", seen.leader or "none is known"),
        ("#Term", seen.term),
        ("#Committed", seen.committed),
        *(() if seen.preferred is None else (("#PreferredLeader", seen.preferred),)),
        *(() if seen.trouble is None else (("#Trouble", plain(seen.trouble)),)),
    ):
        yield (f"{name:<26} {value}")
    columns = "{:<10} {:<24} {:<24} {:>9} {:>14} {:>14} {:>9}".format
    yield (columns("#Member", "#Addr", "#Broker", "#Connected", "#End", "#Diff", "#Heard(s)"))
    for one in seen.members:
        heard = "-" if one.heard is None else f"{one.heard / 1000:.1f}"
        end, behind = ("-" if value is None else value for value in (one.end, one.behind))
        yes = "true" if one.connected else "false"
        yield (columns(one.id, one.addr, one.broker or "-", yes, end, behind, heard))
        if not one.counted:
            yield (f"{'':<10} it has lost its disk, and is not counted before it has everything again")
        if one.trouble is not None:
            yield (f"{'':<10} {plain(one.trouble)}")


def _member(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """The broker id of a member, which is the number of its id and one."""
    number = value[1:] if value[:1].isalpha() else value
    if not (number.isascii() and number.isdigit() and len(number) < 7) or (value == number and int(number) < 1):
        raise click.BadParameter(f"{value!r} is no member: give its dLegerSelfId, n1, or its slave's id, 2", ctx, param)
    return int(number) + (number != value)


@admin_command(
    "electMaster",
    click.option(
        "-a", "--controllerAddress", "member", metavar="ADDR",
        help="A member to ask who leads, host:port.  [default: those that the name server knows]",
    ),
    click.option(
        "-b", "--brokerId", "broker_id", required=True, metavar="ID", callback=_member,
        help="Who is to lead: its dLegerSelfId, n1, or the id that it has as a slave, 2.",
    ),
    click.option("-bn", "--brokerName", "name", required=True, metavar="NAME", help="The brokerName of the group."),
    click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Its cluster: refused where it is another."),
)  # fmt: skip
async def elect_master(
    admin: AdminClient, out: Output, member: str | None, broker_id: int, name: str, cluster: str | None
) -> int:
    """Have another member lead a group that elects its master, for maintenance of the one that does."""
    elected = await admin.elect_master(name, broker_id, cluster, member)

    def classic() -> Iterator[str]:
        yield ""
        if cluster is not None:
            yield f"#ClusterName\t{cluster}"
        yield f"#BrokerName\t{name}"
        yield f"#BrokerMasterAddr\t{elected.address}"
        yield f"#MasterEpoch\t{elected.term}"
        yield f"#SyncStateSetEpoch\t{elected.term}"
        for number, address in elected.brokers.items():
            yield f"\t#Broker\t{number}\t{address}"

    value = {
        "brokerName": name, "masterAddress": elected.address, "masterEpoch": elected.term,
        "brokers": {str(number): address for number, address in elected.brokers.items()},
    }  # fmt: skip
    return out.done(value, classic())

"""The commands of ``rmq secure``."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime

import click
import orjson

from rmq.cli.command import CONTEXT, FAILED, Commands, Refused

__all__ = ["secure"]


@click.group(cls=Commands, context_settings=CONTEXT)
def secure() -> None:
    """Accounts, certificates and settings of a secured cluster (docs/securing.md)."""


def _now() -> datetime:
    from rmq.runtime.world import World

    return datetime.fromtimestamp(World.real().clock.now_ms() / 1000, UTC)


def _split(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


_DAYS = click.option(
    "--days", type=click.IntRange(1, 36_500), default=397, show_default=True, help="For which certificates are valid."
)
_PORT = click.IntRange(1, 65_000)


@secure.command(context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@click.option(
    "--hosts",
    multiple=True,
    callback=_split,
    metavar="LIST",
    help="Names and addresses of the servers, with commas.  [default: this machine alone]",
)
@_DAYS
@click.option("--namesrv-port", type=_PORT, default=9_876, show_default=True, help="Of the name server.")
@click.option("--broker-port", type=_PORT, default=10_911, show_default=True, help="Of the broker.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="All that applications may use; once or more.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="With which groups; once or more.")
@click.option("--require-client-certificates", "demand", is_flag=True, help="Refuse clients that show none.")
def init(
    folder: str,
    hosts: tuple[str, ...],
    days: int,
    namesrv_port: int,
    broker_port: int,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    demand: bool,
) -> None:
    """Make accounts, certificates and settings in DIR, which is not there yet. Needs the extra tls."""
    from rmq.cli.secure.making import make

    plan = make(
        folder, _now(), hosts=hosts or ("localhost", "127.0.0.1", "::1"), days=days, namesrv_port=namesrv_port,
        broker_port=broker_port, topics=topics, groups=groups, demand=demand,
    )  # fmt: skip
    click.echo(f"{plan.folder} has it all, for its owner alone. Move ca.key elsewhere: renewals alone need it.")
    if plan.names_alone:
        click.echo(
            "For slaves on other machines set haAllowedAddresses in broker.properties: the addresses of the servers, "
            "of which --hosts has the names alone."
        )
    for what, lines in plan.commands():
        click.echo(f"\n{what}:\n")
        for line in lines:
            click.echo(f"  {line}")


@secure.command(context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@_DAYS
@click.option("--hosts", multiple=True, callback=_split, metavar="LIST", help="Of servers.  [default: as before]")
@click.option("--new-keys", is_flag=True, help="New private keys, too: the old ones may be known to others.")
@click.option("--ca-key", metavar="FILE", help="The key of the authority.  [default: DIR/ca.key]")
def renew(folder: str, days: int, hosts: tuple[str, ...], new_keys: bool, ca_key: str | None) -> None:
    """New certificates in a DIR of "rmq secure init": daemons and clients take them with their next connections."""
    from rmq.cli.secure.making import renew as make_new
    from rmq.runtime.world import World

    for line in make_new(
        folder, World.real().files, _now(), days=days, hosts=hosts, new_keys=new_keys, key_file=ca_key
    ):
        click.echo(line)


@secure.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[DIR|FILE]...")
@click.option(
    "-n", "--namesrvAddr", "namesrv", metavar="LIST", help="Look at this running cluster: host:port;host:port"
)
@click.option(
    "--credentialsFile",
    "credentials",
    metavar="FILE",
    help="Who asks the cluster, as with mqadmin.  [default: conf/tools.yml of DIR, or of ROCKETMQ_HOME]",
)
@click.option(
    "--days", type=click.IntRange(0, 36_500), default=30, show_default=True, help="Certificates ending sooner."
)
@click.option("--json", "json", is_flag=True, help="Print JSON instead of lines.")
def check(paths: tuple[str, ...], namesrv: str | None, credentials: str | None, days: int, json: bool) -> int:
    """Say what is open in settings files, a DIR of "rmq secure init", a running cluster. Exit code 1 if anything is."""
    from rmq.cli.secure.files import look_at_files
    from rmq.cli.secure.running import look_at_cluster

    if not paths and not namesrv:
        raise Refused("what is to be looked at: give a folder, settings files, or a running cluster with -n host:port")
    now = _now()
    found = look_at_files(paths, now, days)
    if namesrv:
        tools = [path for folder in (*paths, os.environ.get("ROCKETMQ_HOME", "")) if (path := _tools(folder))]
        found += asyncio.run(look_at_cluster(namesrv, credentials or next(iter(tools), None), now, days))
    if json:
        click.echo(orjson.dumps([one.table() for one in found], option=orjson.OPT_INDENT_2))
    else:
        for one in found:
            click.echo(one.line())
        if not found:
            click.echo("nothing that rmq secure check knows of is open")
    return FAILED if found else 0


def _tools(folder: str) -> str | None:
    path = os.path.join(folder, "conf", "tools.yml")
    return path if folder and os.path.isfile(path) else None

"""What every command has: the name server option, ``--json``, a started admin client, Java's times and columns."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Concatenate, ParamSpec

import click
import orjson

from rmq.cli.command import CONTEXT
from rmq.client.admin import AdminClient

__all__ = [
    "address",
    "admin_command",
    "broker_or_cluster",
    "complain",
    "complain_of",
    "cut",
    "masters_of",
    "missing_from",
    "plain",
    "print_json",
    "seconds",
    "stamp",
]

#: Names in one line; the others are counted.
_NAMED = 16

P = ParamSpec("P")
Work = Callable[Concatenate[AdminClient, P], Awaitable[int | None]]


def admin_command(name: str, *options: Callable[[Any], Any]) -> Callable[[Work[P]], click.Command]:
    """Make a command of a coroutine function that takes a started admin client and the options.

    ``-n`` and ``-h`` are added, and ``--json``, which the function gets as ``json``.
    """

    def make(work: Work[P]) -> click.Command:
        @functools.wraps(work)
        def run(
            namesrv: str | None,
            credentials: str | None,
            tls: bool,
            tls_ca_file: str | None,
            unit_name: str | None = None,
            *args: P.args,
            **kwargs: P.kwargs,
        ) -> int:
            _refuse_empty(click.get_current_context())
            options = {**_as_whom(credentials), **_over_tls(tls, tls_ca_file), "unit_name": unit_name}
            return asyncio.run(_run(work, namesrv, options, args, kwargs)) or 0

        decorated: Any = run
        for option in (
            click.option("--json", "json", is_flag=True, help="Print JSON instead of Java's columns."),
            click.option("-n", "--namesrvAddr", "namesrv", metavar="LIST", help="Name servers: host:port;host:port"),
            click.option(
                "--credentialsFile",
                "credentials",
                metavar="FILE",
                help="YAML with accessKey, secretKey and options of TLS.  [default: $ROCKETMQ_HOME/conf/tools.yml]",
            ),
            click.option("--tls", is_flag=True, help="Speak TLS; options that are not given are the environment's."),
            click.option("--tlsCaFile", "tls_ca_file", metavar="FILE", help="Speak TLS; certificates to trust, PEM."),
            *reversed(options),
        ):
            decorated = option(decorated)
        return click.command(name, context_settings=CONTEXT)(decorated)

    return make


def _refuse_empty(ctx: click.Context) -> None:
    """A name that is empty is a shell variable that is not set: nobody means it."""
    for option in ctx.command.params:
        if option.name != "namesrv" and ctx.params.get(option.name or "") == "":
            raise click.BadParameter("it is empty", ctx, option)


async def _run(
    work: Callable[..., Awaitable[int | None]],
    namesrv: str | None,
    given: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> int | None:
    if not namesrv and not any(os.environ.get(name) for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN")):
        raise click.UsageError("no name server: give one with -n host:port, or set NAMESRV_ADDR")
    options: Any = {name: value for name, value in {"namesrv": namesrv, **given}.items() if value}
    async with AdminClient(**options) as admin:
        return await work(admin, *args, **kwargs)


def _as_whom(credentials: str | None) -> dict[str, Any]:
    """The file that is named, else the environment's account, else that of Java's tools, if it is there."""
    if credentials is not None:
        return {"credentials_file": credentials}
    named = ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_CREDENTIALS_FILE")
    if any(os.environ.get(name) for name in named) or not (home := os.environ.get("ROCKETMQ_HOME")):
        return {}
    path = os.path.join(home, "conf", "tools.yml")
    return {"credentials_file": path} if os.path.exists(path) else {}


def _over_tls(tls: bool, ca_file: str | None) -> dict[str, Any]:
    if ca_file is not None:
        return {"tls": True, "tls_ca_file": ca_file}
    return {"tls": True} if tls else {}


def broker_or_cluster(function: Any) -> Any:
    """Adds ``-b`` and ``-c``; :func:`masters_of` turns them into addresses."""
    function = click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Every master of this cluster.")(
        function
    )
    return click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="This broker, host:port.")(function)


async def masters_of(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """The addresses that ``-b`` or ``-c`` mean.

    :raises click.UsageError: both or neither were given.
    :raises ClientError: no such cluster.
    """
    if (broker is None) == (cluster is None):
        raise click.UsageError("give a broker with -b or a cluster with -c, not both", click.get_current_context())
    if broker is not None:
        return [broker]
    assert cluster is not None
    masters = await admin.masters(cluster)
    for name in sorted(set((await admin.cluster_info()).cluster_addr_table.get(cluster, ())) - masters.keys()):
        complain(f"{name} has no master now: it is left out")
    return list(masters.values())


def complain(text: str) -> None:
    """A line on standard error beside what a command prints."""
    click.echo(f"mqadmin: {text}", err=True)


def complain_of(what: str, failed: Mapping[str, Exception]) -> int:
    """Name on standard error what could not be looked at, a line for each reason; the exit code, 1 when there is some.

    :param what: ``groups of topics``, for instance. :param failed: why, by name.
    """
    names: dict[str, list[str]] = {}
    for name in sorted(failed):
        names.setdefault(str(failed[name]), []).append(name)
    for why, some in names.items():
        more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
        complain(f"{what} missing here: {', '.join(some[:_NAMED])}{more}: {why}")
    return 1 if failed else 0


def missing_from(*answers: object) -> int:
    """Name the brokers that answers of the admin client lack; the exit code, 1 when there are some."""
    missing: dict[str, str] = {}
    for answer in answers:
        missing.update(getattr(answer, "missing", {}))
    for name, why in sorted(missing.items()):
        complain(f"{name} is missing here: {why}")
    return 1 if missing else 0


def print_json(value: object) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def address(host: tuple[str, int]) -> str:
    """``10.0.0.1:10911`` or ``[::1]:10911``."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def plain(text: str) -> str:
    """Harmless to a terminal, on one line: what another machine says may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cut(text: str, width: int) -> str:
    """At most ``width`` characters from the end, as Java's tools shorten names."""
    return text[-width:] if len(text) > width else text


def stamp(ms: int) -> str:
    """Local time with milliseconds, ``2026-11-28 00:27:17,113``; the number itself when it is beyond any calendar."""
    try:
        return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d %H:%M:%S},{ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return f"{ms:<23}"


def seconds(ms: int) -> str:
    """Local time to the second, or ``N/A`` for none."""
    return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d %H:%M:%S}" if ms > 0 else "N/A"

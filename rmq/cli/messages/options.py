"""Options that the commands share, each set made into one argument: what is chosen, and the client's account."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from rmq.cli.messages.places import Place, PlaceType
from rmq.cli.messages.reading import Chosen
from rmq.cli.moments import Zone
from rmq.cli.reach import reach

__all__ = ["client_options", "selection"]

_FROM = (
    "Where to begin: earliest, latest, -5 (messages of each queue), offset:120, or a time: -10m, today, "
    "2026-11-29T18:30.  [default: earliest]"
)


def _with(function: Any, *options: Callable[[Any], Any]) -> Any:
    for option in reversed(options):
        function = option(function)
    return function


def client_options(function: Any) -> Any:
    """Adds ``-n``, ``--context`` and ``--credentials``; the function gets ``client``, a client's arguments."""

    @functools.wraps(function)
    def wrapped(namesrv: str | None, context: str | None, credentials: str | None, **others: Any) -> Any:
        return function(client=reach(namesrv, context, credentials), **others)

    return _with(
        wrapped,
        click.option("-n", "--namesrv", metavar="LIST", help="Name servers: host:port;host:port.  [NAMESRV_ADDR]"),
        click.option("--context", metavar="NAME", help="A cluster of rmq context, in place of -n."),
        click.option("--credentials", metavar="FILE", help="Account and TLS.  [the environment's, or conf/tools.yml]"),
    )


def selection(function: Any) -> Any:
    """Adds filters, queue, broker, begin, end and ``-F``; the function gets ``chosen`` for them and the topic."""

    @functools.wraps(function)
    def wrapped(topic: str, tags: str | None, sql: str | None, begin: Place | None, **others: Any) -> Any:
        if tags is not None and sql is not None:
            raise click.UsageError("give --tags or --sql, not both")
        of_chosen = {name: others.pop(name) for name in ("end", "zone", "queue", "broker", "follow")}
        chosen = Chosen(topic, tags or sql or "*", sql is not None, begin or Place(offset=0), **of_chosen)
        return function(chosen=chosen, **others)

    return _with(
        wrapped,
        click.option("--tags", metavar="TEXT", help="Tags: A, or A || B."),
        click.option("--sql", metavar="TEXT", help="A SQL92 condition on properties: a > 3 AND b = 'x'."),
        click.option("-q", "--queue", type=click.IntRange(0), metavar="ID", help="This queue alone, of each broker."),
        click.option("--broker", metavar="NAME", help="The queues of this broker alone."),
        click.option("--from", "begin", type=PlaceType(), metavar="PLACE", help=_FROM),
        click.option("--to", "end", type=PlaceType(), default=Place(), metavar="PLACE", help="Where to end.  [latest]"),
        click.option("--zone", type=Zone(), metavar="NAME", help="Of times without one.  [this machine's]"),
        click.option("-F", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C."),
    )

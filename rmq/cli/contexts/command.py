"""The commands ``rmq context`` ``list``, ``use``, ``set``, ``remove``."""

from __future__ import annotations

import os

import click
import orjson

from rmq.cli.command import CONTEXT, Commands, Refused
from rmq.cli.contexts.file import Context, Contexts, path_of_contexts, read_contexts, refuse_addresses, refuse_name
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import World

__all__ = ["context"]


def _file(name: str | None = None) -> Contexts:
    """What stands in the file. :raises Refused: it is not right, or has no context of this name."""
    try:
        file = read_contexts(World.around().files, path_of_contexts())
        if name is not None:
            file.named_as(name)
    except ConfigError as error:
        raise Refused(str(error)) from None
    return file


def _name(ctx: click.Context, param: click.Parameter, name: str) -> str:
    try:
        refuse_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return name


@click.group(cls=Commands, invoke_without_command=True, context_settings=CONTEXT)
@click.pass_context
def context(ctx: click.Context) -> None:
    """Clusters by name: every command takes --context NAME, or means the current one.

    -n and --context come first, then RMQ_CONTEXT, then NAMESRV_ADDR, then the current context.
    """
    if ctx.invoked_subcommand is None:
        _list(False)


@context.command("list", context_settings=CONTEXT)
@click.option("--json", "json", is_flag=True, help="Print JSON instead of lines.")
def list_(json: bool) -> None:
    """The contexts; a star is beside the current one."""
    _list(json)


def _list(json: bool) -> None:
    file = _file()
    rows = [
        {"name": name, "current": name == file.current, "namesrv": one.namesrv, "credentials": one.credentials}
        for name, one in file.named.items()
    ]
    if json:
        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    if not rows:
        click.echo(f"{file.path} has no context: rmq context set NAME -n host:port makes one", err=True)
    width = max((len(name) for name in file.named), default=0)
    for name, one in file.named.items():
        account = "" if one.credentials is None else f"  {one.credentials}"
        click.echo(f"{'*' if name == file.current else ' '} {name:<{width}}  {one.namesrv}{account}")


@context.command(context_settings=CONTEXT)
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context."""
    file = _file(name)
    file.current = name
    file.write(World.around().files)
    click.echo(f"{name} ({file.named[name].namesrv}) is the current context")


@context.command("set", context_settings=CONTEXT)
@click.argument("name", callback=_name)
@click.option("-n", "--namesrv", metavar="LIST", help="Name servers: host:port;host:port")
@click.option("--credentials", metavar="FILE", help="Account and TLS, as tools.yml; an empty text: none.")
@click.option("--use", "use_it", is_flag=True, help="Make it the current one; the first one is.")
def set_(name: str, namesrv: str | None, credentials: str | None, use_it: bool) -> None:
    """Make the context NAME, or change what is given of it."""
    file = _file()
    old = file.named.get(name)
    namesrv = namesrv or (old.namesrv if old else None)
    if not namesrv:
        raise click.UsageError(f"where is {name}? Give its name servers with -n host:port", click.get_current_context())
    try:
        refuse_addresses(namesrv)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'-n' / '--namesrv'") from None
    if credentials is None:
        path = old.credentials if old else None
    else:
        path = os.path.abspath(os.path.expanduser(credentials)) if credentials else None
        if path is not None and not os.path.isfile(path):
            raise click.BadParameter(f"{path} is no file", param_hint="'--credentials'")
    file.named[name] = Context(namesrv, path)
    if use_it or file.current is None:
        file.current = name
    file.write(World.around().files)
    click.echo(f"{name} is {namesrv}{' (current)' if file.current == name else ''}, in {file.path}")


@context.command(context_settings=CONTEXT)
@click.argument("name")
def remove(name: str) -> None:
    """Forget the context NAME; its cluster, and its file of credentials, stay."""
    file = _file(name)
    del file.named[name]
    if file.current == name:
        file.current = None
        click.echo(f"{name} was the current context: none is now, rmq context use chooses one", err=True)
    file.write(World.around().files)
    click.echo(f"{name} is forgotten")

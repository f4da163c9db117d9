"""What makes a command of ``mqadmin store``: its options, and the settings of the store that they tell."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

import click

from rmq.broker.settings import BrokerSettings
from rmq.broker.store.refusal import remedy
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.stopped_store import fitted
from rmq.cli.command import CONTEXT, Commands, Refused
from rmq.protocol.errors import RMQError
from rmq.runtime.world import World

__all__ = ["store", "store_command"]

Work = Callable[..., Coroutine[Any, Any, int]]


@click.group(cls=Commands, context_settings=CONTEXT, invoke_without_command=True)
@click.pass_context
def store(ctx: click.Context) -> None:
    """Check, show, mend or import the store of a broker that is stopped."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def store_command(name: str, *options: Callable[[Any], Any]) -> Callable[[Work], click.Command]:
    """Make a command of a coroutine function that takes the world, the store's settings and the options."""

    def make(work: Work) -> click.Command:
        @functools.wraps(work)
        def run(root: str | None, config: str | None, given: tuple[str, ...], **kwargs: Any) -> int:
            # What readers say while they read is in the findings; nobody has asked for it on standard error.
            logging.getLogger("rmq").addHandler(logging.NullHandler())
            try:
                return asyncio.run(_run(work, root, config, given, kwargs))
            except RMQError as error:
                raise Refused(str(error)) from None
            except BrokenPipeError:
                raise  # who has read enough needs no line: as of every command
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise Refused(f"{where}{error.strerror or error}{remedy(error)}") from None

        decorated: Any = run
        for option in (
            click.option("--json", "json", is_flag=True, help="Print JSON."),
            click.option(
                "-o", "given", multiple=True, metavar="KEY=VALUE", help="A broker setting, as mappedFileSizeCommitLog."
            ),
            click.option("-c", "--configFile", "config", metavar="FILE", help="The broker's settings."),
            click.option(
                "-s", "--storePath", "root", metavar="DIR", help="storePathRootDir. Default: as the broker's."
            ),
            *reversed(options),
        ):
            decorated = option(decorated)
        return store.command(name, context_settings=CONTEXT)(decorated)

    return make


async def _run(
    work: Work, root: str | None, config: str | None, given: tuple[str, ...], options: dict[str, Any]
) -> int:
    world = World.real()
    return await work(world, _settings(world, root, config, given), **options)


def _settings(world: World, root: str | None, config: str | None, given: tuple[str, ...]) -> StoreSettings:
    """What the broker would use; file sizes that nobody sets are those that the files have."""
    overrides = {"storePathRootDir": os.path.abspath(root)} if root else {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"-o {text}: KEY=VALUE is expected", click.get_current_context())
        overrides[key.strip()] = value.strip()
    settings = BrokerSettings.from_sources(file=config, env=os.environ, overrides=overrides)
    settings.complete_paths()
    sizes = [
        key
        for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt")
        if settings.origin(key) != "default"
    ]
    return fitted(world.files, settings.store_settings(), sizes)

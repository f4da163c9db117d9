"""``rmq run``: an application in one process or several, started anew when one dies or when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress

import click

from rmq.cli.command import CONTEXT, USAGE, Refused
from rmq.protocol.errors import ClientError, ConfigError, RMQError
from rmq.remoting.client import split_address
from rmq.runtime import loop
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["run"]

#: Seconds between two looks at the files.
_LOOK = 0.5
#: Seconds before a worker that died is started again: the first time, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
#: Seconds after which a worker counts as having run well.
_RUNS_WELL = 60.0
#: Seconds that workers have for a stop: a consumer waits 20 s for its listeners by default.
_DRAIN = 26.0


@click.command(context_settings=CONTEXT)
@click.argument("target", metavar="MODULE:APP")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@click.option("--reload", "reloads", is_flag=True, help="Start anew when a file under the folder changes.")
@click.option("--folder", metavar="DIR", default=".", show_default=True, help="Where modules are found.")
@click.option("--health", metavar="HOST:PORT", help="Of /livez and /readyz; each further worker takes the next port.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="Of the log on standard error.",
)
def run(target: str, workers: int, reloads: bool, folder: str, health: str | None, log_level: str) -> int:
    """Run the listeners of an application (docs/app.md): MODULE:APP, MODULE for its "app", or a YAML file.

    SIGTERM and Ctrl-C stop it in order: nothing new is taken, listeners that run may end.
    """
    if not os.path.isdir(folder):
        raise Refused(f"--folder {folder}: there is no such folder")
    if health is not None and not health.endswith(":0"):
        split_address(health)
    if workers == 1 and not reloads:
        return _work(target, folder, health, log_level)
    arguments = [target, "--folder", folder, "--log-level", log_level]
    return loop.run(Workers(World.real(), arguments, workers, health, folder if reloads else None).run())


def _work(target: str, folder: str, health: str | None, log_level: str) -> int:
    """This process is the application's. What cannot be run at all ends with 2, and is not started again."""
    from rmq.app.file import app_of

    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sys.path.insert(0, os.path.abspath(folder))
    try:
        app = app_of(target)
        if health is not None:
            app.serve_health(health)
    except RMQError as error:
        raise Refused(str(error)) from error
    except Exception:  # of the application's own modules: where it is from is what helps
        traceback.print_exc()
        return USAGE
    try:
        app.run()
    except (ClientError, ConfigError) as error:  # starting it again would not change that
        raise Refused(str(error)) from error
    return 0


class Workers:
    """Processes of one application.

    :param arguments: of ``rmq run`` in each.
    :param health: ``host:port`` of the first.
    :param watched: the folder whose files are looked at; None = they are not.
    """

    def __init__(self, world: World, arguments: list[str], count: int, health: str | None, watched: str | None) -> None:
        self._clock = world.clock
        self._arguments = arguments
        self._count = count
        self._health = health
        self._watched = watched
        self._running: dict[int, asyncio.subprocess.Process] = {}
        #: Workers that were told to end because files changed.
        self._renewed: set[int] = set()
        self._change = asyncio.Event()

    async def run(self) -> int:
        """Serve until cancelled, or until every worker ended for good: the worst of their exit codes."""
        async with TaskOwner("rmq run") as tasks:
            if self._watched is not None:
                tasks.serve(self._watch(self._watched), "reload")
            kept = [tasks.spawn(self._keep(number), f"worker {number + 1}") for number in range(self._count)]
            try:
                codes: list[int] = await asyncio.gather(*kept)
                return max(codes)
            finally:
                await self._stop()

    async def _keep(self, number: int) -> int:
        """One worker, again and again. What ends with 0, or with 2 because it cannot be run at all, has ended."""
        pause = _FIRST_PAUSE
        while True:
            began = self._clock.monotonic()
            change = self._change
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rmq.cli.rmq", "run", *self._arguments, *self._own(number)
            )
            self._running[number] = process
            if change is not self._change:
                self._renew(number, process)
            code = await process.wait()
            del self._running[number]
            if number in self._renewed:
                self._renewed.discard(number)
                continue
            if self._watched is not None:
                click.echo(f"rmq run: worker {number + 1} ended with {code}: again when a file changes", err=True)
                await change.wait()
                continue
            if code in (0, USAGE):
                return code
            if self._clock.monotonic() - began > _RUNS_WELL:
                pause = _FIRST_PAUSE
            click.echo(f"rmq run: worker {number + 1} ended with {code}: again in {pause:g} s", err=True)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _own(self, number: int) -> list[str]:
        """The arguments of this worker alone."""
        if self._health is None:
            return []
        host, _, port = self._health.rpartition(":")
        return ["--health", f"{host}:{int(port) + number if port != '0' else 0}"]

    async def _stop(self) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()
        ending = [asyncio.ensure_future(process.wait()) for process in self._running.values()]
        if ending and (await asyncio.wait(ending, timeout=_DRAIN))[1]:
            for process in self._running.values():
                with suppress(ProcessLookupError):
                    process.kill()

    async def _watch(self, folder: str) -> None:
        """Have every worker begin anew when a file under the folder is written, made or removed."""
        before = dict(_files(folder))
        while True:
            await asyncio.sleep(_LOOK)
            now = dict(_files(folder))
            if now == before:
                continue
            changed = next(iter(dict(now.items() ^ before.items())))
            click.echo(f"rmq run: {changed} has changed: starting anew", err=True)
            before = now
            self._change.set()
            self._change = asyncio.Event()
            for number, process in self._running.items():
                self._renew(number, process)

    def _renew(self, number: int, process: asyncio.subprocess.Process) -> None:
        self._renewed.add(number)
        with suppress(ProcessLookupError):
            process.terminate()


def _files(folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Path, time and size of what an application consists of; hidden folders, and what Python writes, are none."""
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            if name.endswith((".py", ".yaml", ".yml")):
                with suppress(OSError):  # gone meanwhile
                    found = os.stat(os.path.join(path, name))
                    yield os.path.join(path, name), (found.st_mtime_ns, found.st_size)

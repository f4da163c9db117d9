"""The commands ``rmq dev`` and ``rmq dev stop``."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
from collections.abc import Callable

import click

from rmq.cli.command import CONTEXT, FAILED, Commands, Refused
from rmq.cli.dev.place import Place
from rmq.protocol.errors import ConfigError

__all__ = ["dev"]

HOST = "127.0.0.1"
DEFAULT_PORT = 9_876
#: How far apart ports are that are tried, and how many are.
_STEP, _TRIES = 100, 40
#: Seconds that a cluster has to come up in the background, and to stop.
_UP, _DOWN = 60.0, 35.0
_LOOK = 0.05
_TOPIC = re.compile(r"([%|a-zA-Z0-9_-]{1,127})(?::(\d{1,4}))?")


def _topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    topics = {}
    for text in values:
        if (found := _TOPIC.fullmatch(text)) is None or found[2] == "0":
            raise click.BadParameter(f"{text!r} is no topic: give NAME or NAME:QUEUES", ctx, param)
        topics[found[1]] = int(found[2] or 4)
    return topics


_FOLDER = click.option("--folder", metavar="DIR", help="For stores and logs.  [default: run/<port>]")


@click.group(cls=Commands, invoke_without_command=True, context_settings=CONTEXT)
@click.option(
    "--port", type=click.IntRange(1, 64_000), help="Of the name server.  [default: 9876, or the next that is free]"
)
@_FOLDER
@click.option("--masters", type=click.IntRange(1, 8), default=1, show_default=True, help="Broker sets.")
@click.option("--slaves", type=click.IntRange(0, 4), default=0, show_default=True, help="Slaves of each master.")
@click.option(
    "--raft",
    type=click.Choice(["3", "5"]),
    metavar="N",
    help="One group of 3 or 5 that elects its master, a process each.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=_topics,
    metavar="NAME[:QUEUES]",
    help="Make this topic on every master; may be repeated.",
)
@click.option("--reset", is_flag=True, help="Forget what an earlier run in this folder kept.")
@click.option("--detach", is_flag=True, help="Leave it running in the background; rmq dev stop ends it.")
@click.option("--demo", is_flag=True, help="Send ten messages and consume them first.")
@click.pass_context
def dev(
    ctx: click.Context, port: int | None, folder: str | None, masters: int, slaves: int, raft: str | None,
    topics: dict[str, int], reset: bool, detach: bool, demo: bool,
) -> int:  # fmt: skip
    """A name server and a broker, or several, on this machine alone, until Ctrl-C."""
    if ctx.invoked_subcommand is not None:
        return 0
    from rmq.cli.dev.cluster import ports_of

    members = int(raft or 0)
    if members and (masters > 1 or slaves):
        raise click.UsageError("--raft is one group in place of masters and slaves: leave --masters and --slaves out")
    if port is None:
        port = _free_port(lambda port: ports_of(port, members or masters * (1 + slaves)))
    place = Place(os.path.abspath(folder or os.path.join("run", str(port))))
    place.refuse_running()
    if reset:
        place.reset()
    if detach:
        words = ["--port", str(port), "--folder", place.folder, "--masters", str(masters), "--slaves", str(slaves)]
        words += ["--raft", str(members)] if members else []
        words += [word for name, queues in topics.items() for word in ("--topic", f"{name}:{queues}")]
        return _detached(place, [*words, *(["--demo"] if demo else [])])
    from rmq.cli.daemon import logging_rules
    from rmq.cli.dev.cluster import Dev
    from rmq.runtime import logs, loop
    from rmq.runtime.system import check_serves

    check_serves()
    logging_ = logs.configure(logging_rules(), folder=os.path.join(place.folder, "logs"), daemon="dev")
    try:
        return loop.run(Dev(port, place, demo, masters, slaves, topics, members).run())
    except ConfigError as error:  # a port that is taken: the command line is as it should be
        raise click.ClickException(str(error)) from None
    finally:
        logging_.stop()


@dev.command(context_settings=CONTEXT)
@click.option(
    "--port", type=click.IntRange(1, 64_000), default=DEFAULT_PORT, show_default=True, help="Of the name server."
)
@_FOLDER
def stop(port: int, folder: str | None) -> int:
    """Stop the cluster of this port or folder, as Ctrl-C does; what it stored stays."""
    from rmq.cli.dev.group import Members

    place = Place(os.path.abspath(folder or os.path.join("run", str(port))))
    if (pid := place.running()) is None:
        members = Members(place)
        if not members.running():
            raise Refused(f"no cluster of rmq dev runs in {place.folder}")
        if left := asyncio.run(members.stop()):  # of one whose own process was killed
            click.echo(f"rmq: {', '.join(left)} did not end within {_DOWN:g} s", err=True)
            return FAILED
        click.echo(f"stopped; what it stored stays in {place.folder}")
        return 0
    os.kill(pid, signal.SIGTERM)
    if not _within(_DOWN, lambda: place.running() is None):
        click.echo(f"rmq: process {pid} did not end within {_DOWN:g} s", err=True)
        return FAILED
    click.echo(f"stopped; what it stored stays in {place.folder}")
    return 0


@dev.command(context_settings=CONTEXT)
@click.argument("member")
@click.option(
    "--port", type=click.IntRange(1, 64_000), default=DEFAULT_PORT, show_default=True, help="Of the name server."
)
@_FOLDER
def start(member: str, port: int, folder: str | None) -> int:
    """Start a MEMBER of rmq dev --raft again, n0 say, after it was killed."""
    from rmq.cli.dev.group import Members

    place = Place(os.path.abspath(folder or os.path.join("run", str(port))))
    members = Members(place)
    if member not in members.names:
        known = ", ".join(members.names) or "none"
        raise Refused(f"{place.folder} has no member {member} (known: {known}): rmq dev --raft 3 makes a group")
    if place.running() is None:
        raise Refused(f"no cluster of rmq dev runs in {place.folder}: rmq dev --raft starts all of it")
    if (pid := members.running().get(member)) is not None:
        raise Refused(f"{member} runs (process {pid})")
    members.begin(member)
    click.echo(f"{member} runs, process {asyncio.run(members.up(member))}")
    return 0


def _free_port(ports_of: Callable[[int], list[int]]) -> int:
    """The first port from the usual one on whose cluster finds all its ports free."""
    from rmq.runtime.ports import free

    for port in range(DEFAULT_PORT, DEFAULT_PORT + _STEP * _TRIES, _STEP):
        if free(HOST, ports_of(port)):
            return port
    raise Refused(f"no free ports were found from {DEFAULT_PORT} on: choose one with --port")


def _detached(place: Place, words: list[str]) -> int:
    """Start the same in a session of its own, and wait until it is up."""
    os.makedirs(place.folder, exist_ok=True)
    output = os.path.join(place.folder, "dev.out")
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = [sys.executable, "-m", "rmq.cli.rmq", "dev", *words]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    ended = False

    def settled() -> bool:
        nonlocal ended
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        return ended or place.running() == pid

    up = _within(_UP, settled) and not ended
    with open(output, encoding="utf-8", errors="replace") as file:
        said = file.read()
    if not up:
        if not ended:
            os.kill(pid, signal.SIGTERM)
        last = said.strip().splitlines()[-1:] or ["it did not come up in time"]
        click.echo(f"{last[0]} ({output} has what it said)", err=True)
        return FAILED
    click.echo(said, nl=False)
    click.echo(f"== in the background, process {pid}; rmq dev stop --folder {place.folder} ends it")
    return 0


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    for _ in range(round(seconds / _LOOK)):
        if condition():
            return True
        select.select([], [], [], _LOOK)
    return False

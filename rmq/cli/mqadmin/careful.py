"""Changes with care: ``--dry-run`` shows them, a terminal is asked before something goes, undo notes tell how to get
back, and ``--show-code`` gives the Python instead.

====================  =================================================================================================
``--dry-run``         every change in a line, and none made; what the command asks for it, it asks
a terminal            is shown the same, and asked, before messages, groups, offsets or rights go; scripts are not
``--yes``             goes on without asking
``--undo FILE``       commands that take it back, written before what is in the file; a terminal is told them as well
====================  =================================================================================================
"""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from rmq.cli.command import QUIET, Refused, agrees, is_quiet
from rmq.cli.mqadmin.changes import CHANGING, DESTROYING
from rmq.cli.mqadmin.notes import put_first
from rmq.cli.mqadmin.output import Output
from rmq.cli.mqadmin.recorder import Recorder
from rmq.cli.mqadmin.text import plain
from rmq.cli.reach import cluster_words
from rmq.client.admin import AdminClient

__all__ = ["CARE_WORDS", "PRETENDING", "Care", "care_options"]

CARE_WORDS = ("dry_run", "yes", "undo", "show_code")
#: Those whose work is no operation of the admin client.
_NO_CODE = frozenset({"sendMessage", "recallMessage", "checkMsgSendRT", "sendMsgStatus", "clusterRT",
                      "startMonitoring", "top", "apply"})  # fmt: skip
#: Lines that a terminal is told.
_TOLD = 16

#: In the meta of a command's context: it runs to be seen, and sends nothing.
PRETENDING = f"{__name__}.pretending"

Work = Callable[[AdminClient, Output], Awaitable[int | None]]


def care_options(name: str) -> tuple[Callable[[Any], Any], ...]:
    """Options of the command of this name."""
    options: list[Callable[[Any], Any]] = []
    if name not in _NO_CODE:
        options.append(click.option("--show-code", "show_code", is_flag=True,
                                    help="Print the Python that does it, and change nothing."))  # fmt: skip
    if name in CHANGING:
        options += [
            click.option("--undo", "undo", metavar="FILE", envvar="MQADMIN_UNDO",
                         help="Write the commands that take it back before what is in FILE.  [MQADMIN_UNDO]"),
            click.option("--dry-run", "dry_run", is_flag=True, help="Say what would change, and change nothing."),
        ]  # fmt: skip
    if name in DESTROYING:
        options.append(click.option("--yes", "yes", is_flag=True, help="Do not ask; scripts are never asked."))
    return tuple(options)


@dataclass(slots=True)
class Care:
    """What was typed for one command.

    :param options: the client's arguments. :param typed: the words that lead to the cluster, and by which account; none
        where the environment alone says it.
    """

    name: str
    dry_run: bool
    yes: bool
    undo: str | None
    show_code: bool
    options: Mapping[str, Any]
    typed: list[str]

    @classmethod
    def of(cls, name: str, words: Mapping[str, Any], options: Mapping[str, Any]) -> Care:
        typed = cluster_words(words.get("namesrv"), words.get("context"))
        for option, key in (("--credentialsFile", "credentials"), ("--tlsCaFile", "tls_ca_file")):
            typed += [option, os.path.abspath(words[key])] if words.get(key) else []
        typed += ["--tls"] if words.get("tls") else []
        given = {key: words.get(key) for key in CARE_WORDS}
        return cls(
            name, bool(given["dry_run"]), bool(given["yes"]), given["undo"], bool(given["show_code"]), options, typed
        )

    async def run(self, admin: AdminClient, out: Output, work: Work) -> int | None:
        """Do what was typed. :raises Refused: somebody was asked, and said no."""
        changing = self.name in CHANGING
        if self.show_code:
            seen = await self._seen(admin, work)
            from rmq.cli.mqadmin.code import program

            # What it looked up to know what to change stands in the changes.
            changes = [call for call in seen.calls if call.changes]
            click.echo(program(changes or seen.calls, self.options))
            return 0
        if not changing:
            return await work(admin, out)
        if self.dry_run:
            planned = (await self._seen(admin, work)).planned
            lines = [plain(line if line.startswith(" ") else f"would {line}") for line in planned]
            return out.done({"dryRun": True, "changes": planned}, lines or ["would change nothing"])
        if self.name in DESTROYING and not self.yes and sys.stdin.isatty() and sys.stderr.isatty():
            await self._ask(admin, work)
        told = sys.stderr.isatty() and not is_quiet()
        recorder = Recorder(admin)
        if told or self.undo is not None:
            from rmq.cli.mqadmin.undo import undo_of

            recorder.before = undo_of
        try:
            return await work(recorder.client(), out)
        except asyncio.CancelledError:  # Ctrl-C
            recorder.tell_interrupted()
            raise
        finally:
            self.note(recorder.notes, told, admin)

    async def _seen(self, admin: AdminClient, work: Work) -> Recorder:
        """What it asks for and would change; what it prints is not shown."""
        recorder = Recorder(admin, pretend=True)
        meta = click.get_current_context().meta
        quiet = meta.get(QUIET)
        meta[PRETENDING] = True
        try:
            with redirect_stdout(io.StringIO()):
                await work(recorder.client(), Output("classic"))
        finally:
            meta[QUIET] = quiet
            meta[PRETENDING] = False
        return recorder

    async def _ask(self, admin: AdminClient, work: Work) -> None:
        for line in (await self._seen(admin, work)).planned:
            click.echo(plain(line if line.startswith(" ") else f"this will {line}"), err=True)
        if not agrees():
            raise Refused("nothing was changed")

    def note(self, notes: list[str], told: bool, admin: AdminClient) -> None:
        """Write notes of how to go back to the file, where one was named, and tell them. :param told: to a terminal."""
        if not notes:
            return
        # Whoever runs it in another shell, or tomorrow, is to reach the same cluster.
        where = [] if {"-n", "--context"} & {*self.typed} else ["-n", ";".join(admin.name_server_addresses)]
        commands = [
            plain(line) if line.startswith("#") else shlex.join([*shlex.split(line), *where, *self.typed])
            for line in _last_of_each(notes)
        ]
        most = _TOLD
        if self.undo is not None:
            at = datetime.fromtimestamp(admin.world.clock.now_ms() / 1000, UTC)
            head = f"# {at:%Y-%m-%dT%H:%M:%SZ} mqadmin {self.name}: what takes it back"
            try:
                put_first(admin.world.files, self.undo, [head, *commands])
            except OSError as error:
                why = error.strerror or error
                click.echo(f"mqadmin: {self.undo} cannot be written, the undo notes are: {why}", err=True)
                told, most = True, len(commands)
        if told:
            click.echo("to take it back:", err=True)
            for line in commands[:most]:
                click.echo(f"  {plain(line)}", err=True)
            if len(commands) > most:
                rest = f"{len(commands) - most} lines more"
                click.echo(f"  ... {rest}: {self.undo or '--undo FILE'} has all of them", err=True)


def _last_of_each(lines: list[str]) -> list[str]:
    """Without those that come again: of two that are the same, the last one brings back what was there first."""
    return list(dict.fromkeys(reversed(lines)))[::-1]

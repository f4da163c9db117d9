"""How every command here starts and fails: one clear line on standard error, and an exit code that tells.

====  ====================================================================
0     done
1     it failed
2     the command line was wrong, or what it names cannot be looked at
130   interrupted with Ctrl-C
====  ====================================================================
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from rmq.protocol.errors import RMQError

__all__ = [
    "CONTEXT",
    "FAILED",
    "QUIET",
    "USAGE",
    "Commands",
    "Refused",
    "agrees",
    "invoke",
    "is_quiet",
    "quiet_option",
    "tell",
    "version_option",
]

FAILED = 1
USAGE = 2
INTERRUPTED = 130

#: In the meta of a command's context: nothing but errors goes to standard error.
QUIET = f"{__name__}.quiet"

#: Java's commands print their help for -h as well.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class Refused(click.ClickException):
    """What was asked for could not even be begun: exit code 2, which scripts tell from a bad result."""

    exit_code = USAGE


def agrees() -> bool:
    """Ask whether to go on, before anything is changed; where nobody answers any more the answer is no.

    :raises click.Abort: Ctrl-C.
    """
    with contextlib.ExitStack() as after:
        # asyncio takes Ctrl-C for itself, and cancels a task that is still reading what is typed: it would be asked on.
        with contextlib.suppress(ValueError):  # no main thread: nobody interrupts it
            after.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        try:
            return click.confirm("Go on?", err=True)
        except click.Abort as error:
            click.echo(err=True)
            if isinstance(error.__context__, EOFError):
                return False
            tell("nothing was changed")
            raise


def tell(text: str) -> None:
    """A line on standard error, whatever is to be quiet: what somebody has to know who ended a command."""
    ctx = click.get_current_context(silent=True)
    name = "rmq" if ctx is None else ctx.find_root().info_name
    click.echo(f"{name}: {' '.join(text.split())}", err=True)


class Commands(click.Group):
    """A group whose help says whole sentences of its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(limit=1000))
                    for name in self.list_commands(ctx)
                    if (command := self.get_command(ctx, name)) is not None and not command.hidden
                ]
            )


def is_quiet() -> bool:
    """Whether the command that runs was told to keep its notes, warnings and bars to itself."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(QUIET))


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        import platform

        from rmq import __version__
        from rmq.protocol.codes import version_name
        from rmq.protocol.command import VERSION

        release = version_name(VERSION).lstrip("V").replace("_", ".")
        click.echo(f"{ctx.info_name} {__version__} (RocketMQ {release}, Python {platform.python_version()})")
        ctx.exit()


#: ``--version`` of a program.
version_option = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it and end."
)


def _be_quiet(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    ctx.meta[QUIET] = asked


#: ``--quiet`` of a command that has notes on standard error.
quiet_option = click.option(
    "--quiet", is_flag=True, expose_value=False, callback=_be_quiet, help="Nothing but errors on standard error."
)


def invoke(command: click.Command, name: str, args: Sequence[str] | None = None) -> int:
    """Run a command; the exit code of the process.

    A command returns its exit code or None. What it raises is one line on standard error, without a stack trace.
    One that has more kinds of failures has a method ``failure(error)``, which gives the line and the code.
    """
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the file was closed when we were started: nobody wants to read it
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    if os.environ.get(f"_{name.upper()}_COMPLETE"):
        importlib.import_module("rmq.cli.completion.shells")  # a shell asks: these answer
    try:
        code = command.main(args=args, prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        hint = f" ({error.ctx.command_path} -h shows the options)" if error.ctx else ""
        return _fail(name, f"{error.format_message()}{hint}", USAGE)
    except click.ClickException as error:
        return _fail(name, error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except RMQError as error:
        failure = getattr(command, "failure", None)
        return _fail(name, *(failure(error) if failure is not None else (str(error), FAILED)))
    except BrokenPipeError:
        # Whoever read our output has had enough; the interpreter's own flush at the end must not complain.
        _leave(sys.stdout)
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(name, f"{where}{error.strerror or error}", FAILED)
    return code if isinstance(code, int) else 0


def _fail(name: str, message: str, code: int) -> int:
    try:
        click.echo(f"{name}: {' '.join(message.split())}", file=sys.stderr)
    except OSError:  # nobody can be told: the code says it, and the interpreter's own flush at the end must not
        _leave(sys.stderr)
    return code


def _leave(stream: TextIO) -> None:
    """Let what is left of a stream that nobody takes go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""``rmq``: what belongs to no daemon and to no administration."""

from __future__ import annotations

import os
import sys

import click

from rmq.cli.command import CONTEXT, Commands, invoke
from rmq.cli.messages.consume import consume
from rmq.cli.messages.produce import produce
from rmq.cli.messages.tap import replay, tap
from rmq.cli.pipeline import pipeline
from rmq.cli.run import run
from rmq.cli.secure.command import secure

__all__ = ["main"]


@click.group(cls=Commands, context_settings=CONTEXT)
def command() -> None:
    """RocketMQ in Python."""


for one in (consume, pipeline, produce, replay, run, secure, tap):
    command.add_command(one)


@command.command(context_settings=CONTEXT)
@click.option("--port", type=click.IntRange(1, 64_000), default=9_876, show_default=True, help="Of the nameserver.")
@click.option("--folder", metavar="DIR", help="For store and logs.  [default: run/<port>]")
@click.option("--demo", is_flag=True, help="Send ten messages and consume them first.")
@click.option("--masters", type=click.IntRange(1, 8), default=1, show_default=True, help="Broker sets.")
@click.option("--slaves", type=click.IntRange(0, 4), default=0, show_default=True, help="Slaves of each master.")
def dev(port: int, folder: str | None, demo: bool, masters: int, slaves: int) -> int:
    """A nameserver and a broker, or several, on this machine alone, until Ctrl-C."""
    from rmq.cli.daemon import logging_rules
    from rmq.cli.dev import Dev
    from rmq.runtime import logs, loop

    where = os.path.abspath(folder or os.path.join("run", str(port)))
    logging_ = logs.configure(logging_rules(), folder=os.path.join(where, "logs"), daemon="dev")
    try:
        return loop.run(Dev(port, where, demo, masters, slaves).run())
    finally:
        logging_.stop()


def main() -> None:
    sys.exit(invoke(command, "rmq"))


if __name__ == "__main__":
    main()

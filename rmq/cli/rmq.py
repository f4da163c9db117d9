"""``rmq``: what belongs to no daemon and to no administration."""

from __future__ import annotations

import sys

import click

from rmq.cli.command import CONTEXT, Commands, invoke
from rmq.cli.dev.command import dev
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


for one in (consume, dev, pipeline, produce, replay, run, secure, tap):
    command.add_command(one)


def main() -> None:
    sys.exit(invoke(command, "rmq"))


if __name__ == "__main__":
    main()

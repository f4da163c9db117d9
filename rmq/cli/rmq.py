"""``rmq``: what belongs to no daemon and to no administration."""

from __future__ import annotations

import importlib
import sys

import click

from rmq.cli.command import CONTEXT, Commands, invoke, version_option
from rmq.protocol.errors import RMQError

__all__ = ["main"]

#: Command -> (module and object of it, what it does). A module is loaded when its command is used: looking at a job
#: file needs nothing that serves a cluster.
COMMANDS = {
    "dev": ("dev.command:dev", "A name server and brokers on this machine alone, for trying things out."),
    "produce": ("messages.produce:produce", "Send messages: arguments, lines, files, JSON."),
    "consume": ("messages.consume:consume", "Print messages of a topic, by place, time, filter or group."),
    "tap": ("messages.tap:tap", "Write the messages of a topic to a file."),
    "replay": ("messages.tap:replay", "Send what tap wrote, in its order and with its pauses."),
    "doctor": ("doctor.command:doctor", "Say what is wrong with a cluster or a group, and what to do."),
    "explain": ("explain.command:explain", "Say where a message or a group is, why, and what happens next."),
    "top": ("top.command:top", "What goes into brokers and topics now, and how far groups are behind."),
    "export": ("declared.command:export", "Print topics and groups of a cluster as a file."),
    "diff": ("declared.command:diff", "Say in what a cluster differs from a file."),
    "apply": ("declared.command:apply", "Give a cluster the topics, groups and entries of a file."),
    "bench": ("bench.command:bench", "Measure how much a cluster takes and gives."),
    "context": ("contexts.command:context", "Clusters by name, and the current one."),
    "completion": ("completion.command:completion", "Have bash, zsh or fish complete commands, options and names."),
    "run": ("run:run", "Run the listeners of an application (docs/app.md)."),
    "secure": ("secure.command:secure", "Accounts, certificates and settings of a secured cluster (docs/securing.md)."),
    "pipeline": ("pipeline:pipeline", "Ready jobs of Spark over RocketMQ."),
}


class _Loading(Commands):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"rmq.cli.{module}"), name)
        return command

    @property
    def purposes(self) -> dict[str, str]:
        """Command -> what it does; no module is loaded for it."""
        return {name: what for name, (_, what) in COMMANDS.items()}

    def failure(self, error: RMQError) -> tuple[str, int]:
        """As mqadmin's: an exit code by kind, and what to do."""
        from rmq.cli.mqadmin.failures import failure

        return failure(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.purposes.items()))


@click.group(cls=_Loading, context_settings=CONTEXT)
@version_option
def command() -> None:
    """RocketMQ in Python."""


def main() -> None:
    sys.exit(invoke(command, "rmq"))


if __name__ == "__main__":
    main()

"""The command group: names in any case as in Java, modules loaded when a command is used, ``help <command>``."""

from __future__ import annotations

import difflib
import importlib

import click

from rmq.cli.command import CONTEXT

__all__ = ["COMMANDS", "root"]

#: Command -> (module and function that make it, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "updateTopic": ("topics:update_topic", "Create a topic or change it, on a broker or every master of a cluster."),
    "updateSubGroup": (
        "groups:update_sub_group",
        "Create a subscription group or change it, on a broker or every master of a cluster.",
    ),
    "deleteSubGroup": (
        "groups:delete_sub_group",
        "Delete a subscription group, on a broker or every master of a cluster; not while members are online.",
    ),
    "topicRoute": ("topics:topic_route", "Which brokers and queues serve a topic."),
    "topicStatus": ("topics:topic_status", "Lowest and highest offset and last store time of each queue."),
    "brokerStatus": ("brokers:broker_status", "The figures of a broker, or of every broker of a cluster."),
    "queryMsgById": ("messages:query_msg_by_id", "A message by its offset id or its unique id."),
    "queryMsgByKey": ("messages:query_msg_by_key", "The messages of a topic that have a key."),
    "queryMsgTraceById": (
        "traces:query_msg_trace_by_id",
        "Who sent a message and who consumed it, by its unique id: its message trace.",
    ),
    "consumerProgress": (
        "groups:consumer_progress",
        "How far a group is in each queue; without -g, a line for every group.",
    ),
    "consumerStatus": (
        "members:consumer_status",
        "The members of a group; fails when they subscribe different things.",
    ),
    "resetOffsetByTime": (
        "offsets:reset_offset_by_time",
        "Move a group on a topic to a time, to the end, or one queue to an offset.",
    ),
    "clusterList": ("brokers:cluster_list", "Every broker, with version, throughput and disk use."),
    "haStatus": ("replicas:ha_status", "The slaves of a broker, or of every broker of a cluster, and how far each is."),
    "store": ("store:store", "Check, show and mend the store of a broker that is stopped: verify, dump, rebuild."),
    "topicList": ("topics:topic_list", "Every topic; with -c its cluster and groups, too."),
}


class AdminGroup(click.Group):
    """Finds a command by its name in any case and imports its module only then."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = next((known for known in COMMANDS if known.lower() == cmd_name.lower()), None)
        if name is None:
            return super().get_command(ctx, cmd_name)
        module, _, function = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(f"rmq.cli.mqadmin.{module}"), function)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            command = next((name for name in given if self.get_command(ctx, name) is not None), None)
            if command is None:
                raise
            raise click.UsageError(
                f"options stand behind the command: mqadmin {command} {error.option_name}", ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise _unknown(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, purpose) for name, (_, purpose) in COMMANDS.items()])


def _unknown(name: str, ctx: click.Context) -> click.UsageError:
    known = {command.lower(): command for command in COMMANDS}
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f": did you mean {known[near[0]]}?" if near else ""
    return click.UsageError(f"there is no command {name}{hint}", ctx)


@click.group(cls=AdminGroup, context_settings=CONTEXT, invoke_without_command=True)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Look at a RocketMQ cluster and change it. Name servers: -n, else NAMESRV_ADDR."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@root.command("help", hidden=True, context_settings=CONTEXT)
@click.argument("name", required=False)
@click.pass_context
def show_help(ctx: click.Context, name: str | None) -> None:
    """The options of a command."""
    parent = ctx.parent
    assert parent is not None
    if name is None:
        click.echo(root.get_help(parent))
        return
    command = root.get_command(parent, name)
    if command is None:
        raise _unknown(name, parent)
    with click.Context(command, info_name=name, parent=parent) as inner:
        click.echo(command.get_help(inner))

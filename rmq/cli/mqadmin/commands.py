"""The command group: names in any case as in Java, modules loaded when a command is used, ``help <command>``."""

from __future__ import annotations

import difflib
import importlib

import click

from rmq.cli.command import CONTEXT, version_option
from rmq.protocol.errors import RMQError

__all__ = ["ALIASES", "COMMANDS", "SECTIONS", "root"]

#: Command -> (module and function that make it, what it does), by what it is about.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Topics": {
        "updateTopic": (
            "topic_changes:update_topic",
            "Create a topic or change it, on a broker or every master of a cluster.",
        ),
        "updateTopicList": (
            "topic_changes:update_topic_list",
            "Create or change the topics of a JSON file (brokers of 5.x).",
        ),
        "updateTopicPerm": ("topic_changes:update_topic_perm", "Change a topic's permission, and nothing else of it."),
        "deleteTopic": ("topic_changes:delete_topic", "Delete a topic and its messages from a cluster."),
        "updateOrderConf": (
            "topic_changes:update_order_conf",
            "Show, set or delete how many queues an ordered topic has on each broker.",
        ),
        "topicList": ("topics:topic_list", "Every topic; with -c its cluster and groups, too."),
        "topicRoute": ("topics:topic_route", "Which brokers and queues serve a topic."),
        "topicStatus": ("topics:topic_status", "Lowest and highest offset and last store time of each queue."),
        "topicClusterList": ("topics:topic_cluster_list", "The clusters that have a topic."),
        "allocateMQ": ("topics:allocate_mq", "How the queues of a topic would be shared among members of a group."),
        "statsAll": (
            "statistics:stats_all",
            "How much goes into topics and out to groups, and what is not consumed yet.",
        ),
    },
    "Groups, offsets and clients": {
        "updateSubGroup": (
            "groups:update_sub_group",
            "Create a subscription group or change it, on a broker or every master of a cluster.",
        ),
        "updateSubGroupList": (
            "groups:update_sub_group_list",
            "Create or change the groups of a JSON file (brokers of 5.x).",
        ),
        "deleteSubGroup": (
            "groups:delete_sub_group",
            "Delete a subscription group, on a broker or every master of a cluster; not while members are online.",
        ),
        "getConsumerConfig": ("groups:get_consumer_config", "How a group is configured, on every broker that has it."),
        "setConsumeMode": ("groups:set_consume_mode", "Have a group pop from a topic, or pull again (5.x)."),
        "consumerProgress": (
            "progress:consumer_progress",
            "How far a group is in each queue; without -g, a line for every group.",
        ),
        "consumerStatus": (
            "members:consumer_status",
            "The members of a group; fails when they subscribe different things.",
        ),
        "consumerConnection": ("connections:consumer_connection", "The clients of a group and what they subscribe."),
        "producerConnection": ("connections:producer_connection", "The clients of a producer group."),
        "producer": ("connections:producer", "Every producer that a broker knows."),
        "resetOffsetByTime": (
            "offsets:reset_offset_by_time",
            "Move a group on a topic to a time, to the end, or one queue to an offset.",
        ),
        "skipAccumulatedMessage": ("offsets:skip_accumulated_message", "Move a group to the end of a topic."),
        "cloneGroupOffset": ("offsets:clone_group_offset", "Give a group the offsets that another has on a topic."),
        "startMonitoring": (
            "monitoring:start_monitoring",
            "Watch every group, and tell of those that are behind, blocked or at odds.",
        ),
    },
    "Messages": {
        "queryMsgById": ("messages:query_msg_by_id", "A message by its offset id or its unique id."),
        "queryMsgByKey": ("messages:query_msg_by_key", "The messages of a topic that have a key."),
        "queryMsgByUniqueKey": (
            "messages:query_msg_by_unique_key",
            "A message by the unique id that its producer gave.",
        ),
        "queryMsgByOffset": ("messages:query_msg_by_offset", "The message at an offset of a queue."),
        "queryMsgTraceById": (
            "traces:query_msg_trace_by_id",
            "Who sent a message and who consumed it, by its unique id: its message trace.",
        ),
        "printMsg": ("scans:print_msg", "Every message of a topic, queue after queue."),
        "printMsgByQueue": ("scans:print_msg_by_queue", "The messages of one queue, printed or counted by tag."),
        "consumeMessage": (
            "scans:consume_message",
            "Messages of a topic or a queue, from an offset, a time or the oldest on.",
        ),
        "sendMessage": ("sending:send_message", "Send a message."),
        "recallMessage": ("sending:recall_message", "Take back a message that waits for its time (5.x)."),
        "checkMsgSendRT": ("sending:check_msg_send_rt", "How long sends to each queue of a topic take."),
        "sendMsgStatus": (
            "sending:send_msg_status",
            "Send messages to a broker's own topic, and show what comes of each.",
        ),
        "queryCq": ("queue_entries:query_cq", "Entries of a queue, and what the filter of a group makes of them."),
    },
    "Brokers": {
        "clusterList": ("brokers:cluster_list", "Every broker, with version, throughput and disk use."),
        "clusterRT": ("sending:cluster_rt", "How long sends to each broker take, again and again."),
        "brokerStatus": ("brokers:broker_status", "The figures of a broker, or of every broker of a cluster."),
        "brokerConsumeStats": ("statistics:broker_consume_stats", "How far every group is in each queue of a broker."),
        "haStatus": (
            "replicas:ha_status",
            "The slaves of a broker, or of every broker of a cluster, and how far each is.",
        ),
        "electMaster": (
            "replicas:elect_master",
            "Have another member lead a group that elects its master (5.x).",
        ),
        "getBrokerConfig": (
            "broker_settings:get_broker_config",
            "The settings of a broker, or of every broker of a cluster.",
        ),
        "updateBrokerConfig": (
            "broker_settings:update_broker_config",
            "Change a setting of a broker, or of every master of a cluster, while it runs.",
        ),
        "cleanExpiredCQ": ("cleaning:clean_expired_cq", "Delete queue files of which every message has expired."),
        "deleteExpiredCommitLog": ("cleaning:delete_expired_commit_log", "Delete commit log files that have expired."),
        "cleanUnusedTopic": (
            "cleaning:clean_unused_topic",
            "Delete the queues of topics that a broker does not have any more.",
        ),
        "exportMetadata": ("exports:export_metadata", "Write topics and groups to a JSON file."),
        "exportConfigs": (
            "exports:export_configs",
            "Write how the brokers of a cluster are configured to a JSON file.",
        ),
        "exportMetrics": ("exports:export_metrics", "Write the figures of a cluster to a JSON file."),
        "store": ("store:store", "Check, show, mend or import the store of a broker that is stopped."),
    },
    "Name servers": {
        "updateKvConfig": ("name_servers:update_kv_config", "Set a key-value entry on every name server."),
        "deleteKvConfig": ("name_servers:delete_kv_config", "Delete a key-value entry on every name server."),
        "wipeWritePerm": ("name_servers:wipe_write_perm", "Take the right to write from a broker: producers leave it."),
        "addWritePerm": ("name_servers:add_write_perm", "Give the right to write back to a broker."),
        "getNamesrvConfig": ("name_servers:get_namesrv_config", "The settings of every name server."),
        "updateNamesrvConfig": (
            "name_servers:update_namesrv_config",
            "Change a setting of every name server while it runs.",
        ),
    },
    "Accounts": {
        "getAclConfig": ("accounts:get_acl_config", "The accounts and white lists of brokers, without secrets."),
        "updateAclConfig": ("accounts:update_acl_config", "Create an account or change it."),
        "deleteAclConfig": ("accounts:delete_acl_config", "Delete an account."),
        "clusterAclConfigVersion": ("accounts:cluster_acl_config_version", "How new the accounts of brokers are."),
        "updateGlobalWhiteAddr": ("accounts:update_global_white_addr", "Say which addresses need no account."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
#: Java's other names for some.
ALIASES = {"getAccessConfigSubCommand": "getAclConfig", "deleteAccessConfig": "deleteAclConfig"}


class AdminGroup(click.Group):
    """Finds a command by its name in any case and imports its module only then."""

    @property
    def purposes(self) -> dict[str, str]:
        """Command -> what it does; no module is loaded for it."""
        return {name: what for name, (_, what) in COMMANDS.items()}

    def failure(self, error: RMQError) -> tuple[str, int]:
        """How a command failed: the line for standard error and the exit code."""
        from rmq.cli.mqadmin.failures import failure

        return failure(error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = next((name for also, name in ALIASES.items() if also.lower() == cmd_name.lower()), cmd_name)
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
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, purpose) for name, (_, purpose) in commands.items()])


#: Commands of 5.x that ask a controller, by their names in small letters, and what tells the same of a group here.
_OF_CONTROLLERS = {
    **dict.fromkeys(
        ("getsyncstateset", "getbrokerepoch", "getcontrollermetadata"),
        "haStatus shows who leads a group, terms, and what each member has",
    ),
    **dict.fromkeys(
        ("getcontrollerconfig", "updatecontrollerconfig", "cleanbrokermetadata"),
        "a group elects its master without a controller; haStatus shows it, electMaster gives the lead away",
    ),
}


def _unknown(name: str, ctx: click.Context) -> click.UsageError:
    if name.lower() in _OF_CONTROLLERS:
        return click.UsageError(f"there is no command {name}: {_OF_CONTROLLERS[name.lower()]}", ctx)
    known = {command.lower(): command for command in COMMANDS}
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f": did you mean {known[near[0]]}?" if near else ""
    return click.UsageError(f"there is no command {name}{hint}", ctx)


@click.group(cls=AdminGroup, context_settings=CONTEXT, invoke_without_command=True)
@version_option
@click.pass_context
def root(ctx: click.Context) -> None:
    """Look at a RocketMQ cluster and change it. Name servers: -n, else NAMESRV_ADDR.

    mqadmin help COMMAND shows the options of a command, mqadmin help exit-codes how commands end.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@root.command("help", hidden=True, context_settings=CONTEXT)
@click.argument("name", required=False)
@click.pass_context
def show_help(ctx: click.Context, name: str | None) -> None:
    """The options of a command; ``help exit-codes`` lists how commands end."""
    parent = ctx.parent
    assert parent is not None
    if name is None:
        click.echo(root.get_help(parent))
        return
    if name.lower() == "exit-codes":
        from rmq.cli.mqadmin.failures import CODES

        click.echo(CODES)
        return
    command = root.get_command(parent, name)
    if command is None:
        raise _unknown(name, parent)
    with click.Context(command, info_name=name, parent=parent, **command.context_settings) as inner:
        click.echo(command.get_help(inner))

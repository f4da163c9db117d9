"""Which commands change a cluster, and the changes themselves: what each would do, and what it would answer.

That is what ``--dry-run`` shows: the command runs, asks whatever it asks, and its changes are told in place of done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmq.client.admin import AdminClient
from rmq.client.admin.answers import Answers
from rmq.client.admin.replication import Elected
from rmq.client.admin.reset import TO_END, OffsetReset
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult
from rmq.protocol.errors import NotFound
from rmq.protocol.queue import MessageQueue

__all__ = ["CHANGES", "CHANGING", "DESTROYING", "Change"]

#: Commands after which something is gone: messages, topics, groups, offsets, settings of others, rights.
DESTROYING = frozenset({
    "deleteTopic", "deleteSubGroup", "resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset",
    "cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic", "deleteKvConfig", "wipeWritePerm",
    "deleteAclConfig",
})  # fmt: skip
#: Every command that changes something.
CHANGING = DESTROYING | {
    "updateTopic", "updateTopicList", "updateTopicPerm", "updateOrderConf", "updateSubGroup", "updateSubGroupList",
    "setConsumeMode", "updateBrokerConfig", "updateKvConfig", "addWritePerm", "updateNamesrvConfig",
    "updateAclConfig", "updateGlobalWhiteAddr", "electMaster",
}  # fmt: skip

#: The arguments of an operation, by name, defaults included.
Words = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """:param says: what it does, a line for each thing. :param answers: what the operation would give back."""

    says: Callable[[Words], str]
    answers: Callable[[AdminClient, Words], Awaitable[Any]]


async def _nothing(admin: AdminClient, words: Words) -> None:
    """Most give nothing back."""


async def _at_brokers(admin: AdminClient, words: Words) -> Answers[None]:
    return Answers(dict.fromkeys(words["broker_addrs"]))


async def _at_name_servers(admin: AdminClient, words: Words) -> Answers[None]:
    return Answers(dict.fromkeys(admin.name_server_addresses))


async def _topics_of_broker(admin: AdminClient, words: Words) -> Answers[int]:
    """As many topics as have queues at the broker."""
    name = words["broker_name"]
    data = (await admin.cluster_info()).broker_addr_table[name]
    count = len((await admin.topic_configs(data.broker_addrs[min(data.broker_addrs)])).topic_config_table)
    return Answers(dict.fromkeys(admin.name_server_addresses, count))


async def _perm(admin: AdminClient, words: Words) -> int:
    """What it is now."""
    config = await admin.topic_config(words["broker_addr"], words["topic"])
    if config is None:
        raise NotFound(f"{words['broker_addr']} has no topic {words['topic']}")
    return config.perm


async def _stands(admin: AdminClient, group: str, topic: str) -> dict[MessageQueue, int]:
    """Where a group stands in the queues where it has an offset. :raises NotFound: it has none."""
    found = await admin.consumer_offsets(group, topic)
    if not found:
        raise NotFound(f"the group {group} has no offset on {topic}")
    return dict(sorted(found.items()))


async def _to_time(admin: AdminClient, words: Words) -> list[OffsetReset]:
    done = []
    for queue, old in (await _stands(admin, words["group"], words["topic"])).items():
        at = words["timestamp"]
        target = await (admin.max_offset(queue) if at == TO_END else admin.search_offset(queue, at))
        done.append(OffsetReset(queue, old, target if words["force"] else min(old, target), 0))
    return done


async def _to_offset(admin: AdminClient, words: Words) -> OffsetReset:
    queue, offset = words["queue"], words["offset"]
    old = (await admin.consumer_offsets(words["group"], queue.topic)).get(queue)
    least, most = await admin.min_offset(queue), await admin.max_offset(queue)
    if not least <= offset <= most:
        raise NotFound(f"{queue.broker_name}/{queue.queue_id} of {queue.topic} has offsets {least} to {most}")
    return OffsetReset(queue, old, offset, 0)


async def _cloned(admin: AdminClient, words: Words) -> dict[MessageQueue, int]:
    return await _stands(admin, words["source"], words["topic"])


async def _consumed(admin: AdminClient, words: Words) -> ConsumeMessageDirectlyResult:
    return ConsumeMessageDirectlyResult()


async def _elected(admin: AdminClient, words: Words) -> Elected:
    """Who leads now: it still does."""
    name = words["broker_name"]
    await admin.group_leader(name, words["controller_addr"])
    data = (await admin.cluster_info()).broker_addr_table.get(name)
    brokers = {} if data is None else dict(data.broker_addrs)
    return Elected(brokers.get(words["broker_id"], "the member"), 0, brokers)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _topic(words: Words) -> str:
    order = ", ordered" if words["order"] else ""
    return (
        f"create or change the topic {words['topic']} at {words['broker_addr']}: {words['read_queue_nums']} queues to "
        f"read, {words['write_queue_nums']} to write, perm {words['perm']}{order}"
    )


def _when(words: Words) -> str:
    where = "the end" if words["timestamp"] == TO_END else f"{words['timestamp']} ms"
    ahead = "" if words["force"] else ", back alone"
    return f"move the group {words['group']} on {words['topic']} to {where}{ahead}"


#: By operation of the admin client. A secret is in none of the texts.
CHANGES: dict[str, Change] = {
    "create_and_update_topic": Change(_topic, _nothing),
    "create_and_update_topics": Change(
        lambda words: f"create or change {_list(one.topic_name for one in words['configs'])} at {words['broker_addr']}",
        _nothing,
    ),
    "update_topic_perm": Change(
        lambda words: f"give the topic {words['topic']} at {words['broker_addr']} the perm {words['perm']}", _perm
    ),
    "delete_topic_in_broker": Change(
        lambda words: f"delete the topic {words['topic']} and its messages at {_list(words['broker_addrs'])}",
        _at_brokers,
    ),
    "delete_topic_in_name_servers": Change(
        lambda words: f"delete the topic {words['topic']} at the name servers", _at_name_servers
    ),
    "create_and_update_subscription_group": Change(
        lambda words: f"create or change the group {words['config'].group_name} at {words['broker_addr']}", _nothing
    ),
    "create_and_update_subscription_groups": Change(
        lambda words: f"create or change {_list(one.group_name for one in words['configs'])} at {words['broker_addr']}",
        _nothing,
    ),
    "set_message_request_mode": Change(
        lambda words: f"have {words['group']} {words['mode']} from {words['topic']} at {words['broker_addr']}", _nothing
    ),
    "delete_subscription_group": Change(
        lambda words: (
            f"delete the group {words['group']}{' and its offsets' if words['remove_offset'] else ''} "
            f"at {words['broker_addr']}"
        ),
        _nothing,
    ),
    "reset_offset_by_timestamp": Change(_when, _to_time),
    "reset_offset": Change(
        lambda words: (
            f"move the group {words['group']} in {words['queue'].broker_name}/{words['queue'].queue_id} of "
            f"{words['queue'].topic} to {words['offset']}"
        ),
        _to_offset,
    ),
    "clone_group_offset": Change(
        lambda words: f"give {words['destination']} the offsets of {words['source']} on {words['topic']}", _cloned
    ),
    "update_broker_config": Change(
        lambda words: f"set {_pairs(words['values'])} at {_list(words['broker_addrs'])}", _at_brokers
    ),
    "clean_expired_consume_queue": Change(
        lambda words: f"delete queue files at {words['broker_addr']} of which every message has expired", _nothing
    ),
    "delete_expired_commit_log": Change(
        lambda words: f"delete commit log files at {words['broker_addr']} that have expired", _nothing
    ),
    "clean_unused_topic": Change(
        lambda words: f"delete the queues at {words['broker_addr']} of topics that it does not have any more", _nothing
    ),
    "put_kv_config": Change(
        lambda words: f"set {words['key']} of {words['namespace']} to {words['value']!r} at the name servers",
        _at_name_servers,
    ),
    "delete_kv_config": Change(
        lambda words: f"delete {words['key']} of {words['namespace']} at the name servers", _at_name_servers
    ),
    "wipe_write_perm_of_broker": Change(
        lambda words: f"take the right to write from the broker {words['broker_name']}", _topics_of_broker
    ),
    "add_write_perm_of_broker": Change(
        lambda words: f"give the right to write to the broker {words['broker_name']}", _topics_of_broker
    ),
    "update_name_server_config": Change(
        lambda words: f"set {_pairs(words['values'])} at the name servers", _at_name_servers
    ),
    "consume_message_directly": Change(
        lambda words: f"have {words['client_id']} of {words['group']} consume {words['offset_msg_id']}", _consumed
    ),
    "create_and_update_account": Change(
        lambda words: f"create or change the account {words['account'].access_key} at {_list(words['broker_addrs'])}",
        _at_brokers,
    ),
    "delete_account": Change(
        lambda words: f"delete the account {words['access_key']} at {_list(words['broker_addrs'])}", _at_brokers
    ),
    "elect_master": Change(
        lambda words: f"have the member with the broker id {words['broker_id']} lead {words['broker_name']}", _elected
    ),
    "update_global_white_addrs": Change(
        lambda words: f"set the white list to {words['addresses']} at {_list(words['broker_addrs'])}", _at_brokers
    ),
}

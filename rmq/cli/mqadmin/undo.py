"""What to run to take a change back: commands made of what was there before it.

They are looked up before the change, where somebody asked for them. Messages that are deleted, and secrets of accounts,
no command brings back: the note says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from rmq.cli.mqadmin.recorder import Call
from rmq.client.admin import AdminClient
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import is_dlq_topic, is_retry_topic

__all__ = ["undo_of"]

Words = Mapping[str, Any]
#: Permissions that commands take.
_PERMS = (2, 4, 6)


async def undo_of(admin: AdminClient, call: Call) -> list[str]:
    """Commands that take an operation back, and lines that begin with ``#`` of what none does."""
    found = _UNDO.get(call.name)
    if found is None:
        return []
    try:
        return await found(admin, call.words)
    except RMQError as error:
        return [f"# what was there before could not be looked at: {error}"]


def _command(name: str, *words: object) -> str:
    return shlex.join(["mqadmin", name, *map(str, words)])


def _yes(flag: bool) -> str:
    return "true" if flag else "false"


# -- topics -----------------------------------------------------------------------------------------------------------


def _as_it_was(address: str, config: TopicConfig) -> list[str]:
    if config.perm not in _PERMS:
        return [f"# the topic {config.topic_name} had perm {config.perm} at {address}: no command gives that"]
    words = ["-b", address, "-t", config.topic_name, "-r", config.read_queue_nums, "-w", config.write_queue_nums,
             "-p", config.perm]  # fmt: skip
    flags = (("-o", config.order), ("-u", config.topic_sys_flag & 1), ("-s", config.topic_sys_flag & 2))
    return [_command("updateTopic", *words, *(word for letter, on in flags if on for word in (letter, "true")))]


async def _topic_before(admin: AdminClient, address: str, topic: str) -> list[str]:
    config = await admin.topic_config(address, topic)
    if config is not None:
        return _as_it_was(address, config)
    info = await admin.cluster_info()
    name = next(
        (one.broker_name for one in info.broker_addr_table.values() if address in one.broker_addrs.values()), ""
    )
    cluster = next((cluster for cluster, names in info.cluster_addr_table.items() if name in names), None)
    try:
        elsewhere = (await admin.topic_route(topic)).broker_datas
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        elsewhere = []
    if cluster is None or elsewhere:
        return [f"# the topic {topic} was new at {address}: deleteTopic takes it from its whole cluster, and no less"]
    return [_command("deleteTopic", "-t", topic, "-c", cluster)]


async def _topic(admin: AdminClient, words: Words) -> list[str]:
    return await _topic_before(admin, words["broker_addr"], words["topic"])


async def _topics(admin: AdminClient, words: Words) -> list[str]:
    lines = [await _topic_before(admin, words["broker_addr"], one.topic_name) for one in words["configs"]]
    return [line for some in lines for line in some]


async def _perm(admin: AdminClient, words: Words) -> list[str]:
    address, topic = words["broker_addr"], words["topic"]
    config = await admin.topic_config(address, topic)
    if config is None or config.perm == words["perm"]:
        return []
    if config.perm not in _PERMS:
        return _as_it_was(address, config)
    return [_command("updateTopicPerm", "-b", address, "-t", topic, "-p", config.perm)]


async def _deleted_topic(admin: AdminClient, words: Words) -> list[str]:
    topic = words["topic"]
    if is_retry_topic(topic) or is_dlq_topic(topic):
        return [f"# messages of {topic} do not come back; the topic does with the next member of its group"]
    lines = []
    for address in words["broker_addrs"]:
        config = await admin.topic_config(address, topic)
        lines += [] if config is None else _as_it_was(address, config)
    return [*lines, f"# messages of {topic} do not come back"] if lines else []


# -- groups -----------------------------------------------------------------------------------------------------------


def _group_command(address: str, config: SubscriptionGroupConfig) -> str:
    flags = {"-s": config.consume_enable, "-m": config.consume_from_min_enable, "-d": config.consume_broadcast_enable,
             "-a": config.notify_consumer_ids_changed_enable}  # fmt: skip
    numbers = {"-q": config.retry_queue_nums, "-r": config.retry_max_times, "-i": config.broker_id,
               "-w": config.which_broker_when_consume_slowly}  # fmt: skip
    words = [word for letter, on in flags.items() for word in (letter, _yes(on))]
    return _command(
        "updateSubGroup", "-b", address, "-g", config.group_name, *words, *(w for one in numbers.items() for w in one)
    )


async def _groups_before(admin: AdminClient, address: str, names: Iterable[str]) -> list[str]:
    table = (await admin.subscription_groups(address)).subscription_group_table
    return [
        _command("deleteSubGroup", "-b", address, "-g", name) if name not in table
        else _group_command(address, table[name])
        for name in names
    ]  # fmt: skip


async def _group(admin: AdminClient, words: Words) -> list[str]:
    return await _groups_before(admin, words["broker_addr"], [words["config"].group_name])


async def _groups(admin: AdminClient, words: Words) -> list[str]:
    return await _groups_before(admin, words["broker_addr"], [one.group_name for one in words["configs"]])


async def _deleted_group(admin: AdminClient, words: Words) -> list[str]:
    address, group = words["broker_addr"], words["group"]
    table = (await admin.subscription_groups(address)).subscription_group_table
    lines = [_group_command(address, table[group])] if group in table else []
    if not words["remove_offset"]:
        return lines
    try:
        stats = await admin.consume_stats_in_broker(address)
    except ResponseError:
        return [*lines, f"# {address} does not tell the offsets of {group}"]
    for one in stats.consume_stats_list:
        for found in one.get(group, ()):
            lines += _offsets(group, {queue: at.consumer_offset for queue, at in found.offset_table.items()})
    return lines


async def _mode(admin: AdminClient, words: Words) -> list[str]:
    return [f"# how {words['group']} got messages of {words['topic']} before, brokers do not tell (setConsumeMode)"]


# -- offsets ----------------------------------------------------------------------------------------------------------


def _offsets(group: str, stands: Mapping[Any, int]) -> list[str]:
    return [
        _command("resetOffsetByTime", "-g", group, "-t", queue.topic, "-b", queue.broker_name, "-q", queue.queue_id,
                 "-o", offset)
        for queue, offset in sorted(stands.items()) if offset >= 0
    ]  # fmt: skip


async def _moved(admin: AdminClient, words: Words) -> list[str]:
    return _offsets(words["group"], await admin.consumer_offsets(words["group"], words["topic"]))


async def _moved_in_queue(admin: AdminClient, words: Words) -> list[str]:
    queue = words["queue"]
    stands = await admin.consumer_offsets(words["group"], queue.topic)
    return _offsets(words["group"], {queue: stands[queue]} if queue in stands else {})


async def _cloned(admin: AdminClient, words: Words) -> list[str]:
    group = words["destination"]
    lines = _offsets(group, await admin.consumer_offsets(group, words["topic"]))
    return lines or [f"# the group {group} had no offset on {words['topic']}: deleteSubGroup -r true takes them away"]


# -- settings ---------------------------------------------------------------------------------------------------------


async def _broker_settings(admin: AdminClient, words: Words) -> list[str]:
    before = await admin.broker_settings(words["broker_addrs"])
    return [
        _command("updateBrokerConfig", "-b", address, "-k", key, "-v", settings[key])
        for address, settings in before.found.items()
        for key, value in words["values"].items()
        if settings.get(key) not in (None, value)
    ]


async def _name_server_settings(admin: AdminClient, words: Words) -> list[str]:
    before = await admin.name_server_config()
    found = {(key, settings[key]) for settings in before.found.values() for key in words["values"] if key in settings}
    return [_command("updateNamesrvConfig", "-k", key, "-v", value) for key, value in sorted(found)]


async def _entry(admin: AdminClient, words: Words) -> list[str]:
    namespace, key = words["namespace"], words["key"]
    value = await admin.kv_config(namespace, key)
    if value is None:
        return [_command("deleteKvConfig", "-s", namespace, "-k", key)] if "value" in words else []
    return [_command("updateKvConfig", "-s", namespace, "-k", key, "-v", value)]


async def _is_written(admin: AdminClient, broker: str) -> bool:
    """Whether producers may write to it: told by the topic that every broker has by its own name."""
    route = await admin.topic_route(broker)
    return any(one.perm & 2 for one in route.queue_datas if one.broker_name == broker)


async def _wiped(admin: AdminClient, words: Words) -> list[str]:
    broker = words["broker_name"]
    return [_command("addWritePerm", "-b", broker)] if await _is_written(admin, broker) else []


async def _added(admin: AdminClient, words: Words) -> list[str]:
    broker = words["broker_name"]
    return [] if await _is_written(admin, broker) else [_command("wipeWritePerm", "-b", broker)]


# -- accounts ---------------------------------------------------------------------------------------------------------


async def _account(admin: AdminClient, words: Words) -> list[str]:
    account = words.get("account")
    name = account.access_key if account is not None else words["access_key"]
    lines = []
    for address in words["broker_addrs"]:
        known = (await admin.acl_config(address)).plain_access_configs or ()
        before = next((one for one in known if one.access_key == name), None)
        if before is None:
            lines += [_command("deleteAclConfig", "-b", address, "-a", name)] if account is not None else []
            continue
        texts = {
            "-w": before.white_remote_address, "-i": before.default_topic_perm, "-u": before.default_group_perm,
            "-t": ",".join(before.topic_perms or ()), "-g": ",".join(before.group_perms or ()),
        }  # fmt: skip
        given = [word for letter, text in texts.items() if text for word in (letter, text)]
        if account is None:
            given = ["-s", "SECRET", *given]
        lines.append(_command("updateAclConfig", "-b", address, "-a", name, *given, "-m", _yes(before.admin)))
        if account is None or account.secret_key is not None:
            lines.append(f"# the secret that {name} had at {address} is not told: give it with -s")
    return lines


async def _white_list(admin: AdminClient, words: Words) -> list[str]:
    lines = []
    for address in words["broker_addrs"]:
        before = (await admin.acl_config(address)).global_white_addrs or []
        path = ["-p", words["acl_file_full_path"]] if words["acl_file_full_path"] else []
        lines.append(
            _command("updateGlobalWhiteAddr", "-b", address, "-g", ",".join(before), *path) if before
            else f"# the white list at {address} was empty: no command empties it"
        )  # fmt: skip
    return lines


async def _elected(admin: AdminClient, words: Words) -> list[str]:
    name, member = words["broker_name"], words["controller_addr"]
    leader = await admin.group_leader(name, member)
    return [_command("electMaster", "-bn", name, "-b", leader.id, *(["-a", member] if member else []))]


_UNDO: dict[str, Callable[[AdminClient, Words], Awaitable[list[str]]]] = {
    "create_and_update_topic": _topic,
    "create_and_update_topics": _topics,
    "update_topic_perm": _perm,
    "delete_topic_in_broker": _deleted_topic,
    "create_and_update_subscription_group": _group,
    "create_and_update_subscription_groups": _groups,
    "delete_subscription_group": _deleted_group,
    "set_message_request_mode": _mode,
    "reset_offset_by_timestamp": _moved,
    "reset_offset": _moved_in_queue,
    "clone_group_offset": _cloned,
    "update_broker_config": _broker_settings,
    "update_name_server_config": _name_server_settings,
    "put_kv_config": _entry,
    "delete_kv_config": _entry,
    "wipe_write_perm_of_broker": _wiped,
    "add_write_perm_of_broker": _added,
    "create_and_update_account": _account,
    "delete_account": _account,
    "update_global_white_addrs": _white_list,
    "elect_master": _elected,
}

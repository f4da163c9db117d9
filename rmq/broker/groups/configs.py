"""Subscription groups: what each consumer group may do, and subscriptionGroup.json."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from rmq.broker.reserved import name_fault
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.stored import without_bad_names
from rmq.broker.topics.table import bumped
from rmq.protocol import fastjson, names
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.queue import MAX_QUEUES
from rmq.remoting.limits import Rationed
from rmq.runtime.world import World

__all__ = ["GroupTable"]

log = logging.getLogger(__name__)

_PRETTY = (
    '\t\t%s:{\n\t\t\t"brokerId":%d,\n\t\t\t"consumeBroadcastEnable":%s,\n\t\t\t"consumeEnable":%s,\n'
    '\t\t\t"consumeFromMinEnable":%s,\n\t\t\t"groupName":%s,\n\t\t\t"notifyConsumerIdsChangedEnable":%s,\n'
    '\t\t\t"retryMaxTimes":%d,\n\t\t\t"retryQueueNums":%d,\n\t\t\t"whichBrokerWhenConsumeSlowly":%d\n\t\t}'
)
_COMPACT = (
    '%s:{"brokerId":%d,"consumeBroadcastEnable":%s,"consumeEnable":%s,"consumeFromMinEnable":%s,"groupName":%s,'
    '"notifyConsumerIdsChangedEnable":%s,"retryMaxTimes":%d,"retryQueueNums":%d,"whichBrokerWhenConsumeSlowly":%d}'
)
#: The bit of 5.x's forbiddenTable for reading.
_READING = 1 << 2


class GroupTable:
    """Every subscription group of the broker (Java: SubscriptionGroupManager).

    :param world: clock and files.
    :param settings: the live broker settings.
    :param path: subscriptionGroup.json.
    """

    def __init__(self, world: World, settings: BrokerSettings, path: str) -> None:
        self._world = world
        self._settings = settings
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._notes = Rationed(world.clock, most=100)
        self._pretty: dict[str, str] = {}
        self._compact: dict[str, str] = {}
        self.file = MetadataFile(world, path, self._render)
        self.data_version = DataVersion(counter=0, timestamp=world.clock.now_ms())
        #: What groups must not do with topics, by group and topic, in bits (5.x; Java 4.9 ignores it in the file).
        self.forbidden: dict[str, dict[str, int]] = {}
        #: Called with the group whose config changed.
        self.on_change: list[Callable[[str], None]] = []
        self._add_built_in_groups()

    def _add_built_in_groups(self) -> None:
        for name in names.BUILT_IN_GROUPS:
            self._keep(SubscriptionGroupConfig(group_name=name))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The config, without making one."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The config of a group, made with the defaults when the settings allow it (store-and-broker.md 8.6).

        None when the group is unknown and ``autoCreateSubscriptionGroup`` is off, its name is none, or there are
        ``maxGroups`` already; groups of the system are made with that setting off, too.
        """
        config = self._groups.get(group)
        if config is None and (self._settings.auto_create_subscription_group or names.is_system_group(group)):
            if fault := name_fault(group):
                self._notes.say(log.warning, "no group is made: %s", fault)
                return None
            if len(self._groups) >= self._settings.max_groups:
                self._notes.say(log.warning, "no group %s: there are %d (maxGroups)", group, len(self._groups))
                return None
            config = SubscriptionGroupConfig(group_name=group)
            self._keep(config)
            self._notes.say(log.info, "subscription group %s is created", group)
            self._changed(group)
        return config

    def all(self) -> list[SubscriptionGroupConfig]:
        return list(self._groups.values())

    def check_room(self, new: int = 1) -> None:
        """Whether a tool may make so many more.

        :raises ResponseError: SYSTEM_ERROR: no, ``maxGroups`` are there.
        """
        most = self._settings.max_groups
        if new and len(self._groups) + new > most:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker has {len(self._groups)} groups and may have {most} (maxGroups): delete what nobody uses",
            )

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group."""
        name = config.group_name
        log.info("subscription group %s is %s", name, "updated" if name in self._groups else "created")
        self._keep(config)
        self._changed(name)

    def delete(self, group: str) -> bool:
        """Forget a group; False when there was none."""
        if self.forbidden.pop(group, None) is not None:
            self._changed(group)
        if self._groups.pop(group, None) is None:
            return False
        del self._pretty[group], self._compact[group]
        log.info("subscription group %s is deleted", group)
        self._changed(group)
        return True

    def disable(self, group: str) -> None:
        """Stop a group from consuming (``disableConsumeIfConsumerReadSlowly``)."""
        config = self._groups.get(group)
        if config is not None and config.consume_enable:
            log.warning("subscription group %s is disabled: it reads too slowly", group)
            self._keep(dataclasses.replace(config, consume_enable=False))
            self._changed(group)

    def may_read(self, group: str, topic: str) -> bool:
        """Whether a group may read from a topic, as far as :meth:`let_read` says."""
        return not self.forbidden.get(group, {}).get(topic, 0) & _READING

    def let_read(self, group: str, topic: str, allowed: bool) -> None:
        """Let a group read from a topic, or forbid it; neither needs to exist."""
        if allowed == self.may_read(group, topic):
            return
        log.info(
            "group %s %s topic %s", group, "may read again from" if allowed else "is forbidden to read from", topic
        )
        held = self.forbidden.setdefault(group, {})
        held[topic] = held.get(topic, 0) ^ _READING
        if not held[topic]:
            del held[topic]
        if not held:
            del self.forbidden[group]
        self._changed(group)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: what groups must not do with it goes, too."""
        for group in [group for group, topics in self.forbidden.items() if topic in topics]:
            del self.forbidden[group][topic]
            if not self.forbidden[group]:
                del self.forbidden[group]
            self._changed(group)

    def _keep(self, config: SubscriptionGroupConfig) -> None:
        name = config.group_name
        if config.retry_queue_nums > MAX_QUEUES:  # from a file or a master; who asks for it is refused
            config = dataclasses.replace(config, retry_queue_nums=MAX_QUEUES)
        self._groups[name] = config
        values = _rendered(config)
        self._pretty[name] = _PRETTY % values
        self._compact[name] = _COMPACT % values

    def _changed(self, group: str) -> None:
        self.data_version = bumped(self.data_version, self._world.clock.now_ms())
        self.file.changed()
        for listener in self.on_change:
            listener(group)

    def encode(self) -> bytes:
        """All groups as JSON: the answer to 201."""
        version = self.data_version
        forbidden = ""
        if self.forbidden:
            forbidden = f'"forbiddenTable":{fastjson.dumps(self.forbidden).decode()},'
        return (
            f'{{"dataVersion":{{"counter":{version.counter},"timestamp":{version.timestamp}}},{forbidden}'
            f'"subscriptionGroupTable":{{{",".join(self._compact.values())}}}}}'
        ).encode()

    def _render(self) -> bytes:
        version = self.data_version
        groups = ",\n".join(self._pretty.values())
        return (
            f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"timestamp":{version.timestamp}\n\t}},\n'
            f'{self._pretty_forbidden()}\t"subscriptionGroupTable":{{\n{groups}\n\t}}\n}}'
        ).encode()

    def _pretty_forbidden(self) -> str:
        """forbiddenTable as a 5.3.3 broker writes it, when there is something in it: 4.9 has no such member."""
        if not self.forbidden:
            return ""
        groups = []
        for group, topics in self.forbidden.items():
            members = ",\n".join(f"\t\t\t{fastjson.quote(topic)}:{bits}" for topic, bits in topics.items())
            groups.append(f"\t\t{fastjson.quote(group)}:{{\n{members}\n\t\t}}")
        body = ",\n".join(groups)
        return f'\t"forbiddenTable":{{\n{body}\n\t}},\n'

    def load(self) -> None:
        """Have the built-in groups and what is in subscriptionGroup.json over them.

        :raises StoreError: neither the file nor its backup can be read.
        """
        self.file.load(self._parse)

    def _parse(self, data: bytes) -> None:
        whole = SubscriptionGroupTable.file_object(data)
        for member in ("subscriptionGroupTable", "forbiddenTable"):
            whole = without_bad_names(whole, member, name_fault, self.file.path)
        table = SubscriptionGroupTable.from_object(whole)
        for held in (self._groups, self._pretty, self._compact):
            held.clear()
        self._add_built_in_groups()
        self._take(table)
        if table.data_version is not None:
            self.data_version = table.data_version

    def _take(self, table: SubscriptionGroupTable) -> None:
        for name, config in table.subscription_group_table.items():
            if self._groups.get(name) != config:
                self._keep(config if config.group_name == name else dataclasses.replace(config, group_name=name))
        self.forbidden = {group: dict(topics) for group, topics in (table.forbidden_table or {}).items() if topics}

    def replace_all(self, table: SubscriptionGroupTable, version: DataVersion) -> None:
        """Take over a master's table, which was judged."""
        configs = table.subscription_group_table
        for name in [name for name in self._groups if name not in configs]:
            del self._groups[name], self._pretty[name], self._compact[name]
        self._take(table)
        self.data_version = version
        self.file.changed()


def _rendered(config: SubscriptionGroupConfig) -> tuple[object, ...]:
    name = fastjson.quote(config.group_name)
    return (
        name,
        config.broker_id,
        _word(config.consume_broadcast_enable),
        _word(config.consume_enable),
        _word(config.consume_from_min_enable),
        name,
        _word(config.notify_consumer_ids_changed_enable),
        config.retry_max_times,
        config.retry_queue_nums,
        config.which_broker_when_consume_slowly,
    )


def _word(value: bool) -> str:
    return "true" if value else "false"

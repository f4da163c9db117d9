"""Subscription groups: what each consumer group may do, and subscriptionGroup.json."""

from __future__ import annotations

import dataclasses
import logging

from rmq.broker.reserved import name_fault
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.changes import APPLIED, FORBIDDEN, GROUP, Change, applied_of
from rmq.broker.topics.drafts import Drafts
from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.stored import without_bad_names
from rmq.broker.topics.versions import Versions
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
        self._settings = settings
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._notes = Rationed(world.clock, most=100)
        self._pretty: dict[str, str] = {}
        self._compact: dict[str, str] = {}
        self.file = MetadataFile(world, path, self._render)
        self._versions = Versions(world.clock)
        #: As of the topic table.
        self.drafts = Drafts(GROUP, self._groups, self._versions, world.clock)
        self.applied: int | None = None
        #: What groups must not do with topics, by group and topic, in bits (5.x; Java 4.9 ignores it in the file).
        self.forbidden: dict[str, dict[str, int]] = {}
        self._add_built_in_groups()

    def _add_built_in_groups(self) -> None:
        for name in names.BUILT_IN_GROUPS:
            self._keep(SubscriptionGroupConfig(group_name=name))

    @property
    def data_version(self) -> DataVersion:
        """The version of what others are told of."""
        return self._versions.now

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
            self._make_here(config)
            self._notes.say(log.info, "subscription group %s is created", group)
        return config

    def told_of(self, group: str) -> SubscriptionGroupConfig | None:
        """One group as others are told of it: in a group of brokers, what that has committed."""
        return self.drafts.committed_of(group)

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
        """Create or replace a group.

        :raises ResponseError: a group of brokers that elects its master cannot be told of it: nothing is changed.
        """
        name = config.group_name
        known = name in self._groups
        self._make(config)
        log.info("subscription group %s is %s", name, "updated" if known else "created")

    def delete(self, group: str, version: DataVersion | None = None) -> bool:
        """Forget a group; False when there was none.

        :param version: of the table then, when a group of brokers has committed that.
        """
        if self.forbidden.pop(group, None) is not None:
            self._changed()
        self._pretty.pop(group, None)
        known = self._compact.pop(group, None) is not None
        if version is None:
            known = self._groups.pop(group, None) is not None or known
        else:
            known = self.drafts.deleted(group) or known
        if not known:
            return False
        log.info("subscription group %s is deleted", group)
        self._changed(version)
        return True

    def _make_here(self, config: SubscriptionGroupConfig) -> None:
        """Have a group, or another configuration, because of what it does: it is needed at once, and comes again."""
        try:
            self._make(config)
        except ResponseError as error:
            self._notes.say(log.warning, "group %s is kept by this broker alone: %s", config.group_name, error)
            self._keep(config)
            self._changed()

    def _make(self, config: SubscriptionGroupConfig) -> None:
        """Have a group, new or changed: now, or once a group of brokers has committed that, and it is shown until then.

        :raises ResponseError: that cannot be told of it.
        """
        config = self._served(config)
        if self.drafts.wanted:
            self.drafts.put(config.group_name, config)
        else:
            self._keep(config)
            self._changed()

    def committed(self, config: SubscriptionGroupConfig, version: DataVersion) -> None:
        """A group of brokers has committed a group, new or changed.

        :param version: of the table with it.
        """
        config = self._served(config)
        self.drafts.committed(config.group_name, config)
        self._form(config)
        self._changed(version)

    async def saved(self) -> None:
        """Wait until nothing takes back what was changed so far: it is on the disk, or a group has committed it.

        :raises ResponseError: the group has not.
        """
        journal = self.drafts.journal
        await (self.file.saved() if journal is None else journal.settled())

    def disable(self, group: str) -> None:
        """Stop a group from consuming (``disableConsumeIfConsumerReadSlowly``)."""
        config = self._groups.get(group)
        if config is not None and config.consume_enable:
            log.warning("subscription group %s is disabled: it reads too slowly", group)
            self._make_here(dataclasses.replace(config, consume_enable=False))

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
        bits = self.forbidden.get(group, {}).get(topic, 0) ^ _READING
        if self.drafts.wanted:
            self.drafts.write(Change(FORBIDDEN, group, b"%d" % bits if bits else None, beside=topic))
        else:
            self.forbid(group, topic, bits)

    def forbid(self, group: str, topic: str, bits: int, version: DataVersion | None = None) -> None:
        """Have a group not do with a topic what these bits say.

        :param version: of the table then, when a group of brokers has committed that.
        """
        held = self.forbidden.setdefault(group, {})
        held[topic] = bits
        if not bits:
            del held[topic]
        if not held:
            del self.forbidden[group]
        self._changed(version)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: what groups must not do with it goes, too."""
        for group in [group for group, topics in self.forbidden.items() if topic in topics]:
            del self.forbidden[group][topic]
            if not self.forbidden[group]:
                del self.forbidden[group]
            self._changed()

    @staticmethod
    def _served(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        if config.retry_queue_nums > MAX_QUEUES:  # from a file or a master; who asks for it is refused
            return dataclasses.replace(config, retry_queue_nums=MAX_QUEUES)
        return config

    def _keep(self, config: SubscriptionGroupConfig) -> None:
        config = self._served(config)
        self._groups[config.group_name] = config
        self._form(config)

    def _form(self, config: SubscriptionGroupConfig) -> None:
        values = _rendered(config)
        self._pretty[config.group_name] = _PRETTY % values
        self._compact[config.group_name] = _COMPACT % values

    def _changed(self, version: DataVersion | None = None) -> None:
        self._versions.advance(to=version)
        self.file.changed()

    def encode(self) -> bytes:
        """All groups as JSON: the answer to 201."""
        version = self.data_version
        forbidden = "" if self.applied is None else f'"{APPLIED}":{self.applied},'
        if self.forbidden:
            forbidden += f'"forbiddenTable":{fastjson.dumps(self.forbidden).decode()},'
        return (
            f'{{"dataVersion":{{"counter":{version.counter},"timestamp":{version.timestamp}}},{forbidden}'
            f'"subscriptionGroupTable":{{{",".join(self._compact.values())}}}}}'
        ).encode()

    def _render(self) -> bytes:
        version = self.data_version
        groups = ",\n".join(self._pretty.values())
        position = "" if self.applied is None else f'\t"{APPLIED}":{self.applied},\n'
        return (
            f'{{\n{position}\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"timestamp":{version.timestamp}\n\t}},\n'
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
        self._versions.restart(table.data_version)
        if self._settings.enable_dleger_commit_log:
            self.applied = applied_of(whole)

    def _take(self, table: SubscriptionGroupTable) -> None:
        for name, config in table.subscription_group_table.items():
            if self._groups.get(name) != config:
                self._keep(config if config.group_name == name else dataclasses.replace(config, group_name=name))
        self.forbidden = {group: dict(topics) for group, topics in (table.forbidden_table or {}).items() if topics}

    def replace_all(self, table: SubscriptionGroupTable, version: DataVersion) -> None:
        """Take over a master's table, which was judged."""
        configs = table.subscription_group_table
        for name in [name for name in self._groups if name not in configs]:
            del self._groups[name]
            for forms in (self._pretty, self._compact):
                forms.pop(name, None)
        self._take(table)
        self._versions.restart(version)
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

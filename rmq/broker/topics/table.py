"""Topics of this broker: their queues and permissions, how they come to be, and topics.json."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.changes import TOPIC, applied_of
from rmq.broker.topics.drafts import Drafts
from rmq.broker.topics.forms import TopicForms
from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.names import topic_name_fault
from rmq.broker.topics.stored import stored_topic_fault, without_bad_names
from rmq.broker.topics.system import SystemTopics
from rmq.broker.topics.versions import Versions
from rmq.protocol import names
from rmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigTable
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.queue import MAX_QUEUES
from rmq.protocol.sysflags import PERM_INHERIT, TOPIC_UNIT, TOPIC_UNIT_SUB
from rmq.remoting.limits import Rationed
from rmq.runtime.world import World

__all__ = ["TopicTable"]

log = logging.getLogger(__name__)

#: Versions of the topics whose changes are remembered, for name servers that know one of them.
_VERSIONS_KEPT = 1_000


class TopicTable:
    """Every topic of the broker (Java: TopicConfigManager).

    Configs are never changed in place: a changed topic is another object, so whoever holds one may compare by identity.

    :param world: clock and files.
    :param settings: the live broker settings.
    :param path: topics.json.
    """

    def __init__(self, world: World, settings: BrokerSettings, path: str) -> None:
        self._settings = settings
        #: Names that are the broker's own.
        self.system = SystemTopics(settings)
        self._topics: dict[str, TopicConfig] = {}
        self._notes = Rationed(world.clock, most=100)
        # What others are told of: in a group that elects its master, what that has committed.
        self._forms = TopicForms()
        self._versions = Versions(world.clock, _VERSIONS_KEPT)
        #: What the leader of such a group shows besides.
        self.drafts = Drafts(TOPIC, self._topics, self._versions, world.clock, self._tell_made)
        #: Up to where this table has the changes of a group's log.
        self.applied: int | None = None
        self.file = MetadataFile(world, path, self._render)
        self.file.on_settled = self._settled
        #: New topics that are not in the file yet, and which change of it they came with: a message to one of them is
        #: acknowledged once it is (a topic that a kill takes away takes its messages along).
        self.unsaved: dict[str, int] = {}
        #: Called when the file was written: who waits for a topic to be in it may look again.
        self.on_saved: list[Callable[[], None]] = []
        #: Called with a topic that is made, not changed, before :attr:`on_change`.
        self.on_made: list[Callable[[str], None]] = []
        #: Called with the topic that changed, or None when any may have.
        self.on_change: list[Callable[[str | None], None]] = []
        self._add_system_topics()

    def _add_system_topics(self) -> None:
        for config in self.system.configs():
            self._keep(config)

    @property
    def data_version(self) -> DataVersion:
        """The version of what others are told of."""
        return self._versions.now

    def auto_creation_changed(self) -> None:
        """``autoCreateTopicEnable`` was changed while running: have TBW102, or have nobody use it.

        Name servers forget no topic of a running broker: one that may neither be read nor written is told to nobody.
        """
        known = self._topics.get(names.AUTO_CREATE_TOPIC)
        if self._settings.auto_create_topic_enable:
            template = self.system.template()
            wanted = template if known is None else dataclasses.replace(known, perm=template.perm)
        elif known is not None:
            wanted = dataclasses.replace(known, perm=0)
        else:
            return
        if wanted != known:  # each member has its own settings
            self._keep(wanted)
            self._changed(wanted.topic_name, new=known is None)

    # -- reading

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def is_left(self, topic: str) -> bool:
        """Whether queues of this name are of no topic: none is there, and none that a group may still keep."""
        return not (topic in self or topic in self.drafts or topic in self.system or names.is_lmq(topic))

    def __len__(self) -> int:
        return len(self._topics)

    def all(self) -> list[TopicConfig]:
        return list(self._topics.values())

    def names(self) -> list[str]:
        return list(self._topics)

    def is_order(self, topic: str) -> bool:
        """Whether the name server lists the topic as globally ordered."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def changed_since(self, version: DataVersion) -> list[str] | None:
        """Topics that were made, changed or deleted after a version; None when that is not known."""
        return self._versions.changed_since(version)

    # -- changing

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic.

        :raises ResponseError: a group that elects its master cannot be told of it: nothing is changed.
        """
        old = self._topics.get(config.topic_name)
        if old is not None and old.order != config.order:
            config = dataclasses.replace(config, order=old.order)
        self._make(config)
        log.info("topic %s is %s", config.topic_name, "created" if old is None else "updated")

    def delete(self, topic: str, version: DataVersion | None = None) -> bool:
        """Forget a topic; False when there was none.

        :param version: of the table then, when a group has committed that.
        """
        known = self._forms.remove(topic)
        if version is None:
            known = self._topics.pop(topic, None) is not None or known
        else:
            known = self.drafts.deleted(topic) or known
        if not known:
            return False
        self.unsaved.pop(topic, None)
        log.info("topic %s is deleted", topic)
        self._changed(topic, version=version)
        return True

    def check_room(self, new: int = 1) -> None:
        """Whether so many more may be made because somebody asks for them.

        :raises ResponseError: SYSTEM_ERROR: no, ``maxTopics`` are there.
        """
        most = self._settings.max_topics
        if new and len(self._topics) + new > most:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker has {len(self._topics)} topics and may have {most} (maxTopics): delete what nobody uses",
            )

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int, remote: str
    ) -> TopicConfig | None:
        """Make a topic because somebody sends to it (store-and-broker.md 7.5).

        :param default_topic: the template the sender names, normally TBW102.
        :param queue_nums: how many queues the sender wishes; the template's write queues are the limit.
        :param sys_flag: unit flags of the new topic.
        :param remote: who asks, for the log.
        :returns: the topic, the one that exists already, or None when the template does not allow it.
        :raises ResponseError: there are too many already; or as of :meth:`put`.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        template = self._topics.get(default_topic)
        if template is None:
            log.warning("no topic %s for %s: the template %s does not exist", topic, remote, default_topic)
            return None
        if not template.perm & PERM_INHERIT:
            log.warning("no topic %s for %s: the template %s is not inheritable", topic, remote, default_topic)
            return None
        self.check_room()
        queues = max(0, min(queue_nums, template.write_queue_nums))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self._make(config)
        log.info("topic %s is created with %d queues for %s, from %s", topic, queues, remote, default_topic)
        return config

    def create_for_send_back(self, topic: str, queues: int, perm: int, sys_flag: int) -> TopicConfig | None:
        """Make a retry, dead-letter or internal topic when it is missing, and return it.

        None when the name cannot be a topic (a group with a name too long or with odd characters), or a group that
        elects its master cannot be told of it.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        if topic_name_fault(topic) is not None:
            self._notes.say(log.warning, "%s cannot be a topic's name: it is not created", topic)
            return None
        config = TopicConfig(topic, queues, queues, perm, topic_sys_flag=sys_flag)
        try:
            self._make(config)
        except ResponseError as error:
            self._notes.say(log.warning, "topic %s is not created: %s", topic, error)
            return None
        self._notes.say(log.info, "topic %s is created with %d queues", topic, queues)
        return config

    def set_unit(self, topic: str, unit: bool) -> None:
        """Set or clear the unit flag of a topic."""
        self._set_flag(topic, TOPIC_UNIT, unit)

    def set_unit_sub(self, topic: str, has_unit_sub: bool) -> None:
        """Set or clear the flag that units subscribe to a topic."""
        self._set_flag(topic, TOPIC_UNIT_SUB, has_unit_sub)

    def _set_flag(self, topic: str, bit: int, on: bool) -> None:
        config = self._topics.get(topic)
        if config is None:
            return
        flag = config.topic_sys_flag | bit if on else config.topic_sys_flag & ~bit
        if flag != config.topic_sys_flag:
            try:
                self._make(dataclasses.replace(config, topic_sys_flag=flag))
            except ResponseError as error:
                self._notes.say(log.warning, "the unit flags of topic %s stay as they are: %s", topic, error)

    def set_order_topics(self, topics: Iterable[str]) -> None:
        """Mark the topics the name server calls ordered, and no others.

        The data version moves, but nobody is told at once: the next registration carries it (as in Java).
        """
        wanted = frozenset(topics)
        changed = []
        for config in self.all():
            order = config.topic_name in wanted
            if order != config.order and config.topic_name not in self.drafts:
                self._keep(dataclasses.replace(config, order=order))
                changed.append(config.topic_name)
                log.info("topic %s is %s ordered topic", config.topic_name, "an" if order else "no longer an")
        if changed:
            self._versions.advance(*changed)
            self.file.changed()

    def touch(self) -> None:
        """Every topic is to be registered anew (the broker's own permission changed)."""
        self._versions.advance()
        self._versions.restart()
        self._tell(None)

    def _make(self, config: TopicConfig) -> None:
        """Have a topic, new or changed: now, or once a group has committed that, and it is shown until then.

        :raises ResponseError: the group cannot be told of it.
        """
        config, name = self._served(config), config.topic_name
        new = name not in self._topics
        if not self.drafts.wanted:
            self._keep(config)
            self._changed(name, new=new)
        elif new and name in self.drafts:
            raise ResponseError(ResponseCode.SYSTEM_BUSY, f"topic {name} is being deleted: try it again")
        else:
            self.drafts.put(name, config)

    def committed(self, config: TopicConfig, version: DataVersion) -> None:
        """A group has committed a topic, new or changed.

        :param version: of the table with it.
        """
        config, name = self._served(config), config.topic_name
        self.drafts.committed(name, config)
        self._forms.keep(config)
        self._changed(name, version=version)

    async def saved(self) -> None:
        """Wait until nothing takes back what was changed so far: it is on the disk, or a group has committed it.

        :raises ResponseError: the group has not.
        """
        journal = self.drafts.journal
        await (self.file.saved() if journal is None else journal.settled())

    def _served(self, config: TopicConfig) -> TopicConfig:
        """As much of a topic as is served."""
        name = config.topic_name
        if max(config.read_queue_nums, config.write_queue_nums) > MAX_QUEUES:
            # From topics.json, or a master; who asks for it is refused.
            self._notes.say(
                log.error, "topic %s has %d read queues and %d write queues: only the first %d are served",
                name, config.read_queue_nums, config.write_queue_nums, MAX_QUEUES,
            )  # fmt: skip
            config = dataclasses.replace(
                config,
                read_queue_nums=min(config.read_queue_nums, MAX_QUEUES),
                write_queue_nums=min(config.write_queue_nums, MAX_QUEUES),
            )
        return config

    def _keep(self, config: TopicConfig) -> None:
        config = self._served(config)
        self._topics[config.topic_name] = config
        self._forms.keep(config)

    def _changed(self, topic: str, *, new: bool = False, version: DataVersion | None = None) -> None:
        self._versions.advance(topic, to=version)
        self.file.changed()
        if new and self.file.writing:
            self.unsaved[topic] = self.file.asked
        if new:
            self._tell_made(topic)
        self._tell(topic)

    def _settled(self) -> None:
        for topic in [topic for topic, asked in self.unsaved.items() if asked <= self.file.settled]:
            del self.unsaved[topic]
        for listener in self.on_saved:
            try:
                listener()
            except Exception:
                log.exception("%s did not take that topics are in their file", listener)

    def _tell(self, topic: str | None) -> None:
        for listener in self.on_change:
            listener(topic)

    def _tell_made(self, topic: str) -> None:
        for listener in self.on_made:
            listener(topic)

    # -- forms

    def encode(self, topics: Iterable[str] | None = None) -> bytes:
        """All topics as JSON: the answer to 21, and the heart of a registration.

        :param topics: those alone, without the ones that do not exist.
        """
        return self._forms.compact(self.data_version, topics)

    def answer(self) -> bytes:
        """All topics as JSON, with :attr:`applied`: who takes it over knows which changes are in it."""
        return self._forms.compact(self.data_version, applied=self.applied)

    def told_of(self, topic: str) -> TopicConfig | None:
        """One topic as others are told of it."""
        return self.drafts.committed_of(topic)

    def told(self) -> list[TopicConfig]:
        """The topics that others are told of: what is not committed is not among them."""
        if not self.drafts:
            return self.all()
        found = map(self.told_of, self._forms.names())
        return [config for config in found if config is not None]

    def _render(self) -> bytes:
        return self._forms.pretty(self.data_version, self.applied)

    def load(self) -> None:
        """Have the system topics and what is in topics.json over them; whether there is TBW102 is the setting's to say.

        :raises StoreError: neither the file nor its backup can be read.
        """
        self.file.load(self._parse)

    def _parse(self, data: bytes) -> None:
        whole = TopicConfigTable.file_object(data)
        table = TopicConfigTable.from_object(
            without_bad_names(whole, "topicConfigTable", stored_topic_fault, self.file.path)
        )
        self._topics.clear()
        self._forms.clear()
        self._add_system_topics()
        for name, config in table.topic_config_table.items():
            self._keep(config if config.topic_name == name else dataclasses.replace(config, topic_name=name))
        self._versions.restart(table.data_version)
        if self._settings.enable_dleger_commit_log:
            self.applied = applied_of(whole)
        known = self._topics.get(names.AUTO_CREATE_TOPIC)
        if known is not None and self._settings.auto_create_topic_enable:
            self._keep(dataclasses.replace(known, perm=self.system.template().perm))
        elif known is not None:
            del self._topics[known.topic_name]
            self._forms.remove(known.topic_name)

    def replace_all(self, configs: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Take over a master's table."""
        for name in [name for name in self._topics if name not in configs]:
            del self._topics[name]
            self._forms.remove(name)
        for name, config in configs.items():
            if self._topics.get(name) != config:
                self._keep(config)
        self._versions.restart(version)
        self.file.changed()
        self._tell(None)

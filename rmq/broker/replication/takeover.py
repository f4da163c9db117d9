"""Takes a master's tables over, each as a whole, and without what this broker would not have of its own.

A look at a large table takes turns of the loop. What a group's log brings meanwhile is newer than the answer, which is
then left: the next one has it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from rmq.broker.groups.offsets import read_offsets
from rmq.broker.replication import judged
from rmq.broker.topics.changes import applied_of
from rmq.protocol.bodies.group import SubscriptionGroupTable
from rmq.protocol.errors import BodyError
from rmq.remoting.limits import Rationed

if TYPE_CHECKING:
    from rmq.broker.forgetting import Forgetting
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.pop.modes import RequestModes
    from rmq.broker.schedule.levels import DelayOffsets
    from rmq.broker.topics.metadata import MetadataFile

__all__ = ["BesideTables", "TakeOver"]

log = logging.getLogger(__name__)

C = TypeVar("C")

#: Topics deleted before the loop gets its turn.
_AT_ONCE = 50
#: The table of an answer to 43.
_OFFSETS = re.compile(rb'"offsetTable"\s*:\s*\{')


class BesideTables(NamedTuple):
    """What a broker knows beside its tables, and how it forgets topics and groups in all of them."""

    modes: RequestModes
    #: How far each delay level is delivered.
    delays: DelayOffsets
    forgetting: Forgetting


class Applies(Protocol):
    """A table whose changes go through the log of a group."""

    applied: int | None


class TakeOver:
    """One slave's. Each method takes an answer of the master's over.

    They are told whether the answer before was of the same life of the master, and where the log here ended when the
    master was asked: what is newer, it may not know.

    :param delays_file: keeps how far delayed messages are delivered.
    """

    def __init__(self, ground: Ground, tables: Tables, beside: BesideTables, delays_file: MetadataFile) -> None:
        self._in_group = ground.settings.enable_dleger_commit_log
        self._dispatcher = ground.store.dispatcher
        self._queues = ground.store.queues
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._modes, self._delays, self._forgetting = beside
        self._delays_file = delays_file
        self._complaints = Rationed(ground.world.clock)
        #: Topics, and offsets, of the last answers.
        self._last_topics: frozenset[str] = frozenset()
        self._last_offsets: Mapping[str, Mapping[int, int]] = {}

    async def topics(self, body: bytes, same: bool, end: int) -> None:
        """Have the master's topics and no others.

        Of a topic that the master had and has no longer, messages and offsets go, too. One that it never had in this
        life of its own is only hidden: a master that was started with an empty folder empties no slave.
        """
        answer = judged.read_answer(body, "topicConfigTable")
        version = answer.version()
        configs, refused = await judged.topics(answer.table)
        self._keep_refused("topic", refused, configs, self._topics.get)
        gone = [name for name in self._topics.names() if same and name in self._last_topics and name not in configs]
        for count, name in enumerate(gone, 1):
            if not self._is_news(answer, self._topics):
                return
            if name not in self._topics.system and self._is_old(name, end):
                self._forgetting.forget_topic(name, end)
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
        if self._is_news(answer, self._topics):
            self._topics.replace_all(configs, version)
            self._note_applied(answer, self._topics)
            self._last_topics = frozenset(configs)

    async def groups(self, body: bytes, same: bool, end: int) -> None:
        """Have the master's subscription groups and no others, and what those must not do."""
        answer = judged.read_answer(body, "subscriptionGroupTable")
        version = answer.version()
        configs, refused = await judged.groups(answer.table)
        self._keep_refused("subscription group", refused, configs, self._groups.get)
        held = self._groups.forbidden
        try:
            forbidden, refused = await judged.forbidden(answer.whole.get("forbiddenTable"))
        except BodyError as error:
            forbidden, refused = dict(held), {}
            self._complaints.say(log.error, "this slave keeps what it forbids to groups: the master's %s", error)
        self._keep_refused("list of what is forbidden to group", refused, forbidden, held.get)
        if self._is_news(answer, self._groups):
            self._groups.replace_all(
                SubscriptionGroupTable(subscription_group_table=configs, forbidden_table=forbidden), version
            )
            self._note_applied(answer, self._groups)

    async def modes(self, body: bytes, same: bool, end: int) -> None:
        """Have the master's modes of consumption and no others."""
        answer = judged.read_answer(body, "messageRequestModeMap")
        modes, refused = await judged.modes(answer.table)
        self._tell("mode of consumption", refused)
        for topic, groups in self._modes.all().items():
            for group, mode in groups.items():
                if topic in refused or f"{topic}@{group}" in refused:
                    modes.setdefault(topic, {})[group] = mode
        if self._is_news(answer, self._modes):
            self._modes.replace_all(modes)
            self._note_applied(answer, self._modes)

    async def offsets(self, body: bytes, same: bool, end: int, *, whole: bool = False) -> None:
        """Have groups go on where they do at the master.

        They may have gone on here while a master was away, so what is further on stays. In a group nobody goes on but
        at the leader: once it serves, what it says is how it is, also where a group was reset while this one was away.

        :param whole: what it says is how it is.
        """
        if _OFFSETS.search(body) is None:  # reads as no offsets: what the slave has is not to be taken for deleted
            raise BodyError("there is no offsetTable in it")
        refused: dict[str, str] = {}
        told: dict[str, Mapping[int, int]] = dict(await read_offsets(body, refused.__setitem__))
        # Not in it is what was deleted.
        self._keep_refused("pair of topic and group with offsets", refused, told, self._last_offsets.get)
        await self._offsets.follow(told, self._last_offsets if same else {}, whole=whole)
        self._last_offsets = told

    async def delays(self, body: bytes, same: bool, end: int) -> None:
        """Know how far delayed messages are delivered."""
        self._delays.parse(body)
        self._delays_file.changed()

    def _is_news(self, answer: judged.Answer, table: Applies) -> bool:
        """Whether an answer has all changes of the log that the table here has.

        Where it has more, they are applied again when they come, in their order. Those that the log does not begin with
        any more, or never had here, do not come.
        """
        told = applied_of(answer.whole)
        return not self._in_group or told is None or table.applied is None or told >= table.applied

    def _note_applied(self, answer: judged.Answer, table: Applies) -> None:
        """An answer that is news has been taken over."""
        told = applied_of(answer.whole)
        if (
            self._in_group
            and told is not None
            and table.applied is not None
            and told <= min(self._dispatcher.position, self._dispatcher.limit)
        ):
            table.applied = told

    def _is_old(self, topic: str, end: int) -> bool:
        """Whether nothing has come into a topic since the master was asked: else it is there again already.

        What has come may have an offset that the old topic had, and wait until it is known that its queue begins anew.
        """
        waits = self._dispatcher.misfits.wait_behind
        return not any(queue.max_phys > end or waits(queue, end) for queue in self._queues.all(topic))

    def _keep_refused(
        self, what: str, refused: Mapping[str, str], taken: dict[str, C], here: Callable[[str], C | None]
    ) -> None:
        """Tell of entries that are not taken; what is here under their names stays."""
        self._tell(what, refused)
        for name in refused:
            if (held := here(name)) is not None:
                taken[name] = held

    def _tell(self, what: str, refused: Mapping[str, str]) -> None:
        for name, why in refused.items():
            self._complaints.say(
                log.error, "the master has a %s %.40r that this slave does not take: %.200s", what, name, why
            )

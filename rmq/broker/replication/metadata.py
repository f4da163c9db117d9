"""What a slave asks its master for besides the log: tables, and how far groups and deliveries are.

Tables (topics, groups, modes of consumption) are taken over as they are whenever they differ. Progress (offsets of
groups, of timers, of delayed messages) is taken over once the queues here have everything that the master had when it
told it: whoever goes on from it, here or as the next master, finds the messages that it speaks of, and those that were
written because of it (delivered late, given back, popped).

Each table is asked for, judged and kept by itself: one that cannot be had keeps what it holds, and none waits for it.
Tables are asked for at once when messages come of a topic, or a queue, that they do not have.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmq.broker.groups.offsets import read_offsets
from rmq.broker.replication import judged
from rmq.broker.store.trouble import Trouble
from rmq.broker.topics.changes import applied_of
from rmq.protocol.bodies.group import SubscriptionGroupTable
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import BodyError, ConnectFailed, ConnectionLost, ResponseError
from rmq.protocol.names import is_lmq, is_system_topic
from rmq.protocol.numbers import whole
from rmq.remoting.limits import Rationed

if TYPE_CHECKING:
    from rmq.broker.forgetting import Forgetting
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.pop.modes import RequestModes
    from rmq.broker.schedule.levels import DelayOffsets
    from rmq.broker.store.state import Queue
    from rmq.broker.topics.metadata import MetadataFile
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.conn import Conn
    from rmq.runtime.tasks import TaskOwner

__all__ = ["MetadataSync"]

log = logging.getLogger(__name__)

#: Seconds: before the first round, between two, and for one answer.
_FIRST, _PERIOD, _TIMEOUT = 3.0, 10.0, 5.0
#: The same in a group that elects its master.
_GROUP_FIRST, _GROUP_PERIOD = 0.5, 1.0
#: Seconds between two rounds, at least, for topics that nobody has told of; and how many of them the master is
#: remembered not to have either.
_MOMENT = 1.0
_MOST_IN_VAIN = 1000
#: Seconds between two looks whether the log has arrived.
_LOOK = 0.1
#: Topics deleted before the loop gets its turn.
_AT_ONCE = 50
#: The table of an answer to 43.
_OFFSETS = re.compile(rb'"offsetTable"\s*:\s*\{')
#: Characters of a text of the master's that the log shows.
_SHOWN = 40


class _Table:
    """One of the master's tables, and what became of it.

    :param absent: answers that say that the master has no such table.
    """

    def __init__(
        self,
        name: str,
        code: RequestCode,
        take: Callable[[bytes, bool], Awaitable[None]],
        trouble: Trouble,
        absent: frozenset[int] = frozenset(),
    ) -> None:
        self.name = name
        self.code = code
        #: Takes an answer over; told whether the one before it was of the same life of the master.
        self.take = take
        self.trouble = trouble
        self.absent = absent
        #: The answer taken over last, and the connection it came over: while that holds, the master has not restarted.
        self.body = b""
        self.conn: Conn | None = None
        #: When it was taken over last, monotonic seconds; and where the log here ended when it was asked for.
        self.taken_at: float | None = None
        self.as_of: int | None = None


class _Applies(Protocol):
    """A table whose changes go through the log of a group."""

    applied: int | None


class BesideTables(NamedTuple):
    """What a broker knows beside its tables, and how it forgets topics and groups in all of them."""

    modes: RequestModes
    #: How far each delay level is delivered.
    delays: DelayOffsets
    forgetting: Forgetting


class MetadataSync:
    """Has a slave's tables follow its master's (Java: SlaveSynchronize; store-and-broker.md 6.6).

    :param client: calls the master.
    :param master: its address; None while nobody knows it.
    :param seek: called when it is not known.
    :param fits: whether its log is known to be the one here. A master that has lost its disk has empty tables, too:
        what is here is the last that there is.
    :param delays_file: keeps how far delayed messages are delivered.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        beside: BesideTables,
        delays_file: MetadataFile,
        client: RemotingClient,
        master: Callable[[], str | None],
        seek: Callable[[], None],
        fits: Callable[[], bool],
    ) -> None:
        self._clock = clock = ground.world.clock
        self._settings = ground.settings
        self._log = ground.store.log
        self._durability = ground.store.durability
        self._dispatcher = ground.store.dispatcher
        #: In a group, whoever comes next may lead: it knows as much as can be, and of nothing that may be cut away.
        self._in_group = ground.settings.enable_dleger_commit_log
        self._queues = ground.store.queues
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._modes, self._delays, self._forgetting = beside
        self._delays_file = delays_file
        self._client = client
        self._master = master
        self._seek = seek
        self._fits = fits
        self._told = False
        #: Called when topics were taken over, with the end of the log here when they were asked for.
        self.on_topics: Callable[[int], None] = lambda end: None
        self._complaints = Rationed(clock)
        self._known = True
        #: Where the master's log ended when it was asked last; None before the first time.
        self._master_end: int | None = None
        #: Where the log ended when the round began: what is newer, its answers may not know.
        self._end = 0
        #: Topics, and offsets, of the last answers.
        self._last_topics: frozenset[str] = frozenset()
        self._last_offsets: Mapping[str, Mapping[int, int]] = {}
        #: Topics whose messages have come, and no word of them, with the queues that they need: to be asked for at
        #: once, and asked for in vain.
        self._lacking: dict[str, int] = {}
        self._in_vain: dict[str, int] = {}
        self._wanted = asyncio.Event()
        self._one_round = asyncio.Lock()

        def table(name: str, code: RequestCode, take: Callable[[bytes, bool], Awaitable[None]], *absent: int) -> _Table:
            what = f"taking the {name} over from the master"
            trouble = Trouble(clock, log, what, "this slave keeps those it has")
            return _Table(name, code, take, trouble, frozenset(absent))

        unknown, error = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), int(ResponseCode.SYSTEM_ERROR)
        self._plain = (
            table("topics", RequestCode.GET_ALL_TOPIC_CONFIG, self._take_topics),
            table("subscription groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._take_groups),
            # Java 4.9 has no POP.
            table("modes of consumption", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._take_modes, unknown),
        )
        self._progress = (
            table("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, self._take_offsets),
            # Java answers 1 before it has delivered anything late.
            table("delay offsets", RequestCode.GET_ALL_DELAY_OFFSET, self._take_delays, error),
        )

    def start(self, tasks: TaskOwner) -> None:
        """Ask again and again."""
        first, period = (_GROUP_FIRST, _GROUP_PERIOD) if self._in_group else (_FIRST, _PERIOD)
        tasks.every(period, self._round_of_tables, "tables", first=first)
        tasks.every(period, self._round_of_progress, "progress", first=first)
        if not self._in_group:
            tasks.serve(self._ask_at_once(), "new topics")

    def arrived(self, queues: Iterable[Queue]) -> None:
        """These queues have new messages: topics that nobody has told of are asked for at once."""
        for queue in queues:
            if not self._knows(queue.topic, queue.id) and self._in_vain.get(queue.topic, 0) <= queue.id:
                self._lacking[queue.topic] = max(self._lacking.get(queue.topic, 0), queue.id + 1)
                self._wanted.set()

    def _knows(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        if config is not None:
            return queue_id < config.read_queue_nums
        return is_system_topic(topic) or is_lmq(topic)  # made when it is needed

    async def _ask_at_once(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            lacking, self._lacking = self._lacking, {}
            if not all(self._knows(topic, count - 1) for topic, count in lacking.items()):
                began = self._clock.monotonic()
                await self._round_of_tables()
                if (self._plain[0].taken_at or 0.0) >= began:  # else the master was not asked
                    self._note_in_vain(lacking)
                await asyncio.sleep(_MOMENT)

    def _note_in_vain(self, lacking: Mapping[str, int]) -> None:
        """The master has no such topics either: messages of what was deleted, out of a backlog."""
        for topic, count in lacking.items():
            if not self._knows(topic, count - 1):
                self._in_vain.pop(topic, None)
                self._in_vain[topic] = count
        while len(self._in_vain) > _MOST_IN_VAIN:
            del self._in_vain[next(iter(self._in_vain))]

    def ages(self) -> list[tuple[str, float]]:
        """(name of a table, seconds since it was taken over last), of those that were ever."""
        now = self._clock.monotonic()
        tables = (*self._plain, *self._progress)
        return [(table.name, now - table.taken_at) for table in tables if table.taken_at is not None]

    @property
    def topics_as_of(self) -> int | None:
        """Where the log ended when the topics here were the master's; None = not since this broker follows."""
        return self._plain[0].as_of

    @property
    def behind(self) -> int | None:
        """Bytes that the log here lacks of the master's, as that was when it was asked last; None before that."""
        return None if self._master_end is None else max(0, self._master_end - self._log.end)

    @property
    def behind_seconds(self) -> int | None:
        """How old the newest message here is while the master has newer ones; None before it was asked."""
        if not self.behind:
            return self.behind
        return max(0, self._clock.now_ms() - self._log.stamp) // 1000

    @property
    def master_end(self) -> int:
        """Where the master's log ended when it was asked last; 0 before the first time."""
        return self._master_end or 0

    # -- asking

    async def _round_of_tables(self) -> None:
        async with self._one_round:
            await self.round(self._plain)

    async def _round_of_progress(self) -> None:
        await self.round(self._progress, arrived=True)

    async def round(self, tables: tuple[_Table, ...], *, arrived: bool = False) -> None:
        """Ask for some tables and take over what comes.

        :param arrived: only when the log has arrived that the answers speak of.
        """
        master = self._master()
        if master is None:
            if self._known and not self._in_group:
                log.warning(
                    "no name server knows a master of %s: this slave keeps the topics, groups and offsets it has",
                    self._settings.broker_name,
                )
            self._known = False
            self._seek()
            return
        self._known = True
        end = self._log.end
        answers: list[tuple[_Table, bytes, Conn | None]] = []
        for table in tables:
            try:
                body = await self._ask(master, table)
            except (ConnectFailed, ConnectionLost) as error:
                table.trouble.failed(error)
                break  # it is the master that is away: the others need not find that out
            except Exception as error:
                table.trouble.failed(error)
                continue
            if body is not None:
                answers.append((table, body, self._client.connected(master)))
        if arrived and answers and not await self._arrived(master, answers[0][0]):
            return
        if not self._fits():
            if answers and not self._told:
                self._told = True
                log.warning(
                    "the log of the master at %s is not known to be the one here: this slave keeps the topics, groups "
                    "and offsets it has", master,
                )  # fmt: skip
            return
        self._told = False
        for table, body, conn in answers:
            await self._take(table, body, conn, end)

    async def _ask(self, master: str, table: _Table) -> bytes | None:
        answer = await self._client.request(master, Command.request(table.code), _TIMEOUT)
        if answer.code in table.absent:
            table.trouble.over()
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, master)
        return answer.body

    async def _arrived(self, master: str, table: _Table) -> bool:
        """Wait until everything is here that the master's log holds now; False when it does not come."""
        try:
            request = Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._client.request(master, request, _TIMEOUT)
            if answer.code != ResponseCode.SUCCESS:
                raise ResponseError(answer.code, answer.remark, master)
            text = KVTable.decode(answer.body).table.get("commitLogMaxOffset", "")
            end = whole(text)
            if end is None:
                raise BodyError(f"{master} does not say where its log ends: commitLogMaxOffset={text[:_SHOWN]!r}")
        except Exception as error:
            table.trouble.failed(error)
            return False
        conn = self._client.connected(master)
        self._master_end = end
        while self._arrived_end < end:
            if conn is None or conn.closed:
                return False  # what it had may never come
            await asyncio.sleep(_LOOK)
        return True

    @property
    def _arrived_end(self) -> int:
        """What is in queues, and here to stay: a group may take back what it has not committed."""
        return self._durability.visible if self._in_group else self._log.end - self._dispatcher.behind

    async def _take(self, table: _Table, body: bytes, conn: Conn | None, end: int) -> None:
        same = conn is not None and conn is table.conn
        if same and body == table.body:
            self._taken(table, end)
            return
        self._end = end
        try:
            await table.take(body, same)
        except Exception as error:
            table.trouble.failed(error)
            return
        table.body, table.conn = body, conn
        self._taken(table, end)
        table.trouble.over()

    def _taken(self, table: _Table, end: int) -> None:
        table.taken_at, table.as_of = self._clock.monotonic(), end
        if table is self._plain[0]:
            self.on_topics(end)

    # -- taking over

    async def _take_topics(self, body: bytes, same: bool) -> None:
        """Have the master's topics and no others.

        Of a topic that the master had and has no longer, messages and offsets go, too. One that it never had in this
        life of its own is only hidden: a master that was started with an empty folder empties no slave.
        """
        answer = judged.read_answer(body, "topicConfigTable")
        if not self._is_news(answer, self._topics):
            return
        version = answer.version()
        configs, refused = await judged.topics(answer.table)
        self._tell("topic", refused)
        kept = {name: self._topics.get(name) for name in refused}
        configs |= {name: config for name, config in kept.items() if config is not None}
        deleted = [name for name in self._topics.names() if same and name in self._last_topics and name not in configs]
        for count, name in enumerate(deleted, 1):
            if name not in self._topics.system and self._is_old(name):
                self._forgetting.forget_topic(name, self._end)
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
        self._in_vain.clear()
        self._topics.replace_all(configs, version)
        self._last_topics = frozenset(configs)

    def _is_news(self, answer: judged.Answer, table: _Applies) -> bool:
        """Whether an answer has all changes of the log that the table here has.

        Where it has more, they are applied again when they come, in their order. Those that the log does not begin with
        any more, or never had here, do not come.
        """
        told = applied_of(answer.whole)
        if not self._in_group or told is None or table.applied is None:
            return True
        if told < table.applied:
            return False
        if told <= min(self._dispatcher.position, self._dispatcher.limit):
            table.applied = told
        return True

    def _is_old(self, topic: str) -> bool:
        """Whether nothing has come into a topic since the master was asked: else it is there again already."""
        return all(queue.max_phys <= self._end for queue in self._queues.all(topic))

    async def _take_groups(self, body: bytes, same: bool) -> None:
        answer = judged.read_answer(body, "subscriptionGroupTable")
        if not self._is_news(answer, self._groups):
            return
        version = answer.version()
        configs, refused = await judged.groups(answer.table)
        self._tell("subscription group", refused)
        kept = {name: self._groups.get(name) for name in refused}
        configs |= {name: config for name, config in kept.items() if config is not None}
        held = self._groups.forbidden
        try:
            forbidden, refused = await judged.forbidden(answer.whole.get("forbiddenTable"))
        except BodyError as error:
            forbidden, refused = dict(held), {}
            self._complaints.say(log.error, "this slave keeps what it forbids to groups: the master's %s", error)
        self._tell("list of what is forbidden to group", refused)
        forbidden |= {group: held[group] for group in refused if group in held}
        self._groups.replace_all(
            SubscriptionGroupTable(subscription_group_table=configs, forbidden_table=forbidden), version
        )

    async def _take_modes(self, body: bytes, same: bool) -> None:
        answer = judged.read_answer(body, "messageRequestModeMap")
        if not self._is_news(answer, self._modes):
            return
        modes, refused = await judged.modes(answer.table)
        self._tell("mode of consumption", refused)
        for topic, groups in self._modes.all().items():
            for group, mode in groups.items():
                if topic in refused or f"{topic}@{group}" in refused:
                    modes.setdefault(topic, {})[group] = mode
        self._modes.replace_all(modes)

    async def _take_offsets(self, body: bytes, same: bool) -> None:
        if _OFFSETS.search(body) is None:  # reads as no offsets: what the slave has is not to be taken for deleted
            raise BodyError("there is no offsetTable in it")
        refused: dict[str, str] = {}
        told: dict[str, Mapping[int, int]] = dict(await read_offsets(body, refused.__setitem__))
        self._tell("pair of topic and group with offsets", refused)
        # Not in it is what was deleted.
        told |= {name: self._last_offsets[name] for name in refused if name in self._last_offsets}
        await self._offsets.follow(told, self._last_offsets if same else {})
        self._last_offsets = told

    async def _take_delays(self, body: bytes, same: bool) -> None:
        self._delays.parse(body)
        self._delays_file.changed()

    def _tell(self, what: str, refused: Mapping[str, str]) -> None:
        for name, why in refused.items():
            self._complaints.say(
                log.error, "the master has a %s %.40r that this slave does not take: %.200s", what, name, why
            )

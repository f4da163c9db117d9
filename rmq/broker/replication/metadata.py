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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rmq.broker.replication.takeover import BesideTables, TakeOver
from rmq.broker.store.trouble import Trouble
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import BodyError, ConnectFailed, ConnectionLost, ResponseError
from rmq.protocol.names import is_lmq, is_system_topic
from rmq.protocol.numbers import whole

if TYPE_CHECKING:
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.store.state import Queue
    from rmq.broker.topics.metadata import MetadataFile
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.conn import Conn
    from rmq.runtime.tasks import TaskOwner

__all__ = ["MetadataSync"]

log = logging.getLogger(__name__)

#: Seconds: before the first round, between two, and for one answer.
_FIRST, _PERIOD, _TIMEOUT = 3.0, 10.0, 5.0
#: Seconds after which the end that a master told says nothing of what is there now.
_STALE = 3 * _PERIOD
#: The same in a group that elects its master.
_GROUP_FIRST, _GROUP_PERIOD = 0.5, 1.0
#: Seconds between two rounds, at least, for topics that nobody has told of; and how many of them the master is
#: remembered not to have either.
_MOMENT = 1.0
_MOST_IN_VAIN = 1000
#: Seconds between two looks whether the log has arrived.
_LOOK = 0.1
#: Characters of a text of the master's that the log shows.
_SHOWN = 40


#: Takes an answer over. It is told whether the one before was of the same life of the master, and where the log here
#: ended when the master was asked.
Take = Callable[[bytes, bool, int], Awaitable[None]]


class _Table:
    """One of the master's tables, and what became of it.

    :param absent: answers that say that the master has no such table.
    """

    def __init__(
        self,
        name: str,
        code: RequestCode,
        take: Take,
        trouble: Trouble,
        absent: frozenset[int] = frozenset(),
    ) -> None:
        self.name = name
        self.code = code
        self.take = take
        self.trouble = trouble
        self.absent = absent
        #: The answer taken over last, and the connection it came over: while that holds, the master has not restarted.
        self.body = b""
        self.conn: Conn | None = None
        #: When it was taken over last, monotonic seconds; and where the log here ended when it was asked for.
        self.taken_at: float | None = None
        self.as_of: int | None = None


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
        self._topics = tables.topics
        self._takeover = takeover = TakeOver(ground, tables, beside, delays_file)
        self._client = client
        self._master = master
        self._seek = seek
        self._fits = fits
        self._told = False
        #: Called when topics were taken over, with the end of the log here when they were asked for.
        self.on_topics: Callable[[int], None] = lambda end: None
        self._known = True
        #: Where the master's log ended when it was asked last; None before the first time.
        self._master_end: int | None = None
        self._told_at = 0.0
        #: Connections to a member of the group that leads: one over which it has said that it serves as the master, and
        #: one over which its offsets were taken as they are. Before it serves it may still ask others for them.
        self._serves: Conn | None = None
        self._whole: Conn | None = None
        #: When this broker ceased to be the master, monotonic seconds, if it was one.
        self._led_at: float | None = None
        #: Topics whose messages have come, and no word of them, with the queues that they need: to be asked for at
        #: once, and asked for in vain.
        self._lacking: dict[str, int] = {}
        self._in_vain: dict[str, int] = {}
        self._wanted = asyncio.Event()
        self._one_round = asyncio.Lock()

        def table(name: str, code: RequestCode, take: Take, *absent: int) -> _Table:
            what = f"taking the {name} over from the master"
            trouble = Trouble(clock, log, what, "this slave keeps those it has")
            return _Table(name, code, take, trouble, frozenset(absent))

        unknown, error = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), int(ResponseCode.SYSTEM_ERROR)
        self._plain = (
            table("topics", RequestCode.GET_ALL_TOPIC_CONFIG, takeover.topics),
            table("subscription groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, takeover.groups),
            # Java 4.9 has no POP.
            table("modes of consumption", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, takeover.modes, unknown),
        )
        self._progress = (
            table("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, takeover.offsets),
            # Java answers 1 before it has delivered anything late.
            table("delay offsets", RequestCode.GET_ALL_DELAY_OFFSET, takeover.delays, error),
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

    def led(self) -> None:
        """This broker was the master until now: the progress here is what there is."""
        self._led_at = self._clock.monotonic()

    @property
    def has_heard(self) -> bool:
        """Whether the progress here is that of its group, whenever that was: while nobody leads it stays as it is."""
        return self._whole is not None or self._led_at is not None

    def has_progress(self, within: float) -> bool:
        """Whether the progress here was that of its group so many seconds ago, or less."""
        since = self._clock.monotonic() - within
        if self._led_at is not None and self._led_at >= since:
            return True
        # What was taken over in addition to what was here is not known to be all.
        taken = self._whole is not None
        return taken and all(table.taken_at is not None and table.taken_at >= since for table in self._progress)

    @property
    def topics_as_of(self) -> int | None:
        """Where the log ended when the topics here were the master's; None = not since this broker follows."""
        return self._plain[0].as_of

    @property
    def behind(self) -> int | None:
        """Bytes that the log here lacks of the master's, as that was when it was asked last.

        None before that, and where it has not said so for some rounds, or nobody knows who it is: it may have more now.
        """
        if self._master_end is None or self._master() is None:
            return None
        if self._clock.monotonic() - self._told_at > _STALE:
            return None
        return max(0, self._master_end - self._log.end)

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
        conn = self._client.connected(master)
        serves = conn is not None and conn is self._serves
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
            whole = serves and conn is self._serves and conn is not self._whole and table is self._progress[0]
            if await self._take(table, body, conn, end, whole=whole) and whole:
                self._whole = conn

    async def _ask(self, master: str, table: _Table) -> bytes | None:
        try:
            return (await self._client.ask(master, Command.request(table.code), _TIMEOUT)).body
        except ResponseError as error:
            if error.code not in table.absent:
                raise
            table.trouble.over()
            return None

    async def _arrived(self, master: str, table: _Table) -> bool:
        """Wait until everything is here that the master's log holds now; False when it does not come."""
        try:
            request = Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._client.ask(master, request, _TIMEOUT)
            said = KVTable.decode(answer.body).table
            text = said.get("commitLogMaxOffset", "")
            end = whole(text)
            if end is None:
                raise BodyError(f"{master} does not say where its log ends: commitLogMaxOffset={text[:_SHOWN]!r}")
        except Exception as error:
            table.trouble.failed(error)
            return False
        conn = self._client.connected(master)
        self._serves = conn if self._in_group and said.get("brokerRole") == "master" else None
        self._master_end, self._told_at = end, self._clock.monotonic()
        while self._arrived_end < end:
            if conn is None or conn.closed:
                return False  # what it had may never come
            await asyncio.sleep(_LOOK)
        return True

    @property
    def _arrived_end(self) -> int:
        """What is in queues, and here to stay: a group may take back what it has not committed."""
        return self._durability.visible if self._in_group else self._log.end - self._dispatcher.behind

    async def _take(self, table: _Table, body: bytes, conn: Conn | None, end: int, *, whole: bool = False) -> bool:
        same = conn is not None and conn is table.conn
        if whole or not same or body != table.body:
            try:
                if whole:
                    await self._takeover.offsets(body, same, end, whole=True)
                else:
                    await table.take(body, same, end)
            except Exception as error:
                table.trouble.failed(error)
                return False
            table.trouble.over()
            table.body, table.conn = body, conn
            if table is self._plain[0]:
                self._in_vain.clear()
        table.taken_at, table.as_of = self._clock.monotonic(), end
        if table is self._plain[0]:
            self.on_topics(end)
        return True

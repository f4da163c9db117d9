"""Carries out what the node of a member says: one effect after the other, over the store and the files beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rmq.broker.raft.alarm import Alarm
from rmq.broker.raft.announced import Announced
from rmq.broker.raft.answering import Answering
from rmq.broker.raft.effect_queue import EffectQueue
from rmq.broker.raft.failures import AGAIN, Failures
from rmq.broker.raft.member_log import BROKEN, MemberLog
from rmq.broker.raft.promises import Promises
from rmq.broker.raft.sidecar import Kept, Sidecar
from rmq.broker.raft.wire import Say, SpanTold, Word
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.broker.store.told import Told
from rmq.protocol.errors import RMQError, StoreError
from rmq.raft.effects import Became, Begin, Commit, Cut, Effect, LedOn, Reset, Role, Save, Send, Write
from rmq.raft.members import Members
from rmq.raft.messages import Append
from rmq.raft.node import RaftNode
from rmq.raft.position import LogsParted, Position
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["RaftDriver"]

log = logging.getLogger(__name__)

#: Seconds between two notes of what is committed.
_NOTE = 1.0
#: Effects that wait for the disk, and bytes of the log that do, beyond which what members say is not heard. Nobody who
#: keeps the rules sends so much to a member that does not answer.
_MOST_EFFECTS, _MOST_BYTES = 1 << 16, 16 << 20


class RaftDriver:
    """One member.

    :param store: loaded; what is appended to it goes to the others.
    :param kept: what a start has found beside it.
    :param send: to a member; what cannot be sent now is lost.
    :param on_disk: counted is what is on the disk, not what is written (``flushDiskType=SYNC_FLUSH``).
    :param tell: to every member; None: nobody is told what a leader makes of its log.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        members: Members,
        sidecar: Sidecar,
        kept: Kept,
        send: Say,
        *,
        on_disk: bool,
        tell: Callable[[SpanTold], None] | None = None,
    ) -> None:
        self._now, self._now_ms = world.clock.monotonic, world.clock.now_ms
        self._draw = world.random.random
        self._store = store
        self._commit_log = store.log
        self._members = members
        self._folder = sidecar.folder
        self._answering = Answering(send)
        self._send = self._answering.send
        self._tell_all = tell
        #: What the leader has told of bytes that are still to come.
        self._announced = Announced()
        #: The lead was given away, since another one is to send what is damaged here.
        self._left = False
        #: Sends the others what was appended in this turn of the loop.
        self._turn: asyncio.Handle | None = None
        self._on_disk = on_disk
        self.tasks = TaskOwner("raft")
        #: Told when the role, the term or the leader is another one.
        self.on_change: list[Callable[[], None]] = []
        #: Its log, which tells what is committed, and what was cut away.
        self.log = MemberLog(store, sidecar, kept, send, on_disk=on_disk)
        #: The state machine; None while this member is not one: it begins anew after a failure, or has to stop.
        self.node: RaftNode | None = None
        #: The term in which it leads, once that is carried out.
        self.leads: int | None = None
        self.leader: str | None = None
        #: Whether the services of a master run for the term in which it leads: messages are taken only then.
        self.serves: int | None = None
        #: Why it is no member any more, until somebody has looked at it.
        self.parted: str | None = None
        #: Why the member that was to lead last has not taken the lead; empty while nothing is known of that.
        self.kept = ""
        #: Elections that were won here.
        self.won = 0
        #: What had it begin anew.
        self.failures = Failures(world.clock)
        #: When the others said anything last, by the wall clock; 0 = never.
        self.heard_ms = 0
        self._promises = Promises(sidecar, kept)
        self._effects = EffectQueue(self.tasks, self._carry_out, self._fail, self._after)
        self._alarm = Alarm(self._now, self._tick)

    # -- life

    async def start(self) -> None:
        """Take part from now on; the store has started, with its gate closed as a slave's."""
        store = self._store
        store.events.appended.append(self._appended)
        if self._tell_all is not None:
            store.tell(self._made)
        if self._on_disk:
            store.events.flushed.append(self._flushed)
        self.tasks.every(_NOTE, self.log.note, "note")
        try:
            await self.log.cut_torn()
            await self._begin()
        except (OSError, RMQError) as error:
            self._fail(error)

    async def stop(self) -> None:
        """Take part in nothing any more."""
        store = self._store
        store.tell(None)
        self._end_node()
        for told, what in ((store.events.appended, self._appended), (store.events.flushed, self._flushed)):
            if what in told:
                told.remove(what)  # type: ignore[arg-type]
        await self.tasks.close()
        await self.log.note()

    async def _begin(self) -> None:
        """Make the node of what is there."""
        await self._effects.begin()
        path = await self.log.begin()
        if self.parted is not None:  # it was told so meanwhile
            return
        kept = self._promises
        self.node = RaftNode(
            self._members, path, kept.term, kept.vote, self._now(), self._draw, kept.returning, self.log.whole
        )
        self._after()

    def _end_node(self) -> None:
        self.node = None
        self.leads = self.leader = None
        self._effects.drop()
        self._answering.drop()
        self._announced.clear()
        self._alarm.cancel()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._keep_gate()

    def _fail(self, error: Exception) -> None:
        """What was under way comes to nothing, as if the process had ended here."""
        self._end_node()
        if isinstance(error, LogsParted):
            self.part(str(error))
        elif self.parted is None:
            self.failures.failed(error)
            if not self.tasks.closed:
                self.tasks.spawn(self._anew(), "anew")
        self._tell()

    def part(self, why: str) -> None:
        """Be no member any more, until somebody has looked at it."""
        self._end_node()
        if self.parted is None:
            self.parted = why
            log.critical(
                "this member of the group stops, and serves nobody until somebody has looked at its log: %s", why
            )
        self._tell()

    async def returns(self) -> None:
        """The others knew another disk of this member, which has said nothing to anybody yet.

        :raises OSError: that cannot be kept.
        """
        if self._commit_log.end > self._commit_log.start:
            self.part(
                f"{self._folder} is gone, and the log beside it is there: what this member had promised is "
                "lost, and nobody knows whose log that is; start it with an empty store, and it gets the group's"
            )
            return
        number = await self._promises.returns()
        if self.node is not None:
            self.node.returns(number)

    async def _anew(self) -> None:
        await asyncio.sleep(AGAIN)
        if self.parted is not None:
            return
        try:
            await self._begin()
        except (OSError, RMQError) as error:
            self._fail(error)

    # -- what it is asked

    @property
    def term(self) -> int:
        """The term that it is in, or was in when a failure ended that."""
        return self._promises.term if self.node is None else self.node.term

    @property
    def returning(self) -> bool:
        """Whether it has lost its disk, and is not counted before it has everything back."""
        return self._promises.returning != 0

    @property
    def is_settled(self) -> bool:
        """Whether a leader's log is committed, and all of it in queues: a master can begin."""
        node, commit_log = self.node, self._commit_log
        if node is None or self.leads != node.term:
            return False
        return node.settled and node.commit >= commit_log.end and self._store.dispatcher.done and not self._effects

    def heir(self) -> str | None:
        """The member that could lead next: the one that has most."""
        node = self.node
        return None if node is None else node.nearest(self._now())

    @property
    def surely_leads(self) -> bool:
        """Whether nobody else can lead: what is not here is nowhere."""
        node = self.node
        return node is not None and node.surely_leads(self._now())

    @property
    def takes_messages(self) -> bool:
        """Whether this member is its group's master, in every way."""
        node = self.node
        return (
            self.serves is not None
            and node is not None
            and node.takes_messages
            and node.term == self.leads == self.serves
        )

    # -- events

    def step(self, message: Word) -> None:
        """A member says something."""
        node = self.node
        if isinstance(message, SpanTold):
            self._hear_of_span(message)
        elif node is not None and not self._is_full(node):
            self.heard_ms = self._now_ms()
            try:
                effects = node.step(message, self._now())
            except LogsParted as error:
                self._fail(error)
                return
            self._do(effects)

    def _is_full(self, node: RaftNode) -> bool:
        """Whether so much waits that words are lost here, as any may be lost on their way."""
        return len(self._effects) > _MOST_EFFECTS or node.path.end - self.log.known > _MOST_BYTES

    def _hear_of_span(self, message: SpanTold) -> None:
        """A leader tells what it has made of a span that comes next, or is here: only of what it led itself."""
        node, term, told = self.node, message.term, message.told
        if node is None or (node.leader, node.term) != (message.source, term) or self.leads is not None:
            return
        if told.end > self.log.known:
            self._announced.add(message.source, term, told)
        elif self.log.is_of(term, told.start, told.end):
            self._store.told(told)

    def lost(self, member: str) -> None:
        """The last connection of a member has ended."""
        if self.node is not None:
            self._do(self.node.lost(member, self._now()))

    def transfer(self, to: str) -> None:
        """Give the lead away, if that member is heard and the lead is given to nobody yet."""
        if self.node is not None:
            self.kept = ""
            self._do(self.node.transfer(to, self._now()))

    def _tick(self) -> None:
        node = self.node
        if node is None:
            return
        if self._commit_log.gate & BROKEN:
            self._fail(StoreError(self._commit_log.gate_reason()))
            return
        if node.path.start < self._commit_log.start <= node.commit:
            node.deleted(self._commit_log.start)
            self.log.deleted()
        effects = node.tick(self._now()) if self._now() >= node.due else []
        self._do(effects)

    def _appended(self) -> None:
        """The store of a leader has appended messages: it goes to the others when their keys are in the index, too."""
        node, end = self.node, self._commit_log.end
        try:
            if node is None:
                raise LogsParted(f"messages were appended up to {end} by a member that does not lead")
            last = self.log.appended(end)
            node.appended(end)
            if not self._on_disk:
                self._do(node.stored(last))
        except LogsParted as error:
            self._fail(error)
            return
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._spread)

    def _spread(self) -> None:
        self._turn = None
        if self.node is not None:
            self._do(self.node.spread())

    def _made(self, told: Told) -> None:
        """The store has made queue entries and keys of what it has appended, or is about to say so."""
        if self.leads is not None and self._tell_all is not None:
            self._tell_all(SpanTold(self.leads, self._members.me, told))

    def _flushed(self, to: int) -> None:
        stored = self.log.flushed(to)
        if self.node is not None and stored is not None:
            self._do(self.node.stored(stored))

    # -- effects

    def _do(self, effects: list[Effect]) -> None:
        self._effects.do(effects)
        self._after()

    def _after(self) -> None:
        """The gate follows the node at once, and its next tick is due."""
        self._keep_gate()
        if self.node is not None and not self.tasks.closed:
            self._alarm.set(self.node.due)

    def _keep_gate(self) -> None:
        if self.takes_messages:
            self._commit_log.gate &= ~Gate.SLAVE
        else:
            self._commit_log.gate |= Gate.SLAVE

    def open(self) -> None:
        """The services of a master run, or do not any more: the gate follows."""
        self._keep_gate()

    def _carry_out(self, effect: Effect) -> Coroutine[Any, Any, None] | None:
        """Do it, or say what is to be waited for."""
        match effect:
            case Send(to, message):
                if isinstance(message, Append) and message.after.end > message.before.end:
                    return None if self._leaves(to, message) else self.log.send(to, message)
                self._send(to, message)
            case Commit(end):
                self.log.committed(end, whole=self.leads is not None)
            case Write(start, after, data, crc):
                self._write(start, after, data, crc)
            case Became(role, term, leader):
                self._became(role, term, leader)
            case LedOn():
                self._led_on(effect)
            case Save(term, vote, returning):
                return self._promises.keep(term, vote, returning)
            case Begin(at):
                return self.log.begin_term(at)
            case Cut(to):
                self._announced.clear()
                return self.log.cut(to, whole=self.leads is not None)
            case Reset(at):
                self._announced.clear()
                return self.log.reset(at)
        return None

    def _leaves(self, to: str, span: Append) -> bool:
        """Whether a span is left to the next leader: what is damaged here, another one has good, most likely.

        Once: where it is damaged everywhere, somebody has to send it as it is.
        """
        damaged = self._store.damaged
        if not damaged.parts or not damaged.bytes_in(span.before.end, span.after.end):
            return False
        if self._left:
            return self.node is not None and self.node.heir is not None  # who has not taken the lead yet
        heir = self.heir()
        if heir is None or heir == to:
            return False
        self._left = True
        log.warning(
            "%s lacks a part of the log that is damaged here, between %d and %d: %s is to lead, and to send it",
            to, span.before.end, span.after.end, heir,
        )  # fmt: skip
        self.transfer(heir)
        return True

    def _write(self, start: int, after: Position, data: bytes | memoryview, crc: int | None) -> None:
        node = self.node
        told = [] if node is None else self._announced.take(node.leader, node.term, after.end)
        if node is not None and node.term != after.term:
            told = []  # it did not lead then
        last = self.log.write(start, after, data, told, crc)
        self.failures.over()
        if node is not None and not self._on_disk:
            self._effects.do(node.stored(last))

    def _became(self, role: Role, term: int, leader: str | None) -> None:
        before, self.leader = self.leader, leader
        self.leads = term if role is Role.LEADER else None
        if leader is None and before is not None:
            who = "this member" if before == self._members.me else before
            log.info("%s leads the group no longer, as far as is heard here", who)
        if role is Role.LEADER:
            self.won += 1
            log.info("this member leads the group in term %d, from offset %d on", term, self._commit_log.end)
        elif leader is not None:
            log.info("%s leads the group in term %d", leader, term)
        self._keep_gate()
        self._tell()

    def _led_on(self, on: LedOn) -> None:
        if on.told:
            self.kept = "no majority has elected it in time"
        elif on.lacks:
            self.kept = f"it lacks {on.lacks} bytes of the log still"
        else:
            self.kept = "it does not answer"
        log.warning("%s was to lead the group, and does not: %s; this member leads on", on.heir, self.kept)

    def _tell(self) -> None:
        for tell in self.on_change:
            tell()

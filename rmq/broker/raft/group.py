"""A broker's place in its group: takes part in elections, and has the broker's role follow them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rmq.broker.parts import Ground
from rmq.broker.raft.changes import TableChanges
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.introductions import Introductions
from rmq.broker.raft.leaderless import Leaderless
from rmq.broker.raft.links import Links
from rmq.broker.raft.met import Meetings
from rmq.broker.raft.peers import Peers
from rmq.broker.raft.seen import GroupView, Member
from rmq.broker.raft.sidecar import Kept, Sidecar, Whose
from rmq.broker.raft.wire import SpanTold, Word
from rmq.broker.store import refusal
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import RMQError, StoreError
from rmq.raft.messages import Message
from rmq.runtime.tasks import TaskOwner

__all__ = ["Group"]

log = logging.getLogger(__name__)

#: Seconds between two looks whether a leader's log is committed and dispatched, and until a change is tried again.
_LOOK, _AGAIN = 0.02, 0.5
#: Seconds between two notes in the files of tables how far they are, and between two looks whether anybody leads.
_NOTED, _WATCHED = 60.0, 1.0
#: Seconds that a stop waits for another member to lead.
_HANDOVER = 1.5


class Group:
    """One broker's place.

    :param changes: of its tables, which go through the log.
    :param become: makes the broker a master, or one that follows.
    """

    def __init__(self, ground: Ground, changes: TableChanges, become: Callable[[bool], Awaitable[None]]) -> None:
        self._ground = ground
        self._changes = changes
        self._store = ground.store
        self.peers = Peers.of(ground.settings)
        self._become = become
        members = self.peers.members
        whose = Whose(self.peers.group, members.me, members.voters)
        self._sidecar = Sidecar(ground.world, ground.settings.store_path_root_dir, whose)
        #: What is told of it.
        self.view = GroupView(ground, self.peers)
        self.tasks = TaskOwner("roles")
        self._changed = asyncio.Event()
        self._master = False
        self._trouble = Trouble(ground.world.clock, log, "following the election", "it is tried again")
        self._leaderless = Leaderless(ground.world.clock, members.election)

    # -- life

    async def load(self) -> None:
        """Read what is kept beside the log, and hide what is not known to be committed; the store is loaded.

        :raises StoreError: it cannot be read, or does not fit the log.
        """
        store, settings, world = self._store, self._ground.settings, self._ground.world
        end = store.log.end
        kept = await self._sidecar.load(end)
        met = kept.met
        if kept.returning and not met.begun:  # it ended between the two
            met = replace(met, begun=True, returned=True)
        if kept.commit > end:
            kept = await self._lost_end(kept, end)
        await store.show(min(kept.commit, end))
        driver = RaftDriver(
            world, store, self.peers.members, self._sidecar, kept, self._say, on_disk=store.settings.sync_flush,
            tell=self._say_of_span,
        )  # fmt: skip
        await self._changes.load(min(kept.commit, end), plain=kept.plain(end), new=kept.new)
        driver.log.on_committed.append(self._changes.committed)
        driver.log.on_cut.append(self._changes.cut)
        driver.on_change += [self._driver_changed, self.view.changed]
        meetings = Meetings(self.peers.members.others, met)
        introductions = Introductions(meetings, self._sidecar, driver, self.tasks, self._trouble)
        links = Links(
            world, settings, self.peers, meetings, introductions.hear, self._hear, self._lose,
            broker=self._ground.broker_addr, file_size=store.log.file_size,
        )  # fmt: skip
        introductions.on_met = links.introduce
        self.view.member = Member(driver, links, meetings)

    async def _lost_end(self, kept: Kept, end: int) -> Kept:
        """The log ends before what was noted as committed, and on the disk: that is lost, as it is with a whole disk.

        Who acknowledged it may be asked to elect a member that never had it.

        :raises StoreError: it cannot be kept that this member is not counted.
        """
        counts = kept.met.begun and not kept.returning
        log.critical(
            "the commit log ends at %d, and the group had committed it up to %d: this machine has lost what was on its "
            "disk; it gets that from the others%s; have the disk checked", end, kept.commit,
            ", and it neither votes nor counts before it has that again" if kept.met.begun else "",
        )  # fmt: skip
        if not counts:
            return kept
        try:
            await self._sidecar.save_vote(kept.term, kept.vote, returning=True)
        except OSError as error:
            raise StoreError(f"{self._sidecar.folder} cannot be written: {refusal.told(error)}") from error
        return kept._replace(returning=True)

    @property
    def member(self) -> Member | None:
        """What takes part for this broker; None before :meth:`load`."""
        return self.view.member

    async def listen(self) -> None:
        """Take the others' connections.

        :raises ConfigError: the port is taken.
        """
        if self.member is not None:
            await self.member.links.listen()

    async def start(self) -> None:
        """Take part; the store has started, and the broker follows."""
        if self.member is None:
            return
        await self.member.driver.start()
        self.member.links.start()
        self.tasks.serve(self._follow(self.member.driver), "follow")
        self.tasks.every(_NOTED, self._changes.note, "positions of tables", first=_NOTED)
        self.tasks.every(_WATCHED, self._watch, "watch for a leader", first=_WATCHED)

    async def stop(self) -> None:
        """Take part in nothing any more."""
        await self.tasks.close()
        self._changes.note()
        if self.member is not None:
            await self.member.driver.stop()
            await self.member.links.stop()

    async def hand_over(self) -> None:
        """Have another member lead, where this one does and another can: the broker stops."""
        driver, clock = self.driver, self._ground.world.clock
        heir = None if driver is None else driver.heir()
        if driver is None or heir is None:
            return
        until = clock.monotonic() + _HANDOVER
        while driver.leads is not None:
            heir = driver.heir() or heir
            driver.transfer(heir)  # where it is given to nobody yet, or any more
            await asyncio.sleep(_LOOK)
            if clock.monotonic() > until:
                log.warning("%s has not taken the lead within %.1f s; the broker stops all the same", heir, _HANDOVER)
                break

    @property
    def driver(self) -> RaftDriver | None:
        """What carries out what its node says; None before :meth:`load`."""
        return None if self.member is None else self.member.driver

    @property
    def tasks_of_all(self) -> tuple[TaskOwner, ...]:
        """The owners of its services; :meth:`load` is done."""
        member = self.member
        return (self.tasks,) if member is None else (self.tasks, member.driver.tasks, member.links.tasks)

    def _watch(self) -> None:
        self._leaderless.look(self.view.leaderless)

    # -- members

    @property
    def takes_part(self) -> bool:
        """Whether every other member has been met: until then nobody could tell whether one has lost its disk."""
        return self.member is not None and self.member.takes_part

    def surely_leads(self) -> bool:
        """Whether no other member can lead now."""
        return self.member is not None and self.member.driver.surely_leads

    def _say(self, to: str, message: Message, data: Sequence[bytes] = ()) -> None:
        if self.member is not None and self.member.takes_part:
            self.member.links.send(to, message, data)

    def _say_of_span(self, told: SpanTold) -> None:
        if self.member is not None and self.member.takes_part:
            self.member.links.tell(told)

    def _hear(self, message: Word) -> None:
        if self.member is not None and self.member.takes_part:
            self.member.driver.step(message)

    def _lose(self, one: str) -> None:
        if self.member is not None and self.member.takes_part and not self.tasks.closed:
            self.member.driver.lost(one)

    # -- roles

    async def _follow(self, driver: RaftDriver) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._take_role(driver)
            except (OSError, RMQError, RuntimeError) as error:
                self._trouble.failed(error if isinstance(error, OSError) else RMQError(str(error)))
                await asyncio.sleep(_AGAIN)
                self._changed.set()
            else:
                self._trouble.over()

    def _driver_changed(self) -> None:
        driver = self.driver
        if driver is not None and not driver.takes_messages:
            self._changes.step_back()
        self._changed.set()

    async def _take_role(self, driver: RaftDriver) -> None:
        term = driver.leads
        if self._master and (term is None or term != driver.serves):
            driver.serves = None
            # What a master knows may be of what was cut away since: it is read anew.
            await self._become(False)
            self._changes.follow()
            self._master = False
            self._changed.set()
            return
        if term is None or self._master:
            return
        while not driver.is_settled:
            if driver.leads != term:
                return
            await asyncio.sleep(_LOOK)
        await self._become(True)
        self._master = True
        driver.serves = term
        self._changes.lead()
        driver.open()
        if driver.leads != term:
            self._changed.set()

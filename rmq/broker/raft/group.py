"""A broker's place in its group: takes part in elections, and has the broker's role follow them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rmq.broker.parts import Ground
from rmq.broker.raft.changes import TableChanges
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.links import Links
from rmq.broker.raft.met import Meetings, Met, Replaced
from rmq.broker.raft.peers import Peers
from rmq.broker.raft.seen import seen
from rmq.broker.raft.sidecar import Kept, Sidecar, Whose
from rmq.broker.raft.wire import Hello, SpanTold, Word
from rmq.broker.replication.slave_service import SlaveStatus
from rmq.broker.store.trouble import Trouble
from rmq.protocol.bodies.replica import GroupInfo
from rmq.protocol.errors import ReplicationError, RMQError, StoreError
from rmq.raft.messages import Message
from rmq.runtime.tasks import TaskOwner

__all__ = ["Group"]

log = logging.getLogger(__name__)

#: Seconds between two looks whether a leader's log is committed and dispatched, and until a change is tried again.
_LOOK, _AGAIN = 0.02, 0.5
#: Seconds between two notes in the files of tables how far they are.
_NOTED = 60.0
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
        self._kept: Kept | None = None
        self.driver: RaftDriver | None = None
        self._links: Links | None = None
        self.meetings: Meetings | None = None
        self.tasks = TaskOwner("roles")
        self._changed = asyncio.Event()
        self._meeting = asyncio.Lock()
        self._master = False
        #: It has had the leader's log once, since its start.
        self._came_up = False
        self._trouble = Trouble(ground.world.clock, log, "following the election", "it is tried again")

    # -- life

    async def load(self) -> None:
        """Read what is kept beside the log, and hide what is not known to be committed; the store is loaded.

        :raises StoreError: it cannot be read, or does not fit the log.
        """
        kept = self._kept = await self._sidecar.load()
        met = kept.met
        if kept.returning and not met.returned:  # it ended between the two
            met = replace(met, begun=True, returned=True)
        self.meetings = Meetings(self.peers.members.others, met)
        store, settings, world = self._store, self._ground.settings, self._ground.world
        end = store.log.end
        if kept.new and end:
            # A plain broker's messages were acknowledged and seen: no leader may take them back.
            kept = self._kept = kept._replace(commit=end)
            try:
                await self._sidecar.save_commit(end)
            except OSError as error:
                raise StoreError(f"{self._sidecar.folder} cannot be written: {error}") from error
        if kept.commit > end:
            log.critical(
                "the commit log ends at %d, and the group had committed it up to %d: this machine has lost what was "
                "written last; it gets that from the others, if they have it", end, kept.commit,
            )  # fmt: skip
        await store.show(min(kept.commit, end))
        members = self.peers.members
        self.driver = driver = RaftDriver(
            world, store, members, self._sidecar, kept, self._say, on_disk=store.settings.sync_flush,
            tell=self._say_of_span,
        )  # fmt: skip
        await self._changes.load(min(kept.commit, end), plain=kept.plain(end), new=kept.new)
        driver.log.on_committed.append(self._changes.committed)
        driver.log.on_cut.append(self._changes.cut)
        driver.on_change.append(self._driver_changed)
        self._links = Links(
            world, settings, self.peers, self.meetings, self._meet, self._hear, self._lose,
            broker=self._ground.broker_addr, file_size=store.log.file_size,
        )  # fmt: skip

    async def listen(self) -> None:
        """Take the others' connections.

        :raises ConfigError: the port is taken.
        """
        if self._links is not None:
            await self._links.listen()

    async def start(self) -> None:
        """Take part; the store has started, and the broker follows."""
        if self.driver is None or self._links is None:
            return
        await self.driver.start()
        self._links.start()
        self.tasks.serve(self._follow(), "follow")
        self.tasks.every(_NOTED, self._changes.note, "positions of tables", first=_NOTED)

    async def stop(self) -> None:
        """Take part in nothing any more."""
        driver, links = self.driver, self._links
        await self.tasks.close()
        self._changes.note()
        if driver is not None:
            await driver.stop()
        if links is not None:
            await links.stop()

    async def hand_over(self) -> None:
        """Have another member lead, where this one does and another can: the broker stops."""
        driver, clock = self.driver, self._ground.world.clock
        heir = None if driver is None else driver.heir()
        if driver is None or heir is None:
            return
        driver.transfer(heir)
        until = clock.monotonic() + _HANDOVER
        while driver.leads is not None:
            await asyncio.sleep(_LOOK)
            if clock.monotonic() > until:
                log.warning("%s has not taken the lead within %.1f s; the broker stops all the same", heir, _HANDOVER)
                break

    @property
    def tasks_of_all(self) -> tuple[TaskOwner, ...]:
        """The owners of its services; :meth:`load` is done."""
        made = (self.driver, self._links)
        return (self.tasks, *(part.tasks for part in made if part is not None))

    # -- members

    def _say(self, to: str, message: Message) -> None:
        if self._links is not None and self.takes_part:
            self._links.send(to, message)

    def _say_of_span(self, told: SpanTold) -> None:
        if self._links is not None and self.takes_part:
            self._links.tell(told)

    def _hear(self, message: Word) -> None:
        if self.driver is not None and self.takes_part:
            self.driver.step(message)

    def _lose(self, one: str) -> None:
        if self.driver is not None and self.takes_part and not self.tasks.closed:
            self.driver.lost(one)

    @property
    def takes_part(self) -> bool:
        """Whether every other member has been met: until then nobody could tell whether one has lost its disk."""
        return self.meetings is not None and self.meetings.met.begun

    def _meet(self, hello: Hello) -> None:
        """:raises ReplicationError: he is not heard."""
        meetings = self.meetings
        if meetings is None or self.tasks.closed:
            return
        try:
            new = meetings.hear(hello) is not None
        except Replaced as error:
            if self.driver is not None:
                self.driver.part(str(error))
            raise
        if new:
            self.tasks.spawn(self._keep_met(meetings, hello), f"meet {hello.source}")

    async def _keep_met(self, meetings: Meetings, hello: Hello) -> None:
        # One at a time: each writes all of them.
        async with self._meeting:
            while True:
                try:
                    met = meetings.hear(hello)
                    if met is None:
                        return
                    await self._keep(meetings, met)
                except OSError as error:
                    self._trouble.failed(error)
                    await asyncio.sleep(_AGAIN)
                except ReplicationError as error:
                    log.warning("%s of the group is not heard: %s", hello.source, error)
                    return
                else:
                    if hello.returned:
                        log.warning("%s takes the place of a disk that is lost: it is sent the log", hello.source)
                    told = "; all members are known" if self.takes_part else ""
                    log.info("%s of the group was met%s", hello.source, told)
                    return

    async def _keep(self, meetings: Meetings, met: Met) -> None:
        if met.returned and not meetings.met.returned and self.driver is not None:
            await self.driver.returns()  # first: who has begun would vote after a start
            if self.driver.parted is not None:
                return
        await self._sidecar.save_members(met)
        meetings.met = met
        if self._links is not None:
            self._links.introduce()

    @property
    def leader_address(self) -> str | None:
        """What clients are told of the member that leads; None while that is unknown, or this one."""
        driver, links = self.driver, self._links
        if driver is None or links is None or driver.leader is None:
            return None
        return links.brokers.get(driver.leader)

    def address_of(self, one: str) -> str | None:
        """What clients are told of a member; None while it was not met since the start."""
        if one == self.peers.members.me:
            return self._ground.broker_addr
        return None if self._links is None else self._links.brokers.get(one)

    def seen(self) -> GroupInfo:
        """The group as this member sees it."""
        now = self._ground.world.clock.monotonic()
        return seen(self.peers, self.driver, self._links, self._store.log.end, now, self.missing)

    def figures(self) -> dict[str, str]:
        """What the runtime information says of the group."""
        seen = self.seen()
        found = {
            "raftGroup": seen.group,
            "raftMember": seen.me,
            "raftRole": seen.role,
            "raftTerm": str(seen.term),
            "raftLeader": seen.leader or "unknown",
            "raftCommitOffset": str(seen.committed),
            "raftMembersConnected": f"{sum(one.connected for one in seen.members)} of {len(seen.members)}",
        }
        behind = [one.behind for one in seen.members if one.behind is not None]
        if behind:
            found["slaveBehindBytes"] = str(max(behind))
        return found

    def link_status(self) -> SlaveStatus:
        """How a follower gets the log."""
        driver, links = self.driver, self._links
        if driver is None or links is None:
            return SlaveStatus(None, False, self._store.log.end, 0, 0, 0, 0, 0, self.missing, 0)
        return SlaveStatus(
            self.leader_address, driver.leader in links.connected, self._store.log.end, driver.log.taken, 0, 0,
            driver.heard_ms, driver.heard_ms, self.missing, 0,
        )  # fmt: skip

    @property
    def missing(self) -> str | None:
        """Why clients may not be sent here."""
        driver = self.driver
        if driver is None:
            return "the group has not begun"
        if driver.parted is not None:
            return f"this member of the group has stopped: {driver.parted}"
        if not self.takes_part:
            lacking = [] if self.meetings is None else self.meetings.lacking
            return f"the group begins once every member was met: {', '.join(lacking)} never was"
        refused = {} if self._links is None else self._links.refused_by
        if len(refused) == len(self.peers.members.others):
            return f"no other member takes this one: {next(iter(refused.values()))}"
        if driver.leads is None and driver.leader is None:
            return "the group has no leader"
        if driver.returning:
            return (
                f"this member has lost its disk, and gets the log from the others: it has {self._store.log.end} bytes"
            )
        return None

    def lacks(self, behind: int | None) -> str | None:
        """What it has not got yet of what it missed before its start; later on it may be behind now and then.

        :param behind: bytes of the leader's log; None where that is not known, or this one leads.
        """
        driver = self.driver
        if driver is not None and driver.leads is not None:
            self._came_up = True
        elif not self._came_up:
            if behind is None:
                return "it does not know yet how far the leader's log goes"
            if behind > self.peers.members.near:
                return f"it lacks {behind} bytes of the leader's log, and takes them"
            self._came_up = True
        return None

    # -- roles

    async def _follow(self) -> None:
        driver = self.driver
        while driver is not None:
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
        if self.driver is not None and not self.driver.takes_messages:
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

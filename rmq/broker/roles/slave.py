"""The services that only a slave runs: it has what its master has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rmq.broker.parts import Ground, Tables
from rmq.broker.replication.elected import KNOWS_PROGRESS, ask_members
from rmq.broker.replication.followed import Followed
from rmq.broker.replication.metadata import MetadataSync
from rmq.broker.replication.slave_service import SlaveStatus
from rmq.broker.replication.takeover import BesideTables
from rmq.broker.store.state import Queue
from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol.bodies.replica import HAClientRuntimeInfo
from rmq.remoting.client import RemotingClient
from rmq.runtime.ending import Parts
from rmq.runtime.tasks import TaskOwner

__all__ = ["MasterLink", "SlaveServices"]

#: Seconds that the master's progress is good for, beside those that an election takes: it is taken in each.
_PROGRESS_HOLDS = 3.0


class MasterLink(Protocol):
    """Gets a master's log: over the HA stream, or in a group."""

    #: The owner of its background services.
    tasks: TaskOwner

    @property
    def address(self) -> str | None:
        """Where the master is, as far as it is known."""

    @property
    def fits(self) -> bool:
        """Whether the master's log is known to be the one here."""

    def start(self) -> None:
        """Follow it from now on."""

    async def stop(self) -> None:
        """Follow it no more."""

    def status(self) -> SlaveStatus:
        """How the link is."""


class SlaveServices:
    """Follows a master: its log, and its tables.

    It is made anew for each time that the broker is a slave, as the services of a master are.

    :param link: gets the log.
    :param master: where clients are told that the master is.
    :param seek: asks the name servers again.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        beside: BesideTables,
        client: RemotingClient,
        link: MasterLink,
        master: Callable[[], str | None],
        seek: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._store = ground.store
        self._offsets = tables.offsets
        self._client = client
        self._delays = delays = beside.delays
        self._delays_file = delays_file = MetadataFile(
            ground.world, ground.settings.config_path("delayOffset.json"), delays.render
        )
        self._tasks = TaskOwner("metadata")
        self._begun = Parts("the broker")
        self.metadata = MetadataSync(ground, tables, beside, delays_file, client, master, seek, lambda: link.fits)
        #: Up to where its topics are its master's; None in a group, which knows it by itself.
        self._followed = None if ground.settings.enable_dleger_commit_log else Followed(ground)
        if self._followed is not None:
            self.metadata.on_topics = self._followed.taken
        self.client = link
        #: Told of queues with new messages.
        self.arrived: tuple[Callable[[Iterable[Queue]], None], ...] = (self.metadata.arrived,)
        #: The owners of its background services.
        self.tasks: tuple[TaskOwner, ...] = (self._tasks, self.client.tasks)

    async def load(self) -> None:
        """Read what is on disk.

        :raises StoreError: a file cannot be read, nor its backup.
        """
        self._begun.push("the delay offsets", self._delays_file.close)
        self._begun.push("what it asks its master", self._tasks.close)
        self._begun.push("the link to its master", self.client.stop)
        self._delays_file.load(self._delays.parse)
        if self._followed is not None:
            self._begun.push("what it was told of", self._followed.close)
            self._followed.load()
            self._followed.begin()

    def start(self) -> None:
        """Follow the master."""
        self._store.acks.set_sync_master(False)
        self.client.start()
        self.metadata.start(self._tasks)

    @property
    def _knows_progress(self) -> bool:
        election = self._ground.settings.raft_election_timeout / 1000
        return self.metadata.has_progress(_PROGRESS_HOLDS + 2 * election)

    async def before_leading(self, members: Callable[[], Sequence[str]]) -> None:
        """Its group has elected it: what it has not heard of the master's progress, it asks the others.

        :param members: the addresses of those that are there.
        """
        if not self._knows_progress:
            await ask_members(self._ground, self._offsets, self._delays, self._client, members)
            self._delays_file.changed()

    def figures(self) -> dict[str, str]:
        """What the runtime information says of it: where its master is, and how much it lacks of its log."""
        found = {"masterHAAddress": self.client.address or "unknown"}
        if self._ground.settings.enable_dleger_commit_log:
            found[KNOWS_PROGRESS] = str(self._knows_progress).lower()
        behind = self.metadata.behind
        if behind is None:
            return found
        return found | {"slaveBehindBytes": str(behind), "slaveBehindSeconds": str(self.metadata.behind_seconds)}

    def link(self) -> HAClientRuntimeInfo:
        """What it says of its link when it is asked (907)."""
        status, metadata = self.client.status(), self.metadata
        return HAClientRuntimeInfo(
            last_read_timestamp=status.last_read_ms,
            last_write_timestamp=status.last_write_ms,
            master_addr=status.master if status.connected else None,
            master_flush_offset=metadata.master_end,
            max_offset=status.end,
            transferred_byte_in_second=status.speed,
            trouble=status.trouble,
            behind_seconds=metadata.behind_seconds,
        )

    async def end(self) -> bool:
        """End every service and bring to disk what it knows; whether all of them ended as they should."""
        return not await self._begun.unwind()

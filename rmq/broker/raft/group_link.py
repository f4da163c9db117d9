"""How a follower's log comes, for who asks a slave: in a group it comes with the election's messages."""

from __future__ import annotations

from rmq.broker.raft.seen import GroupView
from rmq.broker.replication.slave_service import SlaveStatus
from rmq.runtime.tasks import TaskOwner

__all__ = ["GroupLink"]


class GroupLink:
    """What a slave's link to its master is in a group: nothing of its own.

    :param view: of the group, which has the connections.
    """

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self.tasks = TaskOwner("follower")

    @property
    def address(self) -> str | None:
        """Where the leader is, as clients are told."""
        return self._view.leader_address

    @property
    def fits(self) -> bool:
        """Whether the leader's log is the one here: whoever is elected has what is committed."""
        return True

    def start(self) -> None:
        """The group has it follow."""

    async def stop(self) -> None:
        """The group has it lead, or stops."""
        await self.tasks.close()

    def status(self) -> SlaveStatus:
        """How the link is."""
        return self._view.link_status()

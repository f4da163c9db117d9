"""What a member has promised in elections, as ``raft/vote`` has it."""

from __future__ import annotations

import logging

from rmq.broker.raft.met import number
from rmq.broker.raft.sidecar import Kept, Sidecar

__all__ = ["Promises"]

log = logging.getLogger(__name__)


class Promises:
    """Of one member; a node is made of them, and they are kept as it says.

    :param kept: what a start has found.
    """

    def __init__(self, sidecar: Sidecar, kept: Kept) -> None:
        self._sidecar = sidecar
        self._number = number(kept.met.disk)
        self.term = kept.term
        self.vote = kept.vote
        #: Not 0: the number of this disk, which takes the place of a lost one and is not counted yet.
        self.returning = self._number if kept.returning else 0

    async def keep(self, term: int, vote: str | None, returning: int) -> None:
        """:raises OSError: that is not on the disk."""
        await self._sidecar.save_vote(term, vote, returning=returning != 0)
        if self.returning and not returning:
            log.info("this member has everything back that its disk had lost, and is counted again")
        self.term, self.vote, self.returning = term, vote, returning

    async def returns(self) -> int:
        """The others knew another disk of this member, which has said nothing to anybody yet.

        :returns: the number of this disk.
        :raises OSError: that cannot be kept.
        """
        await self.keep(self.term, self.vote, self._number)
        log.warning(
            "this member has lost its disk, and what it had promised: it gets the log from the others, and neither "
            "votes nor counts before it has everything"
        )
        return self._number

"""Who is to lead, as one member sees it: its term and its vote, when it asks for votes, and who has given it theirs."""

from __future__ import annotations

from collections.abc import Callable

from rmq.raft.effects import Effect, Save, Send
from rmq.raft.members import Members
from rmq.raft.messages import VoteReply, VoteRequest
from rmq.raft.position import Position

__all__ = ["Election"]


class Election:
    """One member's part in every election, one after the other; the arguments are those of the node.

    :param do: takes what is to be done, in that order.
    """

    def __init__(
        self,
        members: Members,
        term: int,
        vote: str | None,
        now: float,
        draw: Callable[[], float],
        returning: int,
        do: Callable[[Effect], None],
    ) -> None:
        self._members = members
        self._draw = draw
        self._do = do
        #: The highest that was seen, and whom this member has voted for in it.
        self.term = term
        self.vote = vote
        #: Not 0: the number of a disk that has taken the place of a lost one, and is not counted yet.
        self.returning = returning
        #: When the leader was heard last; long ago after a start, so that nobody is kept from being elected.
        self._heard = now - members.election
        self._votes: set[str] = set()
        #: When this member wants to be elected if it hears of no leader.
        self.due = 0.0
        self.rest(now)

    @property
    def votes(self) -> bool:
        """Whether this one elects, may be elected, and is counted."""
        return self._members.votes and not self.returning

    # -- waiting for a leader

    def rest(self, now: float) -> None:
        """Wait for one, from now on."""
        self.due = now + self._members.election * (1 + self._draw())

    def heard(self, now: float) -> None:
        """The leader has said something."""
        self._heard = now
        self.rest(now)

    def hears(self, now: float) -> bool:
        """Whether the leader was heard so lately that nobody else is elected with this member's vote."""
        return now - self._heard < self._members.election

    def lost(self, now: float) -> None:
        """The leader is gone, most likely: it is waited for no longer, and protected no more."""
        self._heard = now - self._members.election
        self.due = min(self.due, now + self._members.heartbeat * self._draw())

    # -- terms, and what is kept of them

    def follow(self, term: int) -> None:
        """A higher term has begun."""
        self.term, self.vote = term, None
        self._save()

    def stand(self) -> None:
        """Begin a term, with the vote for oneself."""
        self.term += 1
        self.vote = self._members.me
        self._save()

    def admit(self, leader: str) -> None:
        """The leader counts this disk. The lost one may have voted in this term, and not for who leads in it."""
        self.returning, self.vote = 0, leader
        self._save()

    def _save(self) -> None:
        self._do(Save(self.term, self.vote, self.returning))

    # -- votes

    def ask(self, stored: Position, now: float, *, pre: bool, told: bool = False) -> bool:
        """Ask the other voters for theirs; whether this member's own is enough.

        :param stored: what it is to be elected for.
        :param pre: it only wants to know whether it would be elected, in the term that would be next.
        :param told: the leader itself has told it to.
        """
        me = self._members.me
        self.rest(now)
        self._votes = {me}
        if self._members.majority == 1:
            return True
        request = VoteRequest(self.term + pre, me, stored, pre, told)
        for one in self._members.voters:
            if one != me:
                self._do(Send(one, request))
        return False

    def answer(self, request: VoteRequest, stored: Position, now: float) -> None:
        """Somebody asks for this member's vote, in the term that it is in; who only wants to know, in a later one, too.

        :param stored: what this member has.
        """
        free = request.term > self.term if request.pre else self.vote in (None, request.source)
        granted = self.votes and free and request.last >= stored
        if granted and not request.pre:
            if self.vote is None:
                self.vote = request.source
                self._save()
            self.rest(now)
        term = request.term if granted else self.term
        self._do(Send(request.source, VoteReply(term, self._members.me, granted, request.pre)))

    def wins(self, reply: VoteReply) -> bool:
        """Whether a majority has given theirs, with this one, for what was asked last."""
        if not reply.granted or reply.term != self.term + reply.pre or reply.source not in self._members.voters:
            return False
        self._votes.add(reply.source)
        return len(self._votes) >= self._members.majority

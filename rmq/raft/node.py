"""One member of a group: what happens to it, and what role that gives it.

What it does is in three: :mod:`~rmq.raft.election` is who is to lead, :mod:`~rmq.raft.log` what it has of the log, and
:mod:`~rmq.raft.leading` what it knows of the others while it leads.
"""

from __future__ import annotations

from collections.abc import Callable

from rmq.protocol.errors import ReplicationError
from rmq.raft.effects import Became, Effect, LedOn, Role, Send
from rmq.raft.election import Election
from rmq.raft.leading import Follower, Leading
from rmq.raft.log import RaftLog
from rmq.raft.members import Members
from rmq.raft.messages import Admit, Append, AppendReply, Install, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import LogsParted, Position, TermPath

__all__ = ["RaftNode"]

#: Terms that another member can be ahead: one a second is more than an age of them. What has changed on its way, or is
#: a lie, would have taken all terms from the group that there are, and for good: they are kept.
_TERMS = 1 << 32


class RaftNode:
    """The state machine. Times are monotonic seconds of this member's clock; nobody compares them with another's.

    :param path: the log, all of which is stored; its driver has synced it.
    :param term: the highest seen, and
    :param vote: whom this member has voted for in it: as ``Save`` was told last.
    :param returning: not 0: the number of this disk, which takes the place of one that is lost: this member neither
        votes nor is counted until the leader says that it has what that one may have promised.
    :param draw: gives numbers from 0 up to 1, so that members do not all campaign at once.
    :param whole: says where the record ends that begins at an offset, about. Only whole records are acknowledged, so
        that one goes out whole however long it is.
    """

    def __init__(
        self,
        members: Members,
        path: TermPath,
        term: int,
        vote: str | None,
        now: float,
        draw: Callable[[], float],
        returning: int = 0,
        whole: Callable[[int], int] = int,
    ) -> None:
        if term < path.last.term:
            raise LogsParted(f"the log has term {path.last.term}, and {term} was kept as the highest that was seen")
        self.members = members
        self.path = path
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self._effects: list[Effect] = []
        self._log = RaftLog(path, self._do)
        self._election = Election(members, term, vote, now, draw, returning, self._do)
        self._leading: Leading | None = None
        #: The latest ``asked`` of this leader that has come: the answers give it back.
        self._latest_asked = 0
        self._whole = whole

    # -- what it is asked

    @property
    def term(self) -> int:
        """The highest that it has seen, in which it has this role."""
        return self._election.term

    @property
    def commit(self) -> int:
        """Everything before it stays for ever; found out anew after a start."""
        return self._log.commit

    @property
    def takes_messages(self) -> bool:
        """Whether it leads, and gives the lead to nobody."""
        return self._leading is not None and self._leading.heir is None

    @property
    def due(self) -> float:
        """When :meth:`tick` is to be called."""
        if self._leading is None:
            return self._election.due
        leading = self._leading
        due = min(leading.heartbeat_at, leading.quorum_at)
        return due if leading.heir is None else min(due, leading.heir_until)

    def nearest(self, now: float) -> str | None:
        """Of the voters that a leader hears, the one that has most of its log."""
        leading = self._leading
        if leading is None:
            return None
        there = [one for one in self.members.voters if one != self.members.me and leading.can_lead(one, now)]
        return min(there, key=leading.lacks, default=None)

    def followers(self, now: float) -> dict[str, Follower]:
        """What a leader knows of each other member; nothing where this one does not lead."""
        return {} if self._leading is None else self._leading.followers(now)

    @property
    def settled(self) -> bool:
        """Whether a majority follows a leader in its term."""
        return self._leading is not None and self._leading.settled

    def surely_leads(self, now: float) -> bool:
        """Whether nobody else can lead: so many have heard of this one so lately that no other is elected yet."""
        leading = self._leading
        return leading is not None and leading.heir is None and leading.is_sure(now)

    @property
    def heir(self) -> str | None:
        """To whom a leader is giving the lead."""
        return None if self._leading is None else self._leading.heir

    # -- events

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        leading = self._leading
        if leading is None:
            if now >= self._election.due:
                if self._election.votes:
                    self._ask_around(now)
                else:
                    self._follow(self.term, None, now)
            return self._taken()
        if leading.heir is not None and now >= leading.heir_until:
            self._lead_on(leading, leading.heir, now)
            if self._leading is None:
                return self._taken()
        if now >= leading.quorum_at:
            leading.quorum_at = now + self.members.election
            if not leading.has_majority(now):
                self._follow(self.term, None, now)
                return self._taken()
        if now >= leading.heartbeat_at:
            leading.heartbeat_at = now + self.members.heartbeat
            leading.ask(now)
            for one in leading.progress:
                self._send(one, leading.heartbeat(one, self.commit))
        if (preferred := leading.preferred(now)) is not None:
            self._bequeath(leading, preferred, now)
        return self._taken()

    def step(self, message: Message, now: float) -> list[Effect]:
        """A message of another member has come. One of who is no member is ignored.

        :raises LogsParted: it says what no member could say.
        :raises ReplicationError: nobody can have come to its term; it is as if it had not come.
        """
        ahead = message.term - self._election.term
        if ahead > _TERMS:
            raise ReplicationError(f"term {message.term} is so far ahead of {self.term} that no election has begun it")
        if message.source in self.members.others and (ahead == 0 or self._is_to_be_heard(message, now)):
            match message:
                case VoteRequest():
                    self._election.answer(message, self._log.stored, now)
                case VoteReply():
                    self._on_vote_reply(message, now)
                case Append():
                    self._on_append(message, now)
                case Install():
                    self._on_install(message, now)
                case AppendReply():
                    self._on_append_reply(message, now)
                case Admit():
                    self._on_admit(message)
                case TimeoutNow():
                    self._on_timeout_now(now)
        return self._taken()

    def appended(self, end: int) -> None:
        """The leader's store has appended messages up to ``end``, which is where a record ends; :meth:`spread` follows.

        :raises LogsParted: this member does not take any.
        """
        if self._leading is None:
            raise LogsParted(f"{self.members.me} does not lead, and has appended up to {end}")
        self.path.grow(end)

    def spread(self) -> list[Effect]:
        """Send the others what was appended, if this member leads still; once for all that comes together."""
        self._send_spans()
        return self._taken()

    def stored(self, at: Position) -> list[Effect]:
        """The log is durable up to a position where a record ends. What was cut away since is nothing."""
        if self._log.store(at):
            self._tell_stored()
        return self._taken()

    def lost(self, member: str, now: float) -> list[Effect]:
        """The connection of a member has ended: its process has, most likely.

        A leader that is gone is waited for no longer. Others are asked first, and say no while they hear it. To a
        leader it is another one, until it is heard again.
        """
        if self._leading is not None and member in self._leading.progress:
            self._leading.progress[member].lost = now
        if self.role is Role.FOLLOWER and member == self.leader and self._election.votes:
            self._election.lost(now)
        return self._taken()

    def returns(self, number: int) -> None:
        """The others knew another disk of this member, which has said nothing yet: it has lost what it had promised.

        :param number: of this one; the driver has kept it.
        """
        self._election.returning = number

    def deleted(self, start: int) -> None:
        """Retention has deleted what comes before ``start``.

        :raises LogsParted: that is not committed.
        """
        self._log.forget(start)

    def transfer(self, to: str, now: float) -> list[Effect]:
        """Give the lead to another voter, if it takes it in time; else ``LedOn`` says why not.

        Nothing happens where that one is not heard, or the lead is being given away already.
        """
        leading = self._leading
        if (
            leading is not None
            and leading.heir is None
            and to != self.members.me
            and to in self.members.voters
            and leading.can_lead(to, now)
        ):
            self._bequeath(leading, to, now)
        return self._taken()

    # -- effects

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, to: str, message: Message) -> None:
        self._effects.append(Send(to, message))

    # -- terms and roles

    def _is_to_be_heard(self, message: Message, now: float) -> bool:
        """Whether there is more to do about a message of another term than to compare terms."""
        if message.term > self.term:
            if isinstance(message, VoteRequest) and not message.told and self._is_led(now):
                return False  # a leader is there: who does not hear it must not depose it
            of_pre_vote = isinstance(message, VoteRequest | VoteReply) and message.pre
            if not of_pre_vote or (isinstance(message, VoteReply) and not message.granted):
                leader = message.source if isinstance(message, Append | Install) else None
                self._follow(message.term, leader, now)
            return True
        # Who is behind hears of it, and leads or campaigns no more.
        if isinstance(message, VoteRequest):
            self._send(message.source, VoteReply(self.term, self.members.me, False, message.pre))
        elif isinstance(message, Append | Install):
            self._send(message.source, AppendReply(self.term, self.members.me))
        return False

    def _is_led(self, now: float) -> bool:
        return self._leading is not None or (self.leader is not None and self._election.hears(now))

    def _follow(self, term: int, leader: str | None, now: float) -> None:
        if term > self.term:
            self._election.follow(term)
            self._new_term()
        self._become(Role.FOLLOWER, leader)
        self._election.rest(now)

    def _new_term(self) -> None:
        """What was known of who led is nothing any more."""
        self._log.new_term()
        self._latest_asked = 0

    def _become(self, role: Role, leader: str | None) -> None:
        changed = (role, leader) != (self.role, self.leader) or (role is Role.LEADER and self._leading is None)
        self.role, self.leader = role, leader
        if role is not Role.LEADER:
            self._leading = None
        if changed:
            self._do(Became(role, self.term, leader))

    # -- elections

    def _ask_around(self, now: float) -> None:
        """Would I be elected? A member that was cut off comes back without a higher term than the others have."""
        self._become(Role.PRE_CANDIDATE, None)
        if self._election.ask(self._log.stored, now, pre=True):
            self._campaign(now)

    def _campaign(self, now: float, *, told: bool = False) -> None:
        self._election.stand()
        self._new_term()
        self._become(Role.CANDIDATE, None)
        if self._election.ask(self._log.stored, now, pre=False, told=told):
            self._lead(now)

    def _on_vote_reply(self, reply: VoteReply, now: float) -> None:
        if self.role is not (Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE) or not self._election.wins(reply):
            return
        if reply.pre:
            self._campaign(now)
        else:
            self._lead(now)

    def _lead(self, now: float) -> None:
        # It was elected for what it has stored; half a record, or what is not durable yet, nobody has counted.
        before = self._log.stored
        self._log.cut(before)
        self._log.begin(self.term)
        leading = Leading(self.members, self.term, self.path, before, now, self._whole)
        self._become(Role.LEADER, self.members.me)
        self._leading = leading
        leading.heartbeat_at = now + self.members.heartbeat
        for one in leading.progress:
            self._send(one, leading.first(one, self.commit))
        self._count()

    def _on_timeout_now(self, now: float) -> None:
        if self._election.votes and self.role is Role.FOLLOWER:
            self._campaign(now, told=True)

    # -- following

    def _led_by(self, message: Append | Install, now: float) -> None:
        source = message.source
        if self._leading is not None:
            raise LogsParted(f"{source} and {self.members.me} both lead in term {self.term}")
        if source != self.leader:
            self._become(Role.FOLLOWER, source)
        self._election.heard(now)
        self._latest_asked = max(self._latest_asked, message.asked)

    def _on_append(self, message: Append, now: float) -> None:
        self._led_by(message, now)
        if self._log.take(message):
            self._tell_stored()
        else:
            nearest = self.path.nearest(message.before)
            self._reply(message.source, rejected=message.before, nearest=nearest)

    def _on_install(self, message: Install, now: float) -> None:
        self._led_by(message, now)
        if self._log.install(message):
            self._tell_stored()
        else:  # it is asked for what follows what is committed
            self._reply(message.source, rejected=message.at, nearest=self.path.behind(self.commit))

    def _tell_stored(self) -> None:
        """The leader may count what is both its own and stored here."""
        if self._leading is not None:
            self._count()
        elif self.leader is not None and (match := self._log.match) is not None:
            self._reply(self.leader, match=match)

    def _reply(
        self,
        to: str,
        *,
        match: Position | None = None,
        rejected: Position | None = None,
        nearest: Position | None = None,
    ) -> None:
        me, election = self.members.me, self._election
        self._send(to, AppendReply(election.term, me, match, rejected, nearest, self._latest_asked, election.returning))

    def _on_admit(self, message: Admit) -> None:
        election = self._election
        if election.returning and message.returning == election.returning and message.source == self.leader:
            election.admit(message.source)
            self._tell_stored()

    # -- leading

    def _on_append_reply(self, reply: AppendReply, now: float) -> None:
        leading = self._leading
        if leading is None or (reply.match is None and reply.rejected is None):
            return
        told = leading.heard(reply, now, self.commit)
        if told is not None:
            self._send(reply.source, told)
            return
        self._count()
        self._send_spans(reply.source)
        if leading.admits(reply.source, self.commit):
            self._send(reply.source, Admit(self.term, self.members.me, reply.returning))
        self._tell_heir(now)

    def _count(self) -> None:
        if self._leading is not None:
            self._log.committed(self._leading.committed(self._log.stored))

    def _send_spans(self, to: str | None = None) -> None:
        leading = self._leading
        if leading is not None:
            for one in leading.progress if to is None else (to,):
                for message in leading.spans(one, self.commit):
                    self._send(one, message)

    def _bequeath(self, leading: Leading, to: str, now: float) -> None:
        leading.bequeath(to, now)
        self._send(to, leading.heartbeat(to, self.commit))

    def _tell_heir(self, now: float) -> None:
        leading = self._leading
        if leading is not None and leading.heir is not None and leading.is_ready(now):
            self._send(leading.heir, TimeoutNow(self.term, self.members.me))

    def _lead_on(self, leading: Leading, heir: str, now: float) -> None:
        """The heir has not taken the lead. Where it was told to, it may hear of that at any time, and nobody would
        protect this leader: in the next term that word is nothing.
        """
        leading.heir = None
        self._do(LedOn(heir, leading.told, leading.lacks(heir)))
        if leading.told:
            self._campaign(now, told=True)

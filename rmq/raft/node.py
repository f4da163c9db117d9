"""One member of a group: elections, and what a follower takes. A leader's own state is in :mod:`rmq.raft.leading`."""

from __future__ import annotations

from collections.abc import Callable

from rmq.protocol.errors import ReplicationError
from rmq.raft.effects import Became, Begin, Commit, Cut, Effect, Reset, Role, Save, Send, Write
from rmq.raft.leading import Follower, Leading
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
        self.term = term
        self.vote = vote
        self.returning = returning
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        #: Everything before it stays for ever; found out anew after a start.
        self.commit = path.start
        #: What is durable of the log, in whole records: what it is elected for, and what is counted. The log is as its
        #: leader's up to ``_same``.
        self._stored = path.last
        self._same: Position | None = None
        #: The latest ``asked`` of this leader that has come: the answers give it back.
        self._latest_asked = 0
        self._leading: Leading | None = None
        self._votes: set[str] = set()
        self._draw = draw
        self._whole = whole
        self._heard = now - members.election
        self._campaign_at = 0.0
        self._effects: list[Effect] = []
        self._rest(now)

    # -- what it is asked

    @property
    def takes_messages(self) -> bool:
        """Whether it leads, and gives the lead to nobody."""
        return self._leading is not None and self._leading.heir is None

    @property
    def due(self) -> float:
        """When :meth:`tick` is to be called."""
        if self._leading is None:
            return self._campaign_at
        leading = self._leading
        due = min(leading.heartbeat_at, leading.quorum_at)
        return due if leading.heir is None else min(due, leading.heir_until)

    def nearest(self, now: float) -> str | None:
        """Of the voters that a leader hears, the one that has most of its log."""
        leading = self._leading
        if leading is None:
            return None
        known = {one: leading.progress[one] for one in self.members.voters if one != self.members.me}
        places = {
            one: progress.match
            for one, progress in known.items()
            if progress.match is not None and not progress.returning and now - progress.heard < self.members.election
        }
        return max(places, key=lambda one: places[one], default=None)

    def followers(self, now: float) -> dict[str, Follower]:
        """What a leader knows of each other member; nothing where this one does not lead."""
        return {} if self._leading is None else self._leading.followers(now)

    def surely_leads(self, now: float) -> bool:
        """Whether nobody else can lead: so many have heard of this one so lately that no other is elected yet."""
        leading = self._leading
        return leading is not None and leading.heir is None and leading.has_majority(now)

    @property
    def heir(self) -> str | None:
        """To whom a leader is giving the lead."""
        return None if self._leading is None else self._leading.heir

    @property
    def votes(self) -> bool:
        """Whether this one elects, may be elected, and is counted."""
        return self.members.votes and not self.returning

    # -- events

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        leading = self._leading
        if leading is None:
            if now >= self._campaign_at:
                if self.votes:
                    self._ask_around(now)
                else:
                    self._lose_leader(now)
            return self._taken()
        if leading.heir is not None and now >= leading.heir_until:
            leading.heir = None
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
            self._bequeath(preferred, now)
        return self._taken()

    def step(self, message: Message, now: float) -> list[Effect]:
        """A message of another member has come. One of who is no member is ignored.

        :raises LogsParted: it says what no member could say.
        :raises ReplicationError: nobody can have come to its term; it is as if it had not come.
        """
        if message.term - self.term > _TERMS:
            raise ReplicationError(f"term {message.term} is so far ahead of {self.term} that no election has begun it")
        if message.source in self.members.others and self._is_of_this_term(message, now):
            match message:
                case VoteRequest():
                    self._on_vote_request(message, now)
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
        if self.path.contains(at) and at > self._stored:
            self._stored = self.path.through(at)
            self._tell_stored()
        return self._taken()

    def lost(self, member: str, now: float) -> list[Effect]:
        """The connection of a member has ended: its process has, most likely.

        A leader that is gone is waited for no longer. Others are asked first, and say no while they hear it.
        """
        if self.role is Role.FOLLOWER and member == self.leader and self.votes:
            self._heard = now - self.members.election
            self._campaign_at = min(self._campaign_at, now + self.members.heartbeat * self._draw())
        return self._taken()

    def returns(self, number: int) -> None:
        """The others knew another disk of this member, which has said nothing yet: it has lost what it had promised.

        :param number: of this one; the driver has kept it.
        """
        self.returning = number

    def deleted(self, start: int) -> None:
        """Retention has deleted what comes before ``start``.

        :raises LogsParted: that is not committed.
        """
        if start > self.commit:
            raise LogsParted(f"the log is committed up to {self.commit}, and was deleted up to {start}")
        self.path.forget(start)
        # It was committed by what others have stored, and is gone here: nothing of it is stored later.
        self._stored = max(self._stored, self.path.first)

    def transfer(self, to: str, now: float) -> list[Effect]:
        """Give the lead to another voter, if it takes it within the time of an election; else it stays."""
        if self._leading is not None and to != self.members.me and to in self.members.voters:
            self._bequeath(to, now)
        return self._taken()

    # -- effects

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _save(self) -> None:
        self._do(Save(self.term, self.vote, self.returning))

    def _send(self, to: str, message: Message) -> None:
        self._do(Send(to, message))

    # -- terms and roles

    def _is_of_this_term(self, message: Message, now: float) -> bool:
        """Whether there is more to do than to compare terms."""
        if message.term == self.term:
            return True
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
        return self._leading is not None or (self.leader is not None and now - self._heard < self.members.election)

    def _follow(self, term: int, leader: str | None, now: float) -> None:
        if term > self.term:
            self.term, self.vote = term, None
            self._save()
            self._same = None
            self._latest_asked = 0
        self._become(Role.FOLLOWER, leader)
        self._rest(now)

    def _lose_leader(self, now: float) -> None:
        self._become(Role.FOLLOWER, None)
        self._rest(now)

    def _become(self, role: Role, leader: str | None) -> None:
        changed = (role, leader) != (self.role, self.leader) or (role is Role.LEADER and self._leading is None)
        self.role, self.leader = role, leader
        if role is not Role.LEADER:
            self._leading = None
        if changed:
            self._do(Became(role, self.term, leader))

    def _rest(self, now: float) -> None:
        """Wait for a leader."""
        self._campaign_at = now + self.members.election * (1 + self._draw())

    # -- elections

    def _ask_around(self, now: float) -> None:
        """Would I be elected? A member that was cut off comes back without a higher term than the others have."""
        self._become(Role.PRE_CANDIDATE, None)
        self._request_votes(VoteRequest(self.term + 1, self.members.me, self._stored, True), now)

    def _campaign(self, now: float, *, told: bool = False) -> None:
        self.term += 1
        self.vote = self.members.me
        self._same = None
        self._latest_asked = 0
        self._save()
        self._become(Role.CANDIDATE, None)
        self._request_votes(VoteRequest(self.term, self.members.me, self._stored, False, told), now)

    def _request_votes(self, request: VoteRequest, now: float) -> None:
        self._rest(now)
        self._votes = {self.members.me}
        if len(self._votes) >= self.members.majority:
            self._won(request.pre, now)
            return
        for one in self.members.voters:
            if one != self.members.me:
                self._send(one, request)

    def _won(self, pre: bool, now: float) -> None:
        if pre:
            self._campaign(now)
            return
        # It was elected for what it has stored; half a record, or what is not durable yet, nobody has counted.
        before = self._stored
        self._cut(before)
        self._stored = self.path.begin(self.term)
        self._do(Begin(self._stored))
        leading = Leading(self.members, self.term, self.path, before, now, self._whole)
        self._become(Role.LEADER, self.members.me)
        self._leading = leading
        leading.heartbeat_at = now + self.members.heartbeat
        for one in leading.progress:
            self._send(one, leading.first(one, self.commit))
        self._count()

    def _on_vote_request(self, request: VoteRequest, now: float) -> None:
        members = self.members
        free = request.term > self.term if request.pre else self.vote in (None, request.source)
        granted = self.votes and free and request.last >= self._stored
        if granted and not request.pre:
            if self.vote is None:
                self.vote = request.source
                self._save()
            self._rest(now)
        term = request.term if granted else self.term
        self._send(request.source, VoteReply(term, members.me, granted, request.pre))

    def _on_vote_reply(self, reply: VoteReply, now: float) -> None:
        asking = Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE
        term = self.term + 1 if reply.pre else self.term
        if reply.granted and self.role is asking and reply.term == term and reply.source in self.members.voters:
            self._votes.add(reply.source)
            if len(self._votes) >= self.members.majority:
                self._won(reply.pre, now)

    def _on_timeout_now(self, now: float) -> None:
        if self.votes and self.role is Role.FOLLOWER:
            self._campaign(now, told=True)

    # -- following

    def _led_by(self, message: Append | Install, now: float) -> None:
        source = message.source
        if self._leading is not None:
            raise LogsParted(f"{source} and {self.members.me} both lead in term {self.term}")
        self._heard = now
        self._become(Role.FOLLOWER, source)
        self._rest(now)
        self._latest_asked = max(self._latest_asked, message.asked)

    def _reply(
        self,
        to: str,
        *,
        match: Position | None = None,
        rejected: Position | None = None,
        nearest: Position | None = None,
    ) -> None:
        self._send(
            to,
            AppendReply(self.term, self.members.me, match, rejected, nearest, self._latest_asked, self.returning),
        )

    def _on_append(self, message: Append, now: float) -> None:
        self._led_by(message, now)
        path, before, after = self.path, message.before, message.after
        goes_on = before == path.last  # as nearly always: nothing of it is here
        if not goes_on and not path.contains(before):
            nearest = path.nearest(before)
            self._reply(message.source, rejected=before, nearest=nearest)
            return
        if after != before and (goes_on or not path.contains(after)):
            # All that it has of the span stays, so that a message that was overtaken takes nothing away.
            keep = before
            if not goes_on:
                if path.contains(Position(after.term, before.end)):
                    keep = path.nearest(after) or before
                self._cut(keep)
            if after.term > keep.term:
                self._do(Begin(path.begin(after.term)))
                self._stored = path.through(self._stored)
            if after.end > keep.end:
                path.grow(after.end)
                self._do(Write(keep.end, after, message.data[keep.end - before.end :]))
        self._is_same(after, message.commit)

    def _cut(self, keep: Position) -> None:
        if keep == self.path.last:
            return
        if keep.end < self.commit:
            raise LogsParted(f"a leader takes back what is committed: the log from {keep} up to {self.commit}")
        self.path.cut(keep)
        self._stored = min(self._stored, keep)
        self._do(Cut(keep))

    def _on_install(self, message: Install, now: float) -> None:
        self._led_by(message, now)
        path, at = self.path, message.at
        if not path.contains(at):
            if at.end < self.commit:
                # What it begins with has been here, and was deleted: it is asked for what follows what is committed.
                self._reply(message.source, rejected=at, nearest=path.behind(self.commit))
                return
            path.reset(at)
            self._stored = at
            self._do(Reset(at))
        self._is_same(at, message.commit)

    def _is_same(self, at: Position, commit: int) -> None:
        """The log is the leader's up to here."""
        if self._same is None or at > self._same:
            self._same = at
        self._committed(min(commit, self._same.end))
        self._tell_stored()

    def _tell_stored(self) -> None:
        """The leader may count what is both its own and stored here."""
        if self._leading is not None:
            self._count()
        elif self.leader is not None and self._same is not None:
            self._reply(self.leader, match=min(self._stored, self._same))

    def _on_admit(self, message: Admit) -> None:
        if self.returning and message.returning == self.returning and message.source == self.leader:
            # The lost disk may have voted in this term, and not for who leads in it.
            self.returning, self.vote = 0, message.source
            self._save()
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
        self._tell_heir()

    def _count(self) -> None:
        if self._leading is not None:
            self._committed(self._leading.committed(self._stored))

    def _committed(self, end: int) -> None:
        if end > self.commit:
            self.commit = end
            self._do(Commit(end))

    def _send_spans(self, to: str | None = None) -> None:
        leading = self._leading
        if leading is not None:
            for one in leading.progress if to is None else (to,):
                for message in leading.spans(one, self.commit):
                    self._send(one, message)

    def _bequeath(self, to: str, now: float) -> None:
        leading = self._leading
        if leading is not None and not leading.progress[to].returning:
            leading.bequeath(to, now)
            self._tell_heir()

    def _tell_heir(self) -> None:
        leading = self._leading
        if leading is not None and leading.heir is not None and leading.is_ready():
            self._send(leading.heir, TimeoutNow(self.term, self.members.me))

"""A group as one of its members sees it, for whoever asks: roles, terms, how far each is behind, and what is amiss."""

from __future__ import annotations

from typing import NamedTuple

from rmq.broker.parts import Ground
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.links import Links
from rmq.broker.raft.met import Meetings
from rmq.broker.raft.peers import Peers
from rmq.broker.replication.slave_service import SlaveStatus
from rmq.protocol import addresses
from rmq.protocol.bodies.replica import GroupInfo, GroupMember
from rmq.raft.effects import Role

__all__ = ["GroupView", "Member"]

_NO_LEADER = "the group has no leader"
#: What others know as one: whether it only asks, or is asking already, is over within milliseconds.
_NAMES = {Role.PRE_CANDIDATE: "candidate"}


class Member(NamedTuple):
    """What takes part in a group for a broker."""

    driver: RaftDriver
    links: Links
    meetings: Meetings

    @property
    def takes_part(self) -> bool:
        """Whether every other member has been met: until then nobody could tell whether one has lost its disk."""
        return self.meetings.met.begun


class GroupView:
    """What one broker tells of its group.

    :param peers: its members.
    """

    def __init__(self, ground: Ground, peers: Peers) -> None:
        self._clock = ground.world.clock
        self._log = ground.store.log
        self._broker_addr = ground.broker_addr
        self._peers = peers
        #: None before the store is loaded.
        self.member: Member | None = None
        #: Who leads, since when as this member knows, and what it had taken from leaders by then.
        self._led: tuple[str | None, float, int] = (None, 0.0, 0)
        #: It has had the leader's log once, since its start.
        self._came_up = False

    # -- where the others are

    @property
    def leader_address(self) -> str | None:
        """What clients are told of the member that leads; None while that is unknown, or this one."""
        if self.member is None or self.member.driver.leader is None:
            return None
        return self.member.links.brokers.get(self.member.driver.leader)

    def address_of_leader(self) -> str | None:
        """The same; this member's own where it leads."""
        leader = None if self.member is None else self.member.driver.leader
        return None if leader is None else self.address_of(leader)

    def address_of(self, one: str) -> str | None:
        """What clients are told of a member; None while it was not met since the start."""
        if one == self._peers.members.me:
            return self._broker_addr
        return None if self.member is None else self.member.links.brokers.get(one)

    def addresses_there(self) -> list[str]:
        """What clients are told of the other members that are there."""
        links = None if self.member is None else self.member.links
        return [] if links is None else [links.brokers[one] for one in links.connected if one in links.brokers]

    # -- how it is

    def changed(self) -> None:
        """Another one leads, perhaps."""
        if self.member is not None and (driver := self.member.driver).leader != self._led[0]:
            self._led = (driver.leader, self._clock.monotonic(), driver.log.taken)

    def info(self) -> GroupInfo:
        """The whole group."""
        peers, end = self._peers, self._log.end
        found = GroupInfo(group=peers.group, me=peers.members.me, role="stopped", end=end, trouble=self.missing)
        found.preferred = ";".join(peers.members.preferred) or None
        if self.member is None:
            found.members = [GroupMember(id=one, addr=self._listens(one)) for one in peers.members.others]
            return found
        driver, links, _ = self.member
        node, found.term = driver.node, driver.term
        if node is not None:
            if driver.failures.lasting is None:  # else it ends again within a moment
                found.role = _NAMES.get(node.role, node.role.value)
            found.leader, found.committed = driver.leader, node.commit
        followers = {} if node is None else node.followers(self._clock.monotonic())
        connected = links.answering
        for one in peers.members.others:
            member = GroupMember(id=one, addr=self._listens(one), connected=one in connected)
            member.broker, member.trouble = links.brokers.get(one), links.refused_by.get(one)
            if one in followers:
                match, silent, member.counted = followers[one]
                member.heard, member.speed = int(silent * 1000), links.speed_to(one)
                if match is not None:
                    member.end, member.behind = match.end, max(0, end - match.end)
                    near = member.behind <= peers.members.near and silent <= peers.members.election
                    member.in_sync = near and member.counted
            found.members.append(member)
        return found

    def _listens(self, one: str) -> str:
        """Where a member listens for the others."""
        return addresses.join(*self._peers.at[one])

    def figures(self) -> dict[str, str]:
        """What the runtime information says of the group."""
        info = self.info()
        found = {
            "raftGroup": info.group,
            "raftMember": info.me,
            "raftRole": info.role,
            "raftTerm": str(info.term),
            "raftLeader": info.leader or "unknown",
            "raftCommitOffset": str(info.committed),
            "raftMembersConnected": f"{sum(one.connected for one in info.members)} of {len(info.members)}",
        }
        behind = [one.behind for one in info.members if one.behind is not None]
        if behind:
            found["slaveBehindBytes"] = str(max(behind))
        return found

    def link_status(self) -> SlaveStatus:
        """How a follower gets the log."""
        end, trouble = self._log.end, self.missing
        if self.member is None:
            return SlaveStatus(end, None, connected=False, trouble=trouble)
        driver, links, _ = self.member
        _, since, taken = self._led
        return SlaveStatus(
            end,
            self.leader_address,
            connected=driver.leader in links.answering,
            trouble=trouble,
            received=driver.log.taken,
            last_read_ms=driver.heard_ms,
            last_write_ms=driver.heard_ms,
            speed=int((driver.log.taken - taken) / max(self._clock.monotonic() - since, 1.0)),
        )

    # -- what is amiss

    @property
    def missing(self) -> str | None:
        """Why clients may not be sent here."""
        if self.member is None:
            return "the group has not begun"
        driver, links, meetings = self.member
        if driver.parted is not None:
            return f"this member of the group has stopped: {driver.parted}"
        if (why := driver.failures.lasting) is not None:
            return f"this member takes part in nothing: {why}"
        refused = links.refused_by
        if not self.member.takes_part:
            lacking = meetings.lacking
            never = "never was" if len(lacking) == 1 else "never were"
            why = next((f"; {refused[one]}" for one in lacking if one in refused), "")
            return f"the group begins once every member was met: {', '.join(lacking)} {never}{why}"
        if len(refused) == len(self._peers.members.others):
            return f"no other member takes this one: {next(iter(refused.values()))}"
        if driver.leads is None and driver.leader is None:
            return _NO_LEADER
        if driver.returning:
            return (
                f"this member has lost what was on its disk, and gets it from the others: it has {self._log.end} bytes"
            )
        return None

    @property
    def leaderless(self) -> str | None:
        """Why nobody leads, as far as can be told here; None where somebody does, or this member has said why it stands
        aside.
        """
        why = self.missing
        if self.member is None:
            return None
        driver, links, _ = self.member
        if driver.leader is not None or driver.parted or driver.returning or driver.failures.lasting:
            return None
        if why == _NO_LEADER:
            members = self._peers.members
            away = [one for one in members.others if one not in links.answering]
            who = f"{', '.join(away)} not connected" if away else "all members are connected, and their logs say why"
            why += f": {who}; {members.majority} of {len(members.voters)} have to hear each other"
        return why

    def lacks(self, behind: int | None) -> str | None:
        """What it has not got yet of what it missed before its start; later on it may be behind now and then.

        :param behind: bytes of the leader's log; None where that is not known, or this one leads.
        """
        if self.member is not None and self.member.driver.leads is not None:
            self._came_up = True
        elif not self._came_up:
            if behind is None:
                return "it does not know yet how far the leader's log goes"
            if behind > self._peers.members.near:
                return f"it lacks {behind} bytes of the leader's log, and takes them"
            self._came_up = True
        return None

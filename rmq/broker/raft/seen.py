"""A group as one of its members sees it, for whoever asks: roles, terms, and how far each is behind."""

from __future__ import annotations

from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.links import Links
from rmq.broker.raft.peers import Peers
from rmq.protocol import addresses
from rmq.protocol.bodies.replica import GroupInfo, GroupMember
from rmq.raft.effects import Role

__all__ = ["seen"]

#: What others know as one: whether it only asks, or is asking already, is over within milliseconds.
_NAMES = {Role.PRE_CANDIDATE: "candidate"}


def seen(
    peers: Peers, driver: RaftDriver | None, links: Links | None, end: int, now: float, trouble: str | None
) -> GroupInfo:
    """What a member knows.

    :param end: of its log.
    :param now: monotonic seconds.
    :param trouble: why clients may not be sent here.
    """
    node = None if driver is None else driver.node
    found = GroupInfo(group=peers.group, me=peers.members.me, role="stopped", end=end, trouble=trouble)
    found.preferred = peers.members.preferred
    if node is not None and driver is not None:
        found.role = _NAMES.get(node.role, node.role.value)
        found.term, found.leader, found.committed = node.term, driver.leader, node.commit
    followers = {} if node is None else node.followers(now)
    connected = () if links is None else links.connected
    for one in peers.members.others:
        member = GroupMember(id=one, addr=addresses.join(*peers.at[one]), connected=one in connected)
        if links is not None:
            member.broker, member.trouble = links.brokers.get(one), links.refused_by.get(one)
        if one in followers:
            match, since, member.counted = followers[one]
            member.heard = int(since * 1000)
            if match is not None:
                member.end, member.behind = match.end, max(0, end - match.end)
                near = member.behind <= peers.members.near and since <= peers.members.election
                member.in_sync = near and member.counted
        found.members.append(member)
    return found

"""What members say of a group that elects its master, judged together; nothing here asks servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmq.cli.finding import Finding, judged
from rmq.protocol.bodies.replica import GroupInfo, GroupMember

__all__ = ["of_elected"]

#: Bytes that a member may lack of a log that is written to.
_MUCH = 64 << 20
#: Seconds: a member that follows answers heartbeats, at most 12 s apart (``raftElectionTimeout``).
_SILENT = 15


def of_elected(name: str, said: Mapping[int, tuple[str, GroupInfo | None]]) -> Iterator[Finding]:
    """The brokers of one name, of which at least one is a member of a group.

    :param name: their brokerName.
    :param said: by the broker id under which name servers know it, where each is and what it says of its group; None
        where it says nothing of one.
    """
    told = {where: group for where, group in said.values() if group is not None}
    if not _is_one(told):
        names = "; ".join(f"{where} is {group.me} of {group.group}" for where, group in told.items())
        what = f"more than one group is registered under this brokerName: clients are sent to either ({names})"
        do = "give one of them another brokerName; members of one have the same dLegerGroup and ids in dLegerPeers"
        yield judged(True, name, what, do)
        return
    yield from _places(name, told)
    for where, group in said.values():
        if group is None:
            what = "it is registered beside members of a group under this brokerName, and is none"
            yield judged(
                True, where, what, "stop it, or give it another brokerName; enableDLegerCommitLog is set at all"
            )
    yield from _preferred(name, told)
    leading = [(where, group) for where, group in told.items() if group.role == "leader"]
    if not leading:
        yield from _without_leader(name, told)
        return
    where, leader = max(leading, key=lambda one: one[1].term)
    yield from _of_leader(where, leader)
    yield from _troubles(leader.term, told)
    if said.get(0, (where, leader))[0] != where:
        what = f"name servers send clients to {said[0][0]}, and {leader.me} leads the group"
        yield judged(True, name, what, "the leader registers within 30 s: look again; else see its namesrvAddr")


def _is_one(told: Mapping[str, GroupInfo]) -> bool:
    """Whether all of them are members of the same group, by what they are called."""
    return len(
        {(group.group, *sorted((group.me, *(one.id for one in group.members)))) for group in told.values()}
    ) <= 1 and len({group.me for group in told.values()}) == len(told)


def _places(name: str, told: Mapping[str, GroupInfo]) -> Iterator[Finding]:
    """Whether they name each other at the same addresses."""
    named: dict[str, dict[str, list[str]]] = {}
    for group in told.values():
        for one in group.members:
            named.setdefault(one.id, {}).setdefault(one.addr, []).append(group.me)
    for member, places in sorted(named.items()):
        if len(places) > 1:
            at = ", ".join(f"{addr} ({', '.join(sorted(who))})" for addr, who in sorted(places.items()))
            do = "have the same dLegerPeers at all members; another group needs another brokerName"
            yield judged(True, name, f"its members do not name one address of {member} in dLegerPeers: {at}", do)


def _preferred(name: str, told: Mapping[str, GroupInfo]) -> Iterator[Finding]:
    """Whether they want the same to lead: each hands the lead to its own."""
    said = {group.me: group.preferred for group in told.values()}
    if len(set(said.values())) > 1:
        by = ", ".join(f"{me} says {preferred or 'nobody'}" for me, preferred in sorted(said.items()))
        do = "have the same at all members: else the lead may go to and fro"
        yield judged(False, name, f"its members name different ones as preferredLeaderId: {by}", do)


def _without_leader(name: str, told: Mapping[str, GroupInfo]) -> Iterator[Finding]:
    seen = next(iter(told.values()))
    here, all_ = sorted(group.me for group in told.values()), len(seen.members) + 1
    away = sorted({one.id for one in seen.members} - set(here))
    what = f"no member of it leads, so nothing is sent to it: {len(here)} of {all_} members answer"
    refused = {one.id for group in told.values() for one in group.members if one.trouble}
    dead = [one for one in away if one not in refused]
    do = [f"start {', '.join(dead)}"] if dead else []
    if refused:
        do.append(f"see why {', '.join(sorted(refused))} and the others do not take each other")
    elif not dead:
        do.append("see that they reach each other at the addresses of dLegerPeers")
    yield judged(True, name, what, "; ".join(do))
    yield from _troubles(0, told)


def _troubles(term: int, told: Mapping[str, GroupInfo]) -> Iterator[Finding]:
    for where, group in told.items():
        if group.role != "leader" and group.trouble and "has no leader" not in group.trouble:
            yield judged(True, where, group.trouble, "docs/failover.md says what to do")
        elif term and group.role == "candidate" and group.term >= term:
            yield judged(False, where, "it does not hear the leader", "see that they reach each other")


def _of_leader(where: str, leader: GroupInfo) -> Iterator[Finding]:
    away = [one for one in leader.members if not one.connected and one.trouble is None]
    silent = [
        one for one in leader.members if one.connected and one.trouble is None and (one.heard or 0) >= _SILENT * 1000
    ]
    here = 1 + sum(one.connected and one.counted and one not in silent for one in leader.members)
    spare = here - ((len(leader.members) + 1) // 2 + 1)
    rest = "one more, and nobody leads" if spare == 0 else f"{spare + 1} more, and nobody leads"
    for one in away:
        yield judged(spare <= 0, where, f"the member {one.id} ({one.addr}) is away: {rest}", f"start {one.id}")
    for one in silent:
        what = (
            f"the member {one.id} ({one.addr}) takes connections and has said nothing for {(one.heard or 0) // 1000} s"
        )
        do = "its process stands still, or its answers do not come through: look at its machine, and start it anew"
        yield judged(spare <= 0, where, f"{what}: {rest}", do)
    for one in leader.members:
        if one.trouble is not None:
            yield judged(
                True, where, f"the member {one.id} does not take it: {one.trouble}", "docs/failover.md has why"
            )
        elif one.connected and not one.counted:
            what = f"the member {one.id} has lost its disk, and is not counted before it has everything again"
            yield judged(
                spare <= 0,
                where,
                what,
                "wait, and stop no other member meanwhile: mqadmin haStatus shows how far it is",
            )
        elif one.connected and one not in silent:
            yield from _lag(where, one)
    preferred = leader.preferred
    if preferred is not None and leader.me not in preferred.split(";"):
        what = f"{leader.me} leads, and {preferred} is the preferredLeaderId"
        yield judged(False, where, what, "it gets the lead when it is there and has come up to the others")


def _lag(where: str, one: GroupMember) -> Iterator[Finding]:
    if one.end is None:
        yield judged(True, where, f"the member {one.id} has not said yet how far its log goes", "its log says why")
    elif (one.behind or 0) > _MUCH:
        what = f"the member {one.id} is {(one.behind or 0) / (1 << 20):.0f} MiB behind"
        yield judged(False, where, what, "mqadmin haStatus shows whether it catches up; it cannot lead meanwhile")

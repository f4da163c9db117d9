"""Who is in a broker's group, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.broker.settings import BrokerSettings
from rmq.protocol import addresses
from rmq.protocol.errors import ConfigError
from rmq.raft.members import Members

__all__ = ["Peers"]

_FORM = "n0-host:port;n1-host:port;n2-host:port"


@dataclass(frozen=True, slots=True)
class Peers:
    """A group: its name, its members, and where each of them listens for the others."""

    group: str
    members: Members
    #: Id -> host and port, of every member, this one, too.
    at: dict[str, tuple[str, int]]

    @property
    def follower_id(self) -> int:
        """The broker id of this member while it does not lead: the number of its id and one (Java's rule)."""
        return int(self.members.me[1:]) + 1

    def with_id(self, broker_id: int) -> str | None:
        """The member that has this broker id while it does not lead."""
        return next((one for one in self.members.voters if int(one[1:]) + 1 == broker_id), None)

    @classmethod
    def of(cls, settings: BrokerSettings) -> Peers:
        """``dLegerGroup``, ``dLegerPeers``, ``dLegerSelfId`` and ``preferredLeaderId``.

        :raises ConfigError: names the key and what to do.
        """
        at = cls._addresses(settings)
        if not settings.d_leger_self_id:
            raise settings.refused("dLegerSelfId", f"say which of {', '.join(at)} this broker is")
        if settings.d_leger_self_id not in at:
            raise settings.refused("dLegerSelfId", f"is none of the members {', '.join(at)} of dLegerPeers")
        if at[settings.d_leger_self_id][1] in (settings.listen_port, settings.listen_port - 2):
            raise settings.refused(
                "dLegerPeers",
                f"clients are served on the port of {settings.d_leger_self_id} (listenPort, and 2 below): members have "
                "another one for each other",
            )
        preferred = tuple(one.strip() for one in settings.preferred_leader_id.split(";") if one.strip())
        for one in preferred:
            if one not in at:
                raise settings.refused(
                    "preferredLeaderId", f"{one} is none of the members {', '.join(at)} of dLegerPeers"
                )
        election = settings.raft_election_timeout / 1000
        members = Members(
            settings.d_leger_self_id, tuple(at), preferred=preferred, election=election, heartbeat=election / 5
        )
        return cls(settings.d_leger_group or settings.broker_name, members, at)

    @staticmethod
    def _addresses(settings: BrokerSettings) -> dict[str, tuple[str, int]]:
        """Id -> where it listens, of every member that ``dLegerPeers`` names."""
        at: dict[str, tuple[str, int]] = {}
        parts = [part.strip() for part in settings.d_leger_peers.split(";") if part.strip()]
        if not parts:
            raise settings.refused("dLegerPeers", f"name the members, the same at all: {_FORM}")
        for part in parts:
            name, dash, address = part.partition("-")
            number = name[1:]
            if not dash or not number.isascii() or not number.isdigit() or len(number) > 6:
                raise settings.refused("dLegerPeers", f"{part!r} is no member: write {_FORM}")
            if "," in address:
                raise settings.refused("dLegerPeers", f"members are separated by ';': write {_FORM}")
            try:
                place = addresses.parse(address)
            except ConfigError as error:
                raise settings.refused("dLegerPeers", str(error)) from None
            if any(char.isspace() for char in place[0]) or _is_no_ip(place[0]):
                raise settings.refused("dLegerPeers", f"{place[0]!r} is no host: give a name or an IP address")
            if _is_any(place[0]):
                raise settings.refused("dLegerPeers", f"{part!r} is nowhere: give the address at which others reach it")
            if name in at or place in at.values() or any(int(number) == int(other[1:]) for other in at):
                raise settings.refused(
                    "dLegerPeers", f"{part!r} is there twice: each member has an id, a number and an address of its own"
                )
            at[name] = place
        if len(at) not in (3, 5, 7):
            what = "1 member" if len(at) == 1 else f"{len(at)} members"
            raise settings.refused(
                "dLegerPeers",
                f"names {what}: a group has 3, 5 or 7"
                + ("; one broker alone is a plain one, with enableDLegerCommitLog=false" if len(at) == 1 else ""),
            )
        return at


def _is_no_ip(host: str) -> bool:
    """Whether it looks like an IPv4 address, and is none."""
    if not all(char.isdigit() or char == "." for char in host):
        return False
    try:
        addresses.host(host)
    except ValueError:
        return True
    return False


def _is_any(host: str) -> bool:
    """Whether it stands for every address of a machine, so that nobody else can reach it there."""
    try:
        return addresses.host(host).is_unspecified
    except ValueError:
        return False

"""Who is in a group, as its settings say, and its times."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmq.protocol.errors import ConfigError

__all__ = ["Members"]


@dataclass(frozen=True, slots=True)
class Members:
    """A group as one of its members sees it. Every member has the same voters; times are seconds, sizes bytes.

    :raises ConfigError: they make no group.
    """

    #: This member's id (``dLegerSelfId``).
    me: str
    #: Ids of those that elect and are counted (``dLegerPeers``).
    voters: tuple[str, ...]
    #: Ids of those that only follow.
    learners: tuple[str, ...] = ()
    #: Who are to lead while one of them can (``preferredLeaderId``).
    preferred: tuple[str, ...] = ()
    #: Without a word of the leader, a member wants to be elected after this, and less than twice as long; a leader that
    #: does not hear of a majority for so long is none any more.
    election: float = 1.0
    #: Between two words of a leader.
    heartbeat: float = 0.2
    #: Bytes of a span, and of those that one member has not acknowledged.
    span: int = 1 << 20
    window: int = 4 << 20
    #: A preferred leader that lacks no more gets the lead, and is tried again so much later.
    near: int = 1 << 20
    patience: float = 10.0
    #: Everybody but this one, and how many voters decide: asked for with each message.
    others: tuple[str, ...] = field(init=False)
    majority: int = field(init=False)

    def __post_init__(self) -> None:
        ids = (*self.voters, *self.learners)
        object.__setattr__(self, "others", tuple(one for one in ids if one != self.me))
        object.__setattr__(self, "majority", len(self.voters) // 2 + 1)
        if len(set(ids)) != len(ids) or not self.voters or self.me not in ids:
            raise ConfigError(f"{self.me} is not once among the members {', '.join(ids) or '(none)'}")
        for one in self.preferred:
            if one not in self.voters:
                raise ConfigError(f"the preferred leader {one} is none of {', '.join(self.voters)}")
        if not 0 < self.heartbeat < self.election or min(self.span, self.window) < 1:
            raise ConfigError("a leader's heartbeat is shorter than an election, and spans have bytes")

    @property
    def votes(self) -> bool:
        """Whether this one does."""
        return self.me in self.voters

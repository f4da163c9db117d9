"""What is to be done, in the order in which it is said; the package's docstring says what that order promises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rmq.raft.messages import Message
from rmq.raft.position import Position

__all__ = ["Became", "Begin", "Commit", "Cut", "Effect", "Reset", "Role", "Save", "Send", "Write"]


class Role(Enum):
    """What a member is."""

    FOLLOWER = "follower"
    #: It asks whether it would be elected.
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Save:
    """Keep term and vote (Raft's hard state)."""

    term: int
    vote: str | None
    #: Not 0: this disk has that number, takes the place of one that is lost, and is not counted yet.
    returning: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The log ends here: what is behind goes, and so do the terms above."""

    to: Position


@dataclass(frozen=True, slots=True)
class Reset:
    """The whole log goes, and begins anew here."""

    at: Position


@dataclass(frozen=True, slots=True)
class Begin:
    """Note that a term begins here, where the log ends."""

    at: Position


@dataclass(frozen=True, slots=True)
class Write:
    """Append the bytes from one offset to another, and say so when they are stored."""

    start: int
    after: Position
    #: A part of those of the message, with nothing copied: :class:`~rmq.raft.messages.Append` says how long they are.
    data: bytes | memoryview
    #: CRC-32 of them, where it is known.
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """To a member."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything before this offset stays for ever, and may be seen."""

    end: int


@dataclass(frozen=True, slots=True)
class Became:
    """The role, the term, or who leads, is another one."""

    role: Role
    term: int
    #: None while nobody is known to lead.
    leader: str | None


@dataclass(frozen=True, slots=True)
class LedOn:
    """A member to which the lead was given has not taken it in time: this one goes on."""

    heir: str
    #: It had everything, and was told to stand: it may still hear that, so that this member leads on in the next term.
    told: bool
    #: Bytes of the log that it lacks.
    lacks: int


Effect = Save | Cut | Reset | Begin | Write | Send | Commit | Became | LedOn

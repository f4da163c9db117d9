"""What members say to each other. ``term`` is the sender's, ``source`` its id."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.raft.position import Position

__all__ = ["Admit", "Append", "AppendReply", "Install", "Message", "TimeoutNow", "VoteReply", "VoteRequest"]


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Elect me. ``term`` is the one to be elected in."""

    term: int
    source: str
    #: Everything that the candidate has.
    last: Position
    #: It only wants to know whether it would be elected: nobody's term changes.
    pre: bool
    #: The leader itself has told it to, or is it: nobody protects that one.
    told: bool = False


@dataclass(frozen=True, slots=True)
class VoteReply:
    """What is thought of that."""

    #: That of the request where it is granted.
    term: int
    source: str
    granted: bool
    pre: bool


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's log goes on behind a position, up to another; nothing between them is a heartbeat."""

    term: int
    source: str
    before: Position
    #: The bytes up to here are of its term.
    after: Position
    #: The leader's commit.
    commit: int
    #: Carried along: nobody here looks at it. A view may be overwritten once the effects of its step are carried out.
    data: bytes | memoryview = b""
    #: The leader's clock when it asked for a word last, microseconds: it comes back, and nobody else looks at it.
    asked: int = 0
    #: CRC-32 of ``data``, where it is known.
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Install:
    """What the member lacks is deleted: its log begins anew, here, where everything before is committed."""

    term: int
    source: str
    at: Position
    commit: int
    asked: int = 0


@dataclass(frozen=True, slots=True)
class AppendReply:
    """What a member has of its leader's log."""

    term: int
    source: str
    #: It is the same up to here, and stored; None where that is not known.
    match: Position | None = None
    #: The ``before`` that it does not have,
    rejected: Position | None = None
    #: and what it has instead: nothing above is common.
    nearest: Position | None = None
    #: The latest ``asked`` of this leader that has come here.
    asked: int = 0
    #: Not 0: it has come back without its disk, with another one that has this number, and neither votes nor counts.
    returning: int = 0


@dataclass(frozen=True, slots=True)
class Admit:
    """Vote again, and be counted: a member that has come back without its disk has what that one may have promised."""

    term: int
    source: str
    #: The disk that is meant; another one that came after it is not.
    returning: int


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Be the next leader: campaign at once."""

    term: int
    source: str


Message = VoteRequest | VoteReply | Append | Install | AppendReply | Admit | TimeoutNow

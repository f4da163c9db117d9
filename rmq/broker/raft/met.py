"""Whom a member has met, each by its disk: what tells a group's first start from a member that has lost its disk.

Each disk has a name, drawn when it was new, and each member is told another word for it (:func:`called`), so that who
hears one cannot pass for that member at a third. A member keeps the others' words, and says with its own how it knows
who it speaks to (:func:`digest`: not the word itself, for something else may have that address now).

**A new group begins** once every member knows that every other one keeps its word. So who finds itself known by another
word has had another disk: whatever that one had promised, a vote, or that it holds what was acknowledged, is lost with
it. It **returns**: it follows, and neither votes nor is counted, before the leader says that it has everything back
(:meth:`rmq.raft.leading.Leading.admits`). Members without disks never begin anything beside one that has its own.

A disk that another one has taken the place of is a member's no more, wherever it is put back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256

from rmq.broker.raft.wire import Hello
from rmq.protocol.errors import ReplicationError

__all__ = ["Meetings", "Met", "Replaced", "called", "digest", "number"]


class Replaced(ReplicationError):
    """Another disk has taken the place of this one in its group."""


def called(disk: str, to: str) -> str:
    """What a member calls its disk towards another."""
    return sha256(f"{disk} {to}".encode()).hexdigest()[:24]


def digest(word: str) -> str:
    """Shows who knows a word that somebody else knows it, too."""
    return sha256(f"known {word}".encode()).hexdigest()[:24]


def number(disk: str) -> int:
    """A disk as the election's messages name it, never 0."""
    return int(sha256(disk.encode()).hexdigest()[:15], 16) + 1


@dataclass(frozen=True, slots=True)
class Met:
    """What is kept of that, on the disk before anything is heard of whom it is about."""

    #: What this member calls its own disk.
    disk: str
    #: Id -> that member's word for its disk.
    others: dict[str, str] = field(default_factory=dict)
    #: Id -> words of disks that it had before.
    retired: dict[str, list[str]] = field(default_factory=dict)
    #: Everybody was met, or this disk has taken the place of one: a majority is enough from then on.
    begun: bool = False
    #: This disk has taken the place of another one.
    returned: bool = False


class Meetings:
    """One member's.

    :param others: the ids of the others.
    :param met: what is kept.
    """

    def __init__(self, others: tuple[str, ...], met: Met) -> None:
        self.met = met
        self._others = others
        #: Those that keep this member's word.
        self._confirmed: set[str] = set()
        #: What each has said last.
        self._newest: dict[str, Hello] = {}

    @property
    def lacking(self) -> list[str]:
        """Those without whom the group does not begin: who never was here, or else who does not know this one yet."""
        if self.met.begun:
            return []
        absent = [one for one in self._others if one not in self.met.others]
        return absent or [one for one in self._others if one not in self._confirmed]

    def is_known(self, one: str, word: str) -> bool:
        """Whether what comes from a member with this disk is heard."""
        return self.met.others.get(one) == word

    def has_to_prove(self, hello: Hello) -> bool:
        """Whether a member has to show that it is that one before it is heard: its word is new, and the group is not.

        Only who has lost a disk is new then, or who is spoken to has. While a new group begins everybody is met, and a
        wrong word is replaced by the right one.
        """
        begun, word = self.met.begun, self.met.others.get(hello.source)
        if word == hello.disk:
            return False
        return hello.returned or (word is None if begun else hello.begun)

    def introduce(self, hello: Hello) -> Hello:
        """What this member says to ``hello.to``."""
        met, word = self.met, self.met.others.get(hello.to)
        return replace(
            hello, disk=called(met.disk, hello.to), known="" if word is None else digest(word), begun=met.begun,
            returned=met.returned,
        )  # fmt: skip

    def hear(self, hello: Hello) -> Met | None:
        """A member says who it is.

        :returns: what is to be kept first; None when that is so.
        :raises ReplicationError: it is not heard.
        :raises Replaced: this member is none any more.
        """
        met, one = self.met, hello.source
        word = met.others.get(one)
        if hello.disk in met.retired.get(one, ()):
            raise ReplicationError(
                f"{one} comes with a disk that another one has taken the place of: what that one has promised since "
                "then it does not know; start it with the newer one, or with an empty store"
            )
        if word not in (None, hello.disk) and met.begun and not hello.returned:
            raise ReplicationError(
                f"{one} comes with another disk than the one it had: it has lost what it had promised, and hears of "
                "that when this member reaches it at its address in dLegerPeers"
            )
        if hello.known and hello.known != digest(called(met.disk, one)) and hello.begun and not met.returned:
            if met.begun and word == hello.disk:
                raise Replaced(
                    f"{one} knows this member with a newer disk: start it with that one, or with an empty store"
                )
            if not met.begun:
                met = replace(met, begun=True, returned=True)
        confirms = hello.known == digest(called(met.disk, one))
        if confirms:
            self._confirmed.add(one)
        else:
            self._confirmed.discard(one)
        if word != hello.disk:
            before = met.retired.get(one, [])
            retired = met.retired if word is None or not self.met.begun else {**met.retired, one: [*before, word]}
            met = replace(met, others={**met.others, one: hello.disk}, retired=retired)
        if not met.begun and set(self._others) <= self._confirmed & set(met.others):
            met = replace(met, begun=True)
        self._newest[one] = hello
        return None if met == self.met else met

    def hear_again(self, one: str) -> tuple[Hello, Met | None]:
        """What a member has said last, and what of it is still to be kept: it may have said more since then, and only
        who has not kept this member's word at the end is not confirmed.

        :raises ReplicationError: as :meth:`hear`.
        """
        hello = self._newest[one]
        return hello, self.hear(hello)

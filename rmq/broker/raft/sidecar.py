"""What a member keeps beside the log, in the folder ``raft`` of its store.

Every file is small, one JSON object with a sum (:mod:`rmq.broker.store.kept_file`), and replaced as a whole, synced::

    file      content
    vote      {"term": the highest seen, "vote": whom this member has voted for in it, or null, "returning": it has
              lost another disk, and is not counted before it has everything back}
    terms     {"starts": [[term, commit-log offset where it begins], ...]}
    members   {"group": its name, "me": this member's id, "ids": [those of all, sorted], "disk": what this member
              calls its disk, "others": {id: what that one calls its own towards this one}, "retired": {id: [what
              it called those that it had before]}, "begun": every other one knew this one, once, "returned": this
              disk has taken the place of a lost one} (:mod:`rmq.broker.raft.met`)
    commit    {"end": up to where the log was committed when that was noted last}

(:mod:`rmq.broker.raft.found` has one more, which a plain broker leaves.)

The first three are promises, and on the disk before anybody hears of what they say; the first start writes all of
them, ``members`` before the two others. They are one member's of one group: who comes with other settings, or has lost
one of them, would break what that one has promised. ``commit`` is a note: it says what consumers may be shown of a log
right after a start, before the group has said more.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, NamedTuple

from rmq.broker.raft.met import Met
from rmq.broker.store import kept_file, refusal
from rmq.protocol.errors import StoreError
from rmq.raft.position import Position
from rmq.runtime.world import World

__all__ = ["FOLDER", "Kept", "Sidecar", "Whose"]

#: Its name, in the store.
FOLDER = "raft"


class Whose(NamedTuple):
    """Which member of which group, as ``dLegerGroup``, ``dLegerSelfId`` and ``dLegerPeers`` say."""

    group: str
    me: str
    #: The ids of all members: one may move to another address.
    ids: tuple[str, ...]


class Kept(NamedTuple):
    """What a start finds."""

    term: int
    vote: str | None
    starts: tuple[Position, ...]
    commit: int
    met: Met
    #: Nothing was there: the log is a plain broker's, or empty.
    new: bool
    #: It is not counted yet.
    returning: bool = False

    def plain(self, end: int) -> int:
        """Up to where the log is of no term: a plain broker's.

        :param end: of the log that is here.
        """
        first, *later = self.starts
        return 0 if first.term else min([end, *(start.end for start in later[:1])])


class Sidecar:
    """The files of one member.

    :param root: the folder of its store.
    :param whose: the member.
    """

    def __init__(self, world: World, root: str, whose: Whose) -> None:
        self._files = world.files
        self._offload = world.offload
        self._random = world.random
        self._whose = whose._replace(ids=tuple(sorted(whose.ids)))
        self.folder = os.path.join(root, FOLDER)

    async def load(self, end: int = 0) -> Kept:
        """Everything; of a new member, what it begins with, which is on the disk then.

        :param end: of the log. What a plain broker has left to a new member was acknowledged and seen: it counts as
            committed, for no leader may take it back.
        :raises StoreError: a file cannot be read or written, or says nothing that it could; or they are another
            member's.
        """
        vote, terms = await self._read("vote"), await self._read("terms")
        members, commit = await self._read("members"), await self._read("commit")
        try:
            met = None if members is None else self._met(members)
            if (lost := _lost(met, vote, terms)) is not None:
                raise StoreError(
                    f"{self._path(lost)} is gone, and what stands beside it is there: without it this member could "
                    "break what it has promised the others; put that very file back, or start it with an empty store, "
                    "and it gets everything from them (docs/failover.md)"
                )
            if met is None:
                if end:  # first: who has met himself is not new any more
                    commit = await self.save_commit(end)
                met = Met(f"{self._random.getrandbits(96):024x}")
                await self.save_members(met)
            if vote is None:
                vote = await self.save_vote(0, None)
            if terms is None:
                terms = await self.save_terms((Position(0, 0),))
            starts = tuple(Position(int(term), int(end)) for term, end in terms["starts"])
            voted = vote["vote"]
            return Kept(
                int(vote["term"]), None if voted is None else str(voted), starts, int((commit or {"end": 0})["end"]),
                met, members is None, bool(vote.get("returning")),
            )  # fmt: skip
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {refusal.told(error)}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"what {self.folder} holds is not what a member keeps ({error!r}): restore it") from None

    def _met(self, members: dict[str, Any]) -> Met:
        """:raises StoreError: they are another member's."""
        self._belongs(Whose(str(members["group"]), str(members["me"]), tuple(map(str, members["ids"]))))
        others = {str(one): str(word) for one, word in members["others"].items()}
        retired = {str(one): [str(word) for word in words] for one, words in members["retired"].items()}
        return Met(str(members["disk"]), others, retired, bool(members["begun"]), bool(members["returned"]))

    async def save_vote(self, term: int, vote: str | None, *, returning: bool = False) -> dict[str, Any]:
        """:raises OSError: it is not on the disk."""
        return await self._write("vote", {"term": term, "vote": vote, "returning": returning})

    async def save_terms(self, starts: tuple[Position, ...]) -> dict[str, Any]:
        """:raises OSError: they are not on the disk."""
        return await self._write("terms", {"starts": [list(start) for start in starts]})

    async def save_members(self, met: Met) -> None:
        """:raises OSError: they are not on the disk."""
        whose = self._whose
        await self._write(
            "members",
            {"group": whose.group, "me": whose.me, "ids": list(whose.ids), **asdict(met)},
        )

    async def save_commit(self, end: int) -> dict[str, Any]:
        """:raises OSError: it is not on the disk."""
        return await self._write("commit", {"end": end})

    def _belongs(self, kept: Whose) -> None:
        """:raises StoreError: to another member, of this group or another."""
        keys = {"group": "dLegerGroup", "me": "dLegerSelfId", "ids": "the ids in dLegerPeers"}
        told = [
            f"{keys[name]} {_text(was)}, and the settings say {_text(now)}"
            for name, was, now in zip(Whose._fields, kept, self._whose, strict=True)
            if was != now
        ]
        if told:
            raise StoreError(
                f"{self.folder} is of a member with {'; '.join(told)}: put the settings back, or give this member the "
                "store that is its own (docs/failover.md says how a group begins anew with the log of one)"
            )

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    async def _read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        try:
            if not await self._offload(self._files.exists, path):
                return None
            return kept_file.decode(await self._offload(self._files.read, path))
        except OSError as error:
            raise StoreError(f"what a member has promised cannot be read: {refusal.told(error, path)}") from error
        except ValueError as error:
            raise StoreError(
                f"{path} is damaged, and with it what this member has promised the others: {error}; start it with an "
                "empty store, and it gets everything from them (docs/failover.md)"
            ) from None

    async def _write(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        await self._offload(self._replace, self._path(name), kept_file.encode(content))
        return content

    def _replace(self, path: str, content: bytes) -> None:
        if not self._files.is_dir(self.folder):
            self._files.mkdir(self.folder)
            self._files.sync_dir(os.path.dirname(self.folder))
        self._files.write_atomic(path, content)


def _lost(met: Met | None, vote: dict[str, Any] | None, terms: dict[str, Any] | None) -> str | None:
    """Which file is gone that was there once; a first start that ended half way has not written all of them."""
    if met is None:
        return "members" if vote or terms else None
    has_voted = vote is not None and vote["term"] > 0
    has_terms = terms is not None and len(terms["starts"]) > 1
    if not (met.begun or has_voted or has_terms):
        return None
    return "vote" if vote is None else "terms" if terms is None else None


def _text(value: object) -> str:
    return ";".join(map(str, value)) if isinstance(value, tuple) else str(value)

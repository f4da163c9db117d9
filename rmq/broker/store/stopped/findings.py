"""What a look at a stopped store has found: where, what, and whether it is damage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from rmq.broker.store.log.reader import Damage
from rmq.broker.store.refusal import BAD_PLACE, remedy

__all__ = ["Finding", "Findings", "Progress", "unread_bytes", "unreadable", "within"]

#: Told (what is being done, bytes or items done, of how many).
Progress = Callable[[str, int, int], None]

#: More findings of one part and kind are counted and not kept: a zeroed disk has millions of them.
_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged place, or something worth knowing that is no damage."""

    #: ``commitlog``, ``consumequeue``, ``consumequeue_ext``, ``index``, ``checkpoint``, ``config`` or ``store``.
    part: str
    #: A word that stays the same from release to release.
    kind: str
    path: str
    detail: str
    damage: bool = True
    #: Commit-log bytes, or numbers of entries of a queue or an index file; ``end`` is not one of them.
    start: int | None = None
    end: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    #: The disk does not give it: nobody knows what is there, and everything else can be looked at.
    unread: bool = False

    def as_json(self) -> dict[str, object]:
        """Keys that scripts can rely on; those that say nothing are left out."""
        found = {
            "part": self.part, "kind": self.kind, "path": self.path, "topic": self.topic, "queueId": self.queue_id,
            "start": self.start, "end": self.end, "detail": self.detail,
        }  # fmt: skip
        return {key: value for key, value in found.items() if value is not None}


def unreadable(part: str, path: str, error: OSError) -> Finding:
    """A file or directory that cannot be looked into; the error may know better which."""
    detail = f"{error.strerror or error}{remedy(error)}"
    return Finding(part, "unreadable", error.filename or path, detail, unread=error.errno in BAD_PLACE)


def unread_bytes(part: str, path: str, start: int, end: int) -> Finding:
    """A place that the disk does not give: bytes of the file, or offsets of the commit log."""
    detail = f"{end - start} bytes are not there, since the disk does not give some of them: check it"
    return Finding(part, "unreadable", path, detail, start=start, end=end, unread=True)


def within(parts: Sequence[Damage], offset: int) -> bool:
    """Whether an offset lies in one of some parts of the log, which are ascending."""
    at = bisect_right(parts, offset, key=itemgetter(0)) - 1
    return at >= 0 and offset < parts[at].end


@dataclass(slots=True)
class Findings:
    """All of one look, in the order they were met."""

    damages: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    #: Damages, with those that are not kept one by one.
    damaged: int = 0
    _met: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        self.damaged += finding.damage
        key = (finding.part, finding.kind)
        met = self._met[key] = self._met.get(key, 0) + 1
        if met <= _KEPT:
            (self.damages if finding.damage else self.notes).append(finding)

    @property
    def dropped(self) -> int:
        """Findings that were counted only."""
        return sum(max(0, met - _KEPT) for met in self._met.values())

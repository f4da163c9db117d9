"""What mqadmin store import-dledger would take of a group's members, and what tells that it was committed.

What was committed, DLedger notes every three seconds (``committedIndex``). A majority of members knows better: of
these, the one whose log ends with the highest term, and is the longest, has everything that was ever acknowledged. It
would lead at the group's next start, and commit all that it has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from rmq.broker.store.stopped.dledger_log import HEAD, EntryFiles, EntryReader
from rmq.broker.store.stopped.readonly import ReadOnlyFiles
from rmq.protocol.bodies.topic import TopicConfigTable
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.runtime.world import Files

__all__ = ["Member", "Plan", "look", "topics_of"]

_DLEDGER = "dledger-"
#: Bytes beside the log: for each message two queue entries and two index entries, and the heads of an index file.
_BESIDE, _INDEX_HEAD = 2 * 20 + 2 * 20, 20 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """What the directory of one member says."""

    #: storePathRootDir, and where its DLedger's data files are.
    root: str
    data: str
    file_size: int
    #: Indexes of the first entry and of the last; -1 = it has none.
    first: int
    last: int
    #: Term of the last.
    term: int
    #: ``committedIndex`` of its checkpoint; None = it has none that can be read.
    committed: int | None
    #: Positions of the data files: where they begin, and behind the last entry.
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done."""

    member: Member
    others: tuple[Member, ...]
    #: The last entry that is taken; -1 = none.
    upto: int
    #: Why that one, in words.
    why: str
    #: The root of the member whose topics, groups and progress are taken: the newest that are here.
    config: str
    #: How many topics it has; None = its file cannot be read.
    topics: int | None
    #: Bytes that the new store may need, and that are free where it is to be.
    needed: int
    free: int

    @property
    def entries(self) -> int:
        """Entries that are taken."""
        return 0 if self.member.first < 0 else max(0, min(self.upto, self.member.last) - self.member.first + 1)

    @property
    def left_out(self) -> int:
        """Entries behind the last that is taken."""
        return 0 if self.member.first < 0 else self.member.last - self.member.first + 1 - self.entries


def look(
    files: Files, roots: Sequence[str], to: str, *, members: int | None, everything: bool, data: str | None = None
) -> Plan:
    """Say what would be done. Blocks; changes nothing.

    :param roots: storePathRootDir of members of one group, each of a broker that is stopped.
    :param to: the root of the new store.
    :param members: how many the group has; None = not known, and then DLedger's checkpoint alone tells what was
        committed.
    :param everything: take what nobody knows to be committed, too.
    :param data: the data files of the only member, where its storePathDLedgerCommitLog leads.
    :raises StoreError: that cannot be done.
    :raises OSError: a file that cannot be read.
    """
    found = [_member(ReadOnlyFiles(files), root, data) for root in roots]
    if len({member.file_size for member in found}) > 1:
        sizes = ", ".join(f"{member.data} {member.file_size}" for member in found)
        raise StoreError(f"these are no members of one group, for their files differ in size: {sizes}")
    best = max(found, key=lambda member: (member.term, member.last))
    # What was committed and is not there, an import tells as lost.
    committed = max((member.committed for member in found if member.committed is not None), default=-1)
    upto = max(best.last, committed)
    if everything:
        why = "everything that it has, as you want it"
    elif members is not None and 2 * len(found) > members:
        why = f"{len(found)} of {members} members are here, and this one would lead them"
    elif any(member.committed is not None for member in found):
        best = max(found, key=lambda member: (member.committed == committed, member.term, member.last))
        upto, why = committed, f"its checkpoint says that {committed} was committed"
    else:
        raise StoreError(
            f"{best.data}: no checkpoint beside it says what was committed; give the directories of more than half of "
            "the members, and --members with how many there are, or take all of it with --everything"
        )
    needed = best.end - best.start + (best.last - best.first + 1) * _BESIDE + _INDEX_HEAD
    free = files.usage(_existing(files, to)).free
    others = tuple(member for member in found if member is not best)
    config = max((best, *others), key=lambda member: _age(files, member.root)).root
    return Plan(best, others, upto, why, config, _count_topics(files, config), needed, free)


def _member(files: Files, root: str, data: str | None) -> Member:
    if not files.is_dir(root):
        raise StoreError(f"{root}: there is no such directory; give the storePathRootDir of a DLedger broker")
    folder = _dledger_of(files, root, needed=data is None)
    if data is None:
        assert folder is not None
        data = os.path.join(folder, "data")
    log = EntryFiles(files, data)
    try:
        first = EntryReader([log])
        part = first.next()
        last, term, end = -1, -1, log.start
        for start in reversed(log.starts):
            reader = EntryReader([log], start, start + log.file_size)
            while reader.next() is not None:
                pass
            if reader.index >= 0:
                last, term, end = reader.index - 1, reader.term, reader.end
                break
        if part is None:
            if any(any(log.read(start, HEAD)) for start in log.starts):
                raise StoreError(f"{data} has no DLedger log: there is no entry of one in its files")
            return Member(root, data, log.file_size, -1, -1, -1, _committed(files, folder), log.start, log.start)
        index = part.entries[0][2]
        return Member(root, data, log.file_size, index, last, term, _committed(files, folder), log.start, end)
    finally:
        log.close()


def _dledger_of(files: Files, root: str, *, needed: bool) -> str | None:
    """The folder ``dledger-n0`` of a store."""
    found = [os.path.join(root, name) for name in files.list(root) if name.startswith(_DLEDGER)]
    found = [folder for folder in found if files.is_dir(os.path.join(folder, "data")) or not needed]
    if len(found) > 1:
        raise StoreError(f"{root} has several of them: {', '.join(sorted(found))}; say which one's data with --data")
    if not found and needed:
        raise StoreError(
            f"{root} holds no DLedger log: there is no dledger-*/data in it; give the storePathRootDir of the broker, "
            "and --data where its storePathDLedgerCommitLog leads elsewhere"
        )
    return found[0] if found else None


def _committed(files: Files, folder: str | None) -> int | None:
    """``committedIndex`` of DLedger's checkpoint, or of its backup: a kill may leave that alone."""
    for name in ("checkpoint", "checkpoint.bak") if folder is not None else ():
        with contextlib.suppress(FileNotFoundError, ValueError):
            text = files.read(os.path.join(folder or "", name)).decode()
            pairs = dict(line.partition("=")[::2] for line in text.splitlines())
            if (value := pairs.get("committedIndex", "").strip()).lstrip("-").isdecimal():
                return int(value)
    return None


def _existing(files: Files, path: str) -> str:
    path = os.path.abspath(path)
    while not files.is_dir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def topics_of(files: Files, root: str) -> TopicConfigTable | None:
    for name in ("topics.json", "topics.json.bak"):
        try:
            return TopicConfigTable.of_file(files.read(os.path.join(root, "config", name)))
        except (OSError, ProtocolError, ValueError):
            continue
    return None


def _age(files: Files, root: str) -> tuple[int, int, int]:
    """How new the tables of a member are: followers take them from their leader, every ten seconds."""
    table = topics_of(files, root)
    version = None if table is None else table.data_version
    path = os.path.join(root, "config", "consumerOffset.json")
    written = files.mtime_ms(path) if files.exists(path) else 0
    return (-1, -1, written) if version is None else (version.counter, version.timestamp, written)


def _count_topics(files: Files, root: str) -> int | None:
    table = topics_of(files, root)
    return None if table is None else len(table.topic_config_table)

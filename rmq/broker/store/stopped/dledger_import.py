"""Makes a plain store of what a member of a Java DLedger group has: mqadmin store import-dledger.

The records of all committed entries are written one behind the other, without DLedger's heads. Each stays as it is but
for two fields: the commit-log offset at which it lies, and that of the half message whose commit it is. Queues and
index are then made of the new log by :mod:`rmq.broker.store.stopped.rebuild`, which reads and checks all of it again.

Everything is written to ``{root}.importing``, which gets the name of the new store when it is whole. What was
committed, DLedger notes every three seconds (``committedIndex``). A majority of members knows better: of these, the one
whose log ends with the highest term, and is the longest, has everything that was ever acknowledged. It would lead at
the group's next start, and commit all that it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.log.stamps import Steps
from rmq.broker.store.queues.deletions import Deletion, Deletions
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.stopped.dledger_log import HEAD, EntryFiles, EntryReader, Lost
from rmq.broker.store.stopped.findings import Progress
from rmq.broker.store.stopped.readonly import ReadOnlyFiles
from rmq.broker.store.stopped.rebuild import Rebuilt, rebuild
from rmq.broker.store.stopped.stopped_store import in_use
from rmq.protocol.bodies.topic import TopicConfigTable
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.protocol.names import HALF_TOPIC, is_system_topic
from rmq.protocol.record import BLANK_MAGIC, FIELDS, host_places, places, store_time
from rmq.runtime.world import File, FileLock, Files, World

__all__ = ["Imported", "Member", "Plan", "import_log", "look"]

_DLEDGER = "dledger-"
_IMPORTING = "import-dledger"
_WRITTEN = 4 << 20
#: Half messages whose commits are waited for: a commit comes within minutes, or never.
_MOST_HALVES = 65_536
#: Bytes beside the log: for each message two queue entries and two index entries, and the heads of an index file.
_BESIDE, _INDEX_HEAD = 2 * 20 + 2 * 20, 20 << 20
_OFFSET_AT = FIELDS["physical_offset"][0]
_FLAG_AT = FIELDS["sys_flag"][0]
#: From the end of the store host to the prepared transaction offset: the reconsume times lie between.
_PREPARED_BEHIND = 4
#: DLedger takes store times before it has the order of messages: they are not quite in order. More than that is another
#: machine's clock.
_JITTER_MS = 1000
_long = Struct(">q")
_int = Struct(">i")
_pair = Struct(">ii")


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
    #: Topics that the member has, and groups with offsets; None = its file cannot be read.
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


@dataclass(slots=True)
class Imported:
    """What was done."""

    root: str
    file_size: int
    #: Messages that were written, and bytes of the log from its first file on.
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    #: Entries of the group's own, which hold no message.
    own: int = 0
    #: Entries that other members had to give.
    from_others: int = 0
    #: Damaged or missing entries.
    lost: list[Lost] = field(default_factory=list)
    #: What lies behind the last entry: position, and what it is.
    torn: tuple[int, str] | None = None
    #: Messages of topics that were deleted, which are in no queue.
    deleted: Counter[str] = field(default_factory=Counter)
    rebuilt: Rebuilt | None = None

    @property
    def damages(self) -> list[Damage]:
        """Records, by their commit-log offsets now, that name places in queues that are not theirs."""
        return [] if self.rebuilt is None else self.rebuilt.damages

    @property
    def whole(self) -> bool:
        """Whether everything that was to be taken was there."""
        return not self.lost and not self.damages


# -- looking -----------------------------------------------------------------------------------------------------------


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
    return Plan(best, others, upto, why, _count_topics(files, best.root), needed, free)


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


def _topics(files: Files, root: str) -> TopicConfigTable | None:
    for name in ("topics.json", "topics.json.bak"):
        try:
            return TopicConfigTable.of_file(files.read(os.path.join(root, "config", name)))
        except (OSError, ProtocolError, ValueError):
            continue
    return None


def _count_topics(files: Files, root: str) -> int | None:
    table = _topics(files, root)
    return None if table is None else len(table.topic_config_table)


# -- doing -------------------------------------------------------------------------------------------------------------


async def import_log(world: World, plan: Plan, settings: StoreSettings, progress: Progress) -> Imported:
    """Make the new store.

    :param settings: of the new store; the size of its files is that of the group's.
    :param progress: told how far it is, now and then.
    :returns: what was done; a damaged entry costs itself.
    :raises StoreError: a broker uses a directory, the new one is there already, or the disk is too small.
    :raises OSError: the disk refused; nothing is left behind.
    """
    return await _Import(world, plan, settings, progress).run()


class _Import:
    def __init__(self, world: World, plan: Plan, settings: StoreSettings, progress: Progress) -> None:
        self._world = world
        self._files = world.files
        self._plan = plan
        self._to = os.path.abspath(settings.root)
        self._place = f"{self._to}.importing"
        log_path = os.path.join(self._place, "commitlog")
        self._settings = dataclasses.replace(
            settings, root=self._place, commit_log_paths=(log_path,), read_only_paths=(),
            commit_log_file_size=plan.member.file_size,
        )  # fmt: skip
        if settings.commit_log_paths != (f"{settings.root}/commitlog",):
            raise StoreError(
                f"storePathCommitLog is {','.join(settings.commit_log_paths)}: the new store is made in one directory, "
                f"{self._to}; leave it out here, and move its folder commitlog afterwards"
            )
        self._progress = progress
        self._steps = Steps()
        self._done = Imported(self._to, plan.member.file_size)
        self._disk = QueueDisk(world.files, self._place, settings.queue_file_size)  # removes trees

    async def run(self) -> Imported:
        offload, plan = self._world.offload, self._plan
        locks: list[FileLock] = []
        try:
            for member in (plan.member, *plan.others):
                await offload(self._lock, member.root, locks)
            mine = await offload(self._prepare)
            try:
                await self._make()
                await offload(self._give_name)
            except BaseException:
                if self._files.is_dir(self._place):
                    self._disk.remove_tree(self._place)
                raise
            finally:
                mine.release()
        finally:
            for lock in locks:
                lock.release()
        return self._done

    def _lock(self, root: str, locks: list[FileLock]) -> None:
        path = os.path.join(root, "lock")
        try:
            if (folder := self._files.lock_directory(root, shared=True)) is not None:
                locks.append(folder)
            locks.append(self._files.lock(path, shared=True))
        except FileNotFoundError:
            pass  # copied without it
        except BlockingIOError:
            raise in_use(root) from None

    def _prepare(self) -> FileLock:
        """Refuse what could not be ended well, and make the place for the new store, which is locked."""
        files, plan = self._files, self._plan
        if files.exists(self._to) and (not files.is_dir(self._to) or files.list(self._to)):
            raise StoreError(f"{self._to} is there already: give a directory with -s that is empty or not there")
        if plan.needed > plan.free:
            raise StoreError(
                f"{self._to} may need {plan.needed >> 20} MiB, and {plan.free >> 20} MiB are free there: make room, or "
                "give another place with -s"
            )
        mark = os.path.join(self._place, _IMPORTING)
        if files.exists(self._place):
            if not files.is_dir(self._place) or not files.exists(mark):
                raise StoreError(f"{self._place} is there, and is none of this command's: move it away")
            self._lock_place(mark).release()
            self._disk.remove_tree(self._place)  # of one that was killed
        files.mkdir(self._place)
        files.open(mark, create=True).close()
        for name in ("commitlog", "config"):
            files.mkdir(os.path.join(self._place, name))
        return self._lock_place(mark)

    def _lock_place(self, mark: str) -> FileLock:
        try:
            return self._files.lock(mark)
        except BlockingIOError:
            raise StoreError(f"{self._place}: another import is writing there") from None

    async def _make(self) -> None:
        offload = self._world.offload
        await offload(self._copy_config)
        await self._write_log()
        if self._done.messages:
            self._done.rebuilt = await rebuild(self._world, self._settings, self._progress)
            await offload(self._note_forced)
        self._progress("", 0, 0)

    def _copy_config(self) -> None:
        source, target = (os.path.join(root, "config") for root in (self._plan.member.root, self._place))
        if not self._files.is_dir(source):
            return
        for name in self._files.list(source):
            path = os.path.join(source, name)
            if name.endswith((".json", ".json.bak")) and not self._files.is_dir(path):
                self._files.write_atomic(os.path.join(target, name), self._files.read(path))

    async def _write_log(self) -> None:
        offload, plan, done = self._world.offload, self._plan, self._done
        reading = ReadOnlyFiles(self._files)
        logs = [EntryFiles(reading, member.data) for member in (plan.member, *plan.others)]
        before = _PlainLog(reading, plan.member)
        reader = EntryReader(logs)
        begin = logs[0].start
        done.log_start = begin - len(before.paths) * plan.member.file_size
        writer = _LogWriter(self._files, self._settings.commit_log_paths[0], done.log_start, plan.member.file_size)
        deleted = _DeletedTopics(reading, plan.member.root, segment_size(plan.member.file_size))
        records = _Records(writer, deleted)
        try:
            for path in before.paths:
                await self._copy(reading, path, writer)
            while (part := await offload(reader.next)) is not None:
                entries = [entry for entry in part.entries if entry[2] <= plan.upto]
                for at, size, _, old in entries:
                    if not size:
                        done.own += 1
                        continue
                    records.add(bytearray(part.data[at : at + size]), old)
                    done.messages += 1
                    if writer.is_full:
                        await offload(writer.write)
                self._progress("records", reader.position - begin, max(1, plan.member.end - begin))
                if len(entries) < len(part.entries):
                    break
            done.lost = [lost for lost in reader.lost if lost.first <= plan.upto]
            done.torn = reader.torn
            if reader.index <= plan.upto:
                path, what = logs[0].path_of(reader.end), "the log ends before"
                done.lost.append(Lost(max(reader.index, 0), plan.upto + 1, reader.end, path, what))
            done.from_others = reader.from_others
            await offload(writer.finish)
            done.log_end = writer.position
        finally:
            writer.close()
            for log in logs:
                log.close()
        self._steps = records.steps
        done.deleted = deleted.messages
        if deleted.messages:
            notes = Deletions(self._world, self._place, deleted.segment)
            for topic in deleted.messages:
                notes.note(topic, Deletion(done.log_end, *deleted.version))
            notes.add(deleted.bytes)
            await notes.saved()

    async def _copy(self, reading: Files, path: str, writer: _LogWriter) -> None:
        """A file of the plain log from before: its records lie where they have always been."""
        file = await self._world.offload(reading.open, path)
        try:
            at = 0
            while data := await self._world.offload(file.pread_aside, _WRITTEN, at):
                writer.append(data)
                await self._world.offload(writer.write)
                at += len(data)
        finally:
            file.close()

    def _note_forced(self) -> None:
        """The whole log is on the disk, and its store times are as they were."""
        checkpoint = Checkpoint(self._files, os.path.join(self._place, "checkpoint"))
        checkpoint.load()
        checkpoint.physic = checkpoint.logics
        checkpoint.index = min(checkpoint.index, checkpoint.logics)
        checkpoint.steps = self._steps
        checkpoint.save()

    def _give_name(self) -> None:
        files = self._files
        files.unlink(os.path.join(self._place, _IMPORTING))
        files.sync_tree(self._place)
        if files.is_dir(self._to):
            files.rmdir(self._to)
        files.rename(self._place, self._to)
        files.sync_dir(os.path.dirname(self._to))


class _PlainLog:
    """The plain commit log of a broker from before it became a member: DLedger's begins at the file behind it."""

    def __init__(self, files: Files, member: Member) -> None:
        folder = os.path.join(member.root, "commitlog")
        names = set(files.list(folder)) if files.is_dir(folder) else set()
        #: Its files, those that follow each other up to where DLedger's begin.
        self.paths: list[str] = []
        start = member.start - member.file_size
        while start >= 0 and file_name(start) in names:
            path = os.path.join(folder, file_name(start))
            if files.size(path) != member.file_size:
                break
            self.paths.insert(0, path)
            start -= member.file_size


class _DeletedTopics:
    """Topics of which the member has neither a line in topics.json nor queues: their records are nobody's."""

    def __init__(self, files: Files, root: str, segment: int) -> None:
        table = _topics(files, root)
        folder = os.path.join(root, "consumequeue")
        #: None = nobody knows.
        self._there = (
            {*table.topic_config_table, *files.list(folder)} if table is not None and files.is_dir(folder) else None
        )
        version = None if table is None else table.data_version
        #: Counter and timestamp of topics.json.
        self.version = (0, 0) if version is None else (version.counter, version.timestamp)
        self.segment = segment
        self.messages: Counter[str] = Counter()
        #: First byte of a segment of the new log -> bytes of such records in it.
        self.bytes: Counter[int] = Counter()

    def note(self, topic: str, offset: int, size: int) -> None:
        """A record has got its place in the new log."""
        if self._there is not None and topic not in self._there and not is_system_topic(topic):
            self.messages[topic] += 1
            self.bytes[offset - offset % self.segment] += size


class _Records:
    """Gives records their places in the new log."""

    def __init__(self, writer: _LogWriter, deleted: _DeletedTopics) -> None:
        self._writer = writer
        self._deleted = deleted
        #: Of half messages, the latest last: where they were -> where they are.
        self._halves: OrderedDict[int, int] = OrderedDict()
        #: Where store times go back, and the newest since.
        self.steps = Steps()
        self._newest = 0

    def add(self, record: bytearray, old: int) -> None:
        """Append one.

        :param old: the commit-log offset at which it was.
        """
        offset = self._writer.place(len(record))
        _long.pack_into(record, _OFFSET_AT, offset)
        _, _, name_at, behind = places(record)
        topic = record[name_at:behind].decode(errors="replace")
        sys_flag = _int.unpack_from(record, _FLAG_AT)[0]
        prepared_at = host_places(sys_flag)[3] + _PREPARED_BEHIND
        if prepared := _long.unpack_from(record, prepared_at)[0]:
            # Where a half message is gone, or was never one, there is nothing to point to.
            _long.pack_into(record, prepared_at, self._halves.pop(prepared, 0))
        if topic == HALF_TOPIC:
            self._halves[old] = offset
            if len(self._halves) > _MOST_HALVES:
                self._halves.popitem(last=False)
        stamp = store_time(record)
        if stamp < self._newest - _JITTER_MS:
            self.steps.add(offset)
            self._newest = stamp
        self._newest = max(self._newest, stamp)
        self._deleted.note(topic, offset, len(record))
        self._writer.append(record)


class _LogWriter:
    """Writes a commit log in files of its size, each with a blank end, as any broker's."""

    def __init__(self, files: Files, folder: str, start: int, file_size: int) -> None:
        self._files = files
        self._folder = folder
        self._size = file_size
        #: Where the next bytes go.
        self.position = start
        #: What is not written yet, each piece within one file.
        self._pieces: list[tuple[int, bytearray]] = []
        self._waiting = 0
        self._open: tuple[int, File] | None = None

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be written."""
        return self._waiting >= _WRITTEN

    def place(self, size: int) -> int:
        """Where a record of so many bytes goes: into the next file, if this one has no room for it."""
        room = self._size - self.position % self._size
        if size + 8 > room:
            self.append(_pair.pack(room, BLANK_MAGIC))
            self.position += room - 8
        return self.position

    def append(self, data: bytes | bytearray) -> None:
        begun, piece = self._pieces[-1] if self._pieces and self.position % self._size else (0, None)
        if piece is not None and begun + len(piece) == self.position:
            piece += data
        else:
            self._pieces.append((self.position, bytearray(data)))
        self.position += len(data)
        self._waiting += len(data)

    def write(self) -> None:
        """Bring what waits to the files. Blocks."""
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        for position, data in pieces:
            start = position - position % self._size
            self._file(start).pwrite(data, position - start)

    def finish(self) -> None:
        """Everything is to be on the disk. Blocks."""
        self.write()
        self._leave()
        self._files.sync_dir(self._folder)

    def _file(self, start: int) -> File:
        if self._open is None or self._open[0] != start:
            self._leave()
            file = self._files.open(os.path.join(self._folder, file_name(start)), create=True)
            self._open = (start, file)
            file.allocate(self._size)
        return self._open[1]

    def _leave(self) -> None:
        if self._open is not None:
            self._open[1].datasync()
            self.close()

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()

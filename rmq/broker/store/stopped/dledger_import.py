"""Makes a plain store of what a member of a Java DLedger group has: mqadmin store import-dledger.

The records of all committed entries are written one behind the other, without DLedger's heads. Each stays as it is but
for two fields: the commit-log offset at which it lies, and that of the half message whose commit it is. Queues and
index are then made of the new log by :mod:`rmq.broker.store.stopped.rebuild`, which reads and checks all of it again.

Everything is written to ``{root}.importing``, which gets the name of the new store when it is whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter
from dataclasses import dataclass, field

from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.log.stamps import Steps
from rmq.broker.store.queues.deletions import Deletion, Deletions
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.settings import QUEUE_FILE_SIZE, StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.stopped.dledger_log import EntryFiles, EntryReader, Lost
from rmq.broker.store.stopped.dledger_plan import Member, Plan
from rmq.broker.store.stopped.dledger_records import DeletedTopics, LogWriter, Records
from rmq.broker.store.stopped.findings import Progress
from rmq.broker.store.stopped.readonly import ReadOnlyFiles
from rmq.broker.store.stopped.rebuild import Rebuilt, rebuild
from rmq.broker.store.stopped.stopped_store import fitted, in_use
from rmq.protocol.errors import StoreError
from rmq.runtime.world import FileLock, Files, World

__all__ = ["Imported", "import_log"]

_IMPORTING = "import-dledger"
#: Bytes of a plain log's file that are copied at once.
_COPIED = 4 << 20


@dataclass(slots=True)
class Imported:
    """What was done."""

    root: str
    #: Bytes of a file of the log, and of a queue.
    file_size: int
    queue_file_size: int
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


async def import_log(world: World, plan: Plan, settings: StoreSettings, progress: Progress) -> Imported:
    """Make the new store.

    :param settings: of the new store; the size of its files is that of the group's.
    :param progress: told how far it is, now and then.
    :returns: what was done; a damaged entry costs itself.
    :raises StoreError: a broker uses a directory, the new one is there already, or the disk is too small.
    :raises OSError: the disk refused; nothing is left behind.
    """
    settings = await world.offload(_as_theirs, world.files, plan.member.root, settings)
    return await _Import(world, plan, settings, progress).run()


def _as_theirs(files: Files, root: str, settings: StoreSettings) -> StoreSettings:
    """The settings with queue files of the group's size, which its settings name, where nobody says another. Blocks."""
    if settings.queue_file_size != QUEUE_FILE_SIZE:
        return settings
    theirs = dataclasses.replace(settings, root=root)
    others = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueueExt")
    size = fitted(ReadOnlyFiles(files), theirs, others).queue_file_size
    return dataclasses.replace(settings, queue_file_size=size)


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
        self._done = Imported(self._to, plan.member.file_size, settings.queue_file_size)
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
            with contextlib.suppress(FileNotFoundError):  # copied without it
                locks.append(self._files.lock(path, shared=True))
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
        source, target = (os.path.join(root, "config") for root in (self._plan.config, self._place))
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
        writer = LogWriter(self._files, self._settings.commit_log_paths[0], done.log_start, plan.member.file_size)
        roots = [member.root for member in (plan.member, *plan.others)]
        deleted = DeletedTopics(reading, plan.config, roots, segment_size(plan.member.file_size))
        records = Records(writer, deleted)
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

    async def _copy(self, reading: Files, path: str, writer: LogWriter) -> None:
        """A file of the plain log from before: its records lie where they have always been."""
        file = await self._world.offload(reading.open, path)
        try:
            at = 0
            while data := await self._world.offload(file.pread_aside, _COPIED, at):
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

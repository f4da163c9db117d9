"""A store that no broker uses, opened for reading: its lock shared, its sizes found out, its log in runs of files."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from types import TracebackType

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile, LogFiles, file_name, offset_of
from rmq.broker.store.log.unopened import UnopenedFile
from rmq.broker.store.queues.ext_units import ExtDisk
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.refusal import BAD_PLACE
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import ENTRY_SIZE
from rmq.broker.store.stopped.readonly import ReadOnlyFiles
from rmq.protocol.errors import StoreError
from rmq.runtime.world import File, FileLock, Files, World

__all__ = ["StoppedStore", "fitted", "in_use", "look_for_store"]

#: Queues looked at to find the size of their files.
_SAMPLE = 200


def in_use(root: str) -> StoreError:
    """What is said about a store that a broker runs on."""
    return StoreError(f"Lock failed: a broker uses {root}, and its files change all the time; stop it first")


def look_for_store(files: Files, settings: StoreSettings) -> None:
    """Make sure that a directory is a store before anything is done with it. Blocks.

    :raises StoreError: it is not there, or has neither commit log nor queues.
    """
    root = settings.root
    if not files.is_dir(root):
        raise StoreError(f"{root}: there is no such directory; give the store's root with -s or -c")
    paths = (*settings.commit_log_paths, *settings.read_only_paths, os.path.join(root, "consumequeue"))
    if not any(map(files.is_dir, paths)):
        raise StoreError(
            f"{root} holds no store: there is no {' and no '.join(paths)}; give the store's root with -s or -c"
        )


def fitted(files: Files, settings: StoreSettings, given: Collection[str]) -> StoreSettings:
    """The settings with the file sizes that the store itself has, where nobody set them. Blocks.

    :param given: keys that were set (``mappedFileSizeCommitLog``, ``mappedFileSizeConsumeQueue``,
        ``mappedFileSizeConsumeQueueExt``): they stay.
    """
    changes: dict[str, int] = {}
    if "mappedFileSizeCommitLog" not in given:
        found, _ = LogFiles(files, settings).find()
        sizes = Counter(_sizes(files, found.values()))
        for size, _ in sizes.most_common(1):
            if size >= 4096:
                changes["commit_log_file_size"] = size
    if "mappedFileSizeConsumeQueue" not in given:
        sizes = Counter(_sizes(files, _queue_files(files, settings)))
        for size, _ in sizes.most_common(1):
            if size and size % ENTRY_SIZE == 0:
                changes["queue_file_size"] = size
    if "mappedFileSizeConsumeQueueExt" not in given:
        sizes = Counter(_sizes(files, _ext_files(files, settings)))
        for size, _ in sizes.most_common(1):
            if size >= 4096:
                changes["ext_file_size"] = size
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


def _sizes(files: Files, paths: Iterable[str]) -> Iterator[int]:
    """Bytes of files; one whose place on the disk is bad tells nothing."""
    for path in paths:
        try:
            yield files.size(path)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise


def _queue_files(files: Files, settings: StoreSettings) -> list[str]:
    """Files of some queues; a topic whose directory cannot be read tells nothing."""
    disk = QueueDisk(files, settings.root, settings.queue_file_size)
    found: list[str] = []
    with contextlib.suppress(OSError):
        for topic in disk.topics()[:_SAMPLE]:
            with contextlib.suppress(OSError):
                for _, queue, starts, _ in disk.list_queues([topic]):
                    paths = [os.path.join(disk.directory(topic, queue), file_name(start)) for start in starts]
                    found += [path for path in paths if files.exists(path) and not files.is_dir(path)]
    return found


def _ext_files(files: Files, settings: StoreSettings) -> list[str]:
    """Files of some queues in consumequeue_ext."""
    root = ExtDisk(files, settings.root, settings.ext_file_size).root
    found: list[str] = []
    with contextlib.suppress(OSError):
        for topic in files.list(root)[:_SAMPLE]:
            with contextlib.suppress(OSError):
                for queue in files.list(f"{root}/{topic}")[:_SAMPLE]:
                    folder = f"{root}/{topic}/{queue}"
                    found += [f"{folder}/{name}" for name in files.list(folder) if offset_of(name) >= 0]
    return found


class StoppedStore:
    """``async with StoppedStore(world, settings) as store``: it cannot be changed, and no broker can start on it.

    :param settings: paths and sizes; see :func:`fitted`.
    """

    def __init__(self, world: World, settings: StoreSettings) -> None:
        self.world = dataclasses.replace(world, files=ReadOnlyFiles(world.files))
        self.files: Files = self.world.files
        self.settings = settings
        self.root = settings.root
        self.disk = QueueDisk(self.files, settings.root, settings.queue_file_size)
        #: Names in the commit log's directories that are none of its files.
        self.foreign: list[str] = []
        #: Files that follow each other, as a log that can be read; a file that is missing begins a new one.
        self.runs: list[CommitLog] = []
        #: Commit-log files of another size, as (path, its bytes).
        self.misfits: list[tuple[str, int]] = []
        #: Those that the disk does not open, and why.
        self.unopened: list[tuple[str, OSError]] = []
        #: Those whose names are offsets at which no file of this size begins.
        self.misplaced: list[str] = []
        self._folder: FileLock | None = None
        self._lock: FileLock | None = None

    async def __aenter__(self) -> StoppedStore:
        """:raises StoreError: there is no store, a broker uses it, or a directory of its log is not there.

        :raises OSError: a file that cannot be read.
        """
        try:
            await self.world.offload(self._open)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        for run in self.runs:
            await run.close(remove_unused=False)
        self.runs = []
        for lock in (self._lock, self._folder):
            if lock is not None:
                lock.release()
        self._lock = self._folder = None

    def _open(self) -> None:
        files, settings = self.files, self.settings
        look_for_store(files, settings)
        lock = os.path.join(self.root, "lock")
        if files.is_dir(lock):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), lock)
        try:
            self._folder = files.lock_directory(self.root, shared=True)
            self._lock = files.lock(lock, shared=True)
        except FileNotFoundError:
            # Copied without it: no broker can have started here.
            self._lock = None
        except BlockingIOError:
            raise in_use(self.root) from None
        found, self.foreign = LogFiles(files, settings).find()
        size = settings.commit_log_file_size
        run: list[LogFile] = []
        try:
            for start, path in sorted(found.items()):
                for bytes_ in _sizes(files, [path]):
                    if bytes_ != size:
                        self.misfits.append((path, bytes_))
                if start % size:
                    self.misplaced.append(path)
                    continue
                if run and run[-1].start + size != start:
                    self._add(run)
                    run = []
                run.append(LogFile(start, self._open_file(path), entry_synced=True))
        finally:  # those of an opening that fails are closed, too
            if run:
                self._add(run)

    def _open_file(self, path: str) -> File:
        try:
            return self.files.open(path)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            self.unopened.append((path, error))
            return UnopenedFile(self.files, path, self.settings.commit_log_file_size)

    def _add(self, run: list[LogFile]) -> None:
        commit_log = CommitLog(self.world, self.settings)
        commit_log.adopt_loaded(run)
        self.runs.append(commit_log)

    @property
    def start(self) -> int:
        """First byte of the log there is."""
        return self.runs[0].start if self.runs else 0

    @property
    def size(self) -> int:
        """Bytes of the log's files."""
        return sum(run.end - run.start for run in self.runs)

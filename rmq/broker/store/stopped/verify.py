"""Looks for damage in a stopped store: the log record by record, and everything derived from it against it.

One walk over the log feeds the checks of queues and index, so a store of any size needs little memory. What the next
start would mend by itself is damage all the same: until then Java, or a copy, reads what is on disk.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.exchanged import exchanged
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.records import TagsRule, derive
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.multi_dispatch import MultiDispatch
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.start.checkpoint import SIZE, Checkpoint
from rmq.broker.store.start.markers import Markers
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.stopped.findings import Finding, Findings, Progress, unread_bytes, unreadable
from rmq.broker.store.stopped.index_check import IndexCheck
from rmq.broker.store.stopped.metadata_check import MetadataCheck
from rmq.broker.store.stopped.pages import read_pages
from rmq.broker.store.stopped.queue_check import Codes, QueueCheck
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.protocol.names import is_lmq
from rmq.protocol.record import is_blank

__all__ = ["Verified", "verify"]

_BLOCK = 1 << 20


@dataclass(slots=True)
class Verified:
    """What was looked at, and what was found."""

    findings: Findings = field(default_factory=Findings)
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    entries: int = 0
    index_files: int = 0
    keys: int = 0
    #: Store time of the newest record, ms.
    stamp: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings.damaged


async def verify(
    store: StoppedStore, progress: Progress | None = None, codes: Codes | None = None, committed: int | None = None
) -> Verified:
    """Check all of a store.

    :param progress: told how far it is, now and then.
    :param codes: of topics whose tags code is not the hash of a tag, beside that of delay levels.
    :param committed: up to where the log is known to be, of a member of a group: what comes behind need not be in
        queues and index. None: all of it.
    :raises OSError: a file that may not be read; what the disk does not give is found.
    """
    return await _Verify(store, progress or (lambda what, done, total: None), codes or {}, committed).run()


class _Verify:
    def __init__(self, store: StoppedStore, progress: Progress, codes: Codes, committed: int | None) -> None:
        self._store = store
        self._committed = committed
        self._progress = progress
        self._codes = codes
        self._found = Verified()
        #: What of the log is no good record, ascending.
        self._damages: list[Damage] = []
        #: What of the log the disk did not give up to now, ascending.
        self._unread: list[Damage] = []
        self._add = self._found.findings.add
        self._rule = TagsRule(store.settings.delays_ms)
        self._deletions = Deletions(store.world, store.root, segment_size(store.settings.commit_log_file_size))
        #: Given once it is known which queues there are.
        self._dispatch: MultiDispatch

    async def run(self) -> Verified:
        store, found = self._store, self._found
        offload = store.world.offload
        metadata = MetadataCheck(store.files, store.root, self._add)
        topics = await offload(metadata.topics)
        if not await offload(Markers(store.files, store.root).was_clean):
            self._add(
                Finding("store", "unclean", os.path.join(store.root, "abort"),
                        "the last stop was not clean: the next start checks the store and mends what it can", False)
            )  # fmt: skip
        await offload(self._look_at_files)
        await offload(self._deletions.load)
        queues = QueueCheck(store, self._add, self._progress, self._codes)
        await queues.begin()
        settings = store.settings
        # Light queues have the id 0 alone, whatever the settings say that are given here, and not to the broker.
        lmq = settings.lmq or {queue_id for topic, queue_id in queues.there if is_lmq(topic)} == {0}
        self._dispatch = MultiDispatch(QueueTable(store.world, settings), lmq=lmq, most_lmq=settings.most_lmq)
        if store.settings.index_enable:
            index = IndexCheck(store, self._add, self._unread)
            try:
                await index.begin()
                await self._read_log(queues, topics, index)
            finally:
                index.close()
        else:
            await self._read_log(queues, topics, None)
        found.queues, found.entries = queues.queues, queues.entries
        await offload(self._look_at_checkpoint)
        await offload(metadata.check, queues.ends)
        return found

    async def _read_log(self, queues: QueueCheck, topics: Collection[str] | None, index: IndexCheck | None) -> None:
        """Compare the whole log with what is made of it."""
        store, found = self._store, self._found
        done = 0
        found.log_start = store.start
        for run in store.runs:
            found.log_end = await self._walk(run, done, queues, index)
            done += run.end - run.start
        if self._committed is not None and self._committed < found.log_end:
            self._add(
                Finding("commitlog", "uncommitted", store.settings.commit_log_paths[0], "the group had not said that "
                        "this is committed: it is in queues and index at the latest when it has", False,
                        start=max(found.log_start, self._committed), end=found.log_end)
            )  # fmt: skip
        await store.world.offload(self._compare_names)
        await queues.finish(self._unread, topics)
        if index is not None:
            await index.finish()
            found.index_files, found.keys = index.files, index.keys

    def _look_at_files(self) -> None:
        store = self._store
        size = store.settings.commit_log_file_size
        for path in (*store.settings.commit_log_paths, *store.settings.read_only_paths):
            if not store.files.is_dir(path):
                self._add(Finding("commitlog", "directory", path, "this directory of the commit log is not there"))
        for path in store.foreign:
            self._add(Finding("commitlog", "foreign", path, "no commit-log file; Java refuses the directory", False))
        for path, bytes_ in store.misfits:
            self._add(Finding("commitlog", "size", path, f"{bytes_} bytes; mappedFileSizeCommitLog is {size}"))
        for path, error in store.unopened:
            self._add(unreadable("commitlog", path, error))
        for path in store.misplaced:
            self._add(
                Finding("commitlog", "name", path, f"no file begins there with mappedFileSizeCommitLog={size}: "
                        "move it away, or set what this store was made with")
            )  # fmt: skip
        for before, behind in zip(store.runs, store.runs[1:], strict=False):
            self._add(
                Finding("commitlog", "missing", behind.segments[0].path, "the files before this one are missing",
                        start=before.end, end=behind.start)
            )  # fmt: skip

    async def _walk(self, run: CommitLog, before: int, queues: QueueCheck, index: IndexCheck | None) -> int:
        """Read one run of files; where its records end."""
        store, found = self._store, self._found
        reader = LogReader(store.world, run)
        reader.unreadable = UnreadablePlaces(run.file_size)
        reader.passed_over = self._unread
        known, unread = 0, len(self._unread)
        async for piece in reader.runs(run.start, run.end):
            data = piece.data
            for at, size, *_, text in piece.records:
                offset = piece.base + at
                derived = derive(data, at, self._rule)
                shown = self._committed is None or offset < self._committed
                if not self._deletions.is_dead(derived.topic, offset):
                    await queues.record(derived, offset, data, at, size, lacking=shown)
                for copy in self._dispatch.copies(data[text : at + size], derived.topic, derived.queue_id):
                    if self._deletions.is_dead(copy.topic, offset):
                        continue
                    other = derived._replace(topic=copy.topic, queue_id=copy.queue_id, queue_offset=copy.queue_offset)
                    lacking = shown and store.settings.multi_dispatch
                    await queues.record(other, offset, data, at, size, lacking=lacking)
                if index is not None and derived.keys and derived.sys_flag & 0xC != 0xC:
                    await index.record(derived, offset, lacking=shown)
            found.records += len(piece.records)
            self._report(run, reader, known)
            known = len(reader.damages)
            self._progress("commit log", before + reader.position - run.start, store.size)
        self._report(run, reader, known)
        self._damages += reader.damages
        found.stamp = max(found.stamp, reader.stamp)
        await self._look_behind(run, reader.end)
        self._unread += reader.lost_end(run.end)
        for start, end in self._unread[unread:]:
            file = run.segment_of(start)
            self._add(unread_bytes("commitlog", file.path if file is not None else "", start, end))
        return reader.end

    def _report(self, run: CommitLog, reader: LogReader, known: int) -> None:
        for start, end in reader.damages[known:]:
            file = run.segment_of(start)
            self._add(
                Finding("commitlog", "record", file.path if file is not None else "",
                        f"{end - start} bytes are no good record, and good records follow", start=start, end=end)
            )  # fmt: skip

    async def _look_behind(self, run: CommitLog, end: int) -> None:
        """Behind the last record there is nothing but zeros, or the rest of a file that a blank record marks."""
        size = run.file_size
        for file in run.segments:
            if file.start + size <= end:
                continue
            position = max(0, end - file.start)
            first = -1
            last = -1
            if (rest := size - position) >= 8:
                head, _ = await self._store.world.offload(read_pages, file.file, 8, position)
                if is_blank(head.ljust(8, b"\0"), 0, rest):
                    continue
            while position < size:
                data, bad = await self._store.world.offload(
                    read_pages, file.file, min(_BLOCK, size - position), position
                )
                if bad:
                    return  # the log may end behind it, and what there is before it may be half a record
                if not data:
                    break
                if data != bytes(len(data)):
                    if first < 0:
                        first = position + len(data) - len(data.lstrip(b"\0"))
                    last = position + len(data.rstrip(b"\0"))
                position += len(data)
            if first >= 0:
                self._add(
                    Finding("commitlog", "tail", file.path, "bytes at the end of the log are no whole record: "
                            "the next start takes them away",
                            start=file.start + first, end=file.start + last)
                )  # fmt: skip

    def _compare_names(self) -> None:
        files = [file for run in self._store.runs for file in run.segments]
        size = self._store.settings.commit_log_file_size
        if (wrong := exchanged(files, size, self._found.log_end, self._damages)) is not None:
            self._add(Finding("commitlog", "name", wrong.file.path, wrong.told))

    def _look_at_checkpoint(self) -> None:
        path = os.path.join(self._store.root, "checkpoint")
        try:
            if self._store.files.exists(path):
                self._look_into_checkpoint(path)
            elif self._found.records:
                self._add(Finding("checkpoint", "missing", path, "it is not there; the next start makes it"))
        except OSError as error:
            if error.errno not in SPOILT:
                raise
            self._add(unreadable("checkpoint", path, error))

    def _look_into_checkpoint(self, path: str) -> None:
        store, stamp = self._store, self._found.stamp
        size = len(store.files.read(path))
        if size < SIZE:
            self._add(Finding("checkpoint", "size", path, f"{size} bytes, {SIZE} are expected"))
        checkpoint = Checkpoint(store.files, path)
        checkpoint.load()
        end = store.runs[-1].end if store.runs else 0
        if checkpoint.clean_end > end and Markers(store.files, store.root).was_clean():
            self._add(
                Finding("commitlog", "missing", path, "the files end before what this says of the last stop: mount "
                        "what is missing", start=end, end=checkpoint.clean_end)
            )  # fmt: skip
        for name, value in (
            ("physicMsgTimestamp", checkpoint.physic),
            ("logicsMsgTimestamp", checkpoint.logics),
            ("indexMsgTimestamp", checkpoint.index),
        ):
            if value > stamp and not self._unread:  # the newest record may be there
                self._add(
                    Finding("checkpoint", "time", path, f"{name} {value} is later than the newest record's store time "
                            f"{stamp}: Java would look at too little after a crash")
                )  # fmt: skip

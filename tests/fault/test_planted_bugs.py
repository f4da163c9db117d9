"""Every planted bug turns a check red: a bug that no check catches fails the build (reliability.md B.3).

A bug is a patch of the product, made in the test's process only. Each scene is green without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rmq.broker.replication import master_service
from rmq.broker.replication.slave import SlaveStream
from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.store import messages, store
from rmq.broker.store.care import scrub
from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.care.upkeep import Upkeep
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.log import reader as log_reader
from rmq.broker.store.log.acknowledgements import Acknowledgements
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.log.files import LogFile, LogFiles
from rmq.broker.store.log.flush import LogFlusher
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.record_runs import take
from rmq.broker.store.log.records import check
from rmq.broker.store.queues import fitting
from rmq.broker.store.start import extent, recovery
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.start.extent import Extent
from rmq.broker.topics import metadata
from rmq.protocol.errors import StoreError
from rmq.runtime.backed_file import BackedFile
from tests.support.scenes import boot as boots
from tests.support.scenes import damaged as damaged
from tests.support.scenes import faulty as scenes
from tests.support.scenes import pair_faults as pairs
from tests.support.scenes import scrub as scrubbing
from tests.support.scenes import slave as slaves

Patch = pytest.MonkeyPatch


def acknowledge_before_fsync(patch: Patch) -> None:
    """SEND_OK as soon as the bytes are written."""
    patch.setattr(Durability, "_met", lambda self, held: True)


def acknowledge_what_came_while_flushing(patch: Patch) -> None:
    """The end is noted after the flush, not before it."""
    real = LogFlusher._flush_once

    async def late(self: LogFlusher) -> None:
        await real(self)
        if not self.failed:
            self.flushed = self._log.end
            for tell in self._events.flushed:
                tell(self.flushed)

    patch.setattr(LogFlusher, "_flush_once", late)


def no_directory_fsync(patch: Patch) -> None:
    """New files are forced, their names are not."""

    def sync(self: LogFiles, file: LogFile) -> None:
        file.file.datasync()

    patch.setattr(LogFiles, "sync", sync)


def trust_the_checkpoint(patch: Patch) -> None:
    """What the checkpoint says is on disk is not looked at."""

    async def first_to_check(self: Extent, files: list[LogFile]) -> int:
        newest = 0
        for at, file in enumerate(files):
            data = await self._offload(file.file.pread, 128, 0)
            if len(data) == 128 and 0 < extent.store_time(data) <= self._checkpoint.oldest:
                newest = at
        return newest

    patch.setattr(Extent, "first_to_check", first_to_check)


def trust_the_boot_id_after_a_power_cut(patch: Patch) -> None:
    """What was noted as forced is believed in whatever boot."""

    def forced_in(self: Checkpoint, boot: str) -> int:
        return -1 if self._forced is None else self._forced[1]

    patch.setattr(Checkpoint, "forced_in", forced_in)


def note_what_is_written_as_forced(patch: Patch) -> None:
    """The note says where the log ends, not how far it was forced to disk."""

    def note(self: Upkeep) -> None:
        files = {file.start: file.path for file in self._log.segments}
        self._checkpoint.note_forced(self._boot, self._log.end, files)

    patch.setattr(Upkeep, "_note_forced", note)


def scrub_without_checksums(patch: Patch) -> None:
    """The check behind the running broker looks at lengths only."""
    real = scrub._Aside.__init__

    def lax(self: scrub._Aside, *args: Any) -> None:
        real(self, *args)
        self._crc = False

    patch.setattr(scrub._Aside, "__init__", lax)


def serve_what_is_known_to_be_damaged(patch: Patch) -> None:
    """Damage is told, and queues go on pointing to it."""

    async def leave(self: DamagedParts, part: log_reader.Damage) -> int:
        return 0

    patch.setattr(DamagedParts, "set_aside", leave)


def skip_crc(patch: Patch) -> None:
    """A start, and the check behind the running broker, take bodies as they are."""

    def lax(data: Any, at: int, offset: int, limit: int, *, crc: bool = True) -> int:
        return check(data, at, offset, limit, crc=False)

    def lax_run(*args: Any, crc: bool = True) -> Any:
        return take(*args, crc=False)

    for module in (log_reader, extent, messages):
        patch.setattr(module, "check", lax, raising=False)
    patch.setattr(log_reader, "take", lax_run)


def skip_crc_when_serving_too(patch: Patch) -> None:
    """Nor are bodies compared before they go out: that keeps from readers what a start has left in the queues."""
    skip_crc(patch)
    patch.setattr(fitting, "check", log_reader.check)
    patch.setattr(fitting, "_is_whole", lambda *args: True)


def dispatch_beyond_durable(patch: Patch) -> None:
    """Consumers see what is written, not what is on disk."""
    real = Durability.on_appended

    def at_once(self: Durability, end: int, touched: list[Any]) -> None:
        real(self, end, touched)
        self.visible = end
        for queue in touched:
            queue.visible = queue.next

    patch.setattr(Durability, "on_appended", at_once)


def partial_batch(patch: Patch) -> None:
    """A batch is written record by record, and what went before the failure is not taken back."""
    real = store.Store.append

    def one_by_one(self: store.Store, puts: Any, *args: Any, together: bool = False, **rest: Any) -> Any:
        for put in puts:
            span = real(self, [put], *args, **rest)
        return span

    patch.setattr(store.Store, "append", one_by_one)


def leave_half_a_write(patch: Patch) -> None:
    """A failed write is not cleared away."""

    def refuse(self: CommitLog, error: OSError) -> None:
        self.close_gate(Gate.DISK_FULL)

    patch.setattr(CommitLog, "_write_failed", refuse)


def leave_the_torn_tail(patch: Patch) -> None:
    """Recovery sets the end and leaves the bytes behind it."""

    def keep(self: LogFiles, file: LogFile, position: int) -> None:
        """Nothing is cleared."""

    patch.setattr(LogFiles, "zero_from", keep)


def retry_a_failed_fsync(patch: Patch) -> None:
    """A flush that failed is tried again, and believed."""

    def forgive(self: LogFlusher, path: str, error: OSError) -> None:
        self._tasks.spawn(self._again(), "again")  # type: ignore[attr-defined]

    async def again(self: LogFlusher) -> None:
        await asyncio.sleep(0)
        self._busy = False
        self.request()

    patch.setattr(LogFlusher, "fail", forgive)
    patch.setattr(LogFlusher, "_again", again, raising=False)


def trust_the_queues(patch: Patch) -> None:
    """What the queues hold is not compared with what the log holds."""

    def nothing(there: dict[int, int], covered: dict[int, int], checked_from: int) -> None:
        return None

    async def none(self: Extent, files: Any, covered: Any) -> None:
        return None

    patch.setattr(recovery, "first_difference", nothing)
    patch.setattr(Extent, "first_wrong", none)


def flush_the_newest_file_first(patch: Patch) -> None:
    """Group commit over a roll: the younger file is forced, and the older one counts as forced with it."""
    real = LogFlusher._flush_once

    async def backwards(self: LogFlusher) -> None:
        segments = self._log.segments
        if len(segments) > 1 and self.flushed <= segments[-1].start:
            self.flushed = segments[-1].start
        await real(self)

    patch.setattr(LogFlusher, "_flush_once", backwards)


def end_the_log_at_the_first_damage(patch: Patch) -> None:
    """What lies behind a damaged record is not looked for."""

    async def nowhere(self: log_reader.LogReader, offset: int) -> int:
        return -1

    patch.setattr(log_reader.LogReader, "_resume", nowhere)


def believe_an_index_with_a_hole(patch: Patch) -> None:
    """Files of the index are taken for all that there were."""

    async def none(self: IndexBuild) -> None:
        return None

    patch.setattr(IndexBuild, "_uncovered", none)


def write_metadata_in_place(patch: Patch) -> None:
    """A new version over the old one, forced, but without a file of its own."""

    def over(self: BackedFile, data: bytes, number: int) -> None:
        files, path = self._world.files, self.path
        files.mkdir(path.rpartition("/")[0])
        files.sync_dir(path.rpartition("/")[0].rpartition("/")[0])
        file = files.open(path, create=True)
        file.pwrite(data, 0)
        file.truncate(len(data))
        file.datasync()
        files.sync_dir(path.rpartition("/")[0])

    patch.setattr(BackedFile, "_replace", over)


def take_an_emptied_file_for_a_fresh_start(patch: Patch) -> None:
    """No content is no file."""
    real = metadata.MetadataFile.load

    def load(self: metadata.MetadataFile, parse: Callable[[bytes], None]) -> bool:
        return bool(self._world.files.read(self.path)) and real(self, parse)

    patch.setattr(metadata.MetadataFile, "load", load)


def decide_only_what_is_answered(patch: Patch) -> None:
    """Without a slave what nobody waits for stays hidden until somebody else's send is answered."""
    patch.setattr(Acknowledgements, "appended_as_sync_master", lambda self, end: None)


def flush_on_the_loop(patch: Patch) -> None:
    """The loop waits for the disk (for a whole broker: test_disk_faults)."""
    real = LogFlusher._flush_once

    async def at_once(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    async def waiting(self: LogFlusher) -> None:
        self._offload = at_once  # type: ignore[assignment]
        await real(self)

    patch.setattr(LogFlusher, "_flush_once", waiting)


def acknowledge_before_the_slave_writes(patch: Patch) -> None:
    """A slave reports what arrived, and writes it a moment later."""

    def early(self: SlaveClient, stream: SlaveStream, data: bytes) -> bytes:
        reports = b""
        for offset, body in stream.received(data, self.now()):
            reports += stream.stored(offset + len(body), self.now())
            asyncio.get_running_loop().call_later(0.001, write, self, offset, body)
        return reports

    def write(self: SlaveClient, offset: int, body: bytes) -> None:
        with contextlib.suppress(OSError, StoreError):
            self._store.append_raw(offset, body)

    patch.setattr(SlaveClient, "take", early)


def count_connections_for_slaves(patch: Patch) -> None:
    """Two connections of one slave are two slaves."""
    real = master_service.MasterReplication.opened

    def by_connection(self: master_service.MasterReplication, slave: Any) -> None:
        slave.replica = slave.peer
        real(self, slave)

    patch.setattr(master_service.MasterReplication, "opened", by_connection)


def waive_nothing(patch: Patch) -> None:
    """What is answered with 11 or 12 waits for its slave all the same, out of consumers' sight."""
    patch.setattr(Durability, "waive", lambda self, end: None)


class Bug(NamedTuple):
    plant: Callable[[Patch], None]
    caught_by: Callable[[], None]
    #: What the failing check says.
    says: str


BUGS = (
    Bug(acknowledge_before_fsync, scenes.acknowledged_survives_power_cuts, "I1"),
    Bug(acknowledge_what_came_while_flushing, scenes.acknowledged_survives_power_cuts, "I1"),
    Bug(no_directory_fsync, scenes.acknowledged_survives_power_cuts, "I1"),
    Bug(dispatch_beyond_durable, scenes.consumed_survives_power_cuts, "I7"),
    Bug(retry_a_failed_fsync, scenes.failed_flush_is_final, "I1"),
    Bug(trust_the_checkpoint, scenes.checkpoint_decides_nothing, "I10"),
    Bug(trust_the_boot_id_after_a_power_cut, boots.a_disk_that_lied_is_found_out, "I11"),
    Bug(note_what_is_written_as_forced, boots.lost_pages_are_found, "I11"),
    Bug(scrub_without_checksums, scrubbing.damage_is_found_while_running, "I11"),
    Bug(serve_what_is_known_to_be_damaged, scrubbing.damage_is_found_while_running, "I11"),
    Bug(skip_crc, scenes.damage_is_never_served, "I11"),
    Bug(skip_crc_when_serving_too, scenes.damage_is_never_served, "I11"),
    Bug(partial_batch, scenes.refused_batches_leave_nothing, "I2"),
    Bug(leave_half_a_write, scenes.refused_batches_leave_nothing, "I2"),
    Bug(leave_the_torn_tail, scenes.stale_bytes_never_come_back, "I3"),
    Bug(flush_the_newest_file_first, scenes.acknowledged_survives_power_cuts, "I1"),
    Bug(end_the_log_at_the_first_damage, damaged.damage_costs_only_itself, "I11"),
    Bug(believe_an_index_with_a_hole, damaged.missing_index_files_are_noticed, "I10"),
    Bug(write_metadata_in_place, damaged.metadata_is_old_or_new, "I12|I18|neither the file"),
    Bug(take_an_emptied_file_for_a_fresh_start, damaged.an_emptied_file_is_no_fresh_start, "I12"),
    Bug(decide_only_what_is_answered, slaves.a_dead_slave_stops_nobody, "I9"),
    Bug(acknowledge_before_the_slave_writes, pairs.pairs_under_faults, "I1"),
    Bug(count_connections_for_slaves, pairs.two_of_one_slave, "I1|I9"),
    Bug(waive_nothing, pairs.pairs_under_faults, "I9"),
    Bug(trust_the_queues, scenes.queue_entries_are_checked, "I10|has no entry"),
)
SCENES = tuple(dict.fromkeys(bug.caught_by for bug in BUGS))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_scene_is_green(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, StoreError), match=bug.says):
        bug.caught_by()

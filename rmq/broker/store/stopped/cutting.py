"""Takes the end of a stopped store's log away, or all of the store; first it is told what would go, and all is kept.

What goes is kept below the store's root in a folder of its own that is a store itself, as far as the log goes::

    {root}/gone-{yyyymmdd-hhmmss}/commitlog/...    a cut: the files' bytes from there on, at their places; zeros before
    {root}/gone-{yyyymmdd-hhmmss}/...              all of it: everything that was below the root
    {root}/gone-{yyyymmdd-hhmmss}/config/...       how far groups and delay levels were, of messages that are gone

A kill before the log is cut leaves the store as it was; from then on it leaves what any kill leaves, for the next start
to recover. Either can be asked for again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.markers import Markers
from rmq.broker.store.stopped.findings import Progress
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.protocol.record import store_time
from rmq.runtime.world import World

__all__ = ["Going", "cut", "empty", "what_goes"]

_COPIED = 4 << 20
#: Progress in what is gone: a slave has its master's from now on, and what stays would keep messages from consumers.
_PROGRESS = ("consumerOffset.json", "delayOffset.json")
_KEPT = "gone-"


@dataclass(slots=True)
class Going:
    """What would go: everything from ``at`` on. Offsets of the commit log; times in ms."""

    at: int
    #: Where the log begins, and behind its last good record.
    start: int = 0
    end: int = 0
    records: Counter[tuple[str, int]] = field(default_factory=Counter)
    oldest: int = 0
    newest: int = 0


async def what_goes(store: StoppedStore, at: int, progress: Progress) -> Going:
    """Count it.

    :param at: where a record begins, or the log.
    :raises OSError: a file that cannot be read.
    """
    found = Going(at, store.start, at)
    for run in store.runs:
        if run.end <= at:
            continue
        reader = LogReader(store.world, run, crc=False)
        reader.unreadable = UnreadablePlaces(run.file_size)
        first = max(at, run.start)
        async for part in reader.runs(first, run.end):
            progress("commit log", part.base - first, run.end - first)
            found.records.update((topic, queue_id) for _, _, _, queue_id, _, topic, _ in part.records)
            times = [store_time(part.data, place) for place, *_ in part.records]
            found.oldest = min([*times, found.oldest] if found.oldest else times)
            found.newest = max(found.newest, *times)
        found.end = max(found.end, reader.end)
    progress("", 0, 0)
    return found


def _name(world: World) -> str:
    return f"{_KEPT}{datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC):%Y%m%d-%H%M%S}"


async def cut(world: World, settings: StoreSettings, going: Going) -> str:
    """Keep what goes and cut it off, with queues, index and checkpoint.

    :returns: where it is kept.
    :raises StoreError: a broker uses the store, or has used it since it was looked at.
    :raises OSError: the disk refused.
    """
    kept = os.path.join(settings.root, _name(world))
    store = Store(world, dataclasses.replace(settings, sync_master=False))
    await store.load()
    try:
        if store.log.end != going.end:
            raise StoreError(
                f"{settings.root} has changed since it was looked at: its log ended at {going.end} and ends at "
                f"{store.log.end} now"
            )
        await world.offload(_keep, world, store, going, kept)
    except BaseException:
        await store.abandon()
        raise
    await store.start()
    try:
        await store.truncate(going.at)
        while not store.upkeep.indexed:  # noqa: ASYNC110 - until the index is whole, so that the next start is quick
            await asyncio.sleep(0.05)
    finally:
        clean = await store.stop()
    if not clean:
        raise StoreError(
            f"{settings.root}: the log was cut, and not everything got to disk: the next start recovers it"
        )
    return kept


def _keep(world: World, store: Store, going: Going, kept: str) -> None:
    """Copy what goes. Blocks."""
    files, size = world.files, store.log.file_size
    log_folder, config = os.path.join(kept, "commitlog"), os.path.join(kept, "config")
    for folder in (log_folder, config):
        files.mkdir(folder)
    for source in store.log.segments:
        if source.start + size <= going.at or source.start >= going.end:
            continue
        copy = files.open(os.path.join(log_folder, file_name(source.start)), create=True)
        try:
            copy.truncate(size)
            at, end = max(going.at - source.start, 0), min(size, going.end - source.start)
            while at < end:
                data = source.file.pread(min(_COPIED, end - at), at)
                if not data:
                    raise StoreError(f"{source.path} cannot be read at {at}")
                copy.pwrite(data, at)
                at += len(data)
            copy.datasync()
        finally:
            copy.close()
    files.sync_tree(kept)
    root = os.path.dirname(kept)
    files.sync_dir(root)
    for name in _PROGRESS:
        for path in (name, f"{name}.bak"):
            if files.exists(old := os.path.join(root, "config", path)):
                files.rename(old, os.path.join(config, path))
    if files.is_dir(os.path.join(root, "config")):
        files.sync_dir(os.path.join(root, "config"))
    files.sync_dir(config)


async def empty(world: World, settings: StoreSettings) -> str:
    """Move everything aside, so that a slave begins anew.

    :returns: where it is kept.
    :raises StoreError: a broker uses the store, or a part of its log lies elsewhere.
    :raises OSError: the disk refused; it may be asked for again.
    """
    kept = os.path.join(settings.root, _name(world))
    markers = Markers(world.files, settings.root)
    try:
        await world.offload(markers.take_lock)
        await world.offload(_move, world, settings, kept)
    finally:
        await world.offload(markers.release_lock)
    return kept


def _move(world: World, settings: StoreSettings, kept: str) -> None:
    """Blocks."""
    files, root = world.files, settings.root
    elsewhere = [path for path in (*settings.commit_log_paths, *settings.read_only_paths) if not _below(path, root)]
    if elsewhere:
        raise StoreError(
            f"the commit log is in {', '.join(elsewhere)}, outside of {root}: move these folders away by hand"
        )
    files.mkdir(kept)
    # The log last: without it nobody could make the others anew.
    names = [name for name in files.list(root) if name != "lock" and not name.startswith(_KEPT)]
    for name in sorted(names, key=lambda name: (name == "commitlog", name)):
        files.rename(os.path.join(root, name), os.path.join(kept, name))
    files.sync_dir(kept)
    files.sync_dir(root)


def _below(path: str, root: str) -> bool:
    return os.path.commonpath((os.path.abspath(path), os.path.abspath(root))) == os.path.abspath(root)

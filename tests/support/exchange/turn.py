"""Brokers that have one store directory in turn, Java's and ours, and what each must say of the other's messages."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import Verified, verify
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.exchange.load import LONG_GONE, Filler, sql_group
from tests.support.exchange.view import Broker, View, manifest, readable, table_of, view
from tests.support.kills.killer import OsTree
from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.store_scan import LogScan, scan_log

__all__ = ["LOG_SIZE", "Turn", "handed_over", "verified"]

T = TypeVar("T")

LOG_SIZE = 256 << 10
#: Small files, so that all of them are rolled; nothing pending moves by itself while the directory changes hands.
QUEUE_ENTRIES = 150
SMALL = {
    "commitLogChecksumOnAppend": "true",
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_ENTRIES * 20),
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
    "transactionCheckInterval": "3600000",
    "transactionTimeOut": "3600000",
}


class _Directories(OsTree):
    """Several directories seen as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def list(self, path: str) -> list[str]:
        return sorted(name for directory in self._paths for name in super(_Directories, self).list(str(directory)))

    def read(self, path: str) -> bytes:
        name = Path(path).name
        (there,) = [directory / name for directory in self._paths if (directory / name).exists()]
        return super().read(str(there))


class Turn:
    """One broker's time with the directory.

    :param six: it tells ``::1`` as its address and is sent to by IPv6.
    :param logs: the commit log's directories; ``commitlog`` in the store when none is given.
    :param read_only: those of them that get no new files.
    :param more: settings of the broker, over the others.
    """

    def __init__(
        self,
        kind: str,
        store: Path,
        *,
        six: bool = False,
        logs: Sequence[Path] = (),
        read_only: Sequence[Path] = (),
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.store = store
        self._six = six
        self._logs = logs or [store / "commitlog"]
        paths = {"storePathRootDir": str(store), "storePathCommitLog": ",".join(map(str, self._logs))}
        if read_only:
            paths["readOnlyCommitLogStorePaths"] = ",".join(map(str, read_only))
        own = {"brokerIP1": "::1"} if six else {}
        try:
            settings = {**SMALL, **paths, **own, **(more or {})}
            self.cluster: Cluster = start_cluster(kind, properties=settings, our_namesrv=True)
        except ToolMissing as missing:
            skip_or_fail(missing)

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()

    def run(self, what: Callable[[RemotingClient, str], Awaitable[T]]) -> T:
        port = self.cluster.broker_addr.rpartition(":")[2]

        async def main() -> T:
            client = RemotingClient(World.real())
            try:
                return await what(client, f"[::1]:{port}" if self._six else f"127.0.0.1:{port}")
            finally:
                await client.close()

        return asyncio.run(main())

    def fill(self, life: int, *, plain: int = 700, old: bool = False, delays: bool = True) -> None:
        self.run(lambda client, address: Filler(client, address, life).fill(plain=plain, old=old, delays=delays))

    def scan(self) -> LogScan:
        return scan_log(_Directories(self._logs), "", LOG_SIZE)

    def view(self) -> tuple[LogScan, View]:
        """The files, and what the broker says of them: the same messages."""
        scan = self.scan()
        _dense(scan)
        self._date_queue_files(scan)
        gone = {(LONG_GONE, n) for n in range(4)}
        told = self.run(lambda client, address: view(client, address, scan, gone, QUEUE_ENTRIES))
        wanted = manifest(scan)
        _same(told.records, wanted.records, "by queue offset")
        _same(told.by_key, wanted.by_key, "by key")
        _same(told.by_id, wanted.by_id, "by offset id")
        if self.cluster.java is None:
            _times_are_right(scan, told)
        return scan, told

    def _date_queue_files(self, scan: LogScan) -> None:
        """Let each file of a queue have been written last when its last message was stored.

        Java's search by time goes by that; a flush, or the page that a write finds clean, moves it to some later time.
        """
        last: dict[Path, int] = defaultdict(int)
        for record in readable(scan):
            first = record.queue_offset // QUEUE_ENTRIES * QUEUE_ENTRIES * 20
            file = self.store / "consumequeue" / record.topic / str(record.queue_id) / f"{first:020d}"
            last[file] = max(last[file], record.store_timestamp)
        for file, stamp in last.items():
            os.utime(file, ns=(stamp * 1_000_000, stamp * 1_000_000))

    def until_saved(self, life: int) -> None:
        """Wait until the files know how far groups and delays are, and the life's filter: a kill would lose that.

        Java's broker writes none of it in its first ten seconds.
        """

        async def wait(client: RemotingClient, address: str) -> None:
            broker = Broker(client, address)

            async def saved() -> int:
                return int(
                    self._saved("consumerOffset.json", "offsetTable") == await broker.table(43, "offsetTable")
                    and self._saved("delayOffset.json", "offsetTable") == await broker.table(45, "offsetTable")
                    and sql_group(life) in self.filters()
                )

            await broker.until(saved, 1)

        self.run(wait)

    def _saved(self, name: str, table: str) -> dict[str, Any]:
        try:
            return table_of((self.store / "config" / name).read_bytes(), table)
        except (FileNotFoundError, json.JSONDecodeError):
            return {}  # Java deletes and renames

    def filters(self) -> dict[str, Any]:
        """What consumerFilter.json says of each group with a filter, without the time at which it left."""
        found = self._saved("consumerFilter.json", "filterDataByTopic")
        return {
            group: {name: value for name, value in data.items() if name not in ("dead", "deadTime")}
            for topic in found.values()
            for group, data in topic["groupFilterData"].items()
        }

    def stop(self) -> None:
        assert self.cluster.brokers[0].daemon.stop() in (0, 143)

    def kill(self) -> None:
        self.cluster.brokers[0].daemon.kill()


def verified(store: Path, logs: Sequence[Path] = ()) -> Verified:
    """What ``mqadmin store verify`` says of a store of a :class:`Turn` that was stopped cleanly: nothing is damaged."""

    async def look() -> Verified:
        settings = StoreSettings(
            str(store), commit_log_paths=tuple(map(str, logs)), commit_log_file_size=LOG_SIZE,
            queue_file_size=QUEUE_ENTRIES * 20, index_slots=int(SMALL["maxHashSlotNum"]),
            index_entries=int(SMALL["maxIndexNum"]),
        )  # fmt: skip
        async with StoppedStore(World.real(), settings) as opened:
            return await verify(opened)

    found = asyncio.run(look())
    assert found.findings.damages == [], found.findings.damages[:3]
    others = [note for note in found.findings.notes if note.kind not in ("offset", "deleted")]
    assert others == [], others[:3]
    return found


def _dense(scan: LogScan) -> None:
    """No queue leaves out an offset, whoever has written what."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in readable(scan):
        offsets[record.topic, record.queue_id].append(record.queue_offset)
    for place, found in offsets.items():
        assert found == list(range(found[0], found[0] + len(found))), f"{place}: {found}"


def _times_are_right(scan: LogScan, told: View) -> None:
    """Asked for a store time that messages have, one of those messages."""
    stamps = {
        (record.topic, record.queue_id, record.queue_offset): record.store_timestamp
        for record in scan.records if record.sys_flag & 0xC in (0, 8)
    }  # fmt: skip
    for (topic, queue), (_, end, _, found) in told.bounds.items():
        if not told.in_order((topic, queue)):
            continue
        held = {stamp for (t, q, _), stamp in stamps.items() if (t, q) == (topic, queue)}
        for stamp, offset in found.items():
            if held and stamp > max(held):
                assert offset == end, f"{topic} {queue} at {stamp}, after the last message: {offset}"
            if stamp in held:
                assert stamps[topic, queue, offset] == stamp, f"{topic} {queue} at {stamp}: {offset}"


def _same(got: object, wanted: object, what: str) -> None:
    assert isinstance(got, dict)
    assert isinstance(wanted, dict)
    wrong = [key for key in got.keys() | wanted.keys() if got.get(key) != wanted.get(key)]
    assert not wrong, f"{what}: {len(wrong)} differ, among them " + "; ".join(
        f"{key}: {str(got.get(key))[:300]} instead of {str(wanted.get(key))[:300]}" for key in wrong[:3]
    )


def handed_over(before: View, after: View, *, configuration: bool = True) -> None:
    """The second broker says what the first one said."""
    # Of a queue whose messages are all gone Java says the minimum that its last entry file begins with; we say, as
    # ever when there is nothing, minimum = maximum.
    there = {place: found for place, found in before.bounds.items() if place[0] != LONG_GONE}
    _same({place: after.bounds[place][:3] for place in there}, {p: b[:3] for p, b in there.items()}, "bounds")
    timed = [place for place in there if before.in_order(place)]
    _same({p: after.found_times(p) for p in timed}, {p: before.found_times(p) for p in timed}, "by time")
    assert any(found[1] - found[0] > QUEUE_ENTRIES for found in there.values()), "no queue has several files"
    _same(after.records, before.records, "by queue offset")
    _same(after.by_key, before.by_key, "by key")
    _same(after.by_id, before.by_id, "by offset id")
    for place in before.bounds.keys() - there.keys():
        assert before.bounds[place][1] == after.bounds[place][1], f"{place}: the maximum moved"
    if configuration:
        _same(after.offsets, before.offsets, "consumer offsets")
        _same(after.delays, before.delays, "delay offsets")
        _same({name: after.topics.get(name) for name in before.topics}, before.topics, "topics")
        _same({name: after.groups.get(name) for name in before.groups}, before.groups, "groups")

"""One store, opened in turn by our broker and by Java 4.9.4's: each finds all that the other wrote."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.exchange_load import LONG_GONE, TOPIC, Filler
from tests.support.exchange_view import Broker, View, manifest, view
from tests.support.interop import Row, Scene, assert_same
from tests.support.killer import OsTree
from tests.support.peers import Client, Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import FAST_RETRIES
from tests.support.store_scan import LogScan, scan_log

T = TypeVar("T")

SEQUENCE = ("ours", "java-4.9.4", "ours")
LOG_SIZE = 256 << 10
#: Small files, so that all of them are rolled; nothing pending moves by itself while the directory changes hands.
QUEUE_ENTRIES = 150
SMALL = {
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_ENTRIES * 20),
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "transactionCheckInterval": "3600000",
    "transactionTimeOut": "3600000",
}


@pytest.fixture
def store() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rmq-store-"))
    yield folder / "store"
    shutil.rmtree(folder)


def _query(scene: Scene, topic: str, sent: list[Row]) -> None:
    for op, what in (
        ("querykey", {"keys": [row.key for row in sent]}),
        ("queryid", {"ids": [row.unique_id for row in sent]}),
    ):
        assert_same(sent, scene.asked(scene.reader, op, len(sent), topic=topic, **what))


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_each_reads_what_the_other_wrote(end: str, store: Path, clients: Callable[[str, str], Client]) -> None:
    reader = clients("java-4.9.8", "reader")
    paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    topic, group = f"exchange-{end}", f"g-exchange-{end}"
    sent: list[Row] = []
    consumed: list[Row] = []
    for turn, kind in enumerate(SEQUENCE):
        with start_cluster(kind, properties={**FAST_RETRIES, **paths}) as cluster:
            scene = Scene(cluster, reader, reader)
            if turn == 0:
                reader.call("topic", namesrv=cluster.namesrv, topic=topic, queues=4)
            else:
                reader.call("route", namesrv=cluster.namesrv, topic=topic)  # the topic came with the store
                assert_same(sent, scene.read(topic, len(sent)))
                _query(scene, topic, sent)
            sent += scene.produce(topic, "async", prefix=f"turn-{turn}")
            assert_same(sent, scene.read(topic, len(sent)))
            if end == "killed":
                cluster.brokers[0].daemon.kill()
                continue
            # Consumer offsets are in the store, too; a kill may lose the last seconds of them.
            member = scene.subscribe(topic, group)
            consumed += member.received(len(sent) - len(consumed))
            assert_same(sent, consumed)
            scene.consumed(member, group)
            member.stop()
            cluster.brokers[0].daemon.stop()


class Turn:
    """One broker's time with the directory.

    :param six: it tells ``::1`` as its address and is sent to by IPv6.
    """

    def __init__(self, kind: str, store: Path, *, six: bool = False) -> None:
        self.store = store
        self._six = six
        paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        own = {"brokerIP1": "::1"} if six else {}
        try:
            self.cluster: Cluster = start_cluster(kind, properties={**SMALL, **paths, **own})
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
        return scan_log(OsTree(), str(self.store / "commitlog"), LOG_SIZE)

    def view(self) -> tuple[LogScan, View]:
        """The files, and what the broker says of them: the same messages."""
        scan = self.scan()
        told = self.run(lambda client, address: view(client, address, scan, {(LONG_GONE, n) for n in range(4)}))
        wanted = manifest(scan)
        _same(told.records, wanted.records, "by queue offset")
        _same(told.by_key, wanted.by_key, "by key")
        _same(told.by_id, wanted.by_id, "by offset id")
        if self.cluster.java is None:
            _times_are_right(scan, told)
        return scan, told

    def stop(self) -> None:
        assert self.cluster.brokers[0].daemon.stop() in (0, 143)

    def kill(self) -> None:
        self.cluster.brokers[0].daemon.kill()


def _times_are_right(scan: LogScan, told: View) -> None:
    """Asked for a store time that messages have, one of those messages."""
    stamps = {
        (record.topic, record.queue_id, record.queue_offset): record.store_timestamp
        for record in scan.records if record.sys_flag & 0xC in (0, 8)
    }  # fmt: skip
    for (topic, queue), (_, end, _, found) in told.bounds.items():
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


def _delete_oldest(store: Path, count: int) -> None:
    """What retention deletes, which looks at ages of hours."""
    files = sorted((store / "commitlog").iterdir())
    assert len(files) > count + 1
    for file in files[:count]:
        file.unlink()


def _handed_over(before: View, after: View, *, configuration: bool = True) -> None:
    """The second broker says what the first one said."""
    # Of a queue whose messages are all gone Java says the minimum that its last entry file begins with; we say, as
    # ever when there is nothing, minimum = maximum.
    there = {place: found for place, found in before.bounds.items() if place[0] != LONG_GONE}
    _same({place: after.bounds[place][:3] for place in there}, {p: b[:3] for p, b in there.items()}, "bounds")
    # In a queue of several files Java chooses the file by its modification time, which a flush moves, and may answer
    # with the beginning of the next one; ours is held to the messages themselves (_times_are_right).
    # A time after the last message is the end of the queue with us, the last message with Java (B015, B017).
    short = [place for place, found in there.items() if found[1] <= QUEUE_ENTRIES]
    _same({p: after.until_last(p) for p in short}, {p: before.until_last(p) for p in short}, "by time")
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


@pytest.mark.parametrize(("first", "second"), [("java-4.9.4", "ours"), ("ours", "java-4.9.4")])
def test_everything_a_directory_can_hold_changes_hands(first: str, second: str, store: Path) -> None:
    """Rolled files of all kinds, the oldest deleted, IPv4 and IPv6 hosts; each goes on where the other stopped."""
    with Turn(first, store) as turn:
        turn.fill(1, old=True)
        turn.stop()
    _delete_oldest(store, 1)
    with Turn(first, store, six=True) as turn:
        turn.fill(2)
        scan, written = turn.view()
        turn.stop()
    assert scan.records[0].offset >= LOG_SIZE
    assert {record.sys_flag & 0x30 for record in scan.records} == {0, 0x30}, "IPv4 and IPv6 hosts"
    with Turn(second, store) as turn:
        again, opened = turn.view()
        assert [record.raw for record in again.records] == [record.raw for record in scan.records]
        _handed_over(written, opened)
        turn.fill(3, plain=300, delays=False)
        _, continued = turn.view()
        turn.kill()
    with Turn(first, store) as turn:
        _, returned = turn.view()
        _handed_over(continued, returned, configuration=False)
        turn.fill(4, plain=50)
        turn.view()


def test_records_with_long_topics_are_read(store: Path) -> None:
    """5.x writes a topic's length in two bytes (V2 records) beyond 127: here the retry topic of a long group."""
    group = "g" * 200
    place = (f"%RETRY%{group}", 0)

    async def fail(client: RemotingClient, address: str) -> dict[int, bytes]:
        broker = Broker(client, address)
        filler = Filler(client, address, 1)
        for _ in range(3):
            _, offset = await filler.send(TOPIC, 0)
            await filler.send_back(offset, 1, group=group)
        await broker.until(lambda: broker.maximum(*place), 3)
        return await broker.records(*place, 0, 3)

    async def read(client: RemotingClient, address: str) -> dict[int, bytes]:
        return await Broker(client, address).records(*place, 0, 3)

    with Turn("java-5.3.3", store) as turn:
        written = turn.run(fail)
        turn.stop()
    assert sorted(written) == [0, 1, 2]
    assert {data[4:8].hex() for data in written.values()} == {"daa320ab"}
    with Turn("ours", store) as turn:
        assert turn.run(read) == written
        turn.run(lambda client, address: Filler(client, address, 2).send(TOPIC, 0))
        turn.stop()

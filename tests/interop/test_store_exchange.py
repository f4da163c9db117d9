"""One store, opened in turn by our broker and by Java 4.9.4's: each finds all that the other wrote.

What is promised of the exchange, and the test that shows it; "everything" is
``test_everything_a_directory_can_hold_changes_hands``, which runs in both directions, and "turn" what it asks of each
broker in :mod:`tests.support.exchange.turn`.

================================================  ======================================================================
rolled commit logs, several topics, delayed,      everything: ``Filler.fill`` sends one of each; ``Turn.view`` compares
transactional, retry and dead-letter messages,    all that the broker tells with the files, byte by byte: body, every
keys, compressed bodies, batches                  property, hosts, times and flags
IPv6 hosts                                        everything: the second life tells ``::1`` as its address
deleted oldest files                              everything: ``_delete_oldest``
by queue offset, key, unique id and offset id     turn: ``view``, ``handed_over``
minimum, maximum, earliest store time             turn: ``handed_over``
search by time, over several files of a queue     turn: before, on and after what is stored on both sides of where files
                                                  end and all over the queue, for every queue the same on both sides
every group's offset, delay levels' offsets,      turn: ``handed_over``, also after kill -9 (``until_saved``)
topics and groups with every field
filters                                           everything: consumerFilter.json; ``test_filter_data.py``
Java continues ours, we continue Java's           everything: third and fourth life; ``_dense``: no offset is left out
what an ordinary client reads and consumes        ``test_each_reads_what_the_other_wrote``, stopped and killed
nothing is damaged in the eyes of our tools       everything: ``verified``
Java leaves our checksums alone, and what it      everything: ``_checksums``, ``verified``
writes behind them is no damage
a small one with its manifest                     ``tests/unit/broker/store/test_golden_store.py``
V2 records of 5.x                                 ``test_records_with_long_topics_are_read``
several commit log paths, read-only ones          ``test_store_paths.py``
consumequeue_ext                                  ``test_consumequeue_ext.py``
messages that wait for a time of their own        ``test_delay_exchange.py``
================================================  ======================================================================
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq.protocol.message import decode_record
from rmq.remoting.client import RemotingClient
from tests.support.exchange.load import TOPIC, Filler
from tests.support.exchange.turn import LOG_SIZE, Turn, handed_over, verified
from tests.support.exchange.view import Broker
from tests.support.interop import Row, Scene, assert_same
from tests.support.peers import Client, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

SEQUENCE = ("ours", "java-4.9.4", "ours")


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
        with start_cluster(kind, properties={**FAST_RETRIES, **paths}, our_namesrv=True) as cluster:
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


def _delete_oldest(store: Path, count: int) -> None:
    """What retention deletes, which looks at ages of hours."""
    files = sorted((store / "commitlog").iterdir())
    assert len(files) > count + 1
    for file in files[:count]:
        file.unlink()


def _checksums(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "checksums").glob("*")}


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
    verified(store)
    kept_sums = _checksums(store)
    assert bool(kept_sums) == (first == "ours")
    filters = turn.filters()
    with Turn(second, store) as turn:
        again, opened = turn.view()
        assert [record.raw for record in again.records] == [record.raw for record in scan.records]
        handed_over(written, opened)
        turn.fill(3, plain=300)
        _, continued = turn.view()
        turn.until_saved(3)
        kept = turn.filters()
        assert {group: kept.get(group) for group in filters} == filters
        turn.kill()
    if first == "ours":
        assert _checksums(store) == kept_sums, "Java does not look at them"
    with Turn(first, store) as turn:
        _, returned = turn.view()
        handed_over(continued, returned)
        turn.fill(4, plain=50)
        turn.view()
        turn.stop()
    assert verified(store).records > len(scan.records)


def test_records_with_long_topics_are_read(store: Path) -> None:
    """5.x writes a topic's length in two bytes (V2 records) beyond 127: here the retry topic of a long group.

    They are found by queue offset, key, unique id, offset id and time.
    """
    group = "g" * 200
    place = (f"%RETRY%{group}", 0)

    async def fail(client: RemotingClient, address: str) -> dict[int, bytes]:
        broker = Broker(client, address)
        filler = Filler(client, address, 1)
        for number in range(3):
            _, offset = await filler.send(TOPIC, 0, keys=f"long{number} all")
            await filler.send_back(offset, 1, group=group)
        await broker.until(lambda: broker.maximum(*place), 3)

        async def named() -> int:
            return len(await broker.by_key(place[0], "all", unique=False))

        # The last key of each: the index is made behind the queues, and has half a message's where it ends within one.
        await broker.until(named, 3)
        return await broker.records(*place, 0, 3)

    async def find(client: RemotingClient, address: str) -> None:
        broker = Broker(client, address)
        assert await broker.records(*place, 0, 3) == written
        assert await broker.by_key(place[0], "all", unique=False) == set(written.values())
        stamps = {offset: int.from_bytes(data[56:64], "big") for offset, data in written.items()}
        for offset, data in written.items():
            properties = decode_record(data).properties
            key = properties["KEYS"].split(" ")[0]
            assert await broker.by_key(place[0], key, unique=False) == {data}
            assert await broker.by_key(place[0], properties["UNIQ_KEY"], unique=True) == {data}
            assert await broker.by_id(int.from_bytes(data[28:36], "big")) == data
            found = await broker.number(29, "offset", *place, timestamp=stamps[offset])
            assert stamps[found] == stamps[offset]
        assert await broker.number(29, "offset", *place, timestamp=stamps[0] - 1) == 0
        assert await broker.number(29, "offset", *place, timestamp=stamps[2] + 1) == 3
        assert await broker.number(32, "timestamp", *place) == stamps[0]

    with Turn("java-5.3.3", store) as turn:
        written = turn.run(fail)
        turn.kill()  # its stop takes 15 s, and is no part of this
    assert sorted(written) == [0, 1, 2]
    assert {data[4:8].hex() for data in written.values()} == {"daa320ab"}
    with Turn("ours", store) as turn:
        turn.run(find)
        turn.run(lambda client, address: Filler(client, address, 2).send(TOPIC, 0))
        turn.stop()
    verified(store)

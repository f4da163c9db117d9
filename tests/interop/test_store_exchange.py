"""One store, opened in turn by our broker and by Java 4.9.4's: each finds all that the other wrote."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq.remoting.client import RemotingClient
from tests.support.exchange_load import TOPIC, Filler
from tests.support.exchange_turn import LOG_SIZE, Turn, handed_over
from tests.support.exchange_view import Broker
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


def _delete_oldest(store: Path, count: int) -> None:
    """What retention deletes, which looks at ages of hours."""
    files = sorted((store / "commitlog").iterdir())
    assert len(files) > count + 1
    for file in files[:count]:
        file.unlink()


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
        handed_over(written, opened)
        turn.fill(3, plain=300, delays=False)
        _, continued = turn.view()
        turn.kill()
    with Turn(first, store) as turn:
        _, returned = turn.view()
        handed_over(continued, returned, configuration=False)
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

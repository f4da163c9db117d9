"""One store, opened in turn by our broker and by Java 4.9.4's: each finds all that the other wrote."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.interop import Row, Scene, assert_same, rows_of
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
        answer = scene.reader.call(op, namesrv=scene.cluster.namesrv, topic=topic, **what)
        assert_same(sent, rows_of(answer))


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
                assert_same(sent, scene.read(topic))
                _query(scene, topic, sent)
            sent += scene.produce(topic, "async", prefix=f"turn-{turn}")
            assert_same(sent, scene.read(topic))
            if end == "killed":
                cluster.brokers[0].daemon.kill()
                continue
            # Consumer offsets are in the store, too; a kill may lose the last seconds of them.
            member = scene.subscribe(topic, group)
            consumed += member.received(len(sent) - len(consumed))
            assert_same(sent, consumed)
            member.stop()
            cluster.brokers[0].daemon.stop(30.0)

"""Java's consumers on a broker whose files change under it: they get all that is undamaged, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.interop import fresh
from tests.support.interop.scene import until
from tests.support.peers import Client, start_cluster
from tests.support.peers.cluster import start_broker

COUNT = 100
#: A place of each record: where its size, its queue offset and its body are.
SIZE, QUEUE_OFFSET, BODY = 2, 27, 90


@contextmanager
def opened(folder: Path, pattern: str) -> Iterator[BinaryIO]:
    """A file of the broker's store, to be changed in its place."""
    (path,) = folder.rglob(pattern)
    with path.open("r+b", buffering=0) as file:
        yield file  # type: ignore[misc]


def flip(file: BinaryIO, at: int) -> None:
    file.seek(at)
    (byte,) = file.read(1)
    file.seek(at)
    file.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("reader", ["java-4.9.4"])
def test_a_java_consumer_gets_all_that_is_undamaged(reader: str, clients: Callable[[str, str], Client]) -> None:
    """A record's size, body and offset and a hole, while it was stopped; one entry over another while it runs."""
    java, topic = clients(reader, "tested"), fresh("T-damage")
    with start_cluster("ours") as cluster:
        where = {"namesrv": cluster.namesrv}
        java.call("topic", **where, cluster="DefaultCluster", topic=topic, queues=1)
        groups = [fresh("g-damage") for _ in range(2)]
        running: list[str] = []
        sent: dict[str, str] = {}

        def produce(prefix: str) -> None:
            rows = java.call("produce", **where, group=fresh("p"), topic=topic, prefix=prefix, count=COUNT, mode="sync",
                             tags=["A"])["rows"]  # fmt: skip
            sent.update((row[0], row[1]) for row in rows)

        def begin(group: str) -> None:
            running.append(group)
            java.call("subscribe", **where, handle=group, group=group, topic=topic, expression="*", model="clustering",
                      orderly=False, fail=False, maxReconsume=-1, **{"from": "FIRST_OFFSET"})  # fmt: skip

        def got(group: str, lost: int) -> None:
            rows = java.call("received", handle=group, count=len(sent) - lost, timeout=60)["rows"]
            assert {row[0]: row[1] for row in rows}.items() <= sent.items()
            assert len({row[0] for row in rows}) == len(sent) - lost, cluster.logs()

        try:
            produce("one")
            begin(groups[0])
            got(groups[0], 0)
            queue = f"consumequeue/{topic}/0/{0:020d}"

            def entries() -> list[tuple[int, int]]:
                path = next(cluster.folder.rglob(queue), None)
                data = bytes(20 * COUNT) if path is None else path.read_bytes()[: 20 * COUNT]
                return [
                    (int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big"))
                    for at in range(0, len(data), 20)
                ]

            known = until(entries, lambda found: all(size for _, size in found))
            cluster.brokers[0].daemon.stop()
            with opened(cluster.folder, f"commitlog/{0:020d}") as log:
                for number, place in ((20, SIZE), (40, BODY), (60, QUEUE_OFFSET)):
                    flip(log, known[number][0] + place)
                log.seek(known[80][0])
                log.write(bytes(known[81][0] + known[81][1] - known[80][0]))
            cluster.brokers[0] = start_broker(
                cluster, "broker-a", {"listenPort": cluster.broker_addr.rpartition(":")[2]}
            )
            until(entries, lambda found: all(size for _, size in found))
            with opened(cluster.folder, queue) as file:
                file.seek(20 * 50)
                other = file.read(20)
                file.seek(20 * 30)
                file.write(other)
            begin(groups[1])
            got(groups[1], 5)
            produce("two")
            for group, lost in zip(groups, (0, 5), strict=True):
                got(group, lost)
            (notes,) = cluster.folder.rglob("scrub.json")
            assert len(json.loads(notes.read_text())["damaged"]) == 4
        finally:
            for group in running:
                java.call("unsubscribe", handle=group)

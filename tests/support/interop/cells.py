"""The cells of the matrix. Each sends 1,000 messages and compares (key, digest, queue, offset) on both sides."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .rows import Row, assert_same, contents, placed, rows_of
from .scene import COUNT, Member, Scene, fresh, shares_of

NO_CALL = "the client has no such call"

_RETRIES = 2


@contextlib.contextmanager
def _members(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.stop()


def _send(mode: str) -> Callable[[Scene], None]:
    def cell(scene: Scene) -> None:
        topic = scene.topic(mode)
        sent = scene.produce(topic, mode, tags=("A", "B"))
        seen = scene.read(topic, COUNT)
        if mode == "oneway":  # nothing comes back of where it went
            assert contents(sent) == contents(seen)
            assert len(placed(seen)) == len(seen) == COUNT
        else:
            assert_same(sent, seen)
        assert {row.key: row.tag for row in sent} == {row.key: row.tag for row in seen}

    return cell


def _quick(scene: Scene) -> str:
    """The fastest way of sending that a client has."""
    return "async" if "async" in PROMISED[scene.client.name] else "sync"


def _clustering(scene: Scene) -> None:
    topic, group = scene.topic("clustering"), scene.group("clustering")
    first = scene.subscribe(topic, group)
    second = scene.subscribe(topic, group)
    with _members(first, second):
        scene.settle(topic, [first, second])
        sent = scene.produce(topic, _quick(scene))
        shares = shares_of([first, second], COUNT)
    assert_same(sent, shares[0] + shares[1])
    assert all(shares), f"one member was given everything: {[len(share) for share in shares]}"


def _broadcasting(scene: Scene) -> None:
    topic, group = scene.topic("broadcasting"), scene.group("broadcasting")
    first = scene.subscribe(topic, group, model="broadcasting")
    second = scene.subscribe(topic, group, model="broadcasting")
    with _members(first, second):
        sent = scene.produce(topic, _quick(scene))
        for member in (first, second):
            assert_same(sent, member.received(COUNT))


def _tags(scene: Scene) -> None:
    topic, group = scene.topic("tags"), scene.group("tags")
    # AaAa and BBBB have one Java hash: a broker's filter by hash lets both through, the client must part them.
    member = scene.subscribe(topic, group, expression="A || AaAa")
    with _members(member):
        sent = scene.produce(topic, _quick(scene), tags=("A", "B", "AaAa", "BBBB", "C"))
        wanted = [row for row in sent if row.tag in ("A", "AaAa")]
        assert len(wanted) == COUNT * 2 // 5
        assert_same(wanted, member.received(len(wanted)))


def _orderly(scene: Scene) -> None:
    topic, group = scene.topic("orderly"), scene.group("orderly")
    member = scene.subscribe(topic, group, orderly=True)
    with _members(member):
        sent = scene.produce(topic, "ordered")
        seen = member.received(COUNT)
    assert_same(sent, seen)
    queues: dict[int, set[int | None]] = defaultdict(set)
    offsets: dict[int | None, list[int]] = defaultdict(list)
    for row in seen:
        queues[int(row.key.rsplit("-", 1)[1]) % 10].add(row.queue)
        assert row.offset is not None
        offsets[row.queue].append(row.offset)
    assert all(len(places) == 1 for places in queues.values()), f"one order is in several queues: {dict(queues)}"
    for queue, order in offsets.items():
        assert order == sorted(order), f"queue {queue} was not consumed in order"


def _retry(scene: Scene) -> None:
    """Every message fails, is retried twice, and is in the dead letter queue then."""
    topic, group = scene.topic("retry"), scene.group("retry")
    if scene.client.name == "go":
        scene.retry_topic(group)
    member = scene.subscribe(topic, group, fail=True, max_reconsume=_RETRIES)
    with _members(member):
        sent = scene.produce(topic, _quick(scene))
        deliveries = member.received(COUNT * (_RETRIES + 1))
        times: dict[str, list[int]] = defaultdict(list)
        for row in deliveries:
            times[row.key].append(row.reconsume_times)
        wanted = list(range(_RETRIES + 1))
        strange = {key: seen for key, seen in times.items() if sorted(seen) != wanted}
        assert len(times) == COUNT, f"{COUNT - len(times)} messages never arrived"
        assert not strange, (
            f"{len(strange)} messages were not delivered {_RETRIES + 1} times: {list(strange.items())[:3]}"
        )
        assert_same(sent, [row for row in deliveries if row.reconsume_times == 0])
        assert contents(sent) == contents(deliveries)
        # The last send-backs are under way when the last delivery is seen.
        scene.reader.call("route", namesrv=scene.cluster.namesrv, topic=f"%DLQ%{group}")
        dead = scene.read(f"%DLQ%{group}", COUNT)
    assert contents(dead) == contents(sent)
    assert len(dead) == COUNT


def _pull(scene: Scene) -> None:
    topic = scene.topic("pull")
    sent = scene.produce(topic, "batch", by=scene.reader)
    assert_same(sent, scene.pull(scene.client, topic, COUNT))


def _lite_pull(scene: Scene) -> None:
    topic = scene.topic("litepull")
    sent = scene.produce(topic, "batch", by=scene.reader)
    answer = scene.client.call(
        "litepull", namesrv=scene.cluster.namesrv, group=fresh("g-lite"), topic=topic, count=COUNT, timeout=100
    )
    assert_same(sent, rows_of(answer))


def _query_key(scene: Scene) -> None:
    topic = scene.topic("querykey")
    sent = scene.produce(topic, "async", by=scene.reader)
    _found(scene, "querykey", topic, sent, keys=[row.key for row in sent])


def _query_id(scene: Scene) -> None:
    """By the id that says the place, and by the unique id of the producer."""
    topic = scene.topic("queryid")
    sent = scene.produce(topic, "async", by=scene.reader)
    _found(scene, "queryid", topic, sent, ids=[row.offset_id for row in sent])
    _found(scene, "queryid", topic, sent, ids=[row.unique_id for row in sent])


def _found(scene: Scene, op: str, topic: str, sent: list[Row], **what: Any) -> None:
    assert_same(sent, scene.asked(scene.client, op, len(sent), topic=topic, **what))


CELLS: dict[str, Callable[[Scene], None]] = {
    "sync": _send("sync"),
    "async": _send("async"),
    "oneway": _send("oneway"),
    "batch": _send("batch"),
    "clustering": _clustering,
    "broadcasting": _broadcasting,
    "tags": _tags,
    "orderly": _orderly,
    "retry": _retry,
    "pull": _pull,
    "litepull": _lite_pull,
    "querykey": _query_key,
    "queryid": _query_id,
}

_ALL = tuple(CELLS)
_WITHOUT_LITE = tuple(cell for cell in CELLS if cell != "litepull")

# Which client does what. What is not here is what the client has no call for.
PROMISED: dict[str, tuple[str, ...]] = {
    "java-4.5.2": _WITHOUT_LITE,
    "java-4.9.8": _ALL,
    "java-5.3.3": _ALL,
    "go": tuple(cell for cell in _WITHOUT_LITE if not cell.startswith("query")),
    "node": ("sync", "clustering", "broadcasting", "tags", "retry"),
    "python": _ALL,
    "python-blocking": _ALL,
    "java-4.9.8-binary": _ALL,
    "java-4.9.8-tls": _ALL,
    "java-4.9.8-account": _ALL,
}

# What a Java broker cannot answer, with the reason; ours answers everything.
UNANSWERED: dict[tuple[str, str, str], str] = {
    ("java-4.9.4", "java-5.3.3", "litepull"): "a 4.9.4 broker does not know LITE_PULL_MESSAGE (361)",
}


def run_cell(cell: str, scene: Scene) -> None:
    """Run one cell; AssertionError or ClientError when client and cluster do not agree."""
    reason = UNANSWERED.get((scene.cluster.kind, scene.client.name, cell))
    if reason is not None:
        pytest.skip(reason)
    CELLS[cell](scene)

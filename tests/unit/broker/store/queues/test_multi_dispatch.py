"""One record in several queues: numbering, entries, and what is refused."""

from collections.abc import Iterable
from typing import Any

import pytest

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.queues.files import BLANK_ENTRY, QueueDisk
from rmq.broker.store.queues.multi_dispatch import Copy, MultiDispatch
from rmq.broker.store.queues.sequence import Claim
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.protocol import properties
from rmq.protocol.errors import StoreError
from rmq.protocol.message import decode_record
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import opened, put, small


async def fresh(**changes: Any) -> tuple[SimNode, Store, MultiDispatch]:
    machine = Simulation(3).node("a")
    store = await opened(machine.world, small(**{"multi_dispatch": True, "lmq": True, **changes}))
    assert store.multi_dispatch is not None
    return machine, store, store.multi_dispatch


def to(queue: Queue, names: str, body: bytes = b"m") -> Put:
    text = properties.encode({"INNER_MULTI_DISPATCH": names, "TAGS": "A"})
    return put(queue, body)._replace(properties=text.encode())


async def held(store: Store, topic: str, queue_id: int = 0) -> list[tuple[bytes, str, str | None]]:
    """(body, topic, INNER_MULTI_QUEUE_OFFSET) of what a queue's entries point to."""
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    data = b""
    while (index := queue.min + len(data) // 20) < queue.visible:
        data += await store.queues.entries_cold(queue, index, queue.visible - index)
    found = []
    for at in range(0, len(data), 20):
        if data.startswith(BLANK_ENTRY, at):
            continue
        record = await store.messages.at(int.from_bytes(data[at : at + 8], "big"))
        assert record is not None
        assert len(record) == int.from_bytes(data[at + 8 : at + 12], "big")
        message = decode_record(record)
        found.append((message.body, message.topic, message.properties.get("INNER_MULTI_QUEUE_OFFSET")))
    return found


def test_named_queues_get_the_message_and_its_numbers_in_them() -> None:
    async def main() -> None:
        _, store, _ = await fresh()
        queue = store.queues.get_or_create("T", 2)
        store.append([to(queue, "%LMQ%a,other", b"1"), put(queue, b"2"), to(queue, "%LMQ%a,%LMQ%b,", b"3")])
        store.append([to(queue, "%LMQ%b", b"4")])
        assert await held(store, "T", 2) == [
            (b"1", "T", "0,0"), (b"2", "T", None), (b"3", "T", "1,0"), (b"4", "T", "1")
        ]  # fmt: skip
        # A light queue is number 0, another one has the message's number.
        assert await held(store, "%LMQ%a") == [(b"1", "T", "0,0"), (b"3", "T", "1,0")]
        assert await held(store, "%LMQ%b") == [(b"3", "T", "1,0"), (b"4", "T", "1")]
        assert await held(store, "other", 2) == [(b"1", "T", "0,0")]
        assert store.queues.get("other", 0) is None
        await store.stop()

    run(main())


def test_a_queue_sent_to_and_named_counts_in_one_row() -> None:
    async def main() -> None:
        _, store, _ = await fresh()
        queue, light = store.queues.get_or_create("T", 0), store.queues.get_or_create("%LMQ%a", 0)
        store.append([put(light, b"1"), to(queue, "%LMQ%a,%LMQ%a", b"2"), put(light, b"3"), to(light, "%LMQ%a", b"4")])
        assert await held(store, "%LMQ%a") == [
            (b"1", "%LMQ%a", None), (b"2", "T", "1,1"), (b"3", "%LMQ%a", None), (b"4", "%LMQ%a", "3"),
        ]  # fmt: skip
        await store.stop()

    run(main())


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%g", "%DLQ%g", "rmq_sys_x"]
)
def test_what_only_waits_or_comes_back_is_not_dispatched(topic: str) -> None:
    async def main() -> None:
        _, store, _ = await fresh()
        store.append([to(store.queues.get_or_create(topic, 0), "%LMQ%a")])
        assert store.queues.get("%LMQ%a", 0) is None
        assert [offsets for _, _, offsets in await held(store, topic)] == [None]
        await store.stop()

    run(main())


def test_nothing_is_dispatched_while_it_is_off() -> None:
    async def main() -> None:
        machine = Simulation(3).node("a")
        store = await opened(machine.world, small())
        store.append([to(store.queues.get_or_create("T", 0), "%LMQ%a")])
        assert store.multi_dispatch is None
        assert store.queues.get("%LMQ%a", 0) is None
        await store.stop()

    run(main())


def test_a_failed_append_leaves_no_trace_in_named_queues() -> None:
    async def main() -> None:
        _, store, _ = await fresh()
        queue = store.queues.get_or_create("T", 0)
        store.append([to(queue, "%LMQ%a", b"1")])
        with pytest.raises(StoreError):
            store.append([to(queue, "%LMQ%a", b"2"), put(queue, bytes(20_000))])
        store.append([to(queue, "%LMQ%a", b"3")])
        assert await held(store, "%LMQ%a") == [(b"1", "T", "0"), (b"3", "T", "1")]
        await store.stop()

    run(main())


@pytest.mark.parametrize("names", ["%LMQ%a/b", "%LMQ%a,,%LMQ%b", ".", "..", "%LMQ%" + "x" * 251, "%LMQ%\0"])
def test_names_that_are_no_directory_are_refused(names: str) -> None:
    async def main() -> None:
        _, store, multi = await fresh()
        assert multi.fault(names, 0, 100)
        # Stored while multi-dispatch was off, and delivered now: it goes to its own queue only.
        store.append([to(store.queues.get_or_create("T", 0), names)])
        assert store.queues.topics() == ["T"]
        await store.stop()

    run(main())


def test_offsets_need_room_in_the_properties() -> None:
    async def main() -> None:
        _, store, multi = await fresh()
        many = ",".join(f"%LMQ%{number}" for number in range(1000))
        assert multi.fault(many, 0, 12_000) is None
        assert "no room for the offsets of 1000 queues" in str(multi.fault(many, 0, 14_000))
        await store.stop()

    run(main())


def test_only_new_light_queues_are_refused_beyond_the_limit() -> None:
    async def main() -> None:
        _, store, multi = await fresh(most_lmq=2)
        queue = store.queues.get_or_create("T", 0)
        store.append([to(queue, "%LMQ%a,%LMQ%b,other")])
        assert not multi.exceeded("%LMQ%a,%LMQ%b,another", 0)
        assert multi.exceeded("%LMQ%a,%LMQ%c", 0)
        assert multi.refuses_queue("%LMQ%c", 0)
        assert not multi.refuses_queue("%LMQ%a", 0)
        store.queues.drop("%LMQ%a")
        assert not multi.exceeded("%LMQ%c", 0)
        await store.stop()

    run(main())


def copies(names: str, indexes: str, topic: str = "T", *, multi: MultiDispatch) -> Iterable[Copy]:
    text = properties.encode({"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": indexes})
    return multi.copies(text.encode(), topic, 3)


def test_a_record_says_which_queues_it_is_in() -> None:
    async def main() -> None:
        _, store, multi = await fresh()
        assert copies("%LMQ%a,b,T", "7,8,9", multi=multi) == [Copy("%LMQ%a", 0, 7), Copy("b", 3, 8)]
        assert copies("%LMQ%a,%LMQ%a", "7,7", multi=multi) == [Copy("%LMQ%a", 0, 7)]
        for names, indexes in (("%LMQ%a", "1,2"), ("%LMQ%a,b", "1"), ("%LMQ%a", "x"), ("", "")):
            assert copies(names, indexes, multi=multi) == []
        # A retry carries the properties of its original: they are not its own.
        assert copies("%LMQ%a", "7", "%RETRY%g", multi=multi) == []
        assert multi.copies(b"INNER_MULTI_DISPATCH\x01%LMQ%a", "T", 0) == []
        await store.stop()

    run(main())


async def filled() -> tuple[SimNode, dict[str, Any]]:
    """A stopped store of several files, and what is in its queues."""
    machine, store, _ = await fresh()
    queue = store.queues.get_or_create("T", 0)
    light = store.queues.get_or_create("%LMQ%b", 0)
    for number in range(120):
        names = ("%LMQ%a,%LMQ%b", "%LMQ%a,other", "")[number % 3]
        sent = to(queue, names, bytes(200)) if names else put(queue, bytes(200))
        store.append([sent, put(light, b"own")])
    seen = {topic: await held(store, topic) for topic in ("T", "%LMQ%a", "%LMQ%b", "other")}
    assert len(store.log.segments) > 2
    assert [len(rows) for rows in seen.values()] == [120, 80, 160, 40]
    await store.stop()
    return machine, seen


async def again(machine: SimNode, **changes: Any) -> tuple[Store, dict[str, Any]]:
    store = await opened(machine.world, small(**{"multi_dispatch": True, "lmq": True, **changes}))
    found = {topic: await held(store, topic) for topic in sorted(store.queues.topics()) if store.queues.get(topic, 0)}
    return store, found


def test_a_clean_start_leaves_named_queues_as_they_are() -> None:
    async def main() -> None:
        machine, seen = await filled()
        store, found = await again(machine)
        assert (found, store.recovered.dispatched_from) == (seen, store.log.end)
        store.append([to(store.queues.get_or_create("T", 0), "%LMQ%a,other")])
        assert (await held(store, "T"))[-1][2] == "80,40"
        await store.stop()

    run(main())


@pytest.mark.parametrize("lost", ["", "/%LMQ%a", "/other"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_queues_come_back_from_the_log(lost: str, clean: bool) -> None:
    async def main() -> None:
        machine, seen = await filled()
        disk = QueueDisk(machine.world.files, "/store", 800)
        disk.remove_tree(f"/store/consumequeue{lost}")
        if not clean:
            machine.world.files.write_atomic("/store/abort", b"", backup=False)
        store, found = await again(machine)
        # A light queue alone is looked at where a start looks at records: here in the files of the last seconds.
        if lost == "/%LMQ%a":
            first = next(at for at, row in enumerate(seen["%LMQ%a"]) if row in found["%LMQ%a"])
            assert found["%LMQ%a"] == seen["%LMQ%a"][first:]
            assert clean or first < 40
            seen["%LMQ%a"] = found["%LMQ%a"]
        assert found == seen
        await store.stop()

    run(main())


async def sends(store: Store, count: int) -> None:
    queue = store.queues.get_or_create("T", 0)
    for _ in range(count):
        store.append([to(queue, "%LMQ%a", bytes(200))])
    await store.stop()


def crashed(machine: SimNode) -> None:
    machine.world.files.write_atomic("/store/abort", b"", backup=False)


@pytest.mark.parametrize("with_units", [False, True])
def test_light_queues_are_whole_after_a_crash_whether_a_start_has_given_them_units(
    monkeypatch: pytest.MonkeyPatch, with_units: bool
) -> None:
    """An append gives units to the message's own queue alone. A start of an earlier release gave them to all."""

    async def main() -> None:
        changes = {"ext_enable": True, "ext_file_size": 4096}
        machine, store, _ = await fresh(**changes)
        await sends(store, 20)
        crashed(machine)
        machine.world.files.unlink("/store/consumequeue/%LMQ%a/0/" + "0" * 20)
        with monkeypatch.context() as patch:
            if with_units:
                patch.setattr(Dispatcher, "_place", place_with_units)
            store, _ = await again(machine, **changes)
        await sends(store, 300)
        assert machine.world.files.exists("/store/consumequeue_ext/%LMQ%a") == with_units
        assert len(machine.world.files.list("/store/commitlog")) > 5, "more than is checked of the log"
        crashed(machine)
        store, found = await again(machine, **changes)
        assert found["%LMQ%a"] == found["T"]
        assert len(found["T"]) == 320
        await store.stop()

    run(main())


_place = Dispatcher._place


async def place_with_units(dispatcher: Dispatcher, queue: Queue, claim: Claim) -> None:
    """As the release before."""
    await _place(dispatcher, queue, claim._replace(own=True))


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_entry_costs_a_light_queue_none_of_those_behind_it(clean: bool) -> None:
    """They are made anew, however far back in the log their messages lie."""

    async def main() -> None:
        machine, store, _ = await fresh()
        await sends(store, 300)
        file = machine.disk.open("/store/consumequeue/%LMQ%a/0/" + "0" * 20)
        file.pwrite(b"\xff", 5 * 20 + 8)
        if not clean:
            crashed(machine)
        store, found = await again(machine)
        assert found["%LMQ%a"] == found["T"]
        assert len(found["T"]) == 300
        await store.stop()

    run(main())


def test_light_queues_stay_while_multi_dispatch_is_off() -> None:
    async def main() -> None:
        machine, seen = await filled()
        QueueDisk(machine.world.files, "/store", 800).remove_tree("/store/consumequeue/T")
        store, found = await again(machine, multi_dispatch=False, lmq=False)
        assert {name: found[name] for name in ("T", "%LMQ%a", "%LMQ%b")} == {
            name: seen[name] for name in ("T", "%LMQ%a", "%LMQ%b")
        }
        await store.stop()

    run(main())


@pytest.mark.parametrize("on", [True, False])
def test_a_torn_tail_is_cut_out_of_named_queues(on: bool) -> None:
    async def main() -> None:
        machine, seen = await filled()
        log = machine.disk.open("/store/commitlog/" + sorted(machine.world.files.list("/store/commitlog"))[-1])
        end = log.size()
        data = log.pread(end, 0)
        while not any(data[end - 4 : end]):
            end -= 4
        log.pwrite(bytes(600), end - 600)
        log.close()
        machine.world.files.write_atomic("/store/abort", b"", backup=False)
        store, found = await again(machine, multi_dispatch=on, lmq=on)
        for topic in ("T", "%LMQ%a", "%LMQ%b"):
            assert found[topic] == seen[topic][: len(found[topic])]
        assert len(found["%LMQ%b"]) < len(seen["%LMQ%b"])
        for queue in store.queues:
            assert queue.max_phys <= store.log.end
        await store.stop()

    run(main())


def test_named_queues_follow_what_retention_takes() -> None:
    async def main() -> None:
        machine, seen = await filled()
        store, _ = await again(machine)
        assert await store.log.remove_first()
        await store.retention.delete_derived()
        light = store.queues.get("%LMQ%a", 0)
        assert light is not None
        assert light.min > 0
        assert await held(store, "%LMQ%a") == seen["%LMQ%a"][light.min :]
        await store.stop()

    run(main())

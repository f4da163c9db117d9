"""The store against a model that is a dict of lists, whatever is done in whatever order (reliability.md C.1)."""

import asyncio
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, die, opened, put, small, until_open
from tests.support.store_scan import check_store

_APPEND = st.tuples(
    st.just("append"),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), min_size=1, max_size=8),
)
_OPERATIONS = st.one_of(
    _APPEND,
    _APPEND,
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 1.1, 70.0])),
    st.tuples(st.just("stop"), st.sampled_from(["clean", "kill", "clean without queues", "kill without index"])),
    st.tuples(st.just("drop"), st.integers(0, 2)),
    st.tuples(st.just("fail"), st.sampled_from(["pwrite", "open"])),
    st.tuples(st.just("expire"), st.integers(1, 3)),
)


class Model:
    def __init__(self) -> None:
        self.queues: dict[str, dict[int, bytes]] = {}
        self.serial = 0

    async def compare(self, store: Store) -> None:
        for topic, wanted in self.queues.items():
            queue = store.queues.get(topic, 0)
            if queue is None:
                assert not wanted
                continue
            assert queue.visible == queue.next
            got = await bodies(store, queue)
            assert queue.next == max(wanted, default=-1) + 1, topic
            assert got == [wanted[n] for n in range(queue.min, queue.next)], topic
            start = store.log.start
            if queue.min > 0:
                # Only what lay in deleted files is gone.
                assert start > 0
        assert sum(q.next > q.min for q in store.queues) <= len(self.queues)


async def _apply(store: Store, model: Model, simulation: Simulation, machine: SimNode, step: Any) -> Store:
    kind, value = step
    if kind == "append":
        puts = []
        for number, size in value:
            model.serial += 1
            queue = store.queues.get_or_create(f"T{number}", 0)
            puts.append(put(queue, b"%d " % model.serial + b"x" * size, key=f"k{model.serial}"))
        try:
            span = store.append(puts)
        except OSError:
            # Nothing of it is stored.
            machine.disk.heal()
            await until_open(store)
            return store
        for message, (index, _) in zip(puts, span.offsets, strict=True):
            model.queues.setdefault(message.queue.topic, {})[index] = message.body
    elif kind == "wait":
        await asyncio.sleep(value)
    elif kind == "drop":
        store.delete_topic(f"T{value}")
        await store.deletions.saved()
        model.queues.pop(f"T{value}", None)
        # So that a crash cannot bring the topic back: its place in the log is taken by a new life.
        queue = store.queues.get_or_create(f"T{value}", 0)
        model.serial += 1
        body = b"%d new life" % model.serial
        store.append([put(queue, body)])
        model.queues[f"T{value}"] = {0: body}
    elif kind == "fail":
        machine.disk.fail(value, 28, "*commitlog*", count=1)
        await _apply(store, model, simulation, machine, ("append", [(0, 1000), (1, 2000)] * 4))
        machine.disk.heal()
    elif kind == "expire":
        for file in store.log.segments[:value]:
            machine.disk._entries[file.path].mtime_ms = -(10**12)
        store.retention.trigger()
        await store.retention.run()
        for known in model.queues.values():
            queue_start = None
            for topic, other in model.queues.items():
                if other is known:
                    found = store.queues.get(topic, 0)
                    queue_start = found.min if found is not None else None
            if queue_start is not None:
                for index in [n for n in known if n < queue_start and n < max(known)]:
                    del known[index]
    else:
        if value.endswith("without queues"):
            # Of a queue whose messages have all expired only its files knew where it stands.
            for queue in store.queues:
                if queue.min == queue.next:
                    model.queues.pop(queue.topic, None)
        if value.startswith("clean"):
            await store.stop()
            check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        else:
            machine.files.freeze()
            await die(store)
            simulation.kill(machine)
        for folder in ("consumequeue", "index"):
            if value.endswith(f"without {folder}") or (folder == "consumequeue" and value.endswith("without queues")):
                store.queues.disk._files = machine.files
                if machine.files.is_dir(f"/store/{folder}"):
                    store.queues.disk.remove_tree(f"/store/{folder}")
        store = await opened(machine.world, small())
        assert store.recovered.damages == []
    return store


@settings(max_examples=40, deadline=None)
@given(st.lists(_OPERATIONS, min_size=3, max_size=30))
@example(
    # Of two queues whose names are a bit apart one has but its entry 4 left in the log, the other begins at 5.
    [
        ("append", [(0, 0)] * 6 + [(1, 1730), (1, 3000)]),
        ("wait", 0.3),
        ("drop", 0),
        ("fail", "open"),
        ("expire", 1),
        ("stop", "clean without queues"),
    ]
)
def test_the_store_is_a_dict_of_lists(steps: list[Any]) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        model = Model()
        store = await opened(machine.world, small())
        for step in steps:
            store = await _apply(store, model, simulation, machine, step)
            await model.compare(store)
        await store.stop()

    run(main())

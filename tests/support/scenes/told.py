"""A leader's store and a follower's, and what is told of the one to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq.broker.store.index.file import INDEX_ENTRY, INDEX_ENTRY_SIZE
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put
from rmq.broker.store.store import Store
from rmq.broker.store.told import Told
from rmq.runtime.world import World
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import LOG_SIZE, opened, put, small
from tests.support.virtual import eventually

__all__ = ["MADE", "WRONG", "Pair", "begun", "everything"]

MADE: dict[str, Any] = {"checksums_on_append": False, "group": True}


class Pair:
    """A leader's store and a follower's, which gets everything, and what is told of it."""

    def __init__(self, leader: Store, follower: Store, simulation: Simulation) -> None:
        self.leader = leader
        self.follower = follower
        self.simulation = simulation
        self.told: list[Told] = []
        self._count = 0
        leader.tell(self.told.append)
        assert leader._telling is not None
        leader._telling.fewest = 1

    @classmethod
    async def made(cls, **changes: Any) -> Pair:
        simulation = Simulation(5)
        settings = small(**(MADE | changes))
        leader, follower = [await begun(simulation.node(name).world, settings) for name in ("l", "f")]
        follower.log.gate |= Gate.SLAVE
        return cls(leader, follower, simulation)

    def puts(self, count: int, *, size: int = 100, keys: int = 2, topic: str = "T", queues: int = 3) -> list[Put]:
        made = []
        for _ in range(count):
            n = self._count = self._count + 1
            queue = self.leader.queues.get_or_create(topic, n % queues)
            message = put(queue, bytes([n % 256]) * size, tag="AB"[n % 2])
            words = [f"key-{n}-{number}".encode() for number in range(keys)]
            text = b"KEYS\1" + b" ".join(words) + b"\2" + message.properties if words else message.properties
            made.append(message._replace(properties=text, keys=tuple(words)))
        return made

    def append(self, count: int, **how: Any) -> None:
        """Messages, and their bytes at the follower."""
        start = self.leader.log.end
        self.leader.append(self.puts(count, **how), 1_000_000 + start)
        self.send(start)

    def send(self, start: int) -> None:
        log = self.leader.log
        while start < log.end:
            size = min(log.end - start, LOG_SIZE - start % LOG_SIZE)
            data = log.read(start, size)
            assert data is not None
            self.follower.append_raw(start, data)
            start += size

    def tell(self, change: Callable[[Told], Told] = lambda told: told) -> None:
        for told in self.told:
            self.follower.told(Told.decode(change(told).encode()))
        self.told.clear()

    async def commit(self) -> None:
        for store in (self.leader, self.follower):
            store.committed(store.log.end)
        await eventually(lambda: not self.follower.dispatcher.behind)

    async def alike(self, told: int | None = None, *, counted: bool = True) -> None:
        """Queues and index are the same, byte for byte.

        :param told: bytes of the log that were put as they were told; all where not given.
        :param counted: neither store has begun later, or was cut.
        """
        await self.commit()
        for store in () if counted else (self.leader, self.follower):
            for queue in store.queues:
                queue.bytes_put = 0
        assert await everything(self.follower) == await everything(self.leader)
        assert self.follower.dispatcher.told.put_bytes == (self.leader.log.end if told is None else told)
        assert not self.follower._catch_up.reader.damages

    async def close(self) -> None:
        for store in (self.leader, self.follower):
            await store.stop()


async def begun(world: World, settings: StoreSettings, commit: int = 0) -> Store:
    store = await opened(world, settings, start=False)
    await store.show(commit)
    await store.start()
    return store


async def everything(store: Store) -> dict[object, object]:
    """Entries of all queues, what their ends are, and the entries of the index."""
    found: dict[object, object] = {"stamp": store.log.stamp, "position": store.dispatcher.position}
    for queue in sorted(store.queues, key=lambda queue: (queue.topic, queue.id)):
        data, index = b"", queue.min
        while index < queue.next:
            data += (piece := await store.queues.entries_cold(queue, index, queue.next - index))
            index += len(piece) // 20
        found[queue.topic, queue.id] = (queue.min, queue.visible, queue.max_phys, queue.bytes_put, data)
    if store.index is not None:
        found["index"] = [
            (file.slot_count, file.begin_timestamp, [await index_entry(store, file, n) for n in range(1, file.count)])
            for file in store.index.files
        ]
    return found


async def index_entry(store: Store, file: Any, number: int) -> tuple[int, ...]:
    assert store.index is not None
    data = file.buffered(number) or await store.index.read_entries(file, number, 1)
    assert len(data) == INDEX_ENTRY_SIZE
    return INDEX_ENTRY.unpack(data)


def _shorter(told: Told) -> Told:
    queue, *others = told.queues
    return told._replace(queues=[queue._replace(entries=queue.entries[:-20]), *others])


def _moved(told: Told) -> Told:
    queue, *others = told.queues
    entries = (int.from_bytes(queue.entries[:8], "big") + 1).to_bytes(8, "big") + queue.entries[8:]
    return told._replace(queues=[queue._replace(entries=entries), *others])


def _first(told: Told, **changes: Any) -> Told:
    queue, *others = told.queues
    return told._replace(queues=[queue._replace(**changes), *others])


#: What makes of what was told something that does not fit.
WRONG: list[Callable[[Told], Told]] = [
    _shorter,
    _moved,
    lambda told: _first(told, first=told.queues[0].first + 1),
    lambda told: _first(told, queue_id=7),
    lambda told: _first(told, topic="Z"),
    lambda told: told._replace(queues=told.queues[1:]),
    lambda told: told._replace(queues=[*told.queues, told.queues[0]]),
    lambda told: told._replace(stamp=told.stamp + 1),
    lambda told: told._replace(crc=told.crc ^ 1),
    lambda told: told._replace(keys=told.keys[20:] + told.keys[:20]),
    lambda told: told._replace(keys=b"\xff" + told.keys[1:]),
    lambda told: told._replace(keys=told.keys[:4] + (told.end).to_bytes(8, "big") + told.keys[12:]),
    lambda told: told._replace(keys=None),
]

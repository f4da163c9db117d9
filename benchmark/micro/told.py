"""(f) What a follower does with a told span: :mod:`rmq.broker.store.told`, and queues and index that get it.

A real store, in which the bytes of some spans lie, and what a leader's store has told of them. They are put again and
again: queues are set back in between, and what waits for the index file is dropped.
"""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import Callable

from benchmark.micro.messages import CLUSTER, unique_key, user_key
from benchmark.micro.timing import Program, show
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.broker.store.told import Told
from rmq.protocol.tags import tags_code
from rmq.runtime.real import real_world
from rmq.runtime.world import World

TOPIC = "BenchTopic"
#: Messages of a span, with 256 in flight from a producer; bytes of each; spans.
MESSAGES, BODY, SPANS = 124, bytes(range(256)) * 4, 32
HOST = b"\x7f\0\0\x01\0\0\x2a\x9f"
_CODE = tags_code("TagA")


def _puts(store: Store, queues: int, first: int) -> list[Put]:
    puts: list[Put] = []
    for number in range(first, first + MESSAGES):
        key, own = user_key(number), unique_key(number)
        text = f"KEYS\1{key}\2UNIQ_KEY\1{own}\2WAIT\1true\2TAGS\1TagA\2{CLUSTER}".encode()
        queue = store.queues.get_or_create(TOPIC, number % queues)
        puts.append(
            Put(queue, BODY, text, 0, 0, 1_700_000_000_000, HOST, HOST, 0, 0, _CODE, (own.encode(), key.encode()))
        )
    return puts


async def _opened(world: World, folder: str) -> Store:
    store = Store(world, StoreSettings(folder, group=True, checksums_on_append=False))
    await store.load()
    await store.show(0)
    await store.start()
    return store


class Follower:
    """A store that has what another was told to append.

    :param leader: where spans are made, and
    :param store: where they are put.
    """

    def __init__(self, leader: Store, store: Store, queues: int) -> None:
        self.store = store
        self.told: list[Told] = []
        store.log.gate |= Gate.SLAVE
        leader.tell(self.told.append)
        for number in range(SPANS):
            start = leader.log.end
            puts = _puts(leader, queues, number * MESSAGES)
            leader.append(puts, 1_700_000_000_000 + number)
            store.append_raw(start, leader.log.read(start, leader.log.end - start) or b"")
        self.units = [told.encode() for told in self.told]
        self.spans = [store.log.read(told.start, told.end - told.start) or b"" for told in self.told]
        self.firsts: dict[Queue, int] = {}

    def back(self) -> None:
        """Nothing was put."""
        for queue in self.store.queues:
            queue.tail.clear()
            queue.next = queue.visible = queue.tail_from = queue.max_phys = 0
        self.store.queues.pending = 0
        if self.store.index is not None and self.store.index.files:
            file = self.store.index.files[-1]
            file.written(file.waiting)

    def put(self, index_from: int) -> None:
        """Put all."""
        self.back()
        spans, touched = self.store.dispatcher.told, dict[Queue, None]()
        for told in self.told:
            if not spans.put(told, index_from, touched):
                raise SystemExit("(f) what was told does not fit")
            touched.clear()

    def index(self) -> None:
        """Put all keys."""
        assert self.store.index is not None
        self.back()
        for told in self.told:
            self.store.index.put_entries(told.keys or b"", told.stamp)

    def programs(self) -> list[Program]:
        """The pieces, and what they are to be held against."""
        told, units, spans = self.told, self.units, self.spans
        pairs = list(zip(told, spans, strict=True))

        def each(one: Callable[[Told], object]) -> Callable[[], object]:
            return lambda: [one(item) for item in told]

        def fits() -> None:
            if not all(item.fits(data) for item, data in pairs):
                raise SystemExit("(f) what was told does not fit")

        return [
            ("CRC-32 of the spans alone, by zlib", lambda: [zlib.crc32(data) for data in spans]),
            ("told: encoded by the leader", each(Told.encode)),
            ("told: decoded by a follower", lambda: [Told.decode(unit) for unit in units]),
            ("keys are of records of the span", each(Told.has_good_keys)),
            ("fits the span, CRC-32 included", fits),
            ("queues and all that is compared, no index", lambda: self.put(1 << 62)),
            ("index alone, two keys a message", self.index),
            ("queues and index", lambda: self.put(0)),
        ]


async def _measure(queues: int) -> None:
    world = real_world()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        stores = [await _opened(world, folder) for folder in (one, other)]
        follower = Follower(*stores, queues)
        # Nothing else runs on the loop meanwhile.
        show(
            f"(f) a told span of {MESSAGES} x 1 KB in {queues} queues, a message",
            follower.programs(),
            MESSAGES * SPANS,
            again=1,
        )
        follower.back()
        for store in stores:
            await store.stop()


def run() -> None:
    for queues in (1, 4, 16):
        asyncio.run(_measure(queues))

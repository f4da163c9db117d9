"""S01, S02, S05, S07: files cut, filled, flipped, deleted, zeroed: the commit log alone decides (I1, I2, I10, I11)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode
from tests.support.faults.damaged_store import Image, filled, recovered, taken
from tests.support.kills.campaign import LONG, amount
from tests.support.scenes.store import ENTRIES, LOG_SIZE, QUEUE_SIZE, SLOTS, body_of, opened, put, records, small
from tests.support.store_scan import Record, check_store

ROUNDS = 60
YEAR_MS = 365 * 86_400_000


def image(*, clean: bool, rounds: int = ROUNDS) -> Image:
    made: list[Image] = []

    async def main() -> None:
        made.append(await filled(rounds=rounds, clean=clean))

    run(main())
    return made[0]


@pytest.fixture(scope="module")
def killed() -> Image:
    return image(clean=False)


@pytest.fixture(scope="module", params=[True, False], ids=["stopped", "killed"])
def left(request: pytest.FixtureRequest) -> Image:
    return image(clean=request.param)


def write(machine: SimNode, path: str, data: bytes, at: int = 0) -> None:
    file = machine.disk.open(path, create=True)
    file.pwrite(data, at)
    file.datasync()


def log_path(offset: int) -> str:
    return f"/store/commitlog/{offset - offset % LOG_SIZE:020d}"


# -- S01 ---------------------------------------------------------------------------------------------------------------


def _zeros(size: int, _: bytes, __: random.Random) -> bytes:
    return bytes(size)


def _random(size: int, _: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(size)


def _stale(size: int, whole: bytes, _: random.Random) -> bytes:
    """Good records of another place, as after a cut that was never forced."""
    return whole[:size]


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("filling", [_zeros, _random, _stale], ids=["zeros", "random", "stale"])
def test_s01_a_cut_at_every_byte_of_the_last_three_records(
    filling: Callable[[int, bytes, random.Random], bytes], say: Callable[[str], None]
) -> None:
    """B002: recovery ends behind the last whole record; what is sent then takes the next places; nothing comes back."""
    short = image(clean=False, rounds=3)
    path = log_path(0)
    whole = short.files[path]
    ends = [record.offset + record.size for record in short.records]
    rng = random.Random(1)
    # Each byte is cut once, those at the ends of records with every filling; in torture, all with each.
    turn = (_zeros, _random, _stale).index(filling)
    near = {end + step for end in ends[-4:] for step in (-1, 0, 1, 4)}
    cuts = [cut for cut in range(ends[-4], ends[-1]) if LONG or cut % 3 == turn or cut in near]

    async def main() -> None:
        for cut in cuts:
            data = whole[:cut] + filling(ends[-1] - cut, whole, rng)
            last = max(n for n in range(len(ends)) if data[: ends[n]] == whole[: ends[n]])
            torn = short.records[last + 1] if last + 1 < len(ends) else None
            if torn is not None and filling is not _zeros and cut >= torn.offset + fields(torn)["properties"][0]:
                continue  # no checksum covers properties; a disk that tears leaves zeros or what was there before
            machine = short.machine(lambda machine, data=data: write(machine, path, data))  # type: ignore[misc]
            store = await opened(machine.world, small())
            assert store.log.end == ends[last], f"cut at {cut}"
            assert store.recovered.damages == []
            assert not any(machine.files.read(path)[store.log.end :])
            queue = store.queues.get_or_create("T", 1)
            # The queue's files know how many there were: no offset is used twice.
            mine = [r for r in short.records if (r.topic, r.queue_id) == ("T", 1)]
            (index, offset) = store.append([put(queue, b"new")]).offsets[0]
            assert (index, offset) == (len(mine), ends[last])
            await store.stop()
            scan = check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
            assert [r.raw for r in scan.records[:-1]] == [r.raw for r in short.records[: last + 1]]

    run(main())
    say(f"S01 {filling.__name__}: {len(cuts)} cuts")


# -- S02 ---------------------------------------------------------------------------------------------------------------

#: Fields of a record and their first bytes; what is behind the fixed part is reckoned from the record.
FIXED = {
    "size": (0, 4), "magic": (4, 8), "crc": (8, 12), "queue id": (12, 16), "flag": (16, 20), "queue offset": (20, 28),
    "physical offset": (28, 36), "system flag": (36, 40), "born time": (40, 48), "born host": (48, 56),
    "store time": (56, 64), "store host": (64, 72), "reconsume times": (72, 76), "prepared offset": (76, 84),
    "body length": (84, 88),
}  # fmt: skip
#: A flip there is found: of the others RocketMQ's format has no checksum.
FOUND = {"size", "magic", "crc", "physical offset", "body length", "body", "topic length", "properties length"}


def fields(record: Record) -> dict[str, tuple[int, int]]:
    body = 88 + len(record.body)
    topic = body + 1 + len(record.topic)
    return {
        **FIXED, "body": (88, body), "topic length": (body, body + 1), "topic": (body + 1, topic),
        "properties length": (topic, topic + 2), "properties": (topic + 2, record.size),
    }  # fmt: skip


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("where", ["last", "middle"])
def test_s02_a_flipped_bit_is_told_and_never_served(killed: Image, where: str, say: Callable[[str], None]) -> None:
    """In the middle it is damage, reported and kept apart; at the very end it looks like a torn write, and is cut."""
    plain = [n for n, record in enumerate(killed.records) if record.topic == "T" and record.properties]
    number = plain[-1] if where == "last" else plain[len(plain) // 2]
    cut_to = killed.records[: number + 1] if where == "last" else killed.records
    record = killed.records[number]
    path = log_path(record.offset)
    seen = dict.fromkeys(fields(record), 0)

    async def main() -> None:
        for name, (begin, end) in fields(record).items():
            bits = [(at, bit) for at in range(begin, end) for bit in range(8)]
            for at, bit in bits if LONG else random.Random(name).sample(bits, min(4, len(bits))):
                data = bytearray(killed.files[path])
                start = record.offset % LOG_SIZE
                if where == "last":  # nothing follows
                    data = data[: start + record.size].ljust(LOG_SIZE, b"\0")
                data[start + at] ^= 1 << bit
                machine = killed.machine(lambda machine, data=data: write(machine, path, bytes(data)))  # type: ignore[misc]
                store = await opened(machine.world, small(), start=False)
                what = f"{name}: bit {bit} of byte {at}"
                told = store.recovered.damages or store.log.end <= record.offset
                if name in FOUND:
                    assert told, f"I11: {what} is not told"
                    good = {(r.topic, r.queue_id, r.queue_offset): r.raw for n, r in enumerate(cut_to) if n != number}
                    for queue in store.queues:
                        for served in await records(store, queue):
                            place = (queue.topic, queue.id, int.from_bytes(served[20:28], "big"))
                            assert good.get(place) == served, f"I11: {what}: {place} was served"
                            good.pop(place)
                    assert not good, f"I11: {what} costs {list(good)[:3]}"
                seen[name] += 1
                await store.stop()

    run(main())
    say(f"S02 {where}: flips by field {seen}")


# -- S05 ---------------------------------------------------------------------------------------------------------------


def _delete(machine: SimNode, path: str) -> None:
    machine.files.unlink(path)


def _empty(machine: SimNode, path: str) -> None:
    machine.disk.open(path).truncate(0)


def _half_an_entry(machine: SimNode, path: str) -> None:
    # All of one size would be a store that was made with another setting.
    machine.disk.open(path).truncate(10 + 20 * (1 + sum(path.encode()) % 7))


def _zeroed(machine: SimNode, path: str) -> None:
    write(machine, path, bytes(QUEUE_SIZE))


def _a_hole(machine: SimNode, path: str) -> None:
    write(machine, path, bytes(60), 40)


def _garbage(machine: SimNode, path: str) -> None:
    write(machine, path, random.Random(path).randbytes(QUEUE_SIZE))


def _other_offsets(machine: SimNode, path: str) -> None:
    """Well-formed entries of other messages."""
    entry = (1234).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    write(machine, path, entry * (QUEUE_SIZE // 20))


QUEUE_DAMAGE = [_delete, _empty, _half_an_entry, _zeroed, _a_hole, _garbage, _other_offsets]


async def same_as_before(image: Image, machine: SimNode, what: str, *, keys: bool = True) -> None:
    store, told, found = await recovered(machine.world, ROUNDS)
    assert told == image.told, f"I10: {what}"
    if keys:
        assert found == image.keys, f"I10: {what}: keys"
    await store.stop()
    check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)


@pytest.mark.parametrize("damage", QUEUE_DAMAGE, ids=lambda damage: damage.__name__.strip("_"))
def test_s05_queue_files_are_rebuilt(left: Image, damage: Callable[[SimNode, str], None]) -> None:
    """Every file of every queue by itself, then all of them."""
    paths = left.paths("/consumequeue/")
    assert len(paths) > 6

    async def main() -> None:
        for path in paths if LONG else random.Random(damage.__name__).sample(paths, 4):
            machine = left.machine(lambda machine, path=path: damage(machine, path))  # type: ignore[misc]
            await same_as_before(left, machine, f"{damage.__name__} {path}")

        def every(machine: SimNode) -> None:
            for path in paths:
                damage(machine, path)

        await same_as_before(left, left.machine(every), f"{damage.__name__} everywhere")

    run(main())


@pytest.mark.parametrize("folder", ["T", "T/0", "Six", ""])
def test_s05_queue_directories_are_rebuilt(left: Image, folder: str) -> None:
    def remove(machine: SimNode) -> None:
        for path in left.paths(f"/consumequeue/{folder}"):
            machine.files.unlink(path)

    async def main() -> None:
        await same_as_before(left, left.machine(remove), f"without {folder or 'all queues'}")

    run(main())


# -- S07 ---------------------------------------------------------------------------------------------------------------


def _index_cut(machine: SimNode, path: str) -> None:
    machine.disk.open(path).truncate(300)


def _index_empty(machine: SimNode, path: str) -> None:
    machine.disk.open(path).truncate(0)


def _index_huge_count(machine: SimNode, path: str) -> None:
    write(machine, path, (1 << 30).to_bytes(4, "big"), 36)


def _index_random_head(machine: SimNode, path: str) -> None:
    write(machine, path, random.Random(path).randbytes(40))


def _index_zeroed(machine: SimNode, path: str) -> None:
    write(machine, path, bytes(machine.files.size(path)))


def _index_gone(machine: SimNode, path: str) -> None:
    machine.files.unlink(path)


INDEX_DAMAGE = [_index_cut, _index_empty, _index_huge_count, _index_random_head, _index_zeroed, _index_gone]


@pytest.mark.parametrize("damage", INDEX_DAMAGE, ids=lambda damage: damage.__name__.removeprefix("_index_"))
def test_s07_index_files_decide_nothing(left: Image, damage: Callable[[SimNode, str], None]) -> None:
    paths = left.paths("/index/")
    assert len(paths) > 2

    async def main() -> None:
        for path in paths if LONG else [paths[0], paths[len(paths) // 2], paths[-1]]:
            machine = left.machine(lambda machine, path=path: damage(machine, path))  # type: ignore[misc]
            await same_as_before(left, machine, f"{damage.__name__} {path}")

    run(main())


def test_s07_chains_of_the_index_that_lead_in_circles_end(left: Image) -> None:
    """Slots and entries of random numbers: a query ends, and gives only messages that have the key."""

    async def main() -> None:
        for seed in range(amount(6, 60)):
            rng = random.Random(seed)

            def scramble(machine: SimNode, rng: random.Random = rng) -> None:
                for path in left.paths("/index/"):
                    slots = [40 + 4 * slot for slot in range(SLOTS)]
                    previous = [40 + 4 * SLOTS + 20 * entry + 16 for entry in range(ENTRIES)]
                    for at in (*rng.sample(slots, 4), *rng.sample(previous, 15)):
                        write(machine, path, rng.choice((0, 3, 40, 1 << 30, -1)).to_bytes(4, "big", signed=True), at)

            store, told, _ = await recovered(left.machine(scramble).world, ROUNDS)
            assert told == left.told
            for number in range(ROUNDS):
                for record in (await store.query_message("T", f"k{number}", 64, 0, 1 << 62)).records:
                    assert b"record %d " % number in body_of(bytes(record))
            await store.stop()

    run(main())


def _stamps(machine: SimNode, times: list[int]) -> None:
    write(machine, "/store/checkpoint", b"".join(time.to_bytes(8, "big", signed=True) for time in times))


CHECKPOINTS: dict[str, Callable[[SimNode], None]] = {
    "missing": lambda machine: machine.files.unlink("/store/checkpoint"),
    "empty": lambda machine: machine.disk.open("/store/checkpoint").truncate(0),
    "short": lambda machine: machine.disk.open("/store/checkpoint").truncate(11),
    "zeros": lambda machine: write(machine, "/store/checkpoint", bytes(4096)),
    "random": lambda machine: write(machine, "/store/checkpoint", random.Random(7).randbytes(4096)),
    "a year ago": lambda machine: _stamps(machine, [machine.clock.now_ms() - YEAR_MS] * 3),
    "in a year": lambda machine: _stamps(machine, [machine.clock.now_ms() + YEAR_MS] * 3),
    "negative": lambda machine: _stamps(machine, [-5, -5, -5]),
}


@pytest.mark.parametrize("change", CHECKPOINTS)
def test_s07_the_checkpoint_decides_nothing(left: Image, change: str) -> None:
    async def main() -> None:
        await same_as_before(left, left.machine(CHECKPOINTS[change]), f"checkpoint {change}")

    run(main())


@pytest.mark.parametrize("tail", ["crc", "random"])
def test_b002_a_damaged_last_record_moves_no_offset(tail: str) -> None:
    """B002: the CRC of the last record overwritten, or 37 random bytes behind it; then ten more messages."""

    async def main() -> None:
        machine = image_of_100.machine()
        last = image_of_100.records[-1]
        if tail == "crc":
            write(machine, log_path(last.offset), b"\xde\xad\xbe\xef", last.offset % LOG_SIZE + 8)
        else:
            write(machine, log_path(last.offset), random.Random(37).randbytes(37), (last.offset + last.size) % LOG_SIZE)
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        kept = 99 if tail == "crc" else 100
        span = store.append([put(queue, b"again %d" % n) for n in range(10)])
        again = list(range(100, 110))
        assert [index for index, _ in span.offsets] == again
        served = await records(store, queue)
        assert [int.from_bytes(data[20:28], "big") for data in served] == [*range(kept), *again]
        assert [body_of(data) for data in served[kept:]] == [b"again %d" % n for n in range(10)]
        await store.stop()
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    image_of_100 = _hundred()
    run(main())


def _hundred() -> Image:
    made: list[Image] = []

    async def main() -> None:
        made.append(await taken(lambda store: store.append([put(store.queues.get_or_create("T", 0), b"x" * 40)]), 100))

    run(main())
    return made[0]

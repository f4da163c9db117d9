"""What a leader tells of its appends: a follower's queues and index get it as it is, and nothing that does not fit."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Sequence
from zlib import crc32

import pytest

from rmq.broker.raft.wire import SpanTold, encode
from rmq.broker.replication.wire import LARGEST_BODY
from rmq.broker.store.index.file import INDEX_ENTRY
from rmq.broker.store.log.append import pack
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.state import Queue
from rmq.broker.store.told import LONGEST, Told, ToldQueue
from rmq.protocol.errors import ReplicationError
from rmq.testing.simloop import run
from tests.support.scenes.store import HOST, die, put, small
from tests.support.scenes.told import MADE, WRONG, Pair, begun


def test_what_is_told_is_put_as_it_is() -> None:
    async def main() -> None:
        pair = await Pair.made(index_entries=500)
        for how in ({}, {"keys": 0}, {"keys": 1, "queues": 1}, {"keys": 5, "topic": "Other"}, {"size": 0}):
            pair.append(7, **how)
            pair.tell()
        # An append behind the answers, whose keys come later.
        start = pair.leader.log.end
        span = pair.leader.append(pair.puts(5), 2_000_000, keys_later=True)
        assert pair.told == []
        pair.leader.indexing.fresh.put()
        assert [(told.start, told.end) for told in pair.told] == [(span.start, span.end)]
        pair.send(start)
        pair.tell()
        await pair.alike()
        await pair.close()

    run(main())


def test_hosts_and_names_of_every_length() -> None:
    """IPv6 of either host or both, among others; and the longest name that a record has room for."""

    async def main() -> None:
        pair = await Pair.made()
        v6 = bytes(range(16)) + (10911).to_bytes(4, "big")
        for topic in ("T", "L" * 127, "%LMQ%light"):
            puts = pair.puts(8, topic=topic)
            for number, (flag, born, stored) in enumerate(
                ((0x10, v6, HOST), (0x20, HOST, v6), (0x30, v6, v6), (0x8, HOST, HOST))
            ):
                puts[number] = puts[number]._replace(sys_flag=flag, born_host=born, store_host=stored)
            start = pair.leader.log.end
            pair.leader.append(puts, 1_000_000 + start)
            pair.send(start)
            pair.tell()
        await pair.alike()
        await pair.close()

    run(main())


def test_of_few_messages_nothing_is_told() -> None:
    async def main() -> None:
        pair = await Pair.made()
        assert pair.leader._telling is not None
        pair.leader._telling.fewest = 8
        pair.append(7)
        assert pair.told == []
        start = pair.leader.log.end
        pair.append(8)
        assert [told.start for told in pair.told] == [start]
        pair.tell()
        await pair.alike(pair.leader.log.end - start)
        await pair.close()

    run(main())


def test_files_roll_and_the_index_is_full() -> None:
    async def main() -> None:
        pair = await Pair.made()
        for _ in range(30):
            pair.append(6, size=300)
            pair.tell()
            await pair.commit()
        assert pair.leader.index is not None
        assert len(pair.leader.index.files) > 3
        assert len(pair.leader.log.segments) > 3
        put_bytes = pair.follower.dispatcher.told.put_bytes
        assert pair.leader.log.end / 2 < put_bytes < pair.leader.log.end  # of what lies in two files nothing is told
        await pair.alike(put_bytes)
        await pair.close()

    run(main())


def test_a_store_without_index_tells_of_its_queues() -> None:
    async def main() -> None:
        pair = await Pair.made(index_enable=False)
        pair.append(9)
        pair.tell()
        await pair.alike()
        await pair.close()

    run(main())


def test_a_batch_of_large_bodies() -> None:
    async def main() -> None:
        pair = await Pair.made()
        start = pair.leader.log.end
        pair.leader.append(pair.puts(3, size=4000), 1_000_000, together=True)
        pair.send(start)
        pair.tell()
        await pair.alike()
        await pair.close()

    run(main())


def test_who_is_told_of_a_part_reads_the_rest() -> None:
    async def main() -> None:
        pair = await Pair.made()
        for number in range(12):
            pair.append(4)
            if number % 3 == 1:
                pair.told.clear()
        kept = sum(told.end - told.start for told in pair.told)
        pair.tell()
        await pair.alike(kept)
        await pair.close()

    run(main())


def told_at(start: int, *, size: int = 100) -> tuple[Told, bytes]:
    """Nine messages in three queues, with two keys each, at a commit-log offset."""
    queues = [Queue("T", number) for number in range(3)]
    puts = [put(queues[number * 5 % 3], bytes([number]) * size) for number in range(9)]
    packed = pack(puts, (start, 1 << 20, 1 << 20), 5)
    keys = b"".join(INDEX_ENTRY.pack(n * 77, offset, 0, 0) for n, (_, offset) in enumerate(packed.offsets * 2))
    keys = b"".join(sorted((keys[at : at + 20] for at in range(0, len(keys), 20)), key=lambda key: key[4:12]))
    (data,) = packed.pieces
    told = [ToldQueue(queue.topic, queue.id, queue.next, entries) for queue, entries, *_ in packed.deltas]
    return Told(start, start + len(data), 5, crc32(data), told, keys), data


@pytest.mark.parametrize("around", [1 << 31, 1 << 32, 3 << 31, 1 << 40, 1 << 61])
def test_offsets_of_any_length(around: int) -> None:
    """Half of one may be what the other's is."""
    _, data = told_at(0)
    for start in (around - len(data) - 1, around - len(data), around, around + 1):
        told, data = told_at(start)
        assert told.is_near
        assert told.has_good_keys()
        assert told.fits(data)
        for away in (1, 1 << 24, 1 << 31, 1 << 32, 1 << 40):
            other = told._replace(start=start + away, end=told.end + away)
            assert not other.has_good_keys()
            assert not other.fits(data)
    for start in (around - len(data) + 1, around - 1):
        told, data = told_at(start)
        assert not told.is_near
        assert not told.fits(data)


def _places(told: Told) -> list[tuple[int, int]]:
    """Offset and size of each record, by queues."""
    return [place for queue in told.queues for place in struct.iter_unpack(">qi8x", queue.entries)]


def _with_places(told: Told, places: Sequence[Sequence[int]]) -> Told:
    entries = b"".join(struct.pack(">qiq", *place, 0) for place in places)
    queues = []
    for queue in told.queues:
        size = len(queue.entries)
        queues.append(queue._replace(entries=entries[:size]))
        entries = entries[size:]
    return told._replace(queues=queues)


def test_what_only_looks_as_if_it_added_up() -> None:
    told, data = told_at(5000)
    places = sorted(_places(told))
    assert _with_places(told, places).fits(data) is False  # these are in other queues
    assert _with_places(told, places)._adds_up()
    (at, size), (_, other), (behind, _) = places[2:5]
    far, farther = 5000 + (1 << 31) - 1, (1 << 32) - 200
    for first, others, rest in (
        (2, [(at, size + other)] * 2, 4),  # one twice
        (2, [(at, 90), (at + 90, size - 90), (behind - other, other + places[4][1])], 5),  # no record is so short
        (2, [(at, size + other), (at + 10, 100), (at + 110, -100)], 5),  # round and round
        (0, [(5000, far - 5000), (far, farther - far - 1), (farther, places[3][0] + 200)], 3),  # with what is carried
    ):
        wrong = [*places[:first], *others, *places[rest:]]
        assert len(wrong) in (9, 10)
        assert not _with_places(told, wrong[:9])._adds_up()
        queue = told.queues[0]._replace(entries=b"".join(struct.pack(">qiq", *place, 0) for place in wrong))
        assert not told._replace(queues=[queue])._adds_up()
        queue = queue._replace(entries=b"".join(struct.pack(">qiq", *place, 0) for place in reversed(wrong)))
        assert not told._replace(queues=[queue])._adds_up()


@pytest.mark.parametrize("at", [0, 56])
def test_the_last_record_is_looked_at(at: int) -> None:
    """Its size, and its store time."""
    told, data = told_at(5000)
    last = max(_places(told))[0] - 5000
    other = bytearray(data)
    other[last + at + 3] ^= 1
    assert told.fits(data)
    assert not told._replace(crc=crc32(other)).fits(bytes(other))


@pytest.mark.parametrize("seed", range(20))
def test_no_byte_is_in_two_records_or_in_none(seed: int) -> None:
    """Entries that say anything: they add up if each record begins where the one before it ends."""
    rng = random.Random(seed)
    told, _ = told_at(rng.choice([0, 5000, (1 << 32) + 7]))
    places = _places(told)
    numbers = [number for offset, size in places for number in (offset, size, offset + size)]
    found = set()
    for _ in range(300):
        now = [list(place) for place in places]
        for _ in range(rng.randint(0, 3)):
            entry, at = rng.choice(now), rng.randrange(2)
            entry[at] = rng.choice([*numbers, entry[at] ^ 1 << rng.randrange(62 - 31 * at), 0, -1, -entry[at]])
            if rng.random() < 0.7:  # and others go on from there, or the entry says it twice
                rng.choice(now)[:] = rng.choice([entry, [entry[0] + entry[1], 200]])
        now = [[offset, max(-1 << 31, min(size, (1 << 31) - 1))] for offset, size in now]
        ends = [told.start]
        for offset, size in sorted(now):
            if offset != ends[-1] or size < 91:
                break
            ends.append(offset + size)
        adds_up = len(ends) == len(now) + 1 and ends[-1] == told.end
        assert _with_places(told, now)._adds_up() == adds_up
        found.add(adds_up)
    assert found == {True, False}


@pytest.mark.parametrize("change", WRONG)
def test_what_does_not_fit_is_not_believed(change: Callable[[Told], Told]) -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(8)
        pair.tell(change)
        await pair.alike(0)
        pair.append(8)
        good = pair.told[0].end - pair.told[0].start
        pair.tell()
        await pair.alike(good)
        await pair.close()

    run(main())


def test_bytes_that_have_changed_on_their_way_are_damage_and_not_what_was_told() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.leader.append(pair.puts(8), 1_000_000)
        data = bytearray(pair.leader.log.read(0, pair.leader.log.end) or b"")
        data[len(data) // 2 + 100] ^= 1  # in the body of a message
        pair.follower.append_raw(0, bytes(data))
        pair.tell()
        await pair.commit()
        assert pair.follower.dispatcher.told.put_bytes == 0
        shown = sum(queue.visible for queue in pair.follower.queues)
        assert shown == 8
        damaged = pair.follower.damaged.parts
        assert len(damaged) == 1
        await pair.close()

    run(main())


def test_nothing_is_in_queues_before_it_is_committed() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(4)
        middle = pair.follower.log.end
        pair.append(4)
        pair.tell()
        await asyncio.sleep(1)
        assert pair.follower.dispatcher.position == 0
        assert not any(queue.next for queue in pair.follower.queues)
        pair.follower.committed(middle)
        await asyncio.sleep(1)
        assert pair.follower.dispatcher.position == middle
        assert sum(queue.next for queue in pair.follower.queues) == 4
        await pair.alike()
        await pair.close()

    run(main())


def test_what_is_committed_in_the_middle_of_what_was_told_is_read() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(4)
        _, middle = pair.told[0].start, int.from_bytes(pair.told[0].queues[1].entries[:8], "big")
        pair.tell()
        pair.follower.committed(middle)
        await asyncio.sleep(1)
        assert pair.follower.dispatcher.position == middle
        await pair.alike(0)
        await pair.close()

    run(main())


def test_what_is_cut_away_is_not_told_any_more() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(4)
        pair.tell()
        await pair.alike()
        keep = pair.follower.log.end
        pair.append(6)
        pair.tell()
        for store in (pair.leader, pair.follower):
            await store.truncate(keep)
        pair.append(6, topic="U")  # another leader's messages, as long as those, where those were
        pair.tell()
        await pair.alike(counted=False)
        await pair.close()

    run(main())


def test_a_kill_leaves_what_the_log_has() -> None:
    async def main() -> None:
        pair = await Pair.made()
        for number in range(6):
            pair.append(5)
            pair.tell()
            if number < 4:
                await pair.commit()
            if number == 2:
                await pair.follower.force()
        committed = pair.follower.dispatcher.position
        assert 0 < committed < pair.follower.log.end
        world = pair.simulation.kill(pair.simulation.nodes["f"])
        await die(pair.follower)
        pair.follower = await begun(world, small(**MADE), committed)
        pair.follower.log.gate |= Gate.SLAVE
        assert pair.follower.log.end == pair.leader.log.end
        await pair.commit()
        pair.append(5)
        last = pair.told[0]
        pair.tell()
        await pair.alike(last.end - last.start, counted=False)
        await pair.close()

    run(main())


def test_what_a_start_leaves_out_is_not_shown_before_the_group_says_what_was_there() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(6)
        pair.tell()
        await pair.commit()
        ends = [queue.visible for queue in pair.follower.queues]
        for queue in pair.follower.queues:
            pair.follower.queues.leave_out(queue, queue.next + 2)
            queue.visible = queue.next
        await pair.follower.show(pair.follower.log.end)
        assert [queue.visible for queue in pair.follower.queues] == ends
        pair.append(3)
        pair.tell()  # its places are not the next of their queues: it is read
        read = pair.leader.log.end - pair.follower.dispatcher.position
        await pair.commit()
        pair.append(3)
        pair.tell()
        await pair.commit()
        await pair.alike(pair.leader.log.end - read)
        await pair.close()

    run(main())


def test_a_log_that_begins_late_has_queues_that_do() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.leader.append(pair.puts(6), 1_000_000)
        pair.told.clear()
        begins = {queue.id: queue.next for queue in pair.leader.queues}
        pair.append(6)
        pair.append(6)
        pair.tell()
        await pair.commit()
        assert {queue.id: queue.min for queue in pair.follower.queues} == begins
        assert {queue.id: queue.next for queue in pair.follower.queues} == {
            queue.id: queue.next for queue in pair.leader.queues
        }
        assert 0 < pair.follower.dispatcher.told.put_bytes < pair.leader.log.end * 2 / 3
        await pair.close()

    run(main())


def test_a_deleted_topics_messages_stay_away() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(4)
        pair.append(4, topic="Other")
        pair.tell()
        pair.follower.delete_topic("T", existed=True)
        await pair.commit()
        assert [queue.topic for queue in pair.follower.queues if queue.next] == ["Other"] * 3
        await pair.close()

    run(main())


def test_records_of_a_watched_topic_are_seen_in_their_turn() -> None:
    async def main() -> None:
        pair = await Pair.made()
        seen: list[int] = []
        pair.follower.dispatcher.watch("Other", lambda offset, record: seen.append(offset))
        pair.append(4)
        start = pair.leader.log.end
        pair.append(1, topic="Other")
        behind = pair.leader.log.end
        pair.append(4)
        pair.tell()
        await pair.alike(told=pair.leader.log.end - (behind - start))
        assert seen == [start]
        await pair.close()

    run(main())


@pytest.mark.parametrize("cut", [1, 20, 44, 60, -1, -30])
def test_what_is_cut_short_is_nothing(cut: int) -> None:
    data = Told(10, 200, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], bytes(40)).encode()
    assert Told.decode(data).end == 200
    with pytest.raises(ReplicationError):
        Told.decode(data[:cut])


def test_every_changed_byte_behind_the_head_is_noticed() -> None:
    data = Told(10, 200, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], bytes(40)).encode()
    for at in range(44, len(data)):
        with pytest.raises(ReplicationError):
            Told.decode(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])


def span(start: int, size: int, *, topics: int = 1, entries: int = 8, keys: int = 0) -> Told:
    queues = [ToldQueue(f"T{number}", 0, 0, bytes(20 * entries)) for number in range(topics)]
    return Told(start, start + size, 5, 7, queues, bytes(20 * keys))


@pytest.mark.parametrize(
    ("size", "how"),
    [
        (100, {}),  # tiny ones without end
        (1 << 20, {"keys": 100_000}),  # more is told than there is
        (100_000, {"topics": 3_000, "entries": 1}),
        (1 << 20, {}),
    ],
)
def test_what_waits_takes_no_more_memory_than_it_may(size: int, how: dict[str, int]) -> None:
    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        one = span(0, size, **how)
        last = (80 << 20) // max(size, one.memory) + 10
        for number in range(last + 1):
            told.add(one._replace(start=number * size, end=(number + 1) * size))
        waiting = list(told._spans)
        assert told.memory == sum(one.memory for one in waiting) <= 32 << 20
        assert waiting[-1].end - waiting[0].start <= 64 << 20
        assert waiting[-1].start == last * size, "the oldest is read from the log, not the newest"
        assert max(told.memory / (32 << 20), (waiting[-1].end - waiting[0].start) / (64 << 20)) > 0.9
        told.log_ends(waiting[len(waiting) // 2].end)
        assert told.memory == sum(one.memory for one in told._spans)
        told.next_after(1 << 50)
        assert (told.memory, len(told._spans)) == (0, 0)
        await pair.close()

    run(main())


def test_a_span_of_which_more_is_told_than_may_wait_is_read() -> None:
    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        told.add(span(0, 1 << 20))
        told.add(span(1 << 20, 1 << 20, topics=90_000, entries=1))
        assert (told.memory, told.next_after(0)) == (0, 1 << 62)
        await pair.close()

    run(main())


def test_a_long_span_is_read_piece_by_piece() -> None:
    """It would be compared, and put, without a pause."""

    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        told.add(span(0, LONGEST + 1))
        assert told.next_after(0) == 1 << 62
        told.add(span(0, LONGEST))
        assert told.next_after(0) == 0
        telling = pair.leader._telling
        assert telling is not None
        queue = pair.leader.queues.get_or_create("T", 0)
        for size, count in ((LONGEST + 1, 0), (LONGEST, 1)):
            telling.appended(0, bytes(size), 5, [(queue, bytes(20), 1, size, size)], keys=False)
            assert len(pair.told) == count
        await pair.close()

    run(main())


def test_what_is_longer_than_a_unit_is_not_told() -> None:
    """Short messages with many keys; who gets a longer unit closes the connection."""

    async def main() -> None:
        pair = await Pair.made(index_entries=1 << 20, commit_log_file_size=16 << 20)
        pair.leader.append(pair.puts(800, size=1, keys=257, queues=1), 1_000_000)
        (told,) = pair.told
        assert len(encode(SpanTold(5, "l", told))) < told.memory < LONGEST
        pair.leader.append(pair.puts(816, size=1, keys=257, queues=1), 1_000_000)
        assert len(pair.told) == 1
        queue = pair.leader.queues.get_or_create("T" * 127, 0)
        most = Told(1 << 60, (1 << 60) + 1, 5, 7, [ToldQueue(queue.topic, 0, 0, bytes(20))] * 10_300, None)
        assert most.memory <= LONGEST
        assert len(encode(SpanTold(5, "l", most))) <= LARGEST_BODY
        await pair.close()

    run(main())

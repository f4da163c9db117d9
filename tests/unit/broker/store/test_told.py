"""What a leader tells of its appends: a follower has it in queues and index as it is, once it is committed."""

from __future__ import annotations

import asyncio

from rmq.broker.store.log.gate import Gate
from rmq.testing.simloop import run
from tests.support.scenes.store import HOST, die, small
from tests.support.scenes.told import MADE, Pair, begun


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

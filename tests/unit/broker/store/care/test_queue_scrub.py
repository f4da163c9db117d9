"""The check of the log compares consume queues with it, too: wrong entries are put right before anybody reads them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from rmq.broker.store.queues.files import BLANK_ENTRY_SIZE
from rmq.broker.store.state import Queue
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.protocol.record import FIELDS
from rmq.testing.simloop import run
from tests.support.scenes.damage import CHANGES, COUNT, Scene, scene
from tests.support.scenes.scrub import PASS
from tests.support.scenes.store import opened, put

#: One pass after the other.
SCRUBBED = {"scrub_rate_mib": 4, "scrub_interval_hours": 0}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def entries(at: Scene) -> dict[Queue, list[tuple[int, int, int]]]:
    return {queue: [at.entry(queue, n) for n in range(COUNT)] for queue in at.sent}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_wrong_entries_are_made_anew(change: Callable[[Scene], None], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await scene(**SCRUBBED)
        before = entries(at)
        change(at)
        assert entries(at) != before
        await asyncio.sleep(4 * PASS)
        assert entries(at) == before
        assert told(caplog)
        assert all("made anew from the commit log, 0 have become blank" in text for text in told(caplog))
        assert at.store.damaged.parts == []
        count = at.store.mending.remade
        await at.check({})
        assert at.store.mending.remade == count > 0, "not at every pass"
        await at.store.stop()

    run(main())


def test_blank_entries_of_good_messages_are_made_anew() -> None:
    async def main() -> None:
        at = await scene(**SCRUBBED)
        before = entries(at)
        queue = at.queue("B", 1)
        for index in (0, 17, 18, 59):
            at.set_entry(queue, index, 0, BLANK_ENTRY_SIZE)
        await asyncio.sleep(4 * PASS)
        assert entries(at) == before
        await at.store.stop()

    run(main())


def test_tags_codes_are_those_of_the_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await scene(**SCRUBBED)
        before = entries(at)
        queue = at.queue("A", 0)
        for index, bit in ((0, 3), (30, 31), (59, 62)):
            offset, size, code = at.entry(queue, index)
            at.set_entry(queue, index, offset, size, code ^ 1 << bit)
        await asyncio.sleep(4 * PASS)
        assert entries(at) == before
        assert at.store.mending.remade == 3
        assert "had another tags code than their messages" in told(caplog)[0]
        await at.store.stop()

    run(main())


def test_a_delayed_message_is_not_due_in_a_thousand_years() -> None:
    async def main() -> None:
        at = await scene(**SCRUBBED)
        store = at.store
        queue = store.queues.get_or_create(SCHEDULE_TOPIC, 2)
        store.append(
            [put(queue)._replace(properties=b"DELAY\x013", tags_code=at.machine.world.clock.now_ms() + 10_000)] * 3
        )
        await store.stop()
        at.store = store = await opened(at.machine.world, store.settings)
        queue = at.queue(SCHEDULE_TOPIC, 2)
        before = [at.entry(queue, n) for n in range(3)]
        at.set_entry(queue, 1, *before[1][:2], before[1][2] ^ 1 << 55)
        at.set_entry(queue, 2, *before[2][:2], before[2][2] + 3_600_000)  # a level of another length: as it was then
        await asyncio.sleep(4 * PASS)
        assert at.entry(queue, 1) == before[1]
        assert at.entry(queue, 2)[2] == before[2][2] + 3_600_000
        await store.stop()

    run(main())


@pytest.mark.parametrize("field", ["queue_id", "queue_offset"])
def test_a_record_that_says_it_is_anothers_is_damaged(field: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await scene(**SCRUBBED)
        queue = at.queue("A", 1)
        offset, size, _ = at.entry(queue, 20)
        at.flip(offset + FIELDS[field][0] + (3 if field == "queue_id" else 7), 0)
        await asyncio.sleep(4 * PASS)
        assert at.store.damaged.parts == [(offset, offset + size)]
        assert at.entry(queue, 20)[:2] == (0, BLANK_ENTRY_SIZE)
        assert len(told(caplog)) == 1
        await at.check({queue: {20}})
        await at.store.stop()

    run(main())


def test_queues_of_several_files_are_left_alone_when_nothing_is_wrong() -> None:
    async def main() -> None:
        at = await scene(queue_file_size=400, **SCRUBBED)
        await asyncio.sleep(4 * PASS)
        assert at.store.mending.remade == at.store.mending.blanked == 0
        await at.check({})
        await at.store.stop()

    run(main())

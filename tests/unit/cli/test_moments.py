"""Times and places as people type them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from rmq.cli.messages.places import Place, resolve
from rmq.cli.moments import moment
from rmq.client.message import MessageQueue

#: 2026-11-29 10:00:00.500 in UTC.
NOW = 1_795_946_400_500
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "zone", "meant"),
    [
        ("now", UTC, NOW),
        ("-10m", UTC, NOW - 600_000),
        ("-1h30m", UTC, NOW - 5_400_000),
        ("-250ms", UTC, NOW - 250),
        ("-2w", UTC, NOW - 14 * 86_400_000),
        ("today", UTC, NOW - 36_000_500),
        ("today", BERLIN, NOW - 39_600_500),
        ("yesterday", UTC, NOW - 36_000_500 - 86_400_000),
        ("2026-11-29", UTC, NOW - 36_000_500),
        ("2026-11-29T11:00:00.5", BERLIN, NOW),
        ("2026-11-29 10:00:00.500Z", BERLIN, NOW),
        ("2026-11-29T12:00:00.500+02:00", UTC, NOW),
        ("2026-11-29#10:00:00:500", UTC, NOW),
        ("2026-11-29#10:00:00", UTC, NOW - 500),
        (str(NOW), BERLIN, NOW),
        # The hour that there is twice is the first of them.
        ("2026-10-25T02:30", BERLIN, 1_792_888_200_000),
    ],
)
def test_times(text: str, zone: tzinfo, meant: int) -> None:
    assert moment(text, NOW, zone) == meant


@pytest.mark.parametrize(
    "text", ["", "soon", "-", "-10", "-10y", "10:30", "2026-13-01", "123", "20261129", "-999999999w", "٣"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time: -10m, now, |is before 1970"):
        moment(text, NOW, UTC)


@dataclass
class Found:
    store_timestamp: int


@dataclass
class Pulled:
    messages: list[Found]


class Log:
    """A queue whose broker answers any message of a time, as those of 4.9 do, or one before it."""

    def __init__(self, times: list[int], answer: int, least: int = 0) -> None:
        self.times, self.answer, self.least = times, answer, least

    async def min_offset(self, queue: MessageQueue) -> int:
        return self.least

    async def max_offset(self, queue: MessageQueue) -> int:
        return len(self.times)

    async def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        return self.answer

    async def pull(self, queue: MessageQueue, expression: str, offset: int, most: int) -> Pulled:
        return Pulled([Found(time) for time in self.times[offset : offset + most]])


@pytest.mark.parametrize("answer", [0, 500, 599, 600])
async def test_nothing_of_a_time_is_before_the_place(answer: int) -> None:
    log = Log([1_000] * 100 + [2_000_000_000_000] * 500 + [2_000_000_000_001] * 10, answer)
    queue = MessageQueue("T", "b", 0)
    offset, since = await resolve(log, queue, Place(time="2000000000000"), NOW, UTC)  # type: ignore[arg-type]
    assert offset <= 100
    assert since == 2_000_000_000_000


async def test_places_stay_within_what_there_is() -> None:
    log = Log([NOW] * 10, 10, least=4)
    queue = MessageQueue("T", "b", 0)
    for place, offset in (
        (Place(last=100), 4),
        (Place(last=3), 7),
        (Place(offset=1), 4),
        (Place(offset=99), 10),
        (Place(), 10),
    ):
        assert await resolve(log, queue, place, NOW, UTC) == (offset, None)  # type: ignore[arg-type]

"""Bytes that change: every field of every file kind, in every way of a start, with consumers reading meanwhile.

A case is a damage (``tests/support/damage/damages.py``: flip, zero, cut, swap, duplicate, move; of records, entries,
headers, whole files) and a way of a start (``ways.py``: stopped, killed, another boot, queues or index lost, rebuilt,
verified). A consumer that checks as our SDK does and one that believes an answer as Java's do read everything, the
scrub makes one pass, they read again, and one more message is sent to each queue (``trial.py``). Checked:

- every acknowledged message whose record was not damaged is delivered at its offset, and nothing that was not sent is;
  one whose queue entry alone was damaged may be passed over until the pass of the scrub;
- no offset is used twice;
- the damage is told, by the start or by the pass; ``store verify`` finds it.

CI damages every place once, in ways and manners by turns, ``make torture`` takes all cases. Fields that only checksums
prove (``damages.UNSEEN``) are damaged without these, too, and delivered as they are. What need not be told is in
:data:`SILENT`, with its reason; one that no case falls under any more fails the long form.
"""

from __future__ import annotations

import functools
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from rmq.broker.delivery import comparison, read
from rmq.broker.store.care.index_scrub import IndexScrub
from rmq.broker.store.care.queue_scrub import QueueScrub
from rmq.broker.store.log.checksums import Checksums, Look
from rmq.broker.store.queues import misfits
from rmq.broker.store.queues.misfits import Misfits
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.queues.sequence import Claim, Verdict
from rmq.broker.store.start.queue_loader import QueueLoader
from tests.support.damage.damages import Damage, damages, together
from tests.support.damage.stored import Stored, stored
from tests.support.damage.trial import Finding, tried
from tests.support.damage.ways import WAYS, Way
from tests.support.kills.campaign import LONG


class Silence(NamedTuple):
    """Damage that nobody tells of.

    :param damage: a pattern of its names, :param way: and of those of the ways in which that is so.
    """

    why: str
    damage: str
    way: str = ""

    def covers(self, way: Way, damage: Damage, finding: Finding) -> bool:
        """Whether a finding is one of these."""
        return finding.what == "untold" and all(
            re.search(pattern, text) for pattern, text in ((self.way, way.name), (self.damage, damage.name))
        )


#: Of no matter: nothing is lost by it, nothing wrong is served (docs/durability.md).
SILENT = (
    Silence("after a kill queues with units are made anew, and what was wrong in them is not looked at",
            "^queue|^units", "^killed, with units"),
    Silence("where a start makes the queue of timers anew, what its entries said of their time is not looked at",
            "^queue rmq_sys_wheel_timer, newest entry, tags", "^killed, a queue lost"),
    Silence("an entry of a timer may say nothing of its time: then its message is asked",
            "^queue rmq_sys_wheel_timer, newest entry, tags: zero"),
    Silence("when its message was stored decides in a unit whether its bit map counts, and there is none",
            "^units A-0, unit, store time"),
    Silence("after a kill slots and header of the newest index file are made of its entries, whatever they say",
            "^index, newest file, (slot|header, (end|slots|count))", "^killed"),
    Silence("what a header of the index says of the time of its newest message may be a second off",
            "^index, .* file, header, end time: flip the last bit"),
)  # fmt: skip


@functools.cache
def of(way: Way) -> tuple[Stored, list[Damage]]:
    """What a way of a start is tried with."""
    made = _stored(way.clean, way.ext)
    return made, [damage for damage in damages(made) if way.matters(damage, made.files)]


@functools.cache
def _stored(clean: bool, ext: bool) -> Stored:
    return stored(clean=clean, ext=ext)


def cases(way: Way) -> Iterator[tuple[Stored, Damage]]:
    """The cases of one way that are to be tried now."""
    made, all_of_them = of(way)
    for damage in all_of_them:
        if LONG or damage.name in _share()[way]:
            yield made, damage


@functools.cache
def _share() -> dict[Way, set[str]]:
    """What CI tries: every place, and what is done to a log as a whole, in one of its ways and manners by turns."""
    places: dict[str, list[tuple[Way, str]]] = defaultdict(list)
    for way in WAYS:
        for damage in of(way)[1]:
            place = damage.name.rpartition(": ")[0]
            places[damage.name if place == "log" else place].append((way, damage.name))
    found: dict[Way, set[str]] = {way: set() for way in WAYS}
    for number, there in enumerate(places.values()):
        way, name = there[number * 7 % len(there)]
        found[way].add(name)
    return found


#: Those that something fell under.
_met: set[Silence] = set()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.timeout(0 if LONG else 120)
def test_damage_costs_itself_alone_and_is_told(way: Way) -> None:
    wrong: list[str] = []
    for made, damage in cases(way):
        for finding in tried(made, damage, way):
            silence = next((one for one in SILENT if one.covers(way, damage, finding)), None)
            if silence is not None:
                _met.add(silence)
            else:
                wrong.append(f"{damage.name}: {finding.told}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(not LONG, reason="the short form does not meet every one")
def test_nothing_is_passed_over_that_is_told() -> None:
    assert [one.why for one in SILENT if one not in _met] == []


#: What one alone does not show: a way, and damages that come at once.
AT_ONCE = (
    ("stopped, another boot", ("log, middle record, body: flip", "log, last record, size: flip")),
    ("index lost", ("log, last record, body: flip the last bit", "queue B-0, entry 7, size: zero")),
    ("index lost", ("log, first record, body: zero", "log, last record, size: flip")),
    ("stopped", ("log, middle record, body_size: flip", "log, last record, queue_offset: flip the last bit",
                 "index, first file, header, begin offset: zero")),
    ("stopped", ("queue B-0: move the directory", "log: zero a tail of 4 records")),
    ("stopped", ("queue B-0: exchange the file with another queue's", "log, last record, size: flip")),
    ("killed", ("queue A-0: move the file", "log: zero a tail of 15 records")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "several"), AT_ONCE)
def test_several_damages_at_once_cost_no_more(name: str, several: tuple[str, ...]) -> None:
    way = next(way for way in WAYS if way.name == name)
    made, all_of_them = of(way)
    at_once = together([next(damage for damage in all_of_them if damage.name == one) for one in several])
    assert tried(made, at_once, way) == []


# -- planted bugs


def serve_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """What a queue entry points to is handed out as the message."""

    async def none(*_: Any) -> list[int]:
        return []

    patch.setattr(Checksums, "differing", none)
    for module, compares in ((read, "all_fit"), (comparison, "all_fit"), (comparison, "run_fits")):
        patch.setattr(module, compares, lambda *_, **__: True)


def scrub_the_log_alone(patch: pytest.MonkeyPatch) -> None:
    """Queues are not compared with the log."""

    async def nothing(*_: Any) -> None:
        return

    patch.setattr(QueueScrub, "compare", nothing)


def reset_a_queue_at_a_lower_offset(patch: pytest.MonkeyPatch) -> None:
    """A record with a lower queue offset begins its queue anew, whatever follows."""
    real = misfits.weigh

    def weigh(end: int, behind: int, waiting: Sequence[Claim], claim: Claim, **known: bool) -> Verdict | None:
        if 0 <= claim.number < end:
            return Verdict([claim], [], anew=True)
        return real(end, behind, waiting, claim, **known)

    patch.setattr(misfits, "weigh", weigh)


def believe_who_comes_first(patch: pytest.MonkeyPatch) -> None:
    """Of two records that claim to be the first of a queue the earlier one is it."""

    async def never(*_: Any) -> bool:
        return False

    patch.setattr(Misfits, "_takes_turns", never)


def give_offsets_of_a_lost_tail_again(patch: pytest.MonkeyPatch) -> None:
    """Queues go on behind what is left of them."""
    patch.setattr(QueueTable, "leave_out", lambda *_: 0)


def tell_nothing(patch: pytest.MonkeyPatch) -> None:
    """What is mended, or given up, is not told."""
    patch.setattr(logging.Logger, "critical", lambda *_, **__: None)
    patch.setattr(logging.Logger, "error", lambda *_, **__: None)


def compare_no_checksums(patch: pytest.MonkeyPatch) -> None:
    """What stands beside a body is believed."""

    async def nothing(*_: Any) -> Look:
        return Look([], -1)

    patch.setattr(Checksums, "look", nothing)


def believe_names_of_queue_files(patch: pytest.MonkeyPatch) -> None:
    """A start asks no message whether its queue's files are those of this queue."""

    async def nothing(*_: Any) -> None:
        return

    patch.setattr(QueueLoader, "_compare", nothing)


def believe_headers_of_the_index(patch: pytest.MonkeyPatch) -> None:
    """What an index file says of its first and last message is compared with nothing."""

    async def nothing(*_: Any) -> None:
        return

    patch.setattr(IndexScrub, "_compare_header", nothing)


class Bug(NamedTuple):
    plant: Callable[[pytest.MonkeyPatch], None]
    #: The case that catches it, by the names of its way and its damage.
    way: str
    damage: str
    #: The kind of what is found then.
    what: str


BUGS = (
    Bug(serve_without_comparing, "stopped", "log, middle record, queue_offset: flip", "not sent"),
    Bug(serve_without_comparing, "stopped", "log, first record, size: flip", "lost"),
    Bug(serve_without_comparing, "stopped", "queue A-0, entry 7: swap with another queue's", "not sent"),
    Bug(scrub_the_log_alone, "stopped", "queue A-0, entry 7, tags: flip", "untold"),
    Bug(
        believe_who_comes_first,
        "queues and checksums lost",
        "log, first record, queue_id: flip the last bit",
        "not sent",
    ),
    Bug(give_offsets_of_a_lost_tail_again, "queues lost", "log: zero a tail of 4 records", "again"),
    Bug(give_offsets_of_a_lost_tail_again, "queues lost", "log, last record, body: flip", "again"),
    Bug(give_offsets_of_a_lost_tail_again, "stopped", "log: zero a tail of 15 records", "again"),
    Bug(give_offsets_of_a_lost_tail_again, "killed, a queue lost", "log: zero a tail of 15 records", "again"),
    Bug(tell_nothing, "killed", "queue A-0, entry 23, offset: flip", "untold"),
    Bug(tell_nothing, "killed", "queue A-0: cut the file", "untold"),
    Bug(tell_nothing, "stopped", "queue A-0, entry 7, tags: flip", "untold"),
    Bug(tell_nothing, "killed, a queue lost", "queue SCHEDULE_TOPIC_XXXX, newest entry, tags: flip", "untold"),
    Bug(scrub_the_log_alone, "stopped", "queue SCHEDULE_TOPIC_XXXX, newest entry, tags: flip", "untold"),
    Bug(scrub_the_log_alone, "stopped, with units", "units A-0, unit, tags code: flip", "untold"),
    Bug(believe_headers_of_the_index, "stopped", "index, newest file, header, end time: zero", "untold"),
    Bug(compare_no_checksums, "stopped", "log, middle record, flag: flip", "untold"),
    Bug(compare_no_checksums, "verified", "log, newest record, store_timestamp: flip", "untold"),
    Bug(believe_names_of_queue_files, "killed", "queue A-0: move the file", "lost"),
    Bug(believe_names_of_queue_files, "stopped", "queue A-0: move the directory", "lost"),
    Bug(reset_a_queue_at_a_lower_offset, "queues and checksums lost", "log, middle record, queue_offset: zero", "lost"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.plant.__name__}, {bug.damage}")
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    way = next(way for way in WAYS if way.name == bug.way)
    made, all_of_them = of(way)
    damage = next(damage for damage in all_of_them if damage.name == bug.damage)
    assert tried(made, damage, way) == []
    bug.plant(monkeypatch)
    assert bug.what in {finding.what for finding in tried(made, damage, way)}

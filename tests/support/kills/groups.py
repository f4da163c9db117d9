"""What the members of one group were given and were done with, and what must hold over it (reliability.md I4, I6, I18).

Members write a line before and one after their work on a message, each in a file of its own (tests/interop/programs):
``{"t": ns, "proc": member, "kind": "given" | "done", "topic", "queue": "broker/id", "offset", "key", "tries"}``. Clocks
are the machine's monotonic one in every language. Nothing of the product is used here.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.history import Verdict

__all__ = ["Look", "judge_group", "judge_pops", "lines_in", "lines_of"]

Line = dict[str, Any]
_SECOND = 1_000_000_000
#: Seconds without a message after which a member has left a queue.
_LEFT = 1.0
#: Seconds that may lie between a member's question where its group is in a queue, and the first message of it.
_ASKED = 2.0


@dataclass(frozen=True, slots=True)
class Look:
    """Where the group was by its broker's word, asked for between two moments, ns."""

    begin: int
    end: int
    #: Queue ("broker/id") -> committed offset.
    offsets: Mapping[str, int]
    #: All members have left: what they were done with has to be committed.
    last: bool = False


def lines_of(folder: Path) -> list[Line]:
    """All lines of all members, in order of time."""
    found = [line for path in sorted(folder.glob("*.jsonl")) for line in lines_in(path)]
    return sorted(found, key=lambda line: line["t"])


def lines_in(path: Path) -> list[Line]:
    """The lines of one member; a last half line is skipped, and a file that is not there yet has none."""
    *whole, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [json.loads(line) for line in whole]


def judge_group(
    lines: Iterable[Line], sent: Mapping[str, tuple[str, int]], looks: Iterable[Look], *, topic: str, overlap: float,
    orderly: bool = False,
) -> Verdict:  # fmt: skip
    """Hold a group to what it promises: all is consumed, by one member at a time, and nothing is committed that is not.

    :param sent: key -> (queue, offset) of every acknowledged message.
    :param overlap: seconds that two members may have one queue, while a change goes round.
    """
    verdict = Verdict()
    own = [line for line in lines if line["topic"] == topic]
    done: dict[str, dict[int, int]] = defaultdict(dict)
    given: Counter[str] = Counter()
    for line in own:
        if line["kind"] == "done":
            done[line["queue"]].setdefault(line["offset"], line["t"])
        else:
            given[line["key"]] += 1
    for key, (queue, offset) in sent.items():
        if offset not in done[queue]:
            verdict.fault("I6", f"{key} at {queue} {offset} was acknowledged, and no member was ever done with it")
    verdict.counts["consumed"] = len(sent)
    verdict.counts["given again"] = sum(times - 1 for times in given.values())
    looks = list(looks)
    by_queue: dict[str, list[Line]] = defaultdict(list)
    for line in own:
        if line["kind"] == "given":
            by_queue[line["queue"]].append(line)
    for queue, items in sorted(by_queue.items()):
        _one_owner(queue, items, overlap, verdict)
        _again(queue, items, looks, verdict)
        if orderly:
            _in_order(queue, items, done[queue], verdict)
    for look in looks:
        for queue, offset in look.offsets.items():
            early = [at for at in range(offset) if done[queue].get(at, look.end + 1) > look.end]
            if early:
                verdict.fault("I4", f"{queue}: {offset} was committed before anybody was done with {early[:3]}")
            behind = [at for at in done[queue] if at >= offset]
            if look.last and behind:
                verdict.fault("I18", f"{queue}: {offset} is committed, and members were done up to {max(behind)}")
    return verdict


def _one_owner(queue: str, items: list[Line], overlap: float, verdict: Verdict) -> None:
    """Two members are given messages of one queue by turns for no longer than a change of the group takes."""
    seen: dict[str, int] = {}
    since = longest = 0
    whose = last = ""
    for line in items:
        now, member = line["t"], line["proc"]
        others = [at for other, at in seen.items() if other != member and now - at < _LEFT * _SECOND]
        mine = seen.get(member, -_SECOND)
        if not others:
            since = 0
        elif now - mine < _LEFT * _SECOND and max(others) > mine:  # it is back after another one
            since = since or mine
            if now - since > longest:
                longest = now - since
                near = [other for other, at in seen.items() if now - at < _LEFT * _SECOND]
                whose = f"{' and '.join(sorted({member, *near}))}, up to offset {line['offset']}"
        verdict.counts["changes of owner"] += bool(seen) and member != last
        seen[member] = now
        last = member
    verdict.counts["longest overlap, ms"] = max(verdict.counts["longest overlap, ms"], longest // 1_000_000)
    if longest > overlap * _SECOND:
        verdict.fault("one owner", f"{queue} had two members for {longest / _SECOND:.1f} s: {whose}")


def _again(queue: str, items: list[Line], looks: list[Look], verdict: Verdict) -> None:
    """What comes again was not committed when the member that it comes to was given the queue."""
    known: set[int] = set()
    #: By member: when it began with the queue, when it was last given something of it, and what.
    tenures: dict[str, tuple[int, int, set[int]]] = {}
    for line in items:
        now, member, offset = line["t"], line["proc"], line["offset"]
        began, last, mine = tenures.get(member, (now, now, set()))
        if now - last > _LEFT * _SECOND or offset in mine:
            began, mine = now, set()
        mine.add(offset)
        tenures[member] = (began, now, mine)
        if offset in known:
            earlier = (look.offsets.get(queue, 0) for look in looks if look.end < began - _ASKED * _SECOND)
            committed = max(earlier, default=0)
            if offset < committed:
                verdict.fault(
                    "again", f"{queue}: {offset} came to {member} again, and {committed} was committed before"
                )
        known.add(offset)


def _in_order(queue: str, items: list[Line], done: Mapping[int, int], verdict: Verdict) -> None:
    """A message comes when all before it are done with, or again."""
    for line in items:
        before = line["offset"] - 1
        if before >= 0 and done.get(before, line["t"] + 1) > line["t"]:
            verdict.fault("order", f"{queue}: {line['proc']} was given {line['offset']} before {before} was done")


def judge_pops(lines: Iterable[Line], sent: Mapping[str, int], *, invisible: float, late: float) -> Verdict:
    """Hold popping members to what is promised: all is consumed, and comes again when its invisible time is over.

    :param sent: key -> when it was acknowledged, ns. :param invisible: seconds. :param late: seconds beyond that which
        a message may take to come again, the death and start of its broker included.
    """
    verdict = Verdict()
    given: dict[str, list[Line]] = defaultdict(list)
    done: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        if line["kind"] == "given":
            given[line["key"]].append(line)
        else:
            done[line["key"]].append(line["t"])
    for key in sent:
        if not done[key]:
            verdict.fault(
                "I6", f"{key} was acknowledged, given {len(given[key])} times, and nobody was ever done with it"
            )
    for key, times in given.items():
        for one, other in itertools.pairwise(times):
            between = (other["t"] - one["t"]) / _SECOND
            was_done = any(one["t"] <= at < other["t"] for at in done[key])
            verdict.counts["given again" if was_done else "given again, never done"] += 1
            if between < invisible - 0.5:
                verdict.fault(
                    "invisible", f"{key} was given to {one['proc']}, and {between:.1f} s later to {other['proc']}"
                )
            if not was_done:
                slow = int(between * 1000)
                verdict.counts["slowest redelivery, ms"] = max(verdict.counts["slowest redelivery, ms"], slow)
                if between > invisible + late:
                    verdict.fault("late", f"{key} was given to {one['proc']}, and again only {between:.1f} s later")
    verdict.counts["consumed"] = len(sent)
    return verdict

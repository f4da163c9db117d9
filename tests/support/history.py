"""What clients did and saw, a line of JSON each, and what must hold over it (reliability.md B.1 and B.3).

A send is ``ok`` (SEND_OK), ``fail`` (refused for sure) or ``unknown`` (anything else: another status, a timeout, a lost
connection). Bodies come from (run, producer, number), so loss, duplication and mixing-up show alike. Nothing of the
product is used here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "FAIL",
    "LARGE",
    "OK",
    "UNKNOWN",
    "Clerk",
    "Place",
    "Seen",
    "Send",
    "Verdict",
    "body_for",
    "digest",
    "judge",
    "read_histories",
    "sends_of",
]

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"

Place = tuple[str, int]


#: Keys that begin so have bodies of 256 bytes to 64 KiB, of every order alike (reliability.md B.4); others up to 3,000.
LARGE = "b"


def body_for(key: str) -> bytes:
    """The body that belongs to a key and to no other."""
    rng = random.Random(key)
    size = int(256 ** (1 + rng.random())) if key.startswith(LARGE) else rng.randint(0, 3000)
    return f"{key}|".encode() + rng.randbytes(size)


def digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


class Clerk:
    """Writes one client's history: one line a write, so that it outlives the client's own end."""

    def __init__(self, folder: Path, name: str, now: Callable[[], int] = time.monotonic_ns) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._now = now
        self._fd = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._number = 0

    def invoke(self, f: str, **what: Any) -> int:
        self._number += 1
        self.line(self._number, "invoke", f, what)
        return self._number

    def done(self, number: int, outcome: str, f: str, **what: Any) -> None:
        self.line(number, outcome, f, what)

    def line(self, number: int, kind: str, f: str, what: dict[str, Any]) -> None:
        item = {"t": self._now(), "proc": self.name, "op": number, "kind": kind, "f": f, **what}
        os.write(self._fd, json.dumps(item).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class Send:
    """One message that was sent; several of one batch share ``batch``."""

    key: str
    topic: str
    queue: int
    sha: str
    begin: int
    end: int = 1 << 62
    outcome: str = UNKNOWN
    offset: int = -1
    batch: str = ""
    #: The answer is a claim of durability (not WAIT=false, not one-way).
    claims: bool = True
    status: int = -1


@dataclass(slots=True)
class Seen:
    """What one reader found: place -> offset -> (key, body digest)."""

    name: str
    places: dict[Place, dict[int, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    #: Lowest offset of each place; messages before it were deleted by retention.
    first: dict[Place, int] = field(default_factory=dict)

    def add(self, topic: str, queue: int, offset: int, key: str, body: bytes) -> None:
        self.places[topic, queue][offset] = (key, digest(body))


@dataclass(slots=True)
class Verdict:
    """Violations, by invariant, and how often what mattered happened."""

    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fault(self, invariant: str, text: str) -> None:
        self.faults.append(f"{invariant}: {text}")

    def demand(self) -> None:
        """Fail with everything that is wrong."""
        assert not self.faults, "\n".join(self.faults[:30])


def read_histories(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of all clients, in the order of the shared monotonic clock; a last half line is skipped."""
    lines: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    continue
    yield from sorted(lines, key=lambda line: line["t"])


def sends_of(lines: Iterable[dict[str, Any]]) -> tuple[dict[str, Send], list[dict[str, Any]]]:
    """Sends by key, and every other line."""
    sends: dict[str, Send] = {}
    by_op: dict[tuple[str, int], list[Send]] = {}
    rest: list[dict[str, Any]] = []
    for line in lines:
        if line["f"] != "send":
            rest.append(line)
            continue
        if line["kind"] == "invoke":
            keys = line["keys"]
            batch = f"{line['proc']}-{line['op']}" if len(keys) > 1 else ""
            made = [
                Send(
                    key, line["topic"], line["queue"], digest(body_for(key)), line["t"],
                    batch=batch, claims=line["claims"],
                )
                for key in keys
            ]  # fmt: skip
            sends |= {send.key: send for send in made}
            by_op[line["proc"], line["op"]] = made
            continue
        for at, send in enumerate(by_op[line["proc"], line["op"]]):
            send.end = line["t"]
            send.outcome = line["kind"]
            send.status = line.get("status", -1)
            if line["kind"] == OK and "offset" in line:
                send.offset = line["offset"] + at
    return sends, rest


def judge(
    lines: Iterable[dict[str, Any]],
    readers: list[Seen],
    *,
    lost_ok: Iterable[str] = (),
    consumed_ok: bool = True,
    all_consumed: bool = False,
    torn: Mapping[str, tuple[str, int, int]] | None = None,
) -> Verdict:
    """Hold the histories against what independent readers found at the end.

    :param lost_ok: keys of acknowledged messages that this configuration may lose (asynchronous flush and a power cut):
        their places are free again.
    :param consumed_ok: consumers may have seen those.
    :param all_consumed: every group has been given all there was to the end (I6).
    :param torn: keys and places (topic, queue, offset) of messages that a power cut may have taken from between others:
        they leave holes.
    """
    verdict = Verdict()
    counts = verdict.counts
    sends, rest = sends_of(lines)
    excused = set(lost_ok)
    for send in sends.values():
        counts[f"send {send.outcome}"] += 1
    for key in excused & sends.keys():
        sends[key].outcome, sends[key].offset = UNKNOWN, -1
    _acks(sends, verdict)
    for seen in readers:
        _reader(seen, sends, verdict, torn or {})
    for one, other in itertools.pairwise(readers):
        for place in sorted(one.places.keys() | other.places.keys()):
            lowest = max(one.first.get(place, 0), other.first.get(place, 0))
            mine = {k: v for k, v in one.places.get(place, {}).items() if k >= lowest}
            theirs = {k: v for k, v in other.places.get(place, {}).items() if k >= lowest}
            if mine != theirs:
                bad = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
                verdict.fault("I10", f"{one.name} and {other.name} differ at {place} {bad[:5]}")
    _events(rest, readers, excused if consumed_ok else set(), verdict)
    if all_consumed:
        _deliveries(sends, rest, verdict)
    return verdict


def _acks(sends: dict[str, Send], verdict: Verdict) -> None:
    """I3 and I5 over the answers alone."""
    owners: dict[tuple[str, int, int], str] = {}
    per_place: dict[Place, list[Send]] = defaultdict(list)
    for send in sends.values():
        if send.outcome != OK or send.offset < 0:
            continue
        place = (send.topic, send.queue, send.offset)
        if place in owners:
            verdict.fault("I3", f"{place} was given to {owners[place]} and to {send.key}")
        owners[place] = send.key
        per_place[send.topic, send.queue].append(send)
    for where, found in per_place.items():
        # Highest offset acknowledged before each send began; a batch's items count as one send.
        done = sorted(found, key=lambda s: s.end)
        at = 0
        highest, whose = -1, None
        for send in sorted(found, key=lambda s: s.begin):
            while at < len(done) and done[at].end < send.begin:
                if done[at].offset > highest:
                    highest, whose = done[at].offset, done[at]
                at += 1
            if whose is not None and send.offset <= highest:
                verdict.fault("I5", f"{where}: {send.key} began after {whose.key} was acknowledged, and lies before it")


def _reader(seen: Seen, sends: dict[str, Send], verdict: Verdict, torn: Mapping[str, tuple[str, int, int]]) -> None:
    name = seen.name
    holes_ok = set(torn.values())
    found: Counter[str] = Counter()
    for place, items in seen.places.items():
        offsets = sorted(items)
        first = seen.first.get(place, 0)
        missing = sorted(set(range(first, offsets[-1])) - items.keys()) if offsets else []
        gaps = [offset for offset in missing if (*place, offset) not in holes_ok]
        verdict.counts["holes of a power cut"] += len(missing) - len(gaps)
        if gaps:
            verdict.fault("I4", f"{name}: {place} has gaps from {first} on: {gaps[:5]}")
        for offset, (key, sha) in items.items():
            send = sends.get(key)
            found[key] += 1
            if send is None:
                verdict.fault("I2", f"{name}: {place} {offset}: {key!r} was never sent")
                continue
            if send.sha != sha or (send.topic, send.queue) != place:
                verdict.fault("I2", f"{name}: {place} {offset}: {key} is not what was sent to {send.topic}")
            if send.outcome == FAIL:
                verdict.fault("I2", f"{name}: {place} {offset}: {key} was refused ({send.status}) and is there")
            if send.outcome == UNKNOWN:
                verdict.counts["unknown and stored"] += 1
    for key, times in found.items():
        if times > 1:
            verdict.fault("I2", f"{name}: {key} is stored {times} times and was sent once")
    batches: dict[str, list[bool]] = defaultdict(list)
    for key, send in sends.items():
        there = key in found
        expired = send.outcome == OK and 0 <= send.offset < seen.first.get((send.topic, send.queue), 0)
        if send.batch and not expired and key not in torn:
            batches[send.batch].append(there)
        if send.outcome == OK and send.claims and not there and not expired:
            verdict.fault(
                "I1", f"{name}: {key} was acknowledged at {send.topic}/{send.queue}/{send.offset} and is lost"
            )
        if send.outcome == OK and send.offset >= 0 and there:
            at = seen.places[send.topic, send.queue].get(send.offset)
            if at is None or at[0] != key:
                verdict.fault("I3", f"{name}: {key} is not at {send.topic}/{send.queue}/{send.offset}, but {at}")
    for batch, parts in batches.items():
        # Without an answer, a crash in the middle of its write may leave the beginning of it, as with Java.
        if parts != sorted(parts, reverse=True):
            verdict.fault("I2", f"{name}: batch {batch} has holes: {parts}")


def _deliveries(sends: dict[str, Send], rest: list[dict[str, Any]], verdict: Verdict) -> None:
    """I6: what was acknowledged reached every group."""
    given: dict[str, set[str]] = defaultdict(set)
    for line in rest:
        if line["f"] == "pull" and line["kind"] == OK:
            given[line["group"]].update(key for _, key, _ in line["items"])
    if not given:
        verdict.fault("I6", "no group was given anything")
    for group, keys in given.items():
        for key, send in sends.items():
            if send.outcome == OK and send.claims and key not in keys:
                verdict.fault("I6", f"{key} was acknowledged, and {group} was never given it")


def _events(rest: list[dict[str, Any]], readers: list[Seen], excused: set[str], verdict: Verdict) -> None:
    """I7: what a consumer was given stays. I18 and I4: committed offsets, as consumers were told of them."""
    #: The newest commit, from when it was sent: one whose answer was lost may have been taken, at once or later.
    sent: dict[tuple[str, str, int], int] = {}
    for line in rest:
        verdict.counts[f"{line['f']} {line['kind']}"] += 1
        if line["f"] == "pull" and line["kind"] == OK:
            place = (line["topic"], line["queue"])
            for offset, key, sha in line["items"]:
                for seen in readers:
                    if offset < seen.first.get(place, 0) or key in excused:
                        continue
                    got = seen.places.get(place, {}).get(offset)
                    if got != (key, sha):
                        verdict.fault("I7", f"{seen.name}: {place} {offset} was given to a consumer as {key}, is {got}")
        elif line["f"] == "commit" and line["kind"] == "invoke":
            if line["offset"] > line["received"]:
                verdict.fault("I4", f"{line['group']} committed {line['offset']}, received {line['received']}")
            sent[line["group"], line["topic"], line["queue"]] = line["offset"]
        elif line["f"] == "offset" and line["kind"] == OK:
            # What a broker says it holds: never more than was committed; less only by what a crash may cost.
            before = sent.get((line["group"], line["topic"], line["queue"]), -1)
            if line["offset"] > before >= 0:
                verdict.fault("I18", f"{line['group']} committed {before}, the broker says {line['offset']}")
            if line["offset"] < line.get("at_least", -1):
                verdict.fault("I18", f"{line['group']} fell back to {line['offset']}, below {line['at_least']}")

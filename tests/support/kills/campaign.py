"""Lives and deaths of one broker under load, then the judgement over all of them."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.faults.os_calls import Rule
from tests.support.history import OK, Seen, Verdict, judge, read_histories, sends_of
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess, Killed, OsTree
from tests.support.kills.load import Load, read_back, scan_back

__all__ = ["LONG", "PIECE", "Campaign", "Cycle", "amount", "shuffled"]

#: The long forms: ``make torture``. RMQ_TORTURE=0.3 runs three tenths of their rounds.
_SHARE = float(os.environ.get("RMQ_TORTURE") or 0)
LONG = _SHARE > 0
#: Which of these pieces, from 0 on: RMQ_TORTURE_PIECE=1 draws other numbers, and goes on with other points.
PIECE = int(os.environ.get("RMQ_TORTURE_PIECE") or 0)
#: Seconds that a life may take to get its messages.
_LONGEST = 20.0


def amount(short: int, long: int) -> int:
    """How many rounds: few in CI, many with ``make torture``."""
    return max(short, round(long * _SHARE))


@dataclass(frozen=True, slots=True)
class Cycle:
    """How one life ends.

    :param point: SIGKILL there; "" = at a time.
    :param seconds: SIGKILL then, at the latest; on a busy machine later, when so many messages have been acknowledged.
    :param stop: SIGTERM instead, after ``seconds``; points of phase ``stop`` need it.
    """

    point: str = ""
    seconds: float = 2.5
    skip: int = 0
    stop: bool = False
    sends: int = 40


@dataclass
class Campaign:
    """One store through many cycles.

    :param folder: everything is kept there.
    :param catalogue: the load of the catalogue (reliability.md B.4), but for files of 256 KiB.
    """

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    seed: int = 1
    producers: int = 6
    catalogue: bool = LONG
    #: Where it died, and how often.
    died: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.broker = BrokerProcess(self.folder / "broker", **self.settings)
        self.seed += 1000 * PIECE
        more = {"producers": 16, "consumers": 2, "pause": 0.03} if self.catalogue else {}
        self.load = Load(
            self.folder / "history", seed=self.seed, catalogue=self.catalogue,
            **({"producers": self.producers, "pause": 0.002} | more),  # type: ignore[arg-type]
        )  # fmt: skip
        self._known = 0

    async def run(self, cycles: Iterable[Cycle]) -> Verdict:
        """All cycles, each asked for when the one before it ended, one clean start, and what the readers then found."""
        async with self.broker:
            for number, cycle in enumerate(cycles):
                await self._cycle(cycle)
                if number % 20 == 19:
                    self._look(f"after cycle {number}")
            address = await self._start()
            await self.load.finish(address)
            places = self.load.places
            pulled = await read_back(address, places=places)
            again = await read_back(address, name="again", places=places)
            assert await self.broker.stop() == 0, self.broker.errors
            self.load.stopped()
            scanned = self._scan()
            address = await self._start()
            restarted = await read_back(address, name="restarted", places=places)
            await self.load.finish(address)
            assert await self.broker.stop() == 0
        self.load.close()
        verdict = self._judge([pulled, again, scanned, restarted])
        verdict.counts.update(self.counts)
        return verdict

    def _judge(self, readers: list[Seen]) -> Verdict:
        return judge(read_histories(self.folder / "history"), readers, all_consumed=True)

    async def _start(self, *rules: Rule) -> str:
        """Start it, however often a rule of phase ``recover`` kills it."""
        began = time.monotonic()
        try:
            address = await self.broker.start(*rules)
        except Killed:
            self._note_death()
            address = await self.broker.start()
        self.counts["starts"] += 1
        self.counts["slowest start ms"] = max(self.counts["slowest start ms"], int((time.monotonic() - began) * 1000))
        return address

    async def _cycle(self, cycle: Cycle) -> None:
        rules = [Rule(cycle.point, "kill", cycle.skip)] if cycle.point else []
        address = await self._start(*rules)
        alive = True
        began = time.monotonic()
        sends = self.load.acknowledged + cycle.sends

        def enough() -> bool:
            lived = time.monotonic() - began
            return lived > cycle.seconds and (self.load.acknowledged >= sends or sending.done() or lived > _LONGEST)

        stopped = False
        sending = asyncio.create_task(self.load.run(address, lambda: not alive or (cycle.stop and enough())))
        try:
            while not enough() and not await self.broker.ended_within(0.02):
                pass
            if cycle.stop and self.broker.running:
                code = await self.broker.stop()
                self.counts["stops"] += 1
                if code == 0:
                    self.counts["clean stops"] += 1
                    stopped = True
                    assert not (self.broker.store / "abort").exists(), "a clean stop leaves no abort file"
            elif self.broker.running:
                await self.broker.kill()
                self.counts["kills by time"] += 1
        finally:
            alive = False
            await sending
        if stopped:
            self.load.stopped()
        self._note_death()
        if self.load.in_flight:
            self.counts["cycles with sends in flight"] += 1

    def _note_death(self) -> None:
        lines = self.broker.lines()
        for line in lines[self._known :]:
            if line.startswith("KILL "):
                self.died[line[5:]] += 1
                self.counts["kills at points"] += 1
        self._known = len(lines)

    def _scan(self) -> Seen:
        return scan_back(OsTree(), str(self.broker.store / "commitlog"), LOG_FILE_SIZE)

    def _look(self, when: str) -> None:
        """Between two lives: every acknowledged message is in the files as they lie there."""
        scanned = scan_back(OsTree(), str(self.broker.store / "commitlog"), LOG_FILE_SIZE)
        there = {key for items in scanned.places.values() for key, _ in items.values()}
        sends, _ = sends_of(read_histories(self.folder / "history"))
        lost = [send.key for send in sends.values() if send.outcome == OK and send.claims and send.key not in there]
        assert not lost, f"{when}: {len(lost)} acknowledged messages are not in the commit log: {lost[:5]}"

    def report(self, title: str, points: Sequence[str] = ()) -> str:
        """Coverage, for people."""
        lines = [f"{title}: {dict(sorted(self.counts.items()))}"]
        if points:
            lines.append(f"  points hit {sum(1 for p in points if self.died[p])} of {len(points)}")
            lines += [f"  {self.died[point]:5} {point}" for point in points]
        return "\n".join(lines)


def shuffled(items: Sequence[str], seed: int) -> list[str]:
    found = list(items)
    random.Random(seed).shuffle(found)
    return found

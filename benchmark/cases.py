"""What is measured, and the least we ask of ourselves beside Java (issue 3, "Speed")."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load.

    :param one_core: server and load share a core: across cores one in flight measures the hypervisor's wake-ups.
    :param per_core: floor of (our messages per CPU second of the broker) / (Java's).
    :param p50: ceiling of our p50 / Java's; ``p99`` likewise.
    """

    work: str
    body: int
    connections: int
    in_flight: int
    per_core: float | None = None
    p50: float | None = None
    p99: float | None = None

    @property
    def one_core(self) -> bool:
        return self.connections * self.in_flight == 1

    @property
    def name(self) -> str:
        size = f"{self.body} B" if self.body < 1024 else f"{self.body // 1024} KB"
        what = f"send {size}" if self.work == "send" else f"pull 32 x {size}"
        return f"{what} {self.connections}x{self.in_flight}"


CASES = (
    Case("send", 128, 16, 16, per_core=2.0, p99=0.25),
    Case("send", 1024, 16, 16, per_core=2.2, p99=0.25),
    Case("send", 128, 16, 1, per_core=2.0),
    Case("send", 1024, 16, 1, per_core=2.0),
    Case("send", 128, 1, 256),
    Case("send", 1024, 1, 256),
    Case("send", 128, 1, 1, p50=1.0, p99=1.0),
    Case("send", 1024, 1, 1, p50=1.0, p99=1.0),
    Case("pull", 1024, 16, 4, per_core=1.5),
    Case("pull", 1024, 1, 1),
)
#: Start to first acknowledged message, and idle memory of both daemons: ceilings of ours / Java's.
START_CEILING = 0.2
IDLE_CEILING = 0.2
PULL_TOPIC = "BenchPullTopic"
PULL_MESSAGES = 64_000


def chosen(words: list[str]) -> list[Case]:
    """The cases whose name holds any of the words (blanks ignored, numbers as a whole); all without words."""
    wanted = [_pattern(word.replace(" ", "").lower()) for word in words]
    return [case for case in CASES if not wanted or any(one.search(_plain(case)) for one in wanted)]


def _plain(case: Case) -> str:
    return case.name.replace(" ", "").lower()


def _pattern(word: str) -> re.Pattern[str]:
    before = r"(?<!\d)" if word[:1].isdigit() else ""
    behind = r"(?!\d)" if word[-1:].isdigit() else ""
    return re.compile(before + re.escape(word) + behind)

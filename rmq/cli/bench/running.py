"""Runs a benchmark: workers until it is enough or Ctrl-C, a line an interval, a summary at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field

import click
import orjson

from rmq.cli.bench.figures import PERCENTILES, Counts, Latencies, summary
from rmq.cli.command import FAILED, is_quiet
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["Bench"]

Send = Callable[[int], Coroutine[None, None, None]]
#: Seconds after a call that failed: where nobody answers, it is not tried as fast as the machine can.
_PAUSE = 0.01


@dataclass(slots=True)
class Bench:
    """One run.

    :param kind: for the summary. :param quantity: messages after which it ends; None: by time, or Ctrl-C.
    :param seconds: after which it ends. :param interval: seconds between two lines. :param json: the summary as JSON.
    :param size: bytes of a body, where they are ours.
    """

    world: World
    kind: str
    quantity: int | None
    seconds: float | None
    interval: float
    json: bool
    size: int | None = None
    all: Counts = field(default_factory=Counts)
    now: Counts = field(default_factory=Counts)
    #: Messages that a worker has taken on, done or not.
    taken: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, messages: int) -> int:
        """How many of these messages are still to be sent; 0: it is enough."""
        if self.enough.is_set():
            return 0
        if self.quantity is not None:
            messages = min(messages, self.quantity - self.taken)
        self.taken += messages
        return messages

    def did(self, messages: int, ms: float, since_stored: float | None = None) -> None:
        """Count a call that did so many messages."""
        for counts in (self.all, self.now):
            counts.done += messages
            counts.calls.add(ms)
            if since_stored is not None:
                counts.stored.add(since_stored)
        if self.quantity is not None and self.all.done + self.all.failed >= self.quantity:
            self.enough.set()

    def failed(self, error: BaseException, messages: int = 1) -> None:
        """Count a call that failed."""
        for counts in (self.all, self.now):
            counts.fail(error, messages)
        if self.quantity is not None and self.all.done + self.all.failed >= self.quantity:
            self.enough.set()

    async def run(self, first: Send | None = None, messages: int = 1, width: int = 0) -> int:
        """Send, so many calls at a time, until it is enough. :returns: 1 where a message failed, or none was done.

        :param first: sends; None: others count what they do. It is called once by itself: where that fails, nothing
            would work. :param messages: of a call. :raises RMQError: what the first call met.
        """
        began = self.world.clock.monotonic()
        if first is not None:
            count = self.take(messages)
            await first(count)
            self.did(count, (self.world.clock.monotonic() - began) * 1000)
        owner = TaskOwner("rmq.bench")
        try:
            for number in range(width if first is not None else 0):
                assert first is not None
                owner.spawn(self._work(first, messages), f"worker {number}")
            owner.spawn(self._report(), "report")
            if self.seconds is not None:
                owner.spawn(self._end(self.seconds), "end")
            with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C: what was measured is told
                await self.enough.wait()
        finally:
            took = self.world.clock.monotonic() - began
            await owner.close()
        self._tell(took)
        return FAILED if self.all.failed or not self.all.done else 0

    async def _work(self, send: Send, messages: int) -> None:
        """Send one after the other; what fails is counted, and the next one comes."""
        clock = self.world.clock
        while count := self.take(messages):
            began = clock.monotonic()
            try:
                await send(count)
            except Exception as error:  # whatever it is: a worker that is gone would not be missed
                self.failed(error, count)
                await asyncio.sleep(_PAUSE)
            else:
                self.did(count, (clock.monotonic() - began) * 1000)

    async def _end(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.enough.set()

    async def _report(self) -> None:
        while True:
            began = self.world.clock.monotonic()
            await asyncio.sleep(self.interval)
            counts, self.now = self.now, Counts()
            if not is_quiet():
                click.echo(self._line(counts, self.world.clock.monotonic() - began), err=self.json)

    def _line(self, counts: Counts, took: float) -> str:
        """Java's words."""
        verb = "Consume" if self.kind == "consumer" else "Send"
        return (
            f"{verb} TPS: {counts.done / took:.0f} | Max RT(ms): {counts.calls.most:.3f} | "
            f"Average RT(ms): {counts.calls.mean:.3f} | {verb} Failed: {counts.failed}"
        )

    def _tell(self, took: float) -> None:
        told = summary(self.kind, self.all, took, self.size)
        if self.json:
            click.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2))
            return
        for line in self._lines(took, told.get("mibPerSecond")):
            click.echo(line)

    def _lines(self, took: float, mib: float | None) -> Iterator[str]:
        rate = self.all.done / took if took > 0 else 0.0
        volume = f", {mib:.2f} MiB a second" if mib is not None else ""
        yield f"{self.all.done} messages in {took:.2f} s: {rate:.0f} a second{volume}; {self.all.failed} failed"
        if self.all.calls.count:
            what = "from its sending to the listener" if self.kind == "consumer" else "of a call"
            yield f"ms {what}: {_times(self.all.calls)}"
        if self.all.stored.count:
            yield f"ms from its storing to the listener: {_times(self.all.stored)}"
        for why, times in sorted(self.all.why.items(), key=lambda one: -one[1]):
            yield f"{times} failed: {why}"


def _times(found: Latencies) -> str:
    named = " ".join(f"p{share:g} {found.percentile(share):.3f}" for share in PERCENTILES)
    return f"mean {found.mean:.3f} {named} max {found.most:.3f}"

"""A nameserver and a broker in virtual time, under odd requests, with a bystander who is to notice nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import FrameError
from rmq.protocol.frame import FrameDecoder
from rmq.testing.cluster import Cluster
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import SimNode
from tests.support.odd.requests import UNKNOWN, Odd
from tests.support.raw_peer import send

__all__ = ["Campaign", "Line", "TimedLoop"]

#: Virtual seconds within which a bystander is answered, whatever the others ask.
PROMPT = 0.05
#: CPU seconds of the longest turn of the loop while a request is served: in a turn nobody else is. A busy machine may
#: take several times as long, so a turn counts as too long when it was each time of several.
STALL = 0.05
GENEROUS = 4
TRIES = 5
#: Virtual seconds within which any request is answered: some wait for a client that does not answer.
PATIENT = 60.0
#: These wait for a message as long as they ask to.
POLLING = frozenset({11, 361, 200050, 200054})
#: "Unknown" of a transaction is answered by nobody, as in Java: it waits for the check.
SILENT = frozenset({37})
#: The opaque of odd requests.
ODD = 7


class Line(asyncio.Protocol):
    """A connection: bytes out, answers by opaque in."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder()
        self.answers: dict[int, Command] = {}
        self.lost = False
        self.news = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.decoder.receive_data(data)
        while (command := self.decoder.next_command()) is not None:
            if command.is_response:
                self.answers[command.opaque] = command
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.news.set()

    async def answer(self, opaque: int, seconds: float) -> Command | None:
        """The answer; None when there is none in that time, or the connection ended."""
        try:
            async with asyncio.timeout(seconds):
                while opaque not in self.answers and not self.lost:
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            pass
        return self.answers.pop(opaque, None)


class Faults(logging.Handler):
    """What was logged as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class TimedLoop(SimLoop):
    """Virtual time; and how much CPU the longest turn has taken, which is what everybody else has to wait."""

    def __init__(self) -> None:
        super().__init__()
        #: Seconds; who looks sets it back.
        self.longest = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()
        self.longest = max(self.longest, time.thread_time() - began)


class Campaign:
    """One store through odd requests and restarts.

    :param node: the machine of both daemons.
    """

    def __init__(self, node: SimNode, settings: dict[str, str] | None = None) -> None:
        self.node = node
        self.settings = settings
        self.found: list[str] = []
        self.answers: Counter[int] = Counter()
        self.requests = 0
        #: CPU seconds of the slowest, and which it was.
        self.slowest: list[tuple[float, str]] = []
        self._cluster: Cluster
        self._faults = Faults()
        self._opaque = 1000

    async def __aenter__(self) -> Campaign:
        logging.getLogger().addHandler(self._faults)
        self._cluster = Cluster("/data", world=self.node.world, settings=self.settings)
        await self._cluster.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._cluster.stop()
        finally:
            logging.getLogger().removeHandler(self._faults)
        self._look("the stop")

    @property
    def broker(self) -> str:
        return self._cluster.broker_addr

    @property
    def namesrv(self) -> str:
        return self._cluster.namesrv_addr

    def codes(self, address: str) -> list[int]:
        """What is served there, some codes that are served elsewhere, and some that nobody knows."""
        app = self._cluster.brokers[0] if address == self.broker else self._cluster.namesrvs[0]
        return [*app.codes, 39, 40, 101, 103, 105, 11, 34, 221, *UNKNOWN]

    async def line(self, address: str) -> Line:
        host, port = address.split(":")
        _, protocol = await self.node.network.connect(Line, host, int(port))
        assert isinstance(protocol, Line)
        return protocol

    async def ask(self, address: str, requests: Iterable[Odd]) -> None:
        """Each request with a bystander beside it, in the same tick."""
        lines = [await self.line(address), await self.line(address)]
        for odd in requests:
            self.requests += 1
            longest = await self._beside(address, odd, lines)
            for _ in range(TRIES):
                if longest < GENEROUS * STALL:
                    break
                longest = min(longest, await self._beside(address, odd, lines))
            else:
                self.found.append(f"{odd}: everybody waits for {longest * 1000:.0f} ms")
            self.slowest = sorted([*self.slowest, (longest, repr(odd))], reverse=True)[:10]
        for line in lines:
            line.transport.close()

    async def _beside(self, address: str, odd: Odd, lines: list[Line]) -> float:
        """One request and a bystander's; the longest turn of the loop, CPU seconds."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TimedLoop)
        for number, line in enumerate(lines):
            if line.lost or line.transport.is_closing():
                lines[number] = await self.line(address)
        line, bystander = lines
        self._opaque += 1
        other = send("BYSTANDER") if address == self.broker else Command(206)
        other.opaque = self._opaque
        loop.longest = 0.0
        line.transport.write(odd.data)
        bystander.transport.write(frame.encode(other))
        if await bystander.answer(self._opaque, PROMPT) is None:
            self.found.append(f"{odd}: the bystander is {'cut off' if bystander.lost else 'not answered'}")
        longest = loop.longest
        await self._own(odd, line)
        self._look(repr(odd))
        return longest

    async def _own(self, odd: Odd, line: Line) -> None:
        """The odd request's own answer."""
        polls = odd.code in POLLING
        brief = odd.oneway or polls or odd.code in SILENT
        answer = await line.answer(ODD, PROMPT if brief else PATIENT)
        if answer is not None:
            self.answers[answer.code] += 1
            if odd.oneway:
                self.found.append(f"{odd}: answered with {answer}")
        elif line.lost:
            try:
                frame.decode(odd.data[4:])
            except FrameError:
                return  # what is no frame ends its own connection
            self.found.append(f"{odd}: its connection is closed")
        elif polls:
            line.transport.close()  # it may be answered later, under the opaque of all
        elif not (odd.oneway or odd.code in SILENT):
            self.found.append(f"{odd}: no answer")

    def said(self) -> str:
        """What was done, for ``-s``, and what was found."""
        slow = "; ".join(f"{seconds * 1000:.0f} ms {what}" for seconds, what in self.slowest[:3])
        answers = ", ".join(f"{code}: {count}" for code, count in self.answers.most_common(8))
        return "\n".join([f"{self.requests} requests, answers {answers}; slowest: {slow}", *self.found[:20]])

    def _look(self, when: str) -> None:
        for text in self._faults.lines:
            self.found.append(f"{when}: {text}")
        self._faults.lines.clear()

    async def restart(self) -> None:
        """Stop, start from what is on the disk, and let ten minutes pass."""
        await self._cluster.stop()
        self._look("the stop")
        self._cluster = Cluster("/data", world=self.node.world, settings=self.settings)
        await self._cluster.start()
        self._look("the start")
        await asyncio.sleep(600)
        self._look("the ten minutes after the start")
        line = await self.line(self.broker)
        for opaque in (1, 2):
            probe = send("BYSTANDER")
            probe.opaque = opaque
            line.transport.write(frame.encode(probe))
            if await line.answer(opaque, 5) is None:
                self.found.append("after the restart a send is not answered")
        line.transport.close()

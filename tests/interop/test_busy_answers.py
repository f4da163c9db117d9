"""What a broker answers that cannot or must not take messages: Java 4.9.4 and ours, under the same conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.golden.broker.live import Listed
from tests.interop.test_answers import both, judge
from tests.support.answers.cases import LATE_S, Ask, Pair, Report, Side
from tests.support.answers.cases_busy import CLOSED, SCENE, asks_of, flooded, prepared
from tests.support.peers import Cluster

#: No check of a transaction comes in between; the rest is what a flood needs to be seen.
SETTINGS = {
    "transactionCheckInterval": "3600000",
    "sendThreadPoolQueueCapacity": "10",
    "flushIntervalCommitLog": "1",
    "diskMaxUsedSpaceRatio": "99",
}
#: Tries, one a second: the disks are looked at every 10 s.
FULL_S = 20

BUSY = "[%s]system busy, start flow control for a while"
CLEANED = "[%s]broker busy, start flow control for a while, period in queue: *ms, size of queue: *"
OVERLOAD = (2, BUSY % "OVERLOAD")
REJECTED = (2, BUSY % "REJECTREQUEST")
PAGE_CACHE = (2, CLEANED % "PCBUSY_CLEAN_QUEUE")
TIMEOUT = (2, CLEANED % "TIMEOUT_CLEAN_QUEUE")
#: Java's, of an append that waits for another one; our appends of a tick are one.
WITHIN_THE_STORE = (1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while")


async def change(text: str, *sides: Side) -> None:
    for side in sides:
        answer = await side.ask(Ask("change", 25, body=text.encode()), LATE_S)
        assert answer is not None
        assert answer.code == 0, answer


async def conditions(pair: Pair) -> None:
    for condition, (closed, opened) in CLOSED.items():
        await change(closed, pair.java, pair.ours)
        for ask in asks_of(condition):
            await pair.compare(ask)
        await change(opened, pair.java, pair.ours)


async def floods(java: Side, ours: Side, addresses: tuple[str, str]) -> None:
    """Both refuse in the same words. How many is a matter of luck: until each kind has come."""
    usual = {(0, ""), OVERLOAD}
    for settings, wanted, allowed in (
        (("", ""), {OVERLOAD}, usual),
        (("waitTimeMillsInSendQueue=0", "waitTimeMillsInSendQueue=60000"), {TIMEOUT}, {*usual, TIMEOUT}),
        (
            ("osPageCacheBusyTimeOutMills=-1", "osPageCacheBusyTimeOutMills=60000"),
            {REJECTED, PAGE_CACHE},
            {*usual, REJECTED, PAGE_CACHE, WITHIN_THE_STORE},
        ),
    ):
        await change(settings[0], java, ours)
        for address in addresses:
            seen: set[tuple[int, str]] = set()
            for _ in range(40):
                seen |= await flooded(address)
                if seen >= wanted:
                    break
            assert wanted <= seen <= allowed, (settings[0], address, seen)
        await change(settings[1], java, ours)


async def full(java: Cluster, pair: Pair) -> None:
    """Nothing is taken, and everything else is answered."""
    daemon = java.brokers[0].daemon
    await asyncio.to_thread(daemon.kill)
    daemon.command.insert(1, "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.1")
    await asyncio.to_thread(daemon.start)
    known = pair.java.known
    await pair.java.close()
    pair.java = Side(java.broker_addr)
    pair.java.known = known
    await change("diskSpaceWarningLevelRatio=10", pair.ours)
    for ask in SCENE:
        await pair.java.ask(ask, LATE_S)
    send = next(asks_of("full disk"))
    for side in (pair.java, pair.ours):
        answer = None
        for _ in range(FULL_S):
            answer = await side.ask(send)
            if answer is not None and answer.code == 14:
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError(f"{side.where} still says {answer}")
    for ask in asks_of("full disk"):
        await pair.compare(ask)


def test_what_a_broker_refuses(say: Callable[[str], None]) -> None:
    java, ours = both("4.9.4", SETTINGS)
    report = Report("4.9.4 (busy)", Listed("busy-4.9.4"))

    async def run() -> None:
        pair = Pair(Side(java.broker_addr), Side(ours.broker_addr), report)
        for side in (pair.java, pair.ours):
            await prepared(side)
        await conditions(pair)
        await floods(pair.java, pair.ours, (java.broker_addr, ours.broker_addr))
        await full(java, pair)
        await pair.close()

    with java, ours:
        asyncio.run(run())
    judge(report, say)

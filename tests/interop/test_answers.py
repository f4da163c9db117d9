"""Whatever is asked of a nameserver or broker, right or wrong: Java's answer and ours, side by side."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import cast

from tests.golden.broker.live import Listed
from tests.integration.namesrv.test_java_answers import CASES as NAMESRV_CASES
from tests.support.answers.cases import LATE_S, Ask, Pair, Report, Side, asked, spoilt
from tests.support.answers.cases_5 import (
    SCENE,
    SETTINGS_OF_5,
    WHOSE,
    asks_of_5,
    learn_handle,
    pops_in_order,
    pops_of_two_queues,
    recalls,
    waiting,
    waiting_in_vain,
)
from tests.support.answers.cases_last import LAST, SERVED_BY_5, last_of_broker, last_of_namesrv, unserved
from tests.support.answers.replay import CASES, SETTINGS, Replay
from tests.support.answers.steps import STEPS
from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster

#: Steps of the recorded run that are requests only; the others wait for what a broker does by itself.
_STEPS = (
    "broker.topic.create.queues_0", "broker.topic.all", "broker.pull.found", "broker.pull.empty_queue_0",
    "broker.pull.group_disabled", "broker.sql.found", "broker.offset.all",
)  # fmt: skip


#: Java makes no topics again before a restart: everything that names an unknown topic would differ after these.
_NOT_ASKED = ("broker.send.auto_create_on", "broker.send.auto_create_on_again")


def bases(cases: Iterable[Ask], good: Collection[str]) -> list[Ask]:
    """One request of each code, and of each set of fields, that was answered well."""
    found: dict[tuple[object, ...], Ask] = {}
    for case in cases:
        if case.code not in LAST and case.id in good and "@bin" not in case.id:
            found.setdefault((case.code, tuple(sorted(case.ext or ())), bool(case.body)), case)
    return list(found.values())


def both(version: str, settings: dict[str, str], *, our_namesrv: bool = True) -> tuple[Cluster, Cluster]:
    """Java's broker and ours. The name server behind Java's is ours too, unless it is to be asked."""
    try:
        java = start_cluster(f"java-{version}", properties=settings, our_namesrv=our_namesrv)
    except ToolMissing as missing:
        skip_or_fail(missing)
    try:
        return java, start_cluster("ours", properties=settings)
    except BaseException:
        java.stop()
        raise


def judge(report: Report, say: Callable[[str], None]) -> None:
    say("\n".join([report.line(), *(f"  {count} × {why}" for why, count in report.accepted.most_common())]))
    faults = report.faults()
    assert not faults, f"{report.line()}\n" + "\n".join(faults[:40])


async def through(
    pair: Pair, cases: Sequence[Ask], good: Collection[str], last: Iterable[Ask], steps: Collection[str] = ()
) -> None:
    """Ask both sides every case, what goes before it first, then every good one spoilt field by field, then the last.

    :param last: what would disturb the others.
    """
    for case in cases:
        if case.id in steps:
            await STEPS[case.id](cast(Replay, pair.java))
            await STEPS[case.id](cast(Replay, pair.ours))
            await pair.java.dispatched()
        await pair.compare(case)
    for base in bases(cases, good):
        for case in spoilt(base):
            await pair.compare(case)
    for silent, together in itertools.groupby(last, lambda case: case.silent):
        if silent:
            await pair.silent(list(together))
        else:
            for case in together:
                await pair.compare(case)
    await pair.close()


def test_a_broker_of_4_9(say: Callable[[str], None]) -> None:
    java, ours = both("4.9.4", SETTINGS | {"enablePropertyFilter": "false"})
    report = Report("4.9.4", Listed("broker-4.9.4"))
    good = {case["id"] for case in CASES if case["response"].get("code") == 0}
    cases = [ask for ask in map(asked, CASES) if ask is not None and ask.id not in _NOT_ASKED]

    async def run() -> None:
        pair = Pair(Side(java.broker_addr), Side(ours.broker_addr), report)
        await through(pair, cases, good, (), _STEPS)

    with java, ours:
        asyncio.run(run())
    judge(report, say)


def test_what_is_asked_of_a_broker_last(say: Callable[[str], None]) -> None:
    """On a pair of its own: what these requests change would be in every answer."""
    java, ours = both("4.9.4", SETTINGS | {"enablePropertyFilter": "false"})
    report = Report("4.9.4 (last)", Listed("last-4.9.4"))

    async def run() -> None:
        pair = Pair(Side(java.broker_addr), Side(ours.broker_addr), report)
        await through(pair, (), (), (*unserved(silent=False), *last_of_broker()))

    with java, ours:
        asyncio.run(run())
    judge(report, say)


def test_a_nameserver_of_4_9(say: Callable[[str], None]) -> None:
    java, ours = both("4.9.4", {}, our_namesrv=False)
    report = Report("4.9.4 (nameserver)", Listed("namesrv-4.9.4"))
    good = {case["id"] for case in NAMESRV_CASES if case["response"].get("code") == 0}
    cases = [ask for ask in map(asked, NAMESRV_CASES) if ask is not None]

    async def run() -> None:
        pair = Pair(Side(java.namesrv), Side(ours.namesrv), report)
        await through(pair, cases, good, (*unserved(silent=True), *last_of_namesrv()))

    with java, ours:
        asyncio.run(run())
    judge(report, say)


def gives_out(case: Ask) -> bool:
    """Whether a spoilt pop is one all the same: what it finds depends on the pops before, and on the time."""
    what = case.spoilt or ""
    refused = (
        "topic=",
        "queueId=7",
        "queueId=9",
        "maxMsgNums=7",
        "maxMsgNums=9",
        "without consumerGroup",
        "without topic",
    )
    return what.startswith("pollTime") or (case.code == 200050 and not what.startswith(refused))


async def learning(pair: Pair, cases: Iterable[Ask]) -> None:
    """Compare, and let each side's later requests name what its earlier answers held."""
    for ask in cases:
        answers = await pair.compare(ask)
        for side, answer in zip((pair.java, pair.ours), answers, strict=True):
            learn_handle(side, answer)


async def woken(pair: Pair) -> None:
    """A pop that waits is answered by the message that comes; one in vain when its time is up."""
    pop, who, message = waiting()
    waits = asyncio.create_task(pair.compare(pop))
    for side in (pair.java, pair.ours):
        async with asyncio.timeout(LATE_S):
            while (answer := await side.ask(who)) is None or (answer.ext or {}).get("pollingNum") != "1":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    await pair.compare(who)
    await pair.compare(message)
    await waits
    await pair.compare(waiting_in_vain())


async def codes_of_unserved(side: Side) -> dict[int, int | None]:
    """What a 5.x server answers otherwise than "unknown" to requests that are said to be served by nobody."""
    answers = {ask.code: await side.ask(ask, LATE_S) for ask in unserved(silent=False)}
    await side.close()
    return {
        code: None if answer is None else answer.code
        for code, answer in answers.items()
        if answer is None or answer.code != 3
    }


def test_what_5_x_adds(say: Callable[[str], None]) -> None:
    java, ours = both("5.3.3", SETTINGS_OF_5, our_namesrv=False)
    report = Report("5.3.3", Listed("broker-5.3.3"))

    async def run() -> None:
        sides = Side(java.broker_addr), Side(ours.broker_addr)
        pair = Pair(*sides, report)
        for side in sides:
            for ask in SCENE:
                assert await side.ask(ask, LATE_S) is not None
            await side.dispatched()
            await side.until(WHOSE, b'"queueId"')
        await learning(pair, asks_of_5())
        for base in asks_of_5():
            for case in spoilt(base):
                if not gives_out(case) and not base.id.startswith("forbidden "):
                    await pair.compare(case)
        for scene in (pops_of_two_queues, pops_in_order, recalls):
            await learning(pair, scene())
        await woken(pair)
        await pair.close()
        for name, address in (("namesrv", java.namesrv), ("broker", java.broker_addr)):
            assert await codes_of_unserved(Side(address)) == SERVED_BY_5[name]

    with java, ours:
        asyncio.run(run())
    judge(report, say)

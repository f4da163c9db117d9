"""C11: a broker dies at every write of a commit, a rollback and their checks; then producers are asked (I2, I6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from rmq.broker.transaction.halves import DISCARD_TOPIC
from rmq.testing.simfiles import SimCrash
from rmq.testing.simworld import Simulation
from tests.support.kills.campaign import LONG
from tests.support.scenes.faulty import in_time
from tests.support.scenes.transactions import COMMIT, ROLLBACK, Asked, TransactionBroker

#: Bytes of the fatal write that reach the log: none, the beginning of a record, all.
KEPT = (0, 60, 1 << 20)
SETTINGS = {"transaction_check_max": 3}


class Death:
    """The process dies in its N-th write of the commit log, after some bytes of it."""

    def __init__(self, broker: TransactionBroker, number: int, keep: int) -> None:
        self._left = number
        self._keep = keep
        self.happened = False
        broker.node.disk._torn = self._torn  # type: ignore[method-assign]

    def _torn(self, path: str) -> int | None:
        if "/commitlog/" not in path or self.happened:
            return None
        self._left -= 1
        if self._left:
            return None
        self.happened = True
        return self._keep


class Producer(Asked):
    """Says of each transaction what its local part did; of ``open`` it never knows."""

    def oneway(self, request: object) -> None:
        super().oneway(request)  # type: ignore[arg-type]
        half, record = self.checks[-1]
        verdict = {"committed": COMMIT, "rolled": ROLLBACK}.get(record.properties["UNIQ_KEY"])
        if verdict is not None:
            self.broker.later(self.broker.end(half, verdict))


def member(broker: TransactionBroker) -> Producer:
    made = Producer("10.0.0.5", 5, broker)
    broker.members.conns.append(made)
    return made


async def _life(broker: TransactionBroker, acknowledged: set[str]) -> None:
    """Three transactions; the producer dies with the broker."""
    halves = {}
    for key in ("committed", "rolled", "open"):
        halves[key] = broker.send(key)
        acknowledged.add(key)
    await broker.end(halves["committed"], COMMIT)
    await broker.end(halves["rolled"], ROLLBACK)


async def _killed_at(number: int, keep: int, *, checked: bool, counts: Counter[str]) -> bool:
    """Whether there was such a write."""
    simulation = Simulation(seed=number)
    broker = TransactionBroker(simulation.node("a"), **SETTINGS)
    await broker.__aenter__()
    acknowledged: set[str] = set()
    death = Death(broker, number, keep)
    try:
        if checked:  # no ends: all three are decided by checks
            for key in ("committed", "rolled", "open"):
                broker.send(key)
                acknowledged.add(key)
            member(broker)
            await asyncio.sleep(8)
        else:
            await _life(broker, acknowledged)
    except SimCrash:
        pass
    if not death.happened:
        await broker.check.close()
        await broker.store.stop()
        return False
    counts["kills"] += 1
    again = await broker.killed(simulation)
    async with again:
        member(again)
        await asyncio.sleep(12)
        delivered = Counter(await again.delivered())
        given_up = {record.properties["UNIQ_KEY"] for record in await again.records(DISCARD_TOPIC)}
        where = f"killed in write {number}, {keep} bytes of it kept"
        assert "committed" not in acknowledged or delivered["committed"], f"I6: {where}: the committed one is lost"
        assert not delivered["rolled"], f"I2: {where}: the rolled back one is delivered"
        assert not delivered["open"], f"I2: {where}: the undecided one is delivered"
        assert "open" not in acknowledged or "open" in given_up, f"{where}: the undecided one is nowhere: {given_up}"
        assert given_up <= {"open"}, f"{where}: {given_up} were given up"
        assert delivered["committed"] <= 2, f"{where}: delivered {delivered['committed']} times"
        counts["delivered twice"] += delivered["committed"] == 2
        counts["undecided given up"] += "open" in given_up
        # The next start changes nothing of it.
        before = await again.delivered()
    broker.node.disk._torn = type(broker.node.disk)._torn.__get__(broker.node.disk)  # type: ignore[method-assign]
    async with TransactionBroker(broker.node, again.offsets, **SETTINGS) as third:
        member(third)
        await asyncio.sleep(5)
        assert await third.delivered() == before
    return True


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("checked", [False, True], ids=["ends", "checks"])
def test_c11_transactions_outlive_kills_at_every_write(checked: bool, say: Callable[[str], None]) -> None:
    counts: Counter[str] = Counter()
    number = 1
    there = True
    while there:
        for keep in KEPT if LONG else KEPT[number % 3 : number % 3 + 1]:
            found: list[bool] = []

            async def one(number: int = number, keep: int = keep, found: list[bool] = found) -> None:
                found.append(await _killed_at(number, keep, checked=checked, counts=counts))

            in_time(one())
            there = found[0]
        number += 1
    say(f"C11 {'checks' if checked else 'ends'}: every one of {number - 2} writes, {dict(counts)}")
    assert counts["kills"] >= 5
    assert counts["undecided given up"]

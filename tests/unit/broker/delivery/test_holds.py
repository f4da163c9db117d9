"""Parked pulls, in virtual time: who is woken, in what order, and when the time is up."""

import asyncio
from collections.abc import Callable
from typing import Any

from rmq.broker.delivery.filtering import EVERYTHING
from rmq.broker.delivery.holds import Hold, Holds, Pull
from rmq.broker.lane.hot_frames import PullFields
from rmq.broker.store.state import Queue
from rmq.protocol.command import SerializeType
from rmq.testing.simloop import run
from rmq.testing.simworld import SimClock


class Conn:
    closed = False


class Desk:
    """Holds with a note of what became of each; ``served`` decides whether a woken one is served."""

    def __init__(self, served: Callable[[Hold], bool] = lambda hold: True) -> None:
        self.events: list[tuple[str, int, float]] = []
        self._decide = served
        self._start = asyncio.get_running_loop().time()
        self.holds = Holds(SimClock(), self._retry, self._expired)

    def _note(self, what: str, hold: Hold) -> None:
        self.events.append((what, hold.pull.opaque, round(asyncio.get_running_loop().time() - self._start, 3)))

    def _retry(self, hold: Hold) -> bool:
        served = self._decide(hold)
        self._note("served" if served else "looked at", hold)
        return served

    def _expired(self, hold: Hold) -> None:
        self._note("expired", hold)

    def park(self, opaque: int, queue: Queue, seconds: float, conn: Any = None) -> Hold:
        fields = PullFields("g", queue.topic, queue.id, 0, 32, 2)
        hold = Hold(Pull(conn or Conn(), opaque, fields, SerializeType.JSON, 0.0), queue, EVERYTHING)
        self.holds.park(hold, seconds)
        return hold


def sim(test: Callable[[], Any]) -> Callable[[], None]:
    def wrapper() -> None:
        run(test())

    wrapper.__name__ = test.__name__
    return wrapper


@sim
async def test_an_arrival_wakes_the_holds_of_its_queue_and_no_others() -> None:
    desk, a, b = Desk(), Queue("T", 0), Queue("T", 1)
    desk.park(1, a, 15)
    desk.park(2, b, 15)
    desk.park(3, a, 15)
    await asyncio.sleep(1)
    desk.holds.wake([a])
    await asyncio.sleep(0)
    assert desk.events == [("served", 1, 1.0), ("served", 3, 1.0)]
    assert desk.holds.count == 1
    await asyncio.sleep(15)
    assert desk.events[2:] == [("expired", 2, 15.0)]
    assert desk.holds.count == 0


@sim
async def test_each_is_answered_at_its_own_deadline() -> None:
    desk, queue = Desk(), Queue("T", 0)
    for opaque, seconds in ((1, 20), (2, 5), (3, 0), (4, 12.5)):
        desk.park(opaque, queue, seconds)
    await asyncio.sleep(30)
    assert desk.events == [("expired", 3, 0.0), ("expired", 2, 5.0), ("expired", 4, 12.5), ("expired", 1, 20.0)]
    assert queue.holds is None


@sim
async def test_a_hold_that_was_served_does_not_expire() -> None:
    desk, queue = Desk(), Queue("T", 0)
    desk.park(1, queue, 5)
    desk.holds.wake([queue])
    await asyncio.sleep(10)
    assert [event[:2] for event in desk.events] == [("served", 1)]


@sim
async def test_refused_messages_leave_the_hold_parked() -> None:
    desk, queue = Desk(served=lambda hold: hold.pull.opaque == 2), Queue("T", 0)
    desk.park(1, queue, 5)
    desk.park(2, queue, 5)
    desk.holds.wake([queue])
    await asyncio.sleep(1)
    assert [event[:2] for event in desk.events] == [("looked at", 1), ("served", 2)]
    await asyncio.sleep(5)
    assert desk.events[-1] == ("expired", 1, 5.0)


@sim
async def test_a_thousand_holds_are_served_sixty_four_a_turn_each_once() -> None:
    desk, queue = Desk(served=lambda hold: False), Queue("T", 0)
    for opaque in range(1000):
        desk.park(opaque, queue, 60)
    desk.holds.wake([queue])
    await asyncio.sleep(0)
    assert len(desk.events) == 64
    await asyncio.sleep(1)
    # Every one was looked at, none twice: holds that stay do not keep the loop busy.
    assert sorted(event[1] for event in desk.events) == list(range(1000))
    assert desk.holds.count == 1000


@sim
async def test_a_closed_connection_takes_its_holds_with_it() -> None:
    desk, queue, conn = Desk(), Queue("T", 0), Conn()
    desk.park(1, queue, 5, conn)
    desk.park(2, queue, 5)
    conn.closed = True
    desk.holds.drop(conn)  # type: ignore[arg-type]
    desk.holds.wake([queue])
    await asyncio.sleep(10)
    assert [event[:2] for event in desk.events] == [("served", 2)]
    assert desk.holds.count == 0


@sim
async def test_release_answers_those_it_is_asked_for() -> None:
    desk, a, b = Desk(), Queue("A", 0), Queue("B", 0)
    desk.park(1, a, 5)
    desk.park(2, b, 5)
    desk.holds.release(lambda hold: hold.queue.topic == "A")
    assert desk.events == [("expired", 1, 0.0)]
    assert desk.holds.count == 1


@sim
async def test_stopping_answers_everybody_and_parks_nobody_for_long() -> None:
    desk, queue = Desk(), Queue("T", 0)
    for opaque in range(3):
        desk.park(opaque, queue, 50)
    desk.holds.close()
    assert [event[:2] for event in desk.events] == [("expired", 0), ("expired", 1), ("expired", 2)]


@sim
async def test_answered_holds_do_not_pile_up_until_their_deadlines() -> None:
    desk, queue = Desk(), Queue("T", 0)
    for opaque in range(20_000):
        desk.park(opaque, queue, 15)
        desk.holds.wake([queue])
        await asyncio.sleep(0)
    assert len(desk.holds._deadlines) <= 1_100

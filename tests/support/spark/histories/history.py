"""Random histories of a stream, judged message by message (docs/spark/promises.md)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from rmq.protocol.errors import RMQError
from rmq.spark.source.advance import OLDEST
from rmq.spark.source.ranges import DataLost, ReadAgain
from tests.support.spark.histories.engine import Engine, Killed
from tests.support.spark.histories.world import TOPIC, Sent, Where, World
from tests.support.spark.memory import NAMESRV, MemoryQueue

__all__ = ["History", "run"]

#: How a batch goes: to its end, or the job is killed before or after planning, between two tasks, or between the sink's
#: write and the commit; or foreachBatch raises.
FATES = ["done"] * 8 + ["unplanned", "planned", "within", "fails", "written"]
HAPPENS = ["send"] * 7 + ["grow", "away", "namesrv"]
TAKES = ["expire", "expire", "anew", "delete", "make", "make", "shrink"]
GROUP = "g"


class History:
    """One query over one topic; a message is known by its number, which its body holds.

    :param limits: of a Spark that asks for portions and tells of ends (4.2 and later).
    """

    def __init__(self, seed: int, *, limits: bool = True) -> None:
        self.rng = rng = random.Random(seed)
        self.world = World(rng, rng.choice([1, 1, 2]), rng.choice([0.0, 0.0, 0.03]))
        self.engine = Engine(self.world.cluster, rng, limits=limits)
        self.engine.began = self._began
        #: ``failOnDataLoss``, and whether a loss was told since the query was last at rest.
        self.strict, self.goes_on = rng.random() < 0.6, False
        self.said = self.world.said
        self.said.append(f"seed {seed}: {'strict' if self.strict else 'loose'}")
        #: What each planned batch's checkpoint knows: queues with messages, as they were when it was planned.
        self.plans: list[dict[Where, MemoryQueue]] = []
        #: Where the query began, in queues that it began with; who was told of; what was read of open batches.
        self.starts: dict[MemoryQueue, int] = {}
        self.beyond = False
        self.told: set[Sent] = set()
        self.tried: dict[int, tuple[str, set[int], set[MemoryQueue]]] = {}
        for _ in range(rng.randint(0, 3)):
            self.world.send()
        self.named: dict[Where, int] = {}
        self.given = self._options()

    def _options(self) -> dict[str, str]:
        """Where to start, and in which portions."""
        given = {"nameServer": NAMESRV, "topic": TOPIC, "columns": "value"}
        there = sorted(self.world.now().items(), key=lambda each: each[0])
        self.begin_at: Callable[[Where, MemoryQueue], int]
        how = self.rng.choice(["earliest", "earliest", "latest", "time", "offsets", "group"])
        self.said.append(how)
        if how in ("earliest", "latest"):
            given["startingOffsets"] = how
            self.begin_at = lambda where, home: home.least if how == "earliest" else home.most
        elif how == "time":
            moment = self.rng.choice([0, *(one.time for one in self.world.messages)])
            given["startingTimestamp"] = str(moment)
            self.begin_at = lambda where, home: next(
                (at for at in range(home.least, home.most) if home.times[at] >= moment), home.most
            )
        elif how == "offsets":
            named = {where: self.rng.choice([-2, -1, self.rng.randint(0, home.most)]) for where, home in there}
            self.named = named
            given["startingOffsets"] = self._offsets()
            self.begin_at = lambda where, home: {-2: home.least, -1: home.most}.get(
                named.get(where, -1), named.get(where, -1)
            )
        else:
            given |= {"startingOffsets": "group", "groupId": GROUP}
            for (broker, queue), home in there:
                if self.rng.random() < 0.5:
                    offsets = self.world.cluster.brokers[broker].offsets
                    offsets[GROUP, TOPIC, queue] = self.rng.randint(0, home.most)
            self.begin_at = lambda where, home: self.world.cluster.brokers[where[0]].offsets.get(
                (GROUP, TOPIC, where[1]), home.least
            )
        if self.rng.random() < 0.4:
            portion = self.rng.choice(["1", "4", "20"])
            if self.engine.limits:
                given["maxOffsetsPerTrigger"] = portion
        if self.rng.random() < 0.3:
            given["minPartitions"] = "3"
        return given

    def _offsets(self) -> str:
        """The starts that are named, without queues that the topic has no more: to name these is an error."""
        document: dict[str, dict[str, int]] = {TOPIC: {}}
        for where, place in self.named.items():
            if self.world.is_offered(where):
                broker, queue = self.world.names_of(where)
                document[TOPIC].setdefault(broker, {})[str(queue)] = place
        return json.dumps(document)

    def step(self) -> None:
        """Something happens, or the query does something."""
        rng, world = self.rng, self.world
        world.sleep(rng.choice([0.05, 1.0, 10.0]))
        what = rng.choice(["batch"] * 12 + ["restart", "lose", "settle", "now", "world"])
        if what == "batch":
            self.batch(rng.choice(FATES))
        if what in ("batch", "world"):
            world.happen(rng.choice(HAPPENS + (TAKES if world.takes else [])))
        elif what == "restart":
            self.said.append(what)
            self.engine.stop()
        elif what == "lose":
            self.lose()
        elif what == "settle":
            self.settle()
        else:
            self.now()

    @property
    def _is_strict(self) -> bool:
        return self.strict and not self.goes_on

    # -- the query ----------------------------------------------------------------------------------------------------

    def _start(self, *, now_only: bool = False) -> None:
        if self.named:
            self.given["startingOffsets"] = self._offsets()
        loose = {} if self._is_strict else {"failOnDataLoss": "false"}
        self.engine.start({**self.given, **loose}, now_only=now_only)

    def batch(self, fate: str = "done", *, now_only: bool = False) -> bool | None:
        """Whether there was a batch; None: the query failed, or was killed."""
        engine, world = self.engine, self.world
        self.said.append(f"batch {engine.number} {fate}")
        world.was_away = TOPIC not in world.cluster.topics or not (
            world.cluster.namesrv_up and all(broker.up for broker in world.cluster.brokers)
        )
        world.closed = {home for where, home in world.now().items() if not world.is_offered(where)}
        between, is_open = world.between, len(engine.offsets) > engine.commits
        try:
            if engine.reader is None:
                self._start(now_only=now_only)
            there = self._readable()
            world.between = between if engine.offsets else 0.0
            engine.begin()
            if engine.limits:
                world.between = between
            if fate == "unplanned":
                raise Killed
            if not engine.plan():
                return False
            world.between = between
            if len(self.plans) < len(engine.offsets):
                self.plans.append(self._known(there, engine.offsets[-1]))
                self._goes_on_from()
                world.known = self.plans[-1]
            if fate == "planned":
                raise Killed
            sent = len(world.messages)
            try:
                rows = engine.read(self._within if fate == "within" else lambda: None)
            finally:
                if is_open:
                    self._look_at(sent)
            self._compare(rows)
            if fate == "fails":
                raise Killed
            engine.write(rows)
            if fate == "written":
                raise Killed
            engine.commit()
            self._done()
        except Killed:
            engine.stop()
        except DataLost as error:
            self.said.append(f"{error}")
            assert self._is_strict, f"a loss where none is one: {self.said}"
            assert self._is_lost(), f"a loss where nothing was lost: {self.said}"
            self.goes_on = True
            engine.stop()
        except ReadAgain as error:
            self.said.append(f"{error}")
            assert not self._is_strict, f"no loss is told: {self.said}"
            assert self._is_lost(), f"read again for no reason: {self.said}"
            engine.stop()
        except RMQError as error:
            self.said.append(f"{error}")
            assert world.was_away, f"the query failed: {self.said}"
            engine.stop()
        else:
            return True
        finally:
            world.between = between
        return None

    def _within(self) -> None:
        if self.rng.random() < 0.5:
            raise Killed
        self.world.happen("send")

    def lose(self) -> None:
        """Some of the newest files of the checkpoint are gone: those of one batch, or an older state was put back."""
        offsets = self.rng.randint(0, min(2, len(self.engine.offsets)))
        if any(self._is_hidden(known) for known in self.plans[-1 - offsets :]):
            return
        self.said.append(f"{offsets} offsets lost")
        self.engine.lose(offsets, max(1, offsets))
        self.plans = self.plans[: len(self.engine.offsets)]
        self._knows(self.plans[-1] if self.plans else {})
        self._tell_again()
        self.tried = {number: kept for number, kept in self.tried.items() if number < len(self.plans)}

    def _tell_again(self) -> None:
        """What was told of messages that the checkpoint has before it again is to be told once more."""
        done = self.engine.commits
        places = self._places(self.engine.offsets[done - 1]) if done else {}
        known = self.plans[done - 1] if done else {}
        # Of a queue that was empty then the checkpoint knows no message, and where it is all the same.
        self.told = {
            one
            for one in self.told
            if done
            and (
                one.where not in places
                or known.get(one.where, one.home) is not one.home
                or one.offset < places[one.where]
            )
        }

    def _is_hidden(self, known: dict[Where, MemoryQueue]) -> bool:
        """Whether a queue was made anew and has lost its first messages since: no oldest message tells that."""
        now = self.world.now()
        return any((there := now.get(where)) is not home and there and there.least for where, home in known.items())

    def settle(self) -> None:
        """All is there again, and the query reads on until there is nothing more: everything is judged."""
        self.said.append("settle")
        between, self.world.between = self.world.between, 0.0
        self.world.rest()
        calm = 0
        for _ in range(3 * len(self.world.messages) + 50):
            calm = calm + 1 if self.batch() is False else 0
            self.world.sleep(10)
            if calm == 2:
                break
        else:
            raise AssertionError(f"the query does not come to rest: {self.said}")
        self._judge()
        self.world.between, self.goes_on = between, False
        self.engine.stop()

    def now(self) -> None:
        """A run with an end."""
        self.said.append("available now")
        self.engine.stop()
        world = self.world
        wanted = [
            one
            for one in world.messages
            if world.is_there(one) and world.is_offered(one.where) and world.cluster.brokers[one.where[0]].up
        ]
        there = world.cluster.namesrv_up and TOPIC in world.cluster.topics
        closed: set[MemoryQueue] = set()
        if not self.engine.limits:
            # One batch: the open one where there is one, one that only tells of a topic made anew, or one without a
            # broker that went away meanwhile.
            is_all = len(self.engine.offsets) == self.engine.commits and self._is_strict
            done = False if self.batch() is not None and is_all and not world.was_away else None
        else:
            while (done := self.batch(now_only=self.engine.reader is None)) is True:
                closed |= world.closed
        self.engine.stop()
        if done is False and there:
            rows = set(self.engine.rows)
            missed = [
                one
                for one in wanted
                if self._wants(one)
                and one.number not in rows
                and world.is_there(one)
                and one.home not in closed | world.closed
                and one not in self.told
            ]
            assert not missed, f"a run ended before {self._of(missed)}: {self.said}"

    # -- what the query is to know -----------------------------------------------------------------------------------

    def _readable(self) -> dict[Where, MemoryQueue]:
        """Queues with messages that are offered by brokers that are there."""
        world = self.world
        return {
            where: home
            for where, home in world.now().items()
            if home.most > home.least and world.is_offered(where) and world.cluster.brokers[where[0]].up
        }

    def _known(self, there: dict[Where, MemoryQueue], text: str) -> dict[Where, MemoryQueue]:
        """Those of the queues that were there when offsets were asked for, are still, and are in the offsets.

        Where a topic was made anew meanwhile, the oldest message in the checkpoint says which of the two it knows. Of
        those that were away it keeps what it knew.
        """
        now, places = self.world.now(), self._places(text)
        oldest = self._by_queue(json.loads(text).get(OLDEST, {}))
        homes = {(one.where, one.time): one.home for one in self.world.messages}
        found = {where: home for where, home in there.items() if now.get(where) is home}
        found |= {where: homes[where, time] for where, (_, time) in oldest.items()}
        found = {where: home for where, home in found.items() if where in places}
        for where, home in self.world.known.items():
            is_up = self.world.cluster.brokers[where[0]].up
            if where in places and where not in there and (not is_up or now.get(where) is home):
                found[where] = home
        return found

    def _began(self, text: str) -> None:
        """The query asked where it begins; what it makes of that counts until its first batch is planned."""
        if self.engine.offsets:
            return
        places = self._places(text)
        wanted = {home: self.begin_at(where, home) for where, home in self.world.now().items() if where in places}
        #: What begins beyond its end, since the topic was made anew, is a loss, and goes on from there.
        self.beyond = any(place > home.most for home, place in wanted.items())
        self.starts = wanted
        self._knows(self._known(self._readable(), text))

    def _goes_on_from(self) -> None:
        """A queue that ends before the query is to begin is read from where it ends when the first batch is planned."""
        if len(self.plans) == 1:
            now, places = self.world.now(), self._places(self.engine.offsets[0])
            ends = {now[where]: min(place, now[where].most) for where, place in places.items() if where in now}
            self.starts = {home: min(place, ends.get(home, home.most)) for home, place in self.starts.items()}

    def _knows(self, known: dict[Where, MemoryQueue]) -> None:
        """The checkpoint knows these queues and no others, also of what went away before."""
        self.world.known = known
        for one in self.world.messages:
            one.known = one.known and known.get(one.where) is one.home

    def _wants(self, one: Sent) -> bool:
        return one.offset >= self.starts.get(one.home, 0)

    # -- judgement ----------------------------------------------------------------------------------------------------

    def _unread(self) -> list[Sent]:
        rows = set(self.engine.rows)
        return [one for one in self.world.messages if self._wants(one) and one.number not in rows]

    def _is_lost(self) -> bool:
        """Whether something unread is gone or not offered, or a queue of the query's is another one now."""
        world = self.world
        now = world.now()
        plans = self.plans[max(0, self.engine.commits - 1) :] or [world.known]
        if self.beyond and self.engine.commits < 2:
            return True
        return any(now.get(where) is not home for known in plans for where, home in known.items()) or any(
            one not in self.told and (not world.is_there(one) or not world.is_offered(one.where))
            for one in self._unread()
        )

    def _look_at(self, sent: int) -> None:
        """An open batch gives out nothing of a topic that was made anew before it is read, also when it fails then.

        :param sent: how many messages there were when its reading began: what comes meanwhile is noticed afterwards.
        """
        known = self.plans[self.engine.number]
        others = [
            one
            for one in map(self.world.messages.__getitem__, self.engine.given_out)
            if one.number < sent and known.get(one.where, one.home) is not one.home
        ]
        excused = not self._is_strict and self.world.was_away
        assert excused or not others, f"read of a topic made anew, {self._of(others)}: {self.said}"

    def _compare(self, rows: list[int]) -> None:
        """A batch that is read again holds the same messages."""
        number, text, found = self.engine.number, self.engine.offsets[self.engine.number], set(rows)
        assert len(found) == len(rows), f"rows twice in one batch: {self.said}"
        text_before, before, closed = self.tried.get(number, ("", found, set()))
        self.tried[number] = text, found, set(self.world.closed)
        if text_before != text:
            return
        strict = self._is_strict
        more = [self.world.messages[row] for row in found - before]
        excused = not strict and (self.world.between > 0 or all(one.home in closed for one in more))
        assert excused or not more, f"{self._of(more)} when read again: {self.said}"
        less = [self.world.messages[row] for row in before - found]
        excused = not strict and all(not self.world.is_there(one) or one.home in self.world.closed for one in less)
        assert excused or not less, f"read again without {self._of(less)}: {self.said}"

    def _done(self) -> None:
        rows = self.engine.rows
        assert len(rows) == len(set(rows)), f"rows twice: {self.said}"
        if not self._is_strict:
            # Of queues that are not offered a batch has nothing, and says so.
            done = self.engine.commits - 1  # later ones may be planned already
            begin, end = (self._places(text) for text in ["{}", *self.engine.offsets][done : done + 2])
            self.told |= {
                one
                for one in self._unread()
                if one.home in self.world.closed
                and self.plans[done].get(one.where, one.home) is one.home
                and begin.get(one.where, 0) <= one.offset < end.get(one.where, 0)
            }

    def _places(self, text: str) -> dict[Where, int]:
        """Offsets as the checkpoint holds them."""
        return self._by_queue(json.loads(text))

    def _by_queue(self, document: dict[str, Any]) -> dict[Where, Any]:
        names = {broker.name: number for number, broker in enumerate(self.world.cluster.brokers)}
        return {
            (names[broker], int(queue)): value
            for broker, values in document.get(TOPIC, {}).items()
            for queue, value in values.items()
        }

    def _judge(self) -> None:
        world, rows = self.world, set(self.engine.rows)
        unwanted = [one for one in world.messages if one.number in rows and not self._wants(one)]
        assert not unwanted, f"rows of before the start, {self._of(unwanted)}: {self.said}"
        strict = self._is_strict
        for one in self._unread():
            if one in self.told:
                continue
            if world.is_there(one):
                if world.is_offered(one.where):
                    raise AssertionError(f"not read: {self._of([one])}: {self.said}")
                owed = strict and world.known.get(one.where) is one.home
            else:
                owed = strict and one.known
            assert not owed, f"lost in silence: {self._of([one])}: {self.said}"
            # A query does not go beyond a queue that is not offered: what expires in it is still to be told, unless it
            # was when the queue was.
            is_open = world.is_offered(one.where) or world.now().get(one.where) is not one.home
            if not world.is_there(one) and (is_open or self._is_behind(one)):
                self.told.add(one)

    def _is_behind(self, one: Sent) -> bool:
        """Whether committed batches end beyond a message, in the queue that it was in."""
        done = self.engine.commits
        return (
            done > 0
            and self.plans[done - 1].get(one.where) is one.home
            and one.offset < self._places(self.engine.offsets[done - 1]).get(one.where, 0)
        )

    def _of(self, those: list[Sent]) -> str:
        return ", ".join(f"{one.number} (queue {one.where}, offset {one.offset})" for one in those)


def run(seeds: range, steps: int = 30, *, limits: bool = True) -> None:
    """:raises AssertionError: a history broke a promise; it says which, and what happened."""
    for seed in seeds:
        history = History(seed, limits=limits)
        try:
            for _ in range(steps):
                history.step()
            history.settle()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}: {history.said}") from error

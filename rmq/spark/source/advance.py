"""How a stream goes forward: where it begins, where its next batch ends, what the group's offsets say meanwhile.

Spark keeps the offsets (its checkpoint is the truth) and calls with those of the last finished batch; all that is
remembered here are clocks and caches. Spark before 4.2 asks where a batch ends without a word of where it begins, and
tells of no trigger and no limit: there the place is remembered as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from rmq.protocol.errors import ConfigError, ConnectFailed, RMQError
from rmq.protocol.queue import MessageQueue
from rmq.spark.cluster.brokers import Bound, Brokers, require_topics
from rmq.spark.options.checked import SourceOptions
from rmq.spark.options.positions import LATEST, META, nested, queues_of
from rmq.spark.source.admission import Admission
from rmq.spark.source.ranges import DataLost, Oldest, Range, ranges_between
from rmq.spark.source.renewal import Renewal, renewed
from rmq.spark.source.resolve import PATIENCE, queues_to_read, resolve, until_answered

__all__ = ["AS_OF", "OLDEST", "Advance", "read_offsets", "write_offsets"]

log = logging.getLogger(__name__)

#: When offsets were made, milliseconds: what tells a topic made anew from one that lost its newest messages.
AS_OF = f"{META}asOf"
#: Where a batch begins in queues that the one before does not name: new ones, and those of the first batch. Spark keeps
#: nowhere where a query began, and asks for it anew when the first batch is read again.
FROM = f"{META}from"
#: The oldest message that each queue had then, ``[offset, store time]``: another one tells of a topic made anew.
OLDEST = f"{META}oldest"
#: Seconds for which an answer without anything new holds: an idle query asks 80 times a second.
_IDLE = 0.2

Offsets = dict[MessageQueue, int]
V = TypeVar("V")


def write_offsets(
    offsets: Mapping[MessageQueue, int], as_of: int, oldest: Mapping[MessageQueue, Oldest] | None = None
) -> dict[str, Any]:
    """Offsets as a checkpoint holds them."""
    known = {OLDEST: nested({queue: [one.offset, one.time] for queue, one in oldest.items()})} if oldest else {}
    return {AS_OF: as_of, **known, **nested(offsets)}


def read_offsets(document: Mapping[str, Any]) -> Offsets:
    """Offsets out of a checkpoint. :raises ConfigError: it was not written by this source."""
    return _of_checkpoint(document, _place)


def read_oldest(document: Mapping[str, Any]) -> dict[MessageQueue, Oldest]:
    """The oldest messages that a checkpoint knows; none where an older version wrote it.

    :raises ConfigError: it was not written by this source.
    """
    return _of_checkpoint(document.get(OLDEST, {}), _oldest)


def _of_checkpoint(document: object, value: Callable[[Any], V]) -> dict[MessageQueue, V]:
    try:
        return queues_of(document, value)
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint holds offsets that are not of rocketmq, or were changed ({error}): "
            "take the checkpoint of this query, or a new one"
        ) from None


def _is_first(document: Mapping[str, Any]) -> bool:
    """Whether offsets are those that a query began with."""
    return FROM in document and document[FROM] == nested(read_offsets(document))


def _place(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an offset")
    return value


def _oldest(value: object) -> Oldest:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("[offset, store time]")
    return Oldest(*map(_place, value))


class Advance:
    """One stream."""

    def __init__(self, options: SourceOptions, brokers: Brokers) -> None:
        self._options = options
        self._brokers = brokers
        self._admission = Admission(options.max_offsets, options.min_offsets, options.max_delay)
        self._target: dict[MessageQueue, Bound] | None = None
        self._is_whole = False
        self._seen: dict[MessageQueue, Bound] = {}
        #: What was seen last of each queue, of those whose broker is away now as well.
        self._ends: dict[MessageQueue, int] = {}
        #: Where this run began, if it began without a checkpoint.
        self._began: dict[str, Any] | None = None
        #: Where the query is, by what was planned or read last.
        self._place: dict[str, Any] | None = None
        #: Whether this run was told once where a batch ends.
        self._has_answered = False
        #: The end of the batch that was planned, or looked at, last.
        self._planned: dict[str, Any] | None = None
        self._idle_until, self._idle_limited = float("-inf"), False
        self._failing_since: float | None = None
        self._committed: Offsets = {}
        self._renewal = Renewal(brokers)
        self._topics: frozenset[str] = frozenset()
        self._served: frozenset[MessageQueue] = frozenset()
        self._unserved: frozenset[MessageQueue] = frozenset()

    def initial(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins, the same as often as a run asks.

        Spark asks when the first batch is read; from 4.2 on also before it is planned.

        :raises RMQError: topics or brokers are missing.
        """
        if self._began is None:
            queues = queues_to_read(self._brokers, self._options)
            self._renewal.remember(queues)  # before it is asked where they begin: see _next
            begin = resolve(self._brokers, self._options, self._options.start, queues, LATEST)
            self._began = {FROM: nested(begin), **self._written(begin)}
        return self._began

    def prepare_available_now(self) -> None:
        """Read up to what there is now, whatever comes later.

        :raises ConfigError: a topic stays away, and that is an error. :raises ConnectFailed: a broker stays away.
        """
        clock = self._brokers.dial.monotonic
        until = clock() + PATIENCE
        while True:
            queues = self._queues()
            missing = [topic for topic in self._options.topics if self._brokers.route(topic, fresh=True) is None]
            if not missing and (self._topics or self._options.topic_pattern is None):
                break
            if clock() >= until:
                if missing and self._options.fail_on_data_loss:
                    require_topics(self._brokers, missing)
                break
            self._brokers.dial.sleep(_IDLE)
        self._target = until_answered(self._brokers, queues, self._brokers.max_offsets)

    def latest(self, start: dict[str, Any] | None, *, limited: bool = True) -> dict[str, Any]:
        """Where the next batch ends: ``start`` itself when there is nothing to read.

        :param start: the end of the last finished batch; None: this Spark does not say.
        :param limited: the options' limits hold.
        :raises DataLost: a queue ends before ``start``, and the query is to fail then.
        :raises TransportError: nobody answered for as long as the options allow.
        """
        clock = self._brokers.dial.monotonic
        # Where it is not told, this may be all that the run asks: it may have an end, and be a single batch.
        last_chance = self._target is not None or (start is None and not self._has_answered)
        if start is not None:
            self.report(start)
        else:
            start = self._place if self._place is not None else self.initial()
        if clock() < self._idle_until and self._target is None and (limited or not self._idle_limited):
            return start
        while True:
            try:
                if last_chance and not self._is_whole:
                    self._await_brokers(read_offsets(start))
                with self._renewal.trying():
                    end = self._next(start, limited, self._now())
                break
            except RMQError as error:
                if self._failing_since is None:
                    self._failing_since = clock()
                if not error.retriable or clock() - self._failing_since >= self._options.pull_timeout:
                    raise
                self._brokers.notices.warn(f"nothing new is known: {error}")
                self._brokers.dial.sleep(_IDLE)
                if not last_chance:  # a run that is told of nothing new would end
                    return start
        self._failing_since, self._has_answered = None, True
        if end is start:
            self._idle_until, self._idle_limited = clock() + _IDLE, limited
        self._place = self._planned = end
        return end

    def _await_brokers(self, begin: Offsets) -> None:
        """A broker that is started again is in no route for a moment: a run with an end would leave it out."""
        clock = self._brokers.dial.monotonic
        until = clock() + PATIENCE
        if self._target is None:
            self._await_ends(self._queues())
        while True:
            served = {(queue.topic, queue.broker_name) for queue in self._served}
            gone = [
                each for each in begin if each.topic in self._topics and (each.topic, each.broker_name) not in served
            ]
            if not gone or clock() >= until:
                break
            for queue in gone:
                self._brokers.forget(queue)
            self._brokers.dial.sleep(_IDLE)
            queues = self._queues()
            if self._target is None:
                self._await_ends(queues)
            else:
                self._target = until_answered(self._brokers, queues, self._brokers.max_offsets)
        self._is_whole = True

    def _await_ends(self, queues: list[MessageQueue]) -> None:
        """Wait for brokers of a run that has an end perhaps: one without goes on where one of them stays away."""
        try:
            until_answered(self._brokers, queues, self._brokers.max_offsets)
        except ConnectFailed as error:
            log.warning("%s: what it has is left for later", error)

    def _now(self) -> dict[MessageQueue, Bound]:
        """Where queues end: for a run with an end, the end of those as well whose broker is away.

        Who reads them waits for the broker. Without it the run would end as if it had read everything; and what a slave
        has not yet is no end either.
        """
        seen = self._brokers.max_offsets(self._queues())
        self._seen = seen
        self._ends.update({queue: bound.offset for queue, bound in seen.items()})
        if self._target is None:
            return seen
        return {
            queue: Bound(min(bound.offset, aim.offset), True)
            if (bound := seen.get(queue)) is not None and bound.by_master
            else aim
            for queue, aim in self._target.items()
        }

    def _next(self, start: dict[str, Any], limited: bool, bounds: Mapping[MessageQueue, Bound]) -> dict[str, Any]:
        begin = read_offsets(start)
        self._renewal.recall(read_oldest(start))
        cut = self._not_served(begin)
        back, made_anew = self._look(begin, bounds, int(start.get(AS_OF, 0)))
        bounds = self._looked_at(bounds)
        restarted = cut | self._restarted(begin, back, made_anew)
        end = dict(begin)
        for queue, bound in bounds.items():
            if queue in restarted:
                continue
            # What a slave has not yet, or a target of this run that an earlier run went beyond, is no step back.
            end[queue] = max(bound.offset, begin.get(queue, 0))
        fresh = self._starts_of_new([queue for queue in end if queue not in begin])
        end = {queue: max(place, fresh.get(queue, 0)) for queue, place in end.items()}
        if limited:
            now = self._brokers.dial.monotonic()
            end = self._admission.admit({**fresh, **begin}, end, now, patient=self._target is None)
            end = {queue: place for queue, place in end.items() if queue in begin or place > 0}
        end.update(restarted)
        if end == begin and not restarted:
            return start
        first = read_offsets(start[FROM]) if _is_first(start) else {}
        starts = {**first, **{queue: place for queue, place in fresh.items() if queue in end}}
        return {**({FROM: nested(starts)} if starts else {}), **self._written(end)}

    def _starts_of_new(self, queues: list[MessageQueue]) -> Offsets:
        """Where queues begin that the query had not begun with. :raises ConnectFailed: a broker does not say."""
        starts = self._brokers.min_offsets(queues) if queues else {}
        for queue in queues:
            if queue not in starts:
                raise ConnectFailed(f"the broker {queue.broker_name} of {queue.topic} does not tell where queues begin")
        for queue, place in starts.items():
            if place:
                self._brokers.notices.warn(
                    f"{queue} is new to the query and begins at {place}: the others have expired"
                )
        return starts

    def _written(self, offsets: Offsets) -> dict[str, Any]:
        return write_offsets(offsets, self._brokers.dial.now_ms(), self._renewal.known(offsets))

    def _queues(self) -> list[MessageQueue]:
        """The queues there are now: new ones of known topics, new topics of a pattern."""
        brokers, options = self._brokers, self._options
        topics: Iterable[str] = options.topics
        if options.topic_pattern is not None:
            topics = brokers.topics(options.topic_pattern)
        found: list[MessageQueue] = []
        for topic in topics:
            queues = brokers.queues(topic)
            if queues is None:
                brokers.notices.warn(f"the topic {topic} has no broker now")
            else:
                found += queues
        self._topics, self._served = frozenset(topics), frozenset(found)
        return found

    def _not_served(self, begin: Offsets) -> Offsets:
        """Queues of our topics that the brokers do not offer to readers any more: nobody else would miss them.

        :returns: those that have less than the query has read, and where they end now.
        :raises DataLost: a topic has fewer queues than it had, messages in the others are unread, and that is an error.
        """
        unserved = frozenset(queue for queue in begin if queue.topic in self._topics and queue not in self._served)
        ends = self._ends_of_cut(unserved) if unserved else {}
        shorter = {queue: end for queue, end in ends.items() if self._renewal.ends_before(queue, end, begin[queue])}
        lost = self._still_cut(shorter.keys() | {queue for queue, end in ends.items() if end > begin[queue]})
        if lost and self._options.fail_on_data_loss:
            raise DataLost(
                f"{lost[0]}: the query is at {begin[lost[0]]}, and the topic has fewer queues now: what is unread of "
                f"{len(lost)} queues is lost (mqadmin updateTopic -r gives them back; failOnDataLoss=false goes on)"
            )
        if unserved - self._unserved:
            log.warning(
                "%d queues of the query may not be read now, such as %s: what is in them waits (mqadmin topicRoute)",
                len(unserved),
                min(unserved),
            )
        self._unserved = unserved
        for queue in shorter:
            self._renewal.forget(queue)
        return shorter

    def _still_cut(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Those that are not offered by a route of this moment either: one of before may have been widened since."""
        open_now = {
            each
            for topic in {queue.topic for queue in queues}
            if self._brokers.route(topic, fresh=True) is not None
            for each in self._brokers.queues(topic) or ()
        }
        return sorted(set(queues) - open_now)

    def _ends_of_cut(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Where those end that a broker which still serves their topic does not offer, as its master says."""
        open_at = {(queue.topic, queue.broker_name) for queue in self._served}
        asked = sorted(each for each in queues if (each.topic, each.broker_name) in open_at)
        ends = self._brokers.max_offsets(asked)
        return {queue: bound.offset for queue, bound in ends.items() if bound.by_master}

    # -- queues that are not what they were ---------------------------------------------------------------------------

    def _look(
        self, begin: Offsets, bounds: Mapping[MessageQueue, Bound], as_of: int
    ) -> tuple[set[MessageQueue], Offsets]:
        """Queues that have not what they had, and those that were made anew, with where they begin now.

        :raises ConnectFailed: it is not known, since a broker went away.
        """
        back = {
            queue
            for queue in begin
            if (bound := self._seen.get(queue)) is not None
            and bound.by_master
            and self._renewal.ends_before(queue, bound.offset, begin[queue])
        }
        self._look_again(begin, back)
        news = {queue for queue, bound in bounds.items() if bound.offset > begin.get(queue, 0)}
        made_anew = self._renewal.made_anew(begin, news | back, as_of)
        if unknown := self._renewal.unknown & (news | back) & self._seen.keys():
            one = min(unknown)
            raise ConnectFailed(f"the broker {one.broker_name} of {one.topic} does not tell its oldest messages")
        return back, made_anew

    def _look_again(self, begin: Offsets, back: Collection[MessageQueue]) -> None:
        """Ask once more where queues end that have not what they had, by a route of this moment.

        One that is seconds old may name the leader of before, which has come back behind the next one.

        :raises ConnectFailed: it was that one.
        """
        for queue in back:
            self._brokers.forget(queue)
        ends = self._brokers.max_offsets(sorted(back)) if back else {}
        for queue in sorted(back):
            bound = ends.get(queue)
            if bound is None or not bound.by_master or not self._renewal.ends_before(queue, bound.offset, begin[queue]):
                raise ConnectFailed(f"{queue}: another broker leads by now, and is asked where it ends")

    def _looked_at(self, bounds: Mapping[MessageQueue, Bound]) -> dict[MessageQueue, Bound]:
        """Where queues end, of the ones whose oldest messages are known now.

        What a queue said before it was looked at may be of a topic that was made anew in between. Kept with the oldest
        message of the new one it would go unnoticed, and messages of the new one up to there would never be read. The
        other way round, an end that is newer than the oldest message, is noticed.

        :raises ConnectFailed: a broker does not say any more.
        """
        learned = sorted(self._renewal.learned & self._seen.keys())
        again = self._brokers.max_offsets(learned) if learned else {}
        for queue in learned:
            if queue not in again:
                raise ConnectFailed(f"the broker {queue.broker_name} of {queue.topic} does not tell where queues end")
        lower = {  # what a slave has not yet is no end
            queue: bound
            for queue, bound in again.items()
            if bound.by_master and bound.offset < self._seen[queue].offset
        }
        self._seen = {**self._seen, **lower}
        return {
            queue: lower[queue] if queue in lower and lower[queue].offset < bound.offset else bound
            for queue, bound in bounds.items()
        }

    def _restarted(self, begin: Offsets, back: Collection[MessageQueue], made_anew: Offsets) -> Offsets:
        """Queues whose offsets count anew, and from where to go on. :raises DataLost: and that is an error."""
        found: Offsets = {}
        for queue in sorted({*back, *made_anew}):
            ends = f", the queue ends at {self._seen[queue].offset}" if queue in self._seen else ""
            if queue in made_anew:
                what, found[queue] = "its topic was made anew", made_anew[queue]
            else:
                what = "the broker lost its newest messages, or the topic was made anew"
                found[queue] = self._seen[queue].offset
                if self._renewal.ends_before(queue, found[queue], 0):
                    self._renewal.forget(queue)
            line = f"{queue}: the query is at {begin[queue]}{ends}: {what}"
            if self._options.fail_on_data_loss:
                raise DataLost(f"{line} (failOnDataLoss=false goes on with what is there)")
            log.warning("%s; going on from %d (failOnDataLoss=false)", line, found[queue])
        return found

    # -- what others see ----------------------------------------------------------------------------------------------

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """What a batch reads: the same for the same offsets, whenever it is asked.

        Spark before 4.2 asks in each run first for the batch from the end of what was planned last to that end. It may
        have finished that batch or not, and says in no other way to :meth:`latest` where it is.
        """
        ends = read_offsets(end)
        self._place = end
        if start == end:
            return []
        said, kept = read_offsets(start), read_offsets(end.get(FROM, {}))
        begin = {**said, **kept} if _is_first(start) else {**kept, **said}
        oldest, as_of = read_oldest(end), int(end.get(AS_OF, 0))
        ranges = ranges_between(begin, ends)
        found = [replace(each, oldest=oldest.get(each.queue), as_of=as_of) for each in ranges]
        if end != self._planned:  # by an earlier run: what this one knows of the queues is not about them
            self._renewal = Renewal(self._brokers)
            found = self._as_planned(found)
        self._planned = end
        return found

    def _as_planned(self, ranges: list[Range]) -> list[Range]:
        """Those whose queues are still what they were when a batch was planned.

        :raises DataLost: a topic was made anew since, and that is an error.
        :raises ConnectFailed: a broker that would tell stays away, and a loss is an error.
        """
        try:
            anew = renewed(self._brokers, ranges)
        except ConnectFailed as error:
            if self._options.fail_on_data_loss:
                raise
            log.warning("%s: whether its topics were made anew is not known (failOnDataLoss=false)", error)
            return ranges
        for each in ranges:
            if each.queue not in anew:
                continue
            line = (
                f"{each.queue}: an open batch ends at {each.end}: its topic was made anew since the batch was planned"
            )
            if self._options.fail_on_data_loss:
                raise DataLost(f"{line} (failOnDataLoss=false goes on with what is there)")
            log.warning("%s; the batch is read without it (failOnDataLoss=false)", line)
        return [each for each in ranges if each.queue not in anew]

    def report_latest(self) -> dict[str, Any] | None:
        """Where the queues end, as far as it is known: a broker that is away has its messages all the same."""
        return nested(self._ends) or None

    def report(self, done: Mapping[str, Any]) -> None:
        """Tell the brokers how far the group is; a failure is only logged, for the checkpoint is the truth."""
        if not self._options.commit:
            return
        offsets = read_offsets(done)
        news = {queue: place for queue, place in offsets.items() if self._committed.get(queue) != place}
        if not news:
            return
        try:
            self._brokers.commit(self._options.group, news)
        except RMQError as error:
            self._brokers.notices.warn(f"the group {self._options.group} is not told how far it is: {error}")
        self._committed.update(news)

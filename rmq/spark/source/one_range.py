"""Pulling a range of a queue, whole and in order, through restarts and moves of its broker.

Answers are read one behind the other into one buffer, where the records stay until their columns are made; the next
pull is under way meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, RequestTimeout, ResponseError, RMQError, TransportError
from rmq.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from rmq.protocol.queue import MessageQueue
from rmq.protocol.subscription import SUB_ALL
from rmq.protocol.sysflags import PULL_SUBSCRIPTION
from rmq.spark.arrow.pieces import record_starts
from rmq.spark.cluster.brokers import CALL_SECONDS, Brokers
from rmq.spark.cluster.links import Link
from rmq.spark.options.checked import Endpoint
from rmq.spark.source.ranges import DataLost, Range

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_RECORDS",
    "Chunk",
    "Pulling",
    "offset_delta",
    "pull_range",
    "pull_request",
]

log = logging.getLogger(__name__)

#: A chunk is handed out when it has this many records or bytes.
CHUNK_RECORDS = 4096
CHUNK_BYTES = 4 << 20
#: Seconds before asking again a broker that has not yet what it had, or that is away.
PAUSE = 0.1
#: Seconds after which a master that ends before our range does has said its last word on it.
SETTLED = 2.0
#: Seconds that a broker may be silent at most, which reads from its disk: who stands still may have a successor.
_SILENCE = 30.0

#: A slave that is behind, a store that loads, or a broker with too much to do answers these.
_NOT_YET = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL})
#: What brokers answer for a queue that the topic has not (Java 4.x, 5.x), among other things.
_NO_SUCH_QUEUE = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER})
#: A slave learns these from its master within seconds.
_TO_BE_LEARNED = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Pulling:
    """How a range is pulled.

    :param expression: tags or a condition, as ``expression_type`` says. :param patience: seconds without progress.
    """

    group: str
    expression: str = SUB_ALL
    expression_type: str = "TAG"
    batch_size: int = 1024
    patience: float = 60.0
    fail_on_data_loss: bool = True

    @property
    def filtered(self) -> bool:
        return self.expression != SUB_ALL


@dataclass(slots=True)
class Chunk:
    """Records in a buffer that is used again as soon as the next chunk is asked for.

    :param starts: where each record begins. :param delta: to be added to the offsets in the records.
    :param lasting: the buffer is not used again.
    """

    buffer: bytearray
    starts: list[int]
    end: int
    delta: int = 0
    lasting: bool = False


def pull_request(endpoint: Endpoint, wanted: Range, offset: int, how: Pulling) -> Command:
    """The pull from an offset of a range on."""
    header = PullMessageRequest(
        consumer_group=endpoint.wrap(how.group),
        topic=endpoint.wrap(wanted.queue.topic),
        queue_id=wanted.queue.queue_id,
        queue_offset=offset,
        max_msg_nums=how.batch_size if how.filtered else min(how.batch_size, wanted.end - offset),
        sys_flag=PULL_SUBSCRIPTION,
        subscription=how.expression,
        expression_type=how.expression_type,
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)


def offset_delta(answer: Command) -> int:
    """What is to be added to the offsets in the records of an answer to a pull."""
    text = (answer.ext or {}).get("offsetDelta")
    return int(text) if text else 0


def pull_range(brokers: Brokers, wanted: Range, how: Pulling) -> Iterator[Chunk]:
    """The records of a range in order; the last chunk may hold some beyond its end.

    :raises DataLost: some are gone, and ``how.fail_on_data_loss``.
    :raises ResponseError: the broker refuses. :raises TransportError: it is away for too long.
    """
    return _Puller(brokers, wanted, how).chunks()


class _Puller:
    def __init__(self, brokers: Brokers, wanted: Range, how: Pulling) -> None:
        self._brokers = brokers
        self._range = wanted
        self._how = how
        self._queue: MessageQueue = wanted.queue
        self._offset = wanted.start
        self._fresh = wanted.fresh
        self._holder = 0
        self._link: Link | None = None
        self._last_asked = ""
        self._asked: int | None = None
        self._chunk = Chunk(bytearray(), [], 0)
        #: When it was last asked for something, since when nothing has come, and since when its end is too early.
        self._waiting_since = 0.0
        self._still_since: float | None = None
        self._ended_since: float | None = None
        #: Seconds that the one who is asked may be silent before the route is looked at again.
        self._silence = CALL_SECONDS

    def chunks(self) -> Iterator[Chunk]:
        end = self._range.end
        chunk = self._chunk
        try:
            while self._offset < end:
                try:
                    answer, size = self._next_answer()
                    if chunk.starts and (chunk.end + size > len(chunk.buffer) or offset_delta(answer) != chunk.delta):
                        yield chunk
                        chunk.starts, chunk.end = [], 0
                    self._take(answer, size)
                except TransportError as error:
                    self._broken(error)
                    continue
                if len(chunk.starts) >= CHUNK_RECORDS or chunk.end >= CHUNK_BYTES:
                    yield chunk
                    chunk.starts, chunk.end = [], 0
            if chunk.starts:
                yield chunk
        finally:
            self._drop_asked()

    # -- one pull -----------------------------------------------------------------------------------------------------

    def _next_answer(self) -> tuple[Command, int]:
        # From here on: Spark takes rows when it wants to, and what it took for the last ones is no time of the broker.
        self._waiting_since = self._brokers.dial.monotonic()
        if self._asked is None:
            self._ask()
        assert self._link is not None
        assert self._asked is not None
        return self._link.head((self._asked,), min(self._silence, max(CALL_SECONDS, min(self._how.patience, _SILENCE))))

    def _ask(self) -> None:
        """Send the pull from where we are, to whoever holds the queue now."""
        if self._link is None or self._link.closed:
            self._connect()
        assert self._link is not None
        self._asked = self._link.post(pull_request(self._brokers.endpoint, self._range, self._offset, self._how))

    def _connect(self) -> None:
        last: TransportError | None = None
        for number, address in self._brokers.addresses(self._queue, self._holder):
            try:
                self._link = self._brokers.link(address)
                self._holder = number
                if address != self._last_asked:
                    self._last_asked, self._ended_since = address, None  # another has not said it yet
                    self._silence = CALL_SECONDS
                return
            except TransportError as error:
                last = error
        assert last is not None
        raise last

    def _take(self, answer: Command, size: int) -> None:
        """Go on from an answer; its records are put into the chunk."""
        link = self._link
        assert link is not None
        self._asked = None
        if answer.code == ResponseCode.SUCCESS:
            header = answer.header(PullMessageResponse)
            begin = self._offset
            if header.next_begin_offset <= begin:
                raise ProtocolError(f"{link.address} answered a pull from {begin} with {header.next_begin_offset}")
            chunk = self._chunk
            at = chunk.end
            if at + size > len(chunk.buffer):  # empty here: a larger one takes its place
                chunk.buffer = bytearray(max(size, CHUNK_BYTES + (1 << 20)))
            self._offset = header.next_begin_offset
            try:
                if header.suggest_which_broker_id != self._holder:
                    self._move(header.suggest_which_broker_id)
                # The next pull is worked on while this one is read and made into columns.
                if self._offset < self._range.end and self._link is link:
                    self._ask()
                link.body(memoryview(chunk.buffer)[at : at + size], CALL_SECONDS)
            except TransportError:
                self._offset = begin
                raise
            chunk.delta = offset_delta(answer)
            chunk.starts += record_starts(chunk.buffer, at, at + size, link.address)
            chunk.end = at + size
            self._moved()
            return
        link.body(memoryview(bytearray(size)), CALL_SECONDS)
        self._take_nothing(answer, link)

    def _move(self, holder: int) -> None:
        """Read on from the broker that the last one suggested, if it is known and has not been silent."""
        for number, address in self._brokers.addresses(self._queue, holder):
            if number == holder and not self._brokers.is_shunned(address):
                self._holder = holder
                self._link = None

    def _take_nothing(self, answer: Command, link: Link) -> None:
        code = answer.code
        if code in _NOT_YET or (self._holder and code in _TO_BE_LEARNED):
            self._wait(ResponseError(code, answer.remark, link.address))
            return
        if code == ResponseCode.TOPIC_NOT_EXIST:
            # Deleted under the reader, who knew it; one that is being made anew is there again in a moment.
            if self._is_settled():
                self._gone(self._offset, self._range.end, "their topic was deleted")
            else:
                self._wait(ResponseError(code, answer.remark, link.address))
            return
        if code not in (
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            if code in _NO_SUCH_QUEUE and self._is_taken_away():
                self._gone(self._offset, self._range.end, "the topic has fewer queues than it had (readQueueNums)")
                return
            raise self._refused(answer, link.address)
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY and answer.remark == "FOUND":
            # Java's slave has found them and keeps them back; what it says of the next offset would skip them.
            self._wait(ResponseError(code, "a slave that does not serve reads: slaveReadEnable=false", link.address))
            return
        header = answer.header(PullMessageResponse)
        offset = self._offset
        if offset < header.min_offset:
            self._gone(offset, header.min_offset, "they have expired")
            return
        # A slave that is behind, and a master that is not, say the same.
        if offset >= header.max_offset:
            if self._holder == 0 and self._is_settled():
                end = self._range.end
                self._gone(offset, end, f"the queue ends at {header.max_offset}: its topic was made anew or lost them")
                return
            self._wait(ResponseError(code, answer.remark, link.address))
            return
        if header.next_begin_offset > offset:
            if self._how.filtered:
                self._offset = header.next_begin_offset
                self._moved()
            else:
                self._gone(offset, header.next_begin_offset, "their records are removed")
            return
        self._wait(ResponseError(code, answer.remark, link.address))

    def _is_taken_away(self) -> bool:
        """Whether the broker serves the topic to readers, without the queue."""
        brokers, queue = self._brokers, self._queue
        brokers.forget(queue)
        served = [each for each in brokers.queues(queue.topic) or () if each.broker_name == queue.broker_name]
        return bool(served) and queue not in served

    def _refused(self, answer: Command, address: str) -> ResponseError:
        remark = " ".join((answer.remark or "no remark").split())
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            remark += f" (make the group {self._how.group} with mqadmin updateSubGroup, or name another: groupId)"
        return ResponseError(answer.code, remark, address)

    # -- standing still -----------------------------------------------------------------------------------------------

    def _gone(self, first: int, after: int, why: str) -> None:
        """Messages up to ``after`` cannot be read any more."""
        after = min(after, self._range.end)
        what = f"{self._queue}: the messages {first} to {after - 1} are gone, {why}"
        if self._fresh:
            log.info("%s; the query had not begun with this queue", what)
        elif self._how.fail_on_data_loss:
            raise DataLost(f"{what} (failOnDataLoss=false goes on without them)")
        else:
            log.warning("%s; going on without them (failOnDataLoss=false)", what)
        self._offset = after
        self._moved()

    def _moved(self) -> None:
        self._still_since = self._ended_since = None

    def _is_settled(self) -> bool:
        """Whether a master has been saying for a while that there is no more: the time it was away does not count."""
        now = self._brokers.dial.monotonic()
        if self._ended_since is None:
            self._ended_since = now
        return now - self._ended_since >= SETTLED

    def _wait(self, why: RMQError) -> None:
        """Let a moment pass; whoever the route then names as the master is asked: another may have been elected.

        :raises RMQError: ``why``, after too long.
        """
        if self._still_since is None:
            self._still_since = self._waiting_since
        if self._brokers.dial.monotonic() - self._still_since >= self._how.patience:
            raise why
        self._brokers.suspect(self._queue)
        self._brokers.dial.sleep(PAUSE)
        self._link, self._holder = None, 0

    def _broken(self, error: TransportError) -> None:
        """The connection is gone: go on from the last whole answer, over a new one."""
        self._brokers.notices.warn(f"{error}; {self._queue.topic} is pulled again")
        self._drop_asked()
        if isinstance(error, RequestTimeout):
            self._silence *= 2  # the same one may be reading from a slow disk
        if self._holder and self._link is not None:
            self._brokers.shun(self._link.address)
        self._ended_since = None
        self._wait(error)

    def _drop_asked(self) -> None:
        """Nobody will read the answer to the last pull: the connection is of no use any more."""
        if self._asked is not None and self._link is not None:
            self._link.close()
        self._asked = None

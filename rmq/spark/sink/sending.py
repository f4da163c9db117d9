"""Sending what a task writes: batches a queue, several at once, each awaited; what fails is sent again.

At most one request is under way for a queue: a broker works with several threads, and the order of rows is the order of
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rmq.protocol import batch
from rmq.protocol.codes import Language, RequestCode, ResponseCode, version_number
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ResponseError, RMQError, TransportError
from rmq.protocol.headers.offset import GetMaxOffsetRequest
from rmq.protocol.headers.send import SendMessageV2Request
from rmq.protocol.names import AUTO_CREATE_TOPIC
from rmq.protocol.queue import MessageQueue
from rmq.protocol.sysflags import PERM_WRITE
from rmq.protocol.tags import string_hash
from rmq.spark.cluster.brokers import CALL_SECONDS, Brokers
from rmq.spark.cluster.links import Link
from rmq.spark.options.checked import SinkOptions
from rmq.spark.sink.rows import Outgoing, RowRefused

__all__ = ["Sender"]

log = logging.getLogger(__name__)

#: Bytes of a request with several messages, and of all that waits to be sent.
REQUEST_BYTES = 1 << 20
WAITING_BYTES = 4 << 20
#: Queues that a task sends to at once.
LANES = 8
#: Seconds before the first new attempt; each further one waits twice as long.
PAUSE = 0.2
#: Queues a new topic gets.
NEW_QUEUES = 4

#: The message is stored, although not yet everywhere it is to be.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_FIRST_WITH_TIMES = version_number(5, 0, 0)


class Sender:
    """The messages of one task; :meth:`flush` at its end waits for the last of them."""

    def __init__(self, brokers: Brokers, options: SinkOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._queues: dict[str, list[MessageQueue]] = {}
        #: Where rows without an order go since a broker has refused some: ``_queues`` stay, for the sake of order.
        self._free: dict[str, list[MessageQueue]] = {}
        self._waiting: dict[MessageQueue, list[Outgoing]] = {}
        self._count = 0
        self._bytes = 0
        self._turn: dict[str, int] = {}
        self._keep_times: set[str] = set()
        self.sent = 0

    def add(self, message: Outgoing) -> None:
        """Take a message; sends when enough have come together. Errors as :meth:`flush`."""
        queue = self._queue(message)
        waiting = self._waiting.setdefault(queue, [])
        waiting.append(message)
        size = self._options.batch_size
        if not message.ordered and len(waiting) >= size:
            self._turn[message.topic] += 1
        self._count += 1
        self._bytes += len(message.body) + len(message.properties)
        lanes = min(LANES, len(self._queues[message.topic]))
        if self._count >= size * lanes or self._bytes >= WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send everything and wait until brokers have it.

        :raises RowRefused: a broker refuses a row. :raises RMQError: it could not be sent, retries included.
        """
        rounds = {queue: self._requests(waiting) for queue, waiting in self._waiting.items()}
        self._waiting, self._count, self._bytes = {}, 0, 0
        while rounds:
            self._send_round([(queue, requests.pop(0)) for queue, requests in rounds.items()])
            rounds = {queue: requests for queue, requests in rounds.items() if requests}

    # -- where to -----------------------------------------------------------------------------------------------------

    def _queue(self, message: Outgoing) -> MessageQueue:
        queues = self._queues.get(message.topic)
        if queues is None:
            queues = self._queues[message.topic] = self._find_queues(message)
            self._turn[message.topic] = string_hash(message.row)
        if message.queue_id is not None:
            return self._named(message, queues)
        if message.sharding_key is not None:
            return queues[abs(string_hash(message.sharding_key)) % len(queues)]
        free = self._free.get(message.topic, queues)
        return free[self._turn[message.topic] % len(free)]

    def _find_queues(self, message: Outgoing) -> list[MessageQueue]:
        topic = message.topic
        found: list[MessageQueue] | None = None
        for attempt in range(self._options.retries + 1):
            if attempt:
                self._brokers.dial.sleep(PAUSE * 2**attempt)  # its brokers may be about to come back
            try:
                self._brokers.route(topic, fresh=attempt > 0)
                if found := self._brokers.queues(topic, PERM_WRITE):
                    return found
                # A broker that makes topics by itself says so by serving this one.
                made = self._brokers.queues(AUTO_CREATE_TOPIC, PERM_WRITE) if found is None else None
            except TransportError:
                if attempt == self._options.retries:
                    raise
                continue
            if made:
                return [
                    MessageQueue(topic, each.broker_name, each.queue_id) for each in made if each.queue_id < NEW_QUEUES
                ]
        if found is None:
            raise RowRefused(f"{message.row}: the topic {topic} does not exist (make it with mqadmin updateTopic)")
        raise RowRefused(
            f"{message.row}: the topic {topic} takes no messages: neither it nor its brokers may be read-only, and "
            "their masters have to be there (mqadmin topicRoute)"
        )

    @staticmethod
    def _named(message: Outgoing, queues: Sequence[MessageQueue]) -> MessageQueue:
        fitting = [
            queue
            for queue in queues
            if queue.queue_id == message.queue_id and message.broker_name in (None, queue.broker_name)
        ]
        if len(fitting) == 1:
            return fitting[0]
        on = "" if message.broker_name is None else f" on {message.broker_name}"
        if not fitting:
            raise RowRefused(f"{message.row}: the topic {message.topic} has no queue {message.queue_id}{on}")
        raise RowRefused(
            f"{message.row}: several brokers have a queue {message.queue_id} of {message.topic}: "
            "name one in a column brokerName"
        )

    # -- requests -----------------------------------------------------------------------------------------------------

    def _requests(self, messages: Iterable[Outgoing]) -> list[list[Outgoing]]:
        """What goes out together: batches; a delayed message alone, since brokers know no delay in a batch."""
        found: list[list[Outgoing]] = []
        size = 0
        most = min(REQUEST_BYTES, self._options.max_body)  # what a broker allows a message it allows a batch of them
        for message in messages:
            length = batch.ITEM_SIZE + len(message.body) + len(message.properties)
            if (
                not found
                or message.delayed
                or found[-1][0].delayed
                or size + length > most
                or len(found[-1]) >= self._options.batch_size
            ):
                found.append([])
                size = 0
            found[-1].append(message)
            size += length
        return found

    def _command(self, queue: MessageQueue, messages: Sequence[Outgoing]) -> Command:
        endpoint = self._brokers.endpoint
        first = messages[0]
        several = len(messages) > 1
        header = SendMessageV2Request(
            producer_group=endpoint.wrap(self._options.group),
            topic=endpoint.wrap(queue.topic),
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=self._brokers.dial.now_ms(),
            flag=0,
            properties=None if several else first.properties.decode(),
            reconsume_times=0,
            batch=several,
        )
        if not several:
            return Command.request(RequestCode.SEND_MESSAGE_V2, header, first.body)
        parts: list[bytes] = []
        for each in messages:
            batch.add(parts, 0, each.body, each.properties)
        return Command.request(RequestCode.SEND_BATCH_MESSAGE, header, b"".join(parts))

    def _send_round(self, requests: Sequence[tuple[MessageQueue, list[Outgoing]]]) -> None:
        """One request a queue, all under way together."""
        failed: list[tuple[MessageQueue, list[Outgoing], RMQError]] = []
        # Of each connection, for its numbers count only there: what it answers no more is not taken for answered.
        awaited: dict[Link, dict[int, tuple[MessageQueue, list[Outgoing]]]] = {}
        ready: list[tuple[MessageQueue, list[Outgoing]]] = []
        for queue, messages in requests:
            try:
                self._check_times(queue, messages[0])
                ready.append((queue, messages))
            except TransportError as failure:
                failed.append((queue, messages, failure))
        for queue, messages in ready:
            try:
                link = self._brokers.link(self._brokers.master(queue))
                opaque = link.post(self._command(queue, messages))
                awaited.setdefault(link, {})[opaque] = (queue, messages)
            except TransportError as failure:
                failed.append((queue, messages, failure))
        for link, requests_there in awaited.items():
            failed += self._collect(link, requests_there)
        for queue, messages, error in failed:
            self._again(queue, messages, error)

    def _collect(
        self, link: Link, awaited: dict[int, tuple[MessageQueue, list[Outgoing]]]
    ) -> list[tuple[MessageQueue, list[Outgoing], RMQError]]:
        """Wait for the answers of one broker; what failed there, and why."""
        failed: list[tuple[MessageQueue, list[Outgoing], RMQError]] = []
        while awaited:
            try:
                answer = link.answer(awaited, self._options.timeout)
            except RMQError as error:
                return failed + [(*request, error) for request in awaited.values()]
            queue, messages = awaited.pop(answer.opaque)
            if answer.code in _STORED:
                self.sent += len(messages)
            else:
                failed.append((queue, messages, ResponseError(answer.code, answer.remark, link.address)))
        return failed

    def _again(self, queue: MessageQueue, messages: list[Outgoing], first: RMQError) -> None:
        """Send what failed once more, as often as the options say.

        :raises RowRefused: a broker refuses a row. :raises RMQError: the last failure.
        """
        error = first
        for attempt in range(self._options.retries + 1):
            if not (error.retriable or getattr(error, "code", None) == ResponseCode.FLOW_CONTROL):
                self._single_out(queue, messages, error)
                return
            if attempt == self._options.retries:
                break
            log.warning("%s to %s: %s", messages[0].row, queue, error)
            self._brokers.suspect(queue)
            self._brokers.dial.sleep(PAUSE * 2**attempt)
            closed = isinstance(error, ResponseError) and error.code == ResponseCode.NO_PERMISSION
            if closed:
                self._look_again(queue.topic)
            to = queue if messages[0].ordered else self._another(queue, attempt, closed)
            failure = self._once(to, messages)
            if failure is None:
                if to.broker_name != queue.broker_name:
                    self._leave(queue, to)
                return
            error = failure
        rows = messages[0].row if len(messages) == 1 else f"{messages[0].row} and {len(messages) - 1} more"
        raise ClientError(f"{rows} could not be sent to {queue.topic}, retries included: {error}")

    def _once(self, queue: MessageQueue, messages: list[Outgoing]) -> RMQError | None:
        """Send one request and wait; why it failed."""
        try:
            self._check_times(queue, messages[0])
            link = self._brokers.link(self._brokers.master(queue))
            answer = link.ask(self._command(queue, messages), self._options.timeout)
        except TransportError as error:
            return error
        if answer.code not in _STORED:
            return ResponseError(answer.code, answer.remark, link.address)
        self.sent += len(messages)
        return None

    def _another(self, queue: MessageQueue, attempt: int, closed: bool) -> MessageQueue:
        """A queue of another broker, if there is one; first the same again, unless it is ``closed``."""
        every = self._queues[queue.topic]
        free = [each for each in self._free.get(queue.topic, every) if each.broker_name != queue.broker_name]
        others = free or [each for each in every if each.broker_name != queue.broker_name]
        return others[attempt % len(others)] if others and (attempt or closed) else queue

    def _leave(self, queue: MessageQueue, to: MessageQueue) -> None:
        """Send nothing more to a broker for the rest of the task: another one took what it did not."""
        every = self._queues[queue.topic]
        left = [each for each in self._free.get(queue.topic, every) if each.broker_name != queue.broker_name]
        self._free[queue.topic] = left or [each for each in every if each.broker_name == to.broker_name]

    def _look_again(self, topic: str) -> None:
        """Send what comes from now on to brokers that let the topic be written.

        One that is to be stopped is made read-only before: the others take over.
        """
        try:
            found = self._brokers.queues(topic, PERM_WRITE)
        except RMQError as error:
            log.warning("%s", error)
            return
        if found:
            self._free[topic] = found

    def _single_out(self, queue: MessageQueue, messages: list[Outgoing], error: RMQError) -> None:
        """A refused batch is sent one by one: the row that is meant gets named."""
        if len(messages) == 1:
            refused = f"{messages[0].row} is refused by {queue.broker_name}: {error}"
            # Of a delivery time that is too far ahead the broker says the same code, and which time it is.
            if (
                isinstance(error, ResponseError)
                and error.code == ResponseCode.MESSAGE_ILLEGAL
                and not messages[0].timed
            ):
                size = len(messages[0].body)
                refused += f" The value has {size} bytes, within the option maxMessageSize ({self._options.max_body})."
            raise RowRefused(refused)
        for message in messages:
            self._send_round([(queue, [message])])

    def _check_times(self, queue: MessageQueue, message: Outgoing) -> None:
        """Java's brokers before 5.0 would deliver at once what is to be kept back for a time: say so instead."""
        if not message.timed:
            return
        address = self._brokers.master(queue)
        if address in self._keep_times:
            return
        header = GetMaxOffsetRequest(topic=self._brokers.endpoint.wrap(queue.topic), queue_id=queue.queue_id)
        answer = self._brokers.link(address).ask(Command.request(RequestCode.GET_MAX_OFFSET, header), CALL_SECONDS)
        if answer.language == Language.JAVA and answer.version < _FIRST_WITH_TIMES:
            raise RowRefused(
                f"{message.row} has a deliverTimestamp, which {queue.broker_name} does not know "
                "(brokers before 5.0 deliver at once): use delayLevel"
            )
        self._keep_times.add(address)

"""A cluster in memory that speaks frames through the :class:`rmq.runtime.dial.Dial` port: no sockets, no waiting."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from rmq.protocol import batch, frame
from rmq.protocol import properties as property_string
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.sysflags import PERM_WRITE
from rmq.runtime.dial import Wire

NAMESRV = "10.0.0.1:9876"


@dataclass(eq=False)
class MemoryQueue:
    """Records by offset; ``least`` is the oldest that is still there."""

    records: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    least: int = 0

    @property
    def most(self) -> int:
        return len(self.records)


@dataclass
class MemoryBroker:
    name: str
    number: int = 0
    #: (topic, queue id) -> queue
    queues: dict[tuple[str, int], MemoryQueue] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    most_a_pull: int = 32
    up: bool = True
    #: It takes connections and requests, and answers nothing.
    hangs: bool = False
    #: What routes say that may be done, and what it lets be done: a route may be old.
    perm: int = 6
    allows: int = 6
    seen: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        #: It stays, whichever number the broker has later.
        self.address = f"10.0.1.{ord(self.name[-1])}:{10911 + self.number}"


class MemoryCluster:
    """Name server and brokers; the clock moves only when somebody sleeps.

    ``before`` is called with (broker, request) before each answer and may raise OSError to cut the connection.
    """

    def __init__(self) -> None:
        self.brokers: list[MemoryBroker] = [MemoryBroker("broker-a")]
        self.topics: dict[str, int] = {}
        self.now = 1_000.0
        self.slept = 0.0
        self.namesrv_up = True
        self.before: Callable[[MemoryBroker, Command], None] = lambda broker, request: None

    @property
    def broker(self) -> MemoryBroker:
        return self.brokers[0]

    def create(self, topic: str, queues: int = 1) -> None:
        self.topics[topic] = queues
        for broker in self.brokers:
            for number in range(queues):
                broker.queues.setdefault((topic, number), MemoryQueue())

    def put(
        self, topic: str, queue: int = 0, count: int = 1, *, broker: int = 0, tags: str = "", body: bytes = b"x"
    ) -> None:
        to = self.brokers[broker].queues[topic, queue]
        for _ in range(count):
            to.records.append(
                encode_record(
                    MessageRecord(
                        topic,
                        queue_id=queue,
                        queue_offset=to.most,
                        store_timestamp=self.now_ms(),
                        body=body,
                        properties={"TAGS": tags} if tags else {},
                    )
                )
            )
            to.times.append(self.now_ms())

    # -- the port -----------------------------------------------------------------------------------------------------

    def connect(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> Wire:
        address = f"{host}:{port}"
        if address == NAMESRV:
            if not self.namesrv_up:
                raise ConnectionRefusedError(111, "Connection refused")
            return _MemoryWire(self, None)
        for broker in self.brokers:
            if broker.address == address and broker.up:
                return _MemoryWire(self, broker)
        raise ConnectionRefusedError(111, "Connection refused")

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(self, broker: MemoryBroker | None, request: Command) -> Command:
        if broker is None:
            return self._name_server(request)
        broker.seen.append(request)
        self.before(broker, request)
        return getattr(self, f"_code_{request.code}")(broker, request, request.ext or {})

    def _name_server(self, request: Command) -> Command:
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return request.reply(0, body=TopicList(topic_list=sorted(self.topics)).encode())
        topic = str((request.ext or {})["topic"])
        up = [broker for broker in self.brokers if broker.up]
        if topic not in self.topics or not up:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        addresses: dict[str, dict[int, str]] = {}
        for broker in up:
            addresses.setdefault(broker.name, {})[broker.number] = broker.address
        count = self.topics[topic]
        route = TopicRouteData(
            broker_datas=[BrokerData(broker_addrs=each, broker_name=name) for name, each in addresses.items()],
            queue_datas=[
                QueueData(name, next(each.perm for each in up if each.name == name), count, 0, count)
                for name in addresses
            ],
        )
        return request.reply(0, body=route.encode(standard=True))

    def _queue(self, broker: MemoryBroker, ext: dict[str, str | None]) -> MemoryQueue:
        return broker.queues.get((str(ext["topic"]), int(ext["queueId"] or 0)), MemoryQueue())

    def _offset(self, request: Command, value: int, name: str = "offset") -> Command:
        reply = request.reply(0)
        reply.ext = {name: str(value)}
        return reply

    def _code_30(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return self._offset(request, self._queue(broker, ext).most)

    def _code_31(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return self._offset(request, self._queue(broker, ext).least)

    def _code_32(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        queue = self._queue(broker, ext)
        return self._offset(request, queue.times[queue.least] if queue.least < queue.most else -1, "timestamp")

    def _code_14(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        found = broker.offsets.get((str(ext["consumerGroup"]), str(ext["topic"]), int(ext["queueId"] or 0)))
        return request.reply(ResponseCode.QUERY_NOT_FOUND) if found is None else self._offset(request, found)

    def _code_15(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        key = (str(ext["consumerGroup"]), str(ext["topic"]), int(ext["queueId"] or 0))
        broker.offsets[key] = int(ext["commitOffset"] or 0)
        return request.reply(0)

    def _code_34(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return request.reply(0)

    _code_35 = _code_34

    def _code_11(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        count = self.topics.get(str(ext["topic"]))
        if count is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{ext['topic']}] not exist")
        if int(ext["queueId"] or 0) >= count:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"queueId[{ext['queueId']}] is illegal")
        queue = self._queue(broker, ext)
        offset, wanted = int(ext["queueOffset"] or 0), int(ext["maxMsgNums"] or 0)
        records: list[bytes] = []
        following = offset
        if offset < queue.least:
            code, following = ResponseCode.PULL_OFFSET_MOVED, queue.least
        elif offset > queue.most:
            code, following = ResponseCode.PULL_OFFSET_MOVED, queue.most
        else:
            expression = ext.get("subscription") or "*"
            tags = None if expression == "*" else {tag.strip() for tag in expression.split("||")}
            while following < queue.most and len(records) < min(wanted, broker.most_a_pull):
                record = queue.records[following]
                following += 1
                if record is not None and (tags is None or any(f"TAGS\x01{tag}".encode() in record for tag in tags)):
                    records.append(record)
            code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
            if following == offset:
                code = ResponseCode.PULL_NOT_FOUND
        reply = request.reply(code, body=b"".join(records))
        reply.ext = {
            "suggestWhichBrokerId": str(broker.number),
            "nextBeginOffset": str(following),
            "minOffset": str(queue.least),
            "maxOffset": str(queue.most),
        }
        return reply

    def _code_310(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        items = [(0, request.body, property_string.decode(ext.get("i")))]
        return self._store(broker, request, ext, items)

    def _code_320(self, broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return self._store(broker, request, ext, batch.decode(request.body))

    def _store(
        self,
        broker: MemoryBroker,
        request: Command,
        ext: dict[str, str | None],
        items: list[tuple[int, bytes, dict[str, str]]],
    ) -> Command:
        if not broker.allows & PERM_WRITE:
            return request.reply(ResponseCode.NO_PERMISSION, f"the broker[{broker.name}] sending message is forbidden")
        topic, number = str(ext["b"]), int(ext["e"] or 0)
        queue = broker.queues.setdefault((topic, number), MemoryQueue())
        for _, body, properties in items:
            record = MessageRecord(
                topic,
                queue_id=number,
                queue_offset=queue.most,
                body=body,
                properties=properties,
                store_timestamp=self.now_ms(),
            )
            queue.records.append(encode_record(record))
            queue.times.append(self.now_ms())
        reply = request.reply(0)
        reply.ext = {"msgId": "", "queueId": str(number), "queueOffset": str(queue.most - 1)}
        return reply


class _MemoryWire:
    def __init__(self, cluster: MemoryCluster, broker: MemoryBroker | None) -> None:
        self._cluster = cluster
        self._broker = broker
        self._decoder = frame.FrameDecoder()
        self._out = bytearray()
        self._cut = False

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        self._decoder.receive_data(data)
        while (request := self._decoder.next_command()) is not None:
            if self._broker is not None and self._broker.hangs:
                continue
            try:
                self._out += frame.encode(self._cluster.answer(self._broker, request))
            except ConnectionError:
                self._cut = True
                return

    def read(self, into: memoryview, timeout: float) -> None:
        if len(self._out) < len(into):
            if self._broker is not None and self._broker.hangs:
                self._cluster.now += timeout
                raise TimeoutError
            raise ConnectionResetError(104, "Connection reset by peer")
        into[:] = self._out[: len(into)]
        del self._out[: len(into)]

    def _check(self) -> None:
        if self._cut or not (self._cluster.namesrv_up if self._broker is None else self._broker.up):
            raise ConnectionResetError(104, "Connection reset by peer")

    def close(self) -> None:
        with contextlib.suppress(BufferError):
            self._out.clear()

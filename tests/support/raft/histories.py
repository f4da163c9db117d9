"""Producers and consumers of ours beside a group of processes, what they saw, and the judgement over it.

Each send is made once, so that a message that is there twice was stored twice; a refusal (code 14) says that it is not
stored, and is taken at its word.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Self

from rmq.aio import AdminClient, Message, MessageExt, MessageQueue, Producer, PushConsumer, ResponseError
from rmq.protocol.errors import RMQError
from tests.support.history import FAIL, OK, UNKNOWN, Clerk, Seen, Verdict, body_for, digest, judge, read_histories
from tests.support.raft.processes import ProcessGroup
from tests.support.store_scan import Record
from tests.support.virtual import eventually

__all__ = ["TOPIC", "GroupLoad", "judged"]

TOPIC, QUEUES = "Histories", 4
_GROUP = "histories"
#: What says that a message is not stored: the broker leads no more, or is busy.
_REFUSED = frozenset({2, 14})
#: Seconds between two sends of a producer; longer after one that failed.
_PAUSE = 0.01


class GroupLoad:
    """Producers that send on whatever happens, and a consumer of all that; each writes its history.

    :param late: some messages are delayed by a second, too.
    """

    def __init__(self, group: ProcessGroup, *, producers: int = 3, late: bool = False) -> None:
        self.group = group
        self.folder = group.folder / "history"
        self.admin = AdminClient(namesrv=group.namesrv, mq_client_api_timeout=20.0)
        self.acknowledged = 0
        #: Sends since the last one that was.
        self._failed = 0
        #: Keys of delayed messages that were acknowledged, and those that came.
        self.late_sent: set[str] = set()
        self.late_given: set[str] = set()
        self._late = late
        self._given: set[str] = set()
        self._sent: set[str] = set()
        self._ended = asyncio.Event()
        self._clerks = [Clerk(self.folder, f"p{number}") for number in range(producers)]
        self._reader = Clerk(self.folder, "c0")
        self._producer = Producer(
            "histories", namesrv=group.namesrv, retry_times_when_send_failed=0, send_msg_timeout=4.0
        )
        self._consumer = PushConsumer(_GROUP, namesrv=group.namesrv)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.admin.start()
        for topic in (TOPIC, f"{TOPIC}Late"):
            make = partial(
                self.admin.create_and_update_topic, topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES
            )
            await self.group.asked(make)
        await self._producer.start()

        @self._consumer.on(TOPIC)
        async def take(message: MessageExt) -> None:
            key = _key(bytes(message.body))
            items = [(message.queue_offset, key, digest(bytes(message.body)))]
            op = self._reader.invoke("pull", topic=TOPIC, queue=message.queue_id)
            self._reader.done(op, OK, "pull", group=_GROUP, topic=TOPIC, queue=message.queue_id, items=items)
            self._given.add(key)

        @self._consumer.on(f"{TOPIC}Late")
        async def take_late(message: MessageExt) -> None:
            self.late_given.add(_key(bytes(message.body)))

        await self._consumer.start()
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(len(self._clerks))]
        await self.more()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._consumer.shutdown()
        await self._producer.shutdown()
        await self.admin.shutdown()
        for clerk in (*self._clerks, self._reader):
            clerk.close()

    async def _send(self, number: int) -> None:
        clerk, count = self._clerks[number], 0
        while not self._ended.is_set():
            count += 1
            self._failed += 1
            key, queue = f"{number}.{count:06d}", (number + count) % QUEUES
            pause = 5 * _PAUSE
            op = clerk.invoke("send", keys=[key], topic=TOPIC, queue=queue, claims=True)
            try:
                result = await self._producer.send(
                    Message(TOPIC, body_for(key)), queue=MessageQueue(TOPIC, "group", queue)
                )
            except ResponseError as error:
                clerk.done(op, FAIL if error.code in _REFUSED else UNKNOWN, "send", status=error.code)
            except RMQError:
                clerk.done(op, UNKNOWN, "send", status=-3)
            else:
                if result.send_status.name == "SEND_OK":
                    clerk.done(op, OK, "send", status=0, offset=result.queue_offset)
                    self._sent.add(key)
                    self.acknowledged += 1
                    self._failed = 0
                    pause = _PAUSE
                else:
                    clerk.done(op, UNKNOWN, "send", status=-1)
            if self._late and count % 20 == 0:
                await self._send_late(f"late{key}")
            await asyncio.sleep(pause)

    async def _send_late(self, key: str) -> None:
        try:
            result = await self._producer.send(Message(f"{TOPIC}Late", body_for(key), delay_level=1))
        except RMQError:
            return
        if result.send_status.name == "SEND_OK":
            self.late_sent.add(key)

    async def more(self, count: int = 30, within: float = 90.0) -> None:
        """Wait until some more were acknowledged."""
        wanted = self.acknowledged + count
        await eventually(lambda: self.acknowledged >= wanted, within)

    async def none(self, within: float = 90.0) -> None:
        """Wait until so many sends in a row have failed that every producer has seen some."""
        await eventually(lambda: self._failed >= 4 * len(self._clerks), within)

    async def silence(self) -> None:
        """Send no more."""
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def finish(self) -> None:
        """Send no more; wait until the consumer has everything, and all members have the same."""
        await self.silence()
        await eventually(lambda: self._sent <= self._given and self.late_sent <= self.late_given, 90, 0.05)
        await self.group.alike()


def _key(body: bytes) -> str:
    return body.partition(b"|")[0].decode()


def _seen(name: str, records: list[Record]) -> Seen:
    seen = Seen(name)
    for record in records:
        if record.topic == TOPIC:
            seen.add(TOPIC, record.queue_id, record.queue_offset, _key(record.body), record.body)
    return seen


def judged(load: GroupLoad) -> Verdict:
    """After the group has stopped: the histories against the log of each member, and one leader a term."""
    logs = load.group.logs()
    verdict = judge(
        read_histories(load.folder), [_seen(name, records) for name, records in logs.items()], all_consumed=True
    )
    for term, names in sorted(load.group.terms().items()):
        if len(names) > 1:
            verdict.fault("I16", f"{' and '.join(sorted(names))} led in term {term}")
    verdict.counts["terms with a leader"] = len(load.group.terms())
    return verdict

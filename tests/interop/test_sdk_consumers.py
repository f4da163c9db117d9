"""What our consumers have besides listeners, on both surfaces, at Apache's brokers and at ours: polls of queues chosen
and shared, pulls on time, offsets of one's own, and every hook.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

import rmq
import rmq.aio
from rmq import Hook, Message, MessageExt, MessageQueue
from rmq.protocol.command import Command
from rmq.protocol.errors import NotFound, ResponseError
from tests.support.interop import Clusters, fresh, until
from tests.support.peers import Cluster
from tests.support.peers.process import PATIENCE

FIRST = "CONSUME_FROM_FIRST_OFFSET"


class Surface:
    """The clients of one of the two modules, called alike: what they await is awaited here, on one loop."""

    def __init__(self, module: ModuleType, cluster: Cluster) -> None:
        self.module = module
        self.cluster = cluster
        self._runner = asyncio.Runner()
        self._begun: list[Any] = []
        #: Messages that were handed to listeners, or pulled.
        self.got: list[MessageExt] = []

    def run(self, method: Callable[..., Any], *given: Any) -> Any:
        """Call a method where its client lives."""

        async def there() -> Any:
            result = method(*given)
            return await result if inspect.isawaitable(result) else result

        return method(*given) if self.module is rmq else self._runner.run(there())

    def until(self, done: Callable[[], Any]) -> Any:
        def ask() -> Any:
            self._runner.run(asyncio.sleep(0.02))  # asyncio's clients work on while this runs
            return done()

        found = until(ask, bool)
        assert found
        return found

    def begin(self, client: Any) -> Any:
        self._begun.append(client)
        self.run(client.start)
        return client

    def end(self, client: Any) -> None:
        self._begun.remove(client)
        self.run(client.shutdown)

    def close(self) -> None:
        for client in [*self._begun]:
            self.end(client)
        self._runner.close()

    def make(self, kind: str, group: str, **options: Any) -> Any:
        return getattr(self.module, kind)(group, namesrv=self.cluster.namesrv, **options)

    def function(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A function as this surface has them: plain, or a coroutine function."""
        if self.module is rmq:
            return plain

        @functools.wraps(plain)
        async def there(*given: Any) -> Any:
            return plain(*given)

        return there

    def topic(self, queues: int = 2) -> str:
        name = fresh("consumers")
        with rmq.AdminClient(namesrv=self.cluster.namesrv) as admin:
            for broker in self.cluster.brokers:
                admin.create_and_update_topic(broker.addr, name, read_queue_nums=queues, write_queue_nums=queues)

            def known() -> bool:
                try:
                    return len(admin.topic_route(name).queue_datas) == len(self.cluster.brokers)
                except (NotFound, ResponseError):  # Java's tell the name servers behind their answer
                    return False

            until(known, bool)
        return name

    def send(self, topic: str, count: int, first: int = 0, **options: Any) -> None:
        """Numbers, one after the other in turn over the queues."""
        with rmq.Producer(fresh("p"), namesrv=self.cluster.namesrv, **options) as producer:
            queues = sorted(producer.fetch_publish_message_queues(topic))
            for number in range(first, first + count):
                assert producer.send(Message(topic, str(number)), queue=queues[number % len(queues)]).ok

    def numbers(self) -> list[int]:
        return sorted(int(message.body) for message in self.got)


@pytest.fixture(params=["java-4.9.4", "java-5.3.3", "ours"])
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(params=[rmq, rmq.aio], ids=["blocking", "asyncio"])
def on(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Surface]:
    made = Surface(request.param, cluster)
    yield made
    made.close()


def poll(on: Surface, consumer: Any, count: int) -> list[int]:
    """Numbers of so many messages polled."""
    on.got.clear()
    while len(on.got) < count:
        messages = on.run(consumer.poll, 60)
        assert messages, on.numbers()
        on.got += messages
    return on.numbers()


def test_polls_of_queues_that_are_assigned_move_pause_and_commit(on: Surface) -> None:
    topic, group = on.topic(), fresh("g")
    on.send(topic, 10)
    consumer = on.begin(on.make("LitePullConsumer", group, auto_commit=False, pull_batch_size=2))
    first, second = sorted(on.run(consumer.fetch_message_queues, topic))[:2]
    on.run(consumer.assign, [first, second])
    on.until(lambda: len(consumer.assignment) == 2)
    for queue in (first, second):
        on.run(consumer.seek_to_begin, queue)
    assert poll(on, consumer, 10) == list(range(10))
    on.run(consumer.commit)
    assert [on.run(consumer.committed, queue) for queue in (first, second)] == [5, 5]
    on.run(consumer.seek, first, 3)
    assert poll(on, consumer, 2) == [6, 8]
    on.run(consumer.pause, [first])
    on.send(topic, 4, 10)
    assert poll(on, consumer, 2) == [11, 13]
    on.run(consumer.resume, [first])
    assert poll(on, consumer, 2) == [10, 12]
    on.run(consumer.seek_to_end, second)
    on.send(topic, 2, 14)
    assert poll(on, consumer, 2) == [14, 15]
    stored = on.run(consumer.view_message, on.got[0].offset_msg_id).store_timestamp
    assert on.run(consumer.offset_for_timestamp, on.got[0].message_queue, stored) == on.got[0].queue_offset
    on.run(consumer.commit)
    on.end(consumer)
    # Another one goes on where the group is.
    on.send(topic, 2, 16)
    after = on.make("LitePullConsumer", group)
    after.subscribe(topic)
    on.begin(after)
    assert poll(on, after, 2) == [16, 17]


def test_polls_of_queues_that_are_shared_and_who_is_told(on: Surface) -> None:
    topic, group = on.topic(4), fresh("g")
    told: list[tuple[str, int]] = []
    members = []
    for number in range(2):
        listener = on.function(lambda topic, queues, mine: told.append((topic, len(mine))))
        made = on.make("LitePullConsumer", group, message_queue_listener=listener, consume_from_where=FIRST)
        made.subscribe(topic)
        members.append(on.begin(made))
        share = 4 * len(on.cluster.brokers) // (number + 1)
        on.until(lambda: all(len(one.assignment) == share for one in members))  # noqa: B023 - called here
    on.until(lambda: (topic, 2 * len(on.cluster.brokers)) in told)
    on.send(topic, 16)
    end = time.monotonic() + PATIENCE
    while len(on.got) < 16 and time.monotonic() < end:
        for member in members:
            on.got += on.run(member.poll, 0.5)
    assert on.numbers() == list(range(16))


def test_pulls_on_time(on: Surface) -> None:
    topic, group = on.topic(), fresh("g")
    on.send(topic, 10)
    consumer = on.make("ScheduledPullConsumer", group)

    def blocking(queue: MessageQueue) -> float:
        offset = max(0, consumer.fetch_consume_offset(queue))
        result = consumer.pull(queue, "*", offset)
        consumer.update_consume_offset(queue, result.next_begin_offset)
        on.got.extend(result.messages)  # the last: who has seen it shuts down
        return 0.1

    async def coroutine(queue: MessageQueue) -> float:
        offset = max(0, await consumer.fetch_consume_offset(queue))
        result = await consumer.pull(queue, "*", offset)
        consumer.update_consume_offset(queue, result.next_begin_offset)
        on.got.extend(result.messages)
        return 0.1

    consumer.on(topic)(blocking if on.module is rmq else coroutine)
    on.begin(consumer)
    on.until(lambda: len(on.got) >= 10)
    on.send(topic, 4, 10)
    on.until(lambda: len(on.got) >= 14)
    assert on.numbers() == list(range(14))
    on.end(consumer)
    with rmq.AdminClient(namesrv=on.cluster.namesrv) as admin:
        table = admin.consume_stats(group).offset_table
    assert sum(one.consumer_offset for queue, one in table.items() if queue.topic == topic) == 14


class Offsets:
    def __init__(self) -> None:
        self.table: dict[MessageQueue, int] = {}

    def read(self, group: str, queue: MessageQueue) -> int | None:
        return self.table.get(queue)

    def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.table.update(offsets)


class CoroutineOffsets:
    def __init__(self, plain: Offsets) -> None:
        self._plain = plain

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        return self._plain.read(group, queue)

    async def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._plain.write(group, offsets)


def test_a_group_goes_on_at_offsets_of_its_own(on: Surface) -> None:
    topic, group, kept = on.topic(), fresh("g"), Offsets()
    on.send(topic, 10)
    for expected, more in ((range(10), 4), (range(14), 0)):
        store = kept if on.module is rmq else CoroutineOffsets(kept)
        consumer = on.make("PushConsumer", group, offset_store=store, consume_from_where=FIRST)
        consumer.on(topic)(on.function(on.got.append))
        on.begin(consumer)
        on.until(lambda: len(on.got) >= len(expected))  # noqa: B023 - called here
        on.end(consumer)
        assert on.numbers() == list(expected), "each of them once"
        assert sum(offset for queue, offset in kept.table.items() if queue.topic == topic) == len(expected)
        on.send(topic, more, 10)


class Told(Hook):
    """Every method of a hook, by name."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Any]] = {}

    def _note(self, name: str, what: Any) -> None:
        self.calls.setdefault(name, []).append(what)

    def extra_properties(self, message: Message | MessageExt) -> Mapping[str, str]:
        return {"stamped": "yes"}

    def check_send(self, context: Any) -> None:
        if context.messages[0].body == b"forbidden":
            raise rmq.ClientError("it is forbidden")

    def before_send(self, context: Any) -> None:
        self._note("before_send", context.queue.topic)

    def after_send(self, context: Any) -> None:
        self._note("after_send", context.result.ok)

    def filter_messages(self, queue: MessageQueue, messages: list[MessageExt]) -> list[MessageExt]:
        return [message for message in messages if message.body != b"3"]

    def before_consume(self, context: Any) -> None:
        self._note("before_consume", context.messages[0].body)

    def after_consume(self, context: Any) -> None:
        self._note("after_consume", context.result.name)

    def before_request(self, address: str, command: Command) -> None:
        self._note("before_request", command.code)

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        self._note("after_response", command.code)


def test_hooks_are_called(on: Surface) -> None:
    topic, hook = on.topic(), Told()
    producer = on.begin(on.make("Producer", fresh("p"), hooks=[hook]))
    for number in range(6):
        assert on.run(producer.send, Message(topic, str(number))).ok
    with pytest.raises(rmq.ClientError, match=r"^it is forbidden$"):
        on.run(producer.send, Message(topic, "forbidden"))
    consumer = on.make("PushConsumer", fresh("g"), hooks=[hook], consume_from_where=FIRST)
    consumer.on(topic)(on.function(on.got.append))
    on.begin(consumer)
    on.until(lambda: len(on.got) >= 5)
    assert on.numbers() == [0, 1, 2, 4, 5], "3 is filtered, and counts as consumed"
    assert {message.properties["stamped"] for message in on.got} == {"yes"}
    on.end(consumer)
    assert hook.calls["before_send"] == [topic] * 6
    assert hook.calls["after_send"] == [True] * 6
    assert sorted(hook.calls["before_consume"]) == [b"0", b"1", b"2", b"4", b"5"]
    assert hook.calls["after_consume"] == ["SUCCESS"] * 5
    codes = {310, 11, 34}  # sends, pulls, heartbeats
    assert codes <= set(hook.calls["before_request"])
    assert codes <= set(hook.calls["after_response"])

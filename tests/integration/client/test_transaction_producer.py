"""The transaction producer: commit, rollback, checks, failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import rmq
from rmq.aio import (
    ClientError,
    Message,
    MessageExt,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE
from tests.support.scenes.client import Scene, as_plain, scene
from tests.support.virtual import eventually, in_virtual_time

FAST = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "10"}
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Side:
    """A transaction producer that ends and answers as a test says."""

    def __init__(self, s: Scene, group: str = "tg", **options: Any) -> None:
        self.answer: object = COMMIT
        self.asked: list[MessageExt] = []
        self.producer = TransactionProducer(
            group, self.check, namesrv=s.cluster.namesrv_addr, world=s.cluster.world, **options
        )

    async def check(self, message: MessageExt) -> TransactionState:
        self.asked.append(message)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]

    async def send(self, body: str, state: TransactionState) -> rmq.TransactionSendResult:
        return await self.producer.send_in_transaction(Message("T", body, keys=body, tags="A"), lambda message: state)


@in_virtual_time
async def test_commit_rollback_and_check() -> None:
    """Field case B134."""
    async with scene(**FAST) as s:
        side, got = Side(s), dict[str, MessageExt]()
        consumer = s.consumer()

        @consumer.on("T")
        async def take(message: MessageExt) -> None:
            got[message.body.decode()] = message

        async with side.producer, consumer:
            committed = await side.send("committed", COMMIT)
            assert committed.ok
            assert (committed.local_transaction_state, committed.transaction_id) == (COMMIT, committed.msg_id)
            await side.send("rolled", ROLLBACK)
            await eventually(lambda: "committed" in got)
            assert got["committed"].transaction_id == got["committed"].msg_id == committed.msg_id
            unknown = await side.send("unknown", UNKNOWN)
            await eventually(lambda: "unknown" in got)
            assert [(message.keys, message.msg_id, message.topic) for message in side.asked] == [
                ("unknown", unknown.msg_id, "T")
            ]
            await asyncio.sleep(10)
            assert set(got) == {"committed", "unknown"}


@pytest.mark.parametrize("answer", [ValueError("no"), "nonsense", UNKNOWN])
def test_a_check_that_does_not_know_is_asked_again(answer: object) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene(**FAST) as s:
            side = Side(s)
            side.answer = answer
            async with side.producer:
                await side.send("x", UNKNOWN)
                await eventually(lambda: len(side.asked) == 2)
                side.answer = ROLLBACK
                await asyncio.sleep(20)
                assert len(side.asked) == 3

    run()


@in_virtual_time
async def test_a_check_whose_await_is_cancelled_gives_its_place_back() -> None:
    """With 2,000 places lost that way nothing would be checked any more."""
    async with scene(**FAST) as s:

        async def check(message: MessageExt) -> TransactionState:
            other = asyncio.ensure_future(asyncio.sleep(100))
            asyncio.get_running_loop().call_soon(other.cancel)
            await other
            return COMMIT

        async with TransactionProducer("tpg", check, namesrv=s.cluster.namesrv_addr, world=s.cluster.world) as producer:
            await producer.send_in_transaction(Message("T", b"x"), lambda message: UNKNOWN)
            await asyncio.sleep(20)
            assert producer._checks == 0


@in_virtual_time
async def test_a_local_transaction_that_raises_is_asked_about() -> None:
    async with scene(**FAST) as s:
        side = Side(s)

        async def local(message: Message) -> TransactionState:
            raise ValueError("the database is gone")

        async with side.producer:
            with pytest.raises(ValueError, match="the database is gone"):
                await side.producer.send_in_transaction(Message("T", b"x"), local)
            with pytest.raises(ClientError, match="must return a TransactionState"):
                await side.producer.send_in_transaction(Message("T", b"y"), lambda message: None)  # type: ignore[arg-type,return-value]
            await eventually(lambda: len(side.asked) == 2)


@in_virtual_time
async def test_a_half_message_that_is_not_stored_as_promised_is_rolled_back_unexecuted() -> None:
    async with scene(**FAST) as s:
        side = Side(s)
        called = False

        def local(message: Message) -> TransactionState:
            nonlocal called
            called = True
            return COMMIT

        send = side.producer._sender.send

        async def late(*given: Any, **named: Any) -> Any:
            result = await send(*given, **named)
            result.send_status = SendStatus.FLUSH_DISK_TIMEOUT
            return result

        side.producer._sender.send = late  # type: ignore[method-assign]
        async with side.producer:
            result = await side.producer.send_in_transaction(Message("T", b"x"), local)
            assert (result.local_transaction_state, called) == (ROLLBACK, False)
            await asyncio.sleep(20)
            assert side.asked == []


@in_virtual_time
async def test_another_member_answers_for_one_that_is_gone() -> None:
    async with scene(**FAST) as s:
        gone, left = Side(s, instance_name="gone"), Side(s, instance_name="left")
        async with left.producer:
            await left.send("warm", ROLLBACK)
            async with gone.producer:
                await gone.send("x", UNKNOWN)
            await eventually(lambda: [message.keys for message in left.asked] == ["x"])
            assert gone.asked == []


@in_virtual_time
async def test_a_member_that_has_only_started_answers_for_one_that_is_gone() -> None:
    async with scene(**FAST) as s:
        gone, side = Side(s), Side(s, instance_name="other")
        await gone.producer.start()
        async with side.producer:
            await gone.send("orphan", UNKNOWN)
            await gone.producer.shutdown()
            await eventually(lambda: side.asked)
            assert side.asked[0].keys == "orphan"


@in_virtual_time
async def test_what_cannot_be_a_transaction_producer() -> None:
    async with scene() as s:
        with pytest.raises(ClientError, match="is a function"):
            TransactionProducer("tg", None)  # type: ignore[arg-type]
        side = Side(s)
        with pytest.raises(ClientError, match="not started"):
            await side.send("x", COMMIT)
        async with side.producer:
            before = await s.admin.topic_stats("T")
            with pytest.raises(ClientError, match="local transaction is a function of the message, not NoneType"):
                await side.producer.send_in_transaction(Message("T", b"x"), None)  # type: ignore[arg-type]
            await side.send("rolled back", ROLLBACK)
            halves = await s.admin.topic_stats("RMQ_SYS_TRANS_HALF_TOPIC")
            assert sum(queue.max_offset for queue in halves.offset_table.values()) == 1, "nothing was stored for it"
            assert before == await s.admin.topic_stats("T")


def test_from_threads(tmp_path: Any) -> None:
    """The blocking twin: the local transaction runs here, checks on a thread of their own."""
    checks: list[tuple[str | None, str]] = []
    here: list[str] = []

    def check(message: MessageExt) -> TransactionState:
        checks.append((message.keys, threading.current_thread().name))
        return COMMIT

    def local(message: Message) -> TransactionState:
        here.append(threading.current_thread().name)
        return UNKNOWN if message.keys == "unknown" else COMMIT

    with BlockingCluster(tmp_path, settings=FAST) as cluster:
        got: set[str | None] = set()
        both = threading.Event()
        consumer = rmq.PushConsumer(
            "g", namesrv=cluster.namesrv_addr, consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )

        @consumer.on("T")
        def take(message: MessageExt) -> None:
            got.add(message.keys)
            if len(got) == 2:
                both.set()

        with rmq.TransactionProducer("tg", check, namesrv=cluster.namesrv_addr) as producer:
            for key in ("committed", "unknown"):
                result = producer.send_in_transaction(Message("T", key, keys=key), local)
                assert result.ok
            with consumer:
                assert both.wait(PATIENCE)
    assert got == {"committed", "unknown"}
    assert set(here) == {threading.current_thread().name}
    # On a busy machine the other one, too, while its end is under way.
    assert "unknown" in [key for key, _ in checks]
    assert all(thread.startswith("rmq-check-tg") for _, thread in checks)


@in_virtual_time
async def test_checks_have_the_threads_and_places_that_the_settings_say() -> None:
    """Of four checks two run, one waits, and the last is left to be asked again."""
    async with scene(**FAST) as s:
        running, most = 0, 0

        async def check(message: MessageExt) -> TransactionState:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.4)
            running -= 1
            return COMMIT

        got: list[str | None] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.keys)

        made = TransactionProducer(
            "tg",
            as_plain(check),
            namesrv=s.cluster.namesrv_addr,
            world=s.cluster.world,
            check_thread_pool_max_size=2,
            check_request_hold_max=3,
        )
        async with made, consumer:
            for key in "abcd":
                await made.send_in_transaction(Message("T", key, keys=key), lambda message: UNKNOWN)
            await eventually(lambda: running == 2, 60)
            await eventually(lambda: made._checks == 3, 60)
            await eventually(lambda: len(got) == 4, 120)
        assert (sorted(got, key=str), most) == (["a", "b", "c", "d"], 2)


@in_virtual_time
async def test_the_routes_of_topics_are_asked_for_at_the_start() -> None:
    async with scene() as s:
        made = Side(s, topics=["T", "NotYet"]).producer
        async with made:
            assert {"T", "NotYet"} & made._client.routes.publish.keys() == {"T"}

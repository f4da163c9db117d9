"""Half messages in virtual time: ends, checks, discards, revivals (field cases B058 to B062)."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.broker.transaction.check import TransactionCheck
from rmq.broker.transaction.halves import CHECK_GROUP, DISCARD_TOPIC, Halves
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.protocol.permissions import publish_topic
from rmq.testing.simloop import run
from rmq.testing.simworld import SimOffload, Simulation
from tests.support.scenes.transactions import COMMIT, ROLLBACK, Half, TransactionBroker, in_a_broker


def test_commit_and_rollback() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        halves = [broker.send(key, producer) for key in "abc"]
        assert (await broker.delivered()) == []
        for half, verdict in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True):
            answer = await broker.end(half, verdict)
            assert answer is not None
            assert answer.code == 0
        assert (await broker.delivered()) == ["a", "c"]
        (first, _) = await broker.records("T", 1)
        assert (first.body, first.flag, first.sys_flag) == (b"body of a", 3, COMMIT)
        assert first.prepared_transaction_offset == halves[0].position
        assert first.born_host == ("10.0.0.5", 5)
        assert [record.body for record in await broker.records(OP_HALF_TOPIC)] == [b"0", b"1", b"2"]
        await asyncio.sleep(10)
        assert producer.checks == []

    in_a_broker(check)


def test_unknown_is_answered_by_nobody_and_then_checked() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=COMMIT)
        half = broker.send("a", producer)
        assert await broker.end(half, 0) is None
        await asyncio.sleep(0.9)
        assert producer.checks == []
        await asyncio.sleep(2)
        ((asked, record),) = producer.checks
        assert asked.index == 1
        assert (record.topic, record.queue_id, record.body) == ("T", 1, b"body of a")
        assert record.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert record.properties["WAIT"] == "false"
        assert (await broker.delivered()) == ["a"]
        await asyncio.sleep(10)
        assert len(producer.checks) == 1

    in_a_broker(check)


# -- B058: the first final state wins


def test_a_check_that_committed_and_then_the_producer_commits() -> None:
    """Field case B058."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=COMMIT)
        half = broker.send("a", producer)
        await asyncio.sleep(3)
        assert (await broker.delivered()) == ["a"]
        for verdict in (COMMIT, ROLLBACK, COMMIT):
            answer = await broker.end(half, verdict)
            assert answer is not None
            assert answer.code == 0
        assert (await broker.delivered()) == ["a"]

    in_a_broker(check)


def test_a_check_that_rolled_back_and_then_the_producer_commits() -> None:
    """Field case B058."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=ROLLBACK)
        half = broker.send("a", producer)
        await asyncio.sleep(3)
        await broker.end(half, COMMIT)
        await broker.end(producer.checks[0][0], COMMIT)
        await asyncio.sleep(5)
        assert (await broker.delivered()) == []
        assert len(producer.checks) == 1

    in_a_broker(check)


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_slow_commit_ends_the_checks_whichever_copy_it_names(which: str) -> None:
    """Field case B058."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        half = broker.send("a", producer)
        await asyncio.sleep(4.5)
        assert producer.numbers() == ["1", "2", "3", "4"]
        named = {"first": half, "middle": producer.checks[1][0], "last": producer.checks[-1][0]}[which]
        await broker.end(named, COMMIT)
        await broker.end(half, COMMIT)
        await asyncio.sleep(10)
        assert (await broker.delivered()) == ["a"]
        assert len(producer.checks) == 4
        assert broker.check._copies == {}
        assert broker.offsets.query(CHECK_GROUP, HALF_TOPIC, 0) == 5
        assert broker.offsets.query(CHECK_GROUP, OP_HALF_TOPIC, 0) == 5

    in_a_broker(check)


def test_after_the_last_check_only_a_resume_revives_it() -> None:
    """Field case B058, B060."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        half = broker.send("a", producer)
        await asyncio.sleep(10)
        assert producer.numbers() == ["1", "2"]
        (discarded,) = await broker.records(DISCARD_TOPIC)
        assert discarded.body == b"body of a"
        assert discarded.properties["REAL_TOPIC"] == "T"
        for named in (half, producer.checks[0][0], producer.checks[1][0]):
            await broker.end(named, COMMIT)
        assert (await broker.delivered()) == []
        producer.answer = COMMIT
        answer = await broker.resume(discarded)
        assert answer is not None
        assert answer.code == 0
        await asyncio.sleep(5)
        assert producer.numbers() == ["1", "2", "1"]
        (record,) = await broker.records("T", 1)
        assert record.body == b"body of a"
        assert (record.properties["KEYS"], record.properties["UNIQ_KEY"]) == ("ka", "a")
        await broker.end(half, COMMIT)
        assert (await broker.delivered()) == ["a"]
        assert len(await broker.records(DISCARD_TOPIC)) == 1

    in_a_broker(check, transaction_check_max=2)


def test_a_resume_of_a_half_that_is_being_checked_makes_no_second_one() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        broker.send("a", producer)
        await asyncio.sleep(2.5)
        (first, *_) = await broker.records(HALF_TOPIC)
        await broker.resume(first)
        producer.answer = COMMIT
        await asyncio.sleep(5)
        assert (await broker.delivered()) == ["a"]

    in_a_broker(check)


def test_only_what_was_a_half_message_can_be_resumed() -> None:
    async def check(broker: TransactionBroker) -> None:
        half = broker.send("a")
        await broker.end(half, COMMIT)
        (op,) = await broker.records(OP_HALF_TOPIC)
        with pytest.raises(ResponseError, match="putting message back"):
            await broker.resume(op)

    in_a_broker(check)


def test_ends_that_name_something_else_are_refused() -> None:
    async def check(broker: TransactionBroker) -> None:
        half = broker.send("a")
        committed = broker.send("b")
        await broker.end(committed, COMMIT)
        (message,) = await broker.records("T", 1)
        for wrong, group, words in (
            (half, "Q", "The producer group wrong"),
            (Half(half.index + 1, half.position, "a"), "P", "The transaction state table offset wrong"),
            (Half(half.index, half.position + 1, "a"), "P", "Find prepared transaction message failed"),
            (Half(half.index, -5, "a"), "P", "Find prepared transaction message failed"),
            (Half(message.queue_offset, message.physical_offset, "b"), "P", "Find prepared transaction message failed"),
        ):
            with pytest.raises(ResponseError, match=words):
                await broker.end(wrong, COMMIT, group)
        assert (await broker.delivered()) == ["b"]

    in_a_broker(check)


def test_the_broker_s_notes_are_not_taken_from_a_client() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        victim = broker.send("victim", producer)
        broker.send("forged", producer, TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="14", REAL_TOPIC="X")
        await asyncio.sleep(2.5)
        assert producer.numbers() == ["1", "1", "2", "2"]
        await broker.end(victim, COMMIT)
        assert (await broker.delivered()) == ["victim"]

    in_a_broker(check)


# -- who is asked, and when


def test_the_connection_it_came_by_then_its_machine_then_anybody() -> None:
    """Field case B062."""

    async def check(broker: TransactionBroker) -> None:
        other = broker.producer("10.0.0.6", 6, ROLLBACK)
        twin = broker.producer("10.0.0.5", 7)
        own = broker.producer("10.0.0.5", 5)
        broker.send("a", own)
        await asyncio.sleep(2.5)
        assert (len(own.checks), len(twin.checks), len(other.checks)) == (2, 0, 0)
        own.closed = True
        await asyncio.sleep(1)
        assert (len(own.checks), len(twin.checks), len(other.checks)) == (2, 1, 0)
        twin.congested = True
        await asyncio.sleep(1)
        assert (len(own.checks), len(twin.checks), len(other.checks)) == (2, 1, 1)
        assert (await broker.delivered()) == []

    in_a_broker(check)


def test_a_member_that_may_not_send_to_the_topic_is_shown_no_message_of_it() -> None:
    async def check(broker: TransactionBroker) -> None:
        stranger = broker.producer("10.0.0.5", 6)
        stranger.grant = SimpleNamespace(allows=lambda need: need == publish_topic("Other"))
        broker.send("a")
        await asyncio.sleep(1.5)
        assert stranger.checks == []
        stranger.grant = SimpleNamespace(allows=lambda need: need == publish_topic("T"))
        await asyncio.sleep(1)
        assert len(stranger.checks) == 1

    in_a_broker(check)


def test_a_pass_says_once_how_many_it_asked_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        for number in range(5):
            broker.send(str(number), producer)
        await asyncio.sleep(1.5)
        assert [record.getMessage() for record in caplog.records if "asked" in record.getMessage()] == [
            "asked producers about 5 half messages"
        ]

    in_a_broker(check)


def test_members_are_asked_in_turn_when_the_sender_is_gone() -> None:
    async def check(broker: TransactionBroker) -> None:
        members = [broker.producer(f"10.0.1.{number}", 1) for number in range(3)]
        for number in range(9):
            broker.send(str(number))
        await asyncio.sleep(1.5)
        assert [len(member.checks) for member in members] == [3, 3, 3]

    in_a_broker(check)


def test_nobody_is_asked_before_what_he_answers_counts() -> None:
    """An end that names a copy which nobody may see yet is refused, and who answers at once answered in vain."""

    async def check(broker: TransactionBroker) -> None:
        offload = broker.node.world.offload
        assert isinstance(offload, SimOffload)
        offload.delay = 0.03
        producer = broker.producer(answer=COMMIT)
        for number in range(100):
            broker.send(str(number), producer)
        await asyncio.sleep(4)
        assert set(producer.numbers()) == {"1"}
        assert sorted(await broker.delivered(), key=int) == [str(number) for number in range(100)]

    in_a_broker(check, flush_disk_type="SYNC_FLUSH")


def test_a_half_that_nobody_can_be_asked_about_stays_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def check(broker: TransactionBroker) -> None:
        for number in range(100):
            broker.send(str(number))
        await asyncio.sleep(30)
        assert len(await broker.records(HALF_TOPIC)) == 100
        assert len(caplog.records) < 60
        late = broker.producer(answer=COMMIT)
        await asyncio.sleep(3)
        assert len(late.checks) == 100
        assert set(late.numbers()) == {"1"}
        assert sorted(await broker.delivered(), key=int) == [str(number) for number in range(100)]

    in_a_broker(check, transaction_check_max=5)


def test_it_is_given_up_before_its_file_may_go() -> None:
    async def check(broker: TransactionBroker) -> None:
        broker.send("a")
        await asyncio.sleep(3550)
        assert (await broker.records(DISCARD_TOPIC)) == []
        await asyncio.sleep(30)
        assert len(await broker.records(DISCARD_TOPIC)) == 1

    in_a_broker(check, file_reserved_time=1, transaction_check_interval=10_000)


def test_immunity_holds_one_and_not_those_behind_it() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        broker.send("long", producer, CHECK_IMMUNITY_TIME_IN_SECONDS="5")
        broker.send("plain", producer)
        await asyncio.sleep(1.5)
        assert [half.key for half, _ in producer.checks] == ["plain"]
        await asyncio.sleep(3)
        assert "long" not in [half.key for half, _ in producer.checks]
        halves = [record.properties["UNIQ_KEY"] for record in await broker.records(HALF_TOPIC)]
        assert halves.count("long") == 1
        await asyncio.sleep(2)
        assert "long" in [half.key for half, _ in producer.checks]

    in_a_broker(check)


def test_clock_steps_neither_hold_checks_nor_hasten_them() -> None:
    """Field case B142."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        broker.send("a", producer)
        broker.node.clock.skew_ms -= 3_600_000
        broker.send("b", producer)
        await asyncio.sleep(3.5)
        assert {half.key for half, _ in producer.checks} == {"a", "b"}

    in_a_broker(check)


# -- B061: no storm, and one bad record stops nothing


def test_a_storm_of_unknowns_stores_no_more_than_is_asked() -> None:
    """Field case B061."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer()
        for number in range(30):
            broker.send(str(number), producer)
        await asyncio.sleep(10.5)
        copies = len(await broker.records(HALF_TOPIC)) - 30
        assert copies == len(producer.checks) == 300
        producer.congested = True
        await asyncio.sleep(5)
        assert len(await broker.records(HALF_TOPIC)) - 30 == copies

    in_a_broker(check)


def test_a_damaged_record_is_skipped_and_those_behind_it_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    """Field case B061."""

    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=COMMIT)
        halves = [broker.send(str(number), producer) for number in range(50)]
        bad = halves[20]
        real = broker.store.messages.of_entry

        async def damaged(queue: Queue, index: int, offset: int, size: int) -> bytes:
            return b"" if offset == bad.position else await real(queue, index, offset, size)

        broker.store.messages.of_entry = damaged  # type: ignore[method-assign]
        await asyncio.sleep(10)
        assert len(await broker.delivered()) == 49
        assert sum("cannot be read" in record.message for record in caplog.records) == 1
        assert broker.offsets.query(CHECK_GROUP, HALF_TOPIC, 0) == 99

    in_a_broker(check)


def test_one_that_cannot_be_stored_anew_stops_nothing() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=COMMIT)
        broker.send("bad", producer)
        broker.send("good", producer)
        real = Halves.again

        def again(self: Halves, half: Any, table: Any, **more: Any) -> Any:
            if half.properties["UNIQ_KEY"] == "bad":
                raise ResponseError(13, "too long")
            return real(self, half, table, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Halves, "again", again)
            await asyncio.sleep(3)
        assert (await broker.delivered()) == ["good"]

    in_a_broker(check)


# -- durability


def test_a_closed_gate_refuses_ends_and_the_check_waits() -> None:
    async def check(broker: TransactionBroker) -> None:
        producer = broker.producer(answer=COMMIT)
        half = broker.send("a", producer)
        broker.store.log.gate |= 16
        with pytest.raises(ResponseError, match=r"Service not available now\.") as refused:
            await broker.end(half, COMMIT)
        assert refused.value.code == 14
        await asyncio.sleep(5)
        assert producer.checks == []
        broker.store.log.gate &= ~16
        await asyncio.sleep(3)
        assert (await broker.delivered()) == ["a"]

    in_a_broker(check)


def test_with_sync_flush_an_end_is_answered_when_it_is_on_disk() -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a", fsync_seconds=0.3)
        async with TransactionBroker(node, flush_disk_type="SYNC_FLUSH", transaction_time_out=60_000) as broker:
            half = broker.send("a")
            await asyncio.sleep(2)
            assert await broker.end(half, COMMIT) is None
            assert broker.sent == []
            assert (await broker.delivered()) == []
            await asyncio.sleep(2)
            assert (await broker.delivered()) == ["a"]
            assert len(broker.sent) == 1

    run(main())


@pytest.mark.parametrize("power", [False, True])
def test_ends_and_copies_are_known_after_a_kill(power: bool) -> None:
    async def main() -> None:
        simulation = Simulation(seed=2)
        broker = TransactionBroker(simulation.node("a"))
        await broker.__aenter__()
        producer = broker.producer()
        halves = {key: broker.send(key, producer) for key in ("committed", "rolled", "open", "other")}
        await broker.end(halves["committed"], COMMIT)
        await broker.end(halves["rolled"], ROLLBACK)
        await asyncio.sleep(2.5)
        assert producer.numbers() == ["1", "1", "2", "2"]
        await broker.store.flusher.flush_all()
        again = await broker.killed(simulation, power=power)
        async with again:
            asked = again.producer()
            await again.end(halves["committed"], COMMIT)
            await again.end(halves["rolled"], COMMIT)
            await again.end(halves["open"], COMMIT)
            await again.end(halves["open"], COMMIT)
            await asyncio.sleep(2.5)
            assert {half.key for half, _ in asked.checks} == {"other"}
            assert asked.numbers() == ["3", "4"]
            assert (await again.delivered()) == ["committed", "open"]

    run(main())


@pytest.mark.parametrize("damaged", [False, True])
def test_ends_behind_an_open_half_are_known_after_a_kill(damaged: bool) -> None:
    """By their op records; one of them that cannot be read costs what it says, not those behind it."""

    async def main() -> None:
        simulation = Simulation(seed=2)
        broker = TransactionBroker(simulation.node("a"))
        await broker.__aenter__()
        halves = {key: broker.send(key) for key in ("open", "first", "second", "third")}
        for key in ("first", "second", "third"):
            await broker.end(halves[key], COMMIT)
        await asyncio.sleep(2.5)
        again = await broker.killed(simulation)
        if damaged:
            await again.store.load()
            op = again.store.queues.get_or_create(OP_HALF_TOPIC, 0)
            (place,) = struct.unpack(">q", (await again.store.queues.entries_cold(op, 1, 1))[:8])
            await broker.store.tasks.close()
            again = await again.killed(simulation)
            real = again.store.messages.of_entry

            async def unreadable(queue: Queue, index: int, offset: int, size: int) -> bytes:
                return b"" if offset == place else await real(queue, index, offset, size)

            again.store.messages.of_entry = unreadable  # type: ignore[method-assign]
        async with again:
            asked = again.producer()
            await asyncio.sleep(1.5)
            wanted = {"open", "second"} if damaged else {"open"}
            assert {half.key for half, _ in asked.checks} == wanted
            assert (await again.delivered()) == ["first", "second", "third"]

    run(main())


@pytest.mark.parametrize("kind", ["commit", "copy"])
def test_an_append_without_its_op_record_is_not_done_twice(kind: str) -> None:
    async def main() -> None:
        simulation = Simulation(seed=2)
        broker = TransactionBroker(simulation.node("a"))
        await broker.__aenter__()
        producer = broker.producer()
        half = broker.send("a", producer)
        if kind == "commit":
            await broker.end(half, COMMIT)
        else:
            await asyncio.sleep(1.5)
            assert producer.numbers() == ["1"]
        (op,) = await broker.records(OP_HALF_TOPIC)
        again = await broker.killed(simulation)
        file = broker.node.disk.open("/store/commitlog/" + "0" * 20)
        file.pwrite(b"\0" * 64, op.physical_offset)
        file.close()
        async with again:
            asked = again.producer(answer=COMMIT)
            await asyncio.sleep(5)
            assert (await again.delivered()) == ["a"]
            assert asked.numbers() == ([] if kind == "commit" else ["2"])
            assert b"0" in [record.body for record in await again.records(OP_HALF_TOPIC)]

    run(main())


def test_a_power_cut_that_loses_an_end_does_not_lose_the_half() -> None:
    async def main() -> None:
        simulation = Simulation(seed=2)
        broker = TransactionBroker(simulation.node("a"))
        await broker.__aenter__()
        half = broker.send("a")
        await broker.store.flusher.flush_all()
        await broker.end(half, COMMIT)
        assert broker.offsets.query(CHECK_GROUP, HALF_TOPIC, 0) <= 0
        simulation.power_cut(broker.node, all_lost=True)
        await broker.check.tasks.close()
        await broker.store.tasks.close()
        async with TransactionBroker(broker.node, broker.offsets) as again:
            assert (await again.delivered()) == []
            again.producer(answer=COMMIT)
            await asyncio.sleep(3)
            assert (await again.delivered()) == ["a"]

    run(main())


def test_offsets_beyond_the_queues_hide_no_half() -> None:
    async def main() -> None:
        simulation = Simulation(seed=2)
        broker = TransactionBroker(simulation.node("a"))
        broker.offsets.commit(CHECK_GROUP, HALF_TOPIC, 0, 999)
        broker.offsets.commit(CHECK_GROUP, OP_HALF_TOPIC, 0, 999)
        async with broker:
            broker.producer(answer=COMMIT)
            broker.send("a")
            await asyncio.sleep(3)
            assert (await broker.delivered()) == ["a"]

    run(main())


# -- transactions that wait


def test_a_delay_runs_from_the_commit() -> None:
    async def check(broker: TransactionBroker) -> None:
        level = broker.send("level", DELAY="2")
        timed = broker.send("timed", TIMER_DELAY_MS="7000")
        both = broker.send("both", TIMER_DELAY_MS="7000", DELAY="1")
        await asyncio.sleep(0.5)
        now = broker.node.clock.now_ms()
        for half in (level, timed, both):
            await broker.end(half, COMMIT)
        assert (await broker.delivered()) == []
        (waits,) = await broker.records("rmq_sys_wheel_timer")
        assert waits.properties["TIMER_OUT_MS"] == str(now + 7000)
        assert (waits.properties["REAL_TOPIC"], waits.properties["REAL_QID"]) == ("T", "1")
        assert waits.sys_flag == COMMIT
        assert [record.properties["UNIQ_KEY"] for record in await broker.records("SCHEDULE_TOPIC_XXXX", 1)] == ["level"]
        (record,) = await broker.records("SCHEDULE_TOPIC_XXXX", 0)
        assert record.properties["UNIQ_KEY"] == "both"
        assert "TIMER_DELAY_MS" not in record.properties

    in_a_broker(check, transaction_time_out=60_000)


@pytest.mark.parametrize("more", [{"TIMER_DELAY_SEC": "345600"}, {"TIMER_DELAY_MS": "x"}, {"BIG": "x" * 32_500}])
def test_a_half_whose_commit_would_be_refused_is_refused_itself(more: dict[str, str]) -> None:
    async def check(broker: TransactionBroker) -> None:
        with pytest.raises(ResponseError) as refused:
            broker.send("a", None, "P", **more)
        assert refused.value.code == 13

    in_a_broker(check)


# -- planted faults turn these tests red


@pytest.mark.parametrize(
    ("owner", "name", "fault", "test"),
    [
        (
            TransactionCheck, "live", lambda self, record: record.queue_offset,
            test_a_check_that_committed_and_then_the_producer_commits,
        ),
        (
            TransactionCheck, "root", staticmethod(lambda record: record.queue_offset),
            lambda: test_a_slow_commit_ends_the_checks_whichever_copy_it_names("first"),
        ),
        (
            TransactionCheck, "_last_record", lambda self: asyncio.sleep(0),
            lambda: test_an_append_without_its_op_record_is_not_done_twice("commit"),
        ),
        # Progress is told before it is on disk.
        (
            Store, "durable_end", lambda self: 1 << 62,
            test_a_power_cut_that_loses_an_end_does_not_lose_the_half,
        ),
    ],
)  # fmt: skip
def test_planted_faults_are_found(owner: type, name: str, fault: Any, test: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fault)
        with pytest.raises(AssertionError):
            test()

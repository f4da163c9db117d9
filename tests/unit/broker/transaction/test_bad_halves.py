"""One half message or op record that is bad costs itself: the others are checked, before and after a restart."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.store.state import Put
from rmq.broker.transaction.check import TransactionCheck
from rmq.protocol import properties
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.faults.sick_disk import Sick
from tests.support.scenes.transactions import COMMIT, HOST, ROLLBACK, Half, TransactionBroker


def forge(broker: TransactionBroker, topic: str, body: bytes, table: dict[str, str]) -> int:
    """Store a record that this release would not have stored; where."""
    queue = broker.store.queues.get_or_create(topic, 0)
    stored = properties.encode(table).encode()
    now = broker.node.clock.now_ms()
    return broker.store.append([Put(queue, body, stored, 0, 0, now, HOST, HOST, 0, 0, 0, ())]).offsets[0][1]


def keys(checks: list[tuple[Half, object]]) -> list[str]:
    return [half.key for half, _ in checks]


@pytest.mark.parametrize("entry", [False, True])
def test_what_cannot_be_read_holds_no_check_up(entry: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        broker = TransactionBroker(node)
        await broker.__aenter__()
        bad = broker.send("bad")
        broker.send("good")
        sick = Sick(broker.store, *(() if entry else (bad.position,)))
        if entry:
            sick.entries(HALF_TOPIC, 0)
        producer = broker.producer(answer=ROLLBACK)
        await asyncio.sleep(5)
        assert keys(producer.checks) == ["good"]
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert f"{HALF_TOPIC}-0 at 0" in told[0]
        again = await broker.killed(simulation)
        sick = Sick(again.store, *(() if entry else (bad.position,)))
        if entry:
            sick.entries(HALF_TOPIC, 0)
        async with again:
            producer = again.producer(answer=ROLLBACK)
            again.send("later")
            await asyncio.sleep(5)
            assert keys(producer.checks) == ["later"]
            sick.heal()
            await asyncio.sleep(3)
            assert keys(producer.checks) == ["later", "bad"]

    run(main())


def test_an_op_record_that_cannot_be_read_costs_one_more_check() -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        broker = TransactionBroker(node)
        await broker.__aenter__()
        one, two = broker.send("one"), broker.send("two")
        lost = broker.store.log.end
        await broker.end(one, ROLLBACK)
        await broker.end(two, ROLLBACK)
        again = await broker.killed(simulation)
        again.offsets.commit("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0, 0)
        again.offsets.commit("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 0)
        Sick(again.store, lost)
        async with again:
            producer = again.producer()
            await asyncio.sleep(3)
            assert set(keys(producer.checks)) == {"one"}

    run(main())


@pytest.mark.parametrize(
    "body", [b"9000000000000", b"9" * 400, b"9" * 5000, b"-1", b"x,,", b"\xff", b"1,9000000000000,"]
)
def test_forged_op_records_cost_no_start(body: bytes) -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        broker = TransactionBroker(node)
        await broker.__aenter__()
        broker.send("good")
        forge(broker, OP_HALF_TOPIC, body, {"TAGS": "d"})
        again = await broker.killed(simulation)
        async with again:
            assert len(again.check._ops) <= 1
            producer = again.producer(answer=ROLLBACK)
            await asyncio.sleep(3)
            assert keys(producer.checks) == ["good"]
            assert again.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 2

    run(main())


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize(
    "name", ["TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "REAL_QID"]
)
def test_numbers_of_any_length_hold_no_check_up(name: str, digits: int) -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        broker = TransactionBroker(node)
        await broker.__aenter__()
        table = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "bad", "REAL_TOPIC": "T", "REAL_QID": "1"}
        position = forge(broker, HALF_TOPIC, b"x", {**table, name: "9" * digits})
        broker.send("good")
        producer = broker.producer()
        await asyncio.sleep(4)
        assert "good" in keys(producer.checks)
        if name != "REAL_QID":
            await broker.end(Half(0, position, "bad"), ROLLBACK)
        else:
            with pytest.raises(ResponseError, match="Find prepared transaction message failed"):
                await broker.end(Half(0, position, "bad"), COMMIT)
        again = await broker.killed(simulation)
        async with again:
            again.send("later")
            producer = again.producer()
            await asyncio.sleep(4)
            assert "later" in keys(producer.checks)

    run(main())


def test_one_half_that_cannot_be_treated_holds_no_other_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = TransactionCheck._ask

    def fails(self: TransactionCheck, index: int, record: object, counted: object) -> None:
        if index == 0:
            raise KeyError("planted")
        ask(self, index, record, counted)  # type: ignore[arg-type]

    monkeypatch.setattr(TransactionCheck, "_ask", fails)

    async def main() -> None:
        async with TransactionBroker(Simulation(seed=1).node("a")) as broker:
            broker.send("bad")
            broker.send("good")
            producer = broker.producer(answer=ROLLBACK)
            await asyncio.sleep(6)
            assert keys(producer.checks) == ["good"]

    run(main())
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1

"""Messages with as many properties as they may have, where the broker reads and stores them again by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.store.store import Store
from rmq.broker.transaction.check import TransactionCheck
from rmq.protocol import properties
from rmq.protocol.message import MessageRecord
from tests.support.raw_peer import send, subscribe
from tests.support.scenes.pop import pop_scene
from tests.support.turns import Turns
from tests.support.virtual import eventually, in_virtual_time

MANY = {f"p{number:x}": "a" for number in range(4_000)}
#: Bytes of properties in one turn: 64 KiB, and the message that goes beyond.
MOST = 100_000
MESSAGES = 30


@pytest.mark.parametrize("waits", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}])
@in_virtual_time
async def test_what_waited_is_delivered_some_at_a_time(monkeypatch: pytest.MonkeyPatch, waits: dict[str, str]) -> None:
    async with pop_scene() as scene:
        await scene.topic()
        for _ in range(MESSAGES):
            command = send(props=properties.encode(MANY | waits))
            assert (await scene.client.request(scene.addr, command, 60.0)).code == 0
        # All of them are due when it is there again.
        await scene.app.stop()
        await asyncio.sleep(5)
        stored = Turns(monkeypatch, Store, "append", lambda _, puts, **named: sum(len(put.properties) for put in puts))
        await scene.start()
        queue = scene.app.store.queues.get_or_create("T", 0)
        await eventually(lambda: queue.visible == MESSAGES)
        assert stored.whole > MESSAGES * 27_000
        assert stored.longest <= MOST


@in_virtual_time
async def test_producers_are_asked_of_some_half_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def weight(_: TransactionCheck, record: MessageRecord, *more: Any) -> int:
        return len(properties.encode(record.properties))

    async with pop_scene(transactionTimeOut="1000", transactionCheckInterval="5000") as scene:
        await scene.topic()
        await scene.client.request(scene.addr, subscribe(), 60.0)
        judged = Turns(monkeypatch, TransactionCheck, "_judge", weight)
        for number in range(MESSAGES):
            half = send(props=properties.encode({"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"k{number}"} | MANY))
            assert half.ext is not None
            half.ext["f"] = "4"
            assert (await scene.client.request(scene.addr, half, 60.0)).code == 0
        await asyncio.sleep(12)
        assert judged.whole > MESSAGES * 27_000
        assert judged.longest <= MOST

"""A recall is answered when it is as durable as configured, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.schedule.recall import Recall
from rmq.broker.schedule.timing import RecallHandle
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import RecallMessageRequest
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.unit.broker.schedule.test_timers import TimerBroker


class Conn:
    def __init__(self) -> None:
        self.codes: list[int] = []

    def send(self, data: bytes) -> None:
        self.codes.append(frame.decode(data[4:]).code)


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_recall_is_answered_once_its_record_is_on_disk(sync_flush: bool) -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a", fsync_seconds=0.5)
        broker = TimerBroker(node, sync_flush=sync_flush)
        broker.settings.recall_message_enable = True
        await broker.start()
        due = broker.send("a", 60_000)
        await asyncio.sleep(5)
        unused: Any = None
        recall = Recall(node.clock, broker.settings, {"T": unused}, broker.store, unused, broker.service)  # type: ignore[arg-type]
        handle = RecallHandle("T", "b", due, "Ua").encode()
        header = RecallMessageRequest(producer_group="g", topic="T", recall_handle=handle)
        conn: Any = Conn()
        request = Command.request(RequestCode.RECALL_MESSAGE, header)
        answer = await recall.recall(conn, request, header)
        taken_back_at = broker.store.log.end
        if sync_flush:
            assert answer is None
            assert conn.codes == []
            assert broker.store.durability.flushed < taken_back_at
            await asyncio.sleep(2)
            assert conn.codes == [0]
            assert broker.store.durability.flushed >= taken_back_at
        else:
            assert answer is not None
            assert answer.code == 0
        await asyncio.sleep(70)
        assert await broker.bodies() == []
        await broker.stop()

    run(main())

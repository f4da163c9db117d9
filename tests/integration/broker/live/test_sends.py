"""Live settings of sends: what is taken, and what the answers say."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from rmq.protocol import properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import RecallMessageRequest
from tests.support.raw_peer import send, subscribe
from tests.support.scenes.live import LiveScene, Told, live
from tests.support.virtual import eventually

BUSY = 2


@live("regionId", "traceOn")
async def test_what_answers_say(s: LiveScene) -> None:
    ext = (await s.tell(send())).ext or {}
    assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("DefaultRegion", "true")
    await s.update(regionId="elsewhere")
    assert ((await s.tell(send())).ext or {})["MSG_REGION"] == "elsewhere"
    await s.update(traceOn=False)
    assert ((await s.tell(send())).ext or {})["TRACE_ON"] == "false"


@live("maxMessageSize", "startAcceptSendRequestTimeStamp", "rejectTransactionMessage")
async def test_what_is_refused(s: LiveScene) -> None:
    half = send(props="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01ABC\x02")
    assert half.ext is not None
    half.ext["f"] = "4"
    assert [await s.code(send(body=b"x" * 100)), await s.code(half)] == [0, 0]
    await s.update(maxMessageSize=99)
    assert [await s.code(send(body=b"x" * 99)), await s.code(send(body=b"x" * 100))] == [0, 13]
    await s.update(rejectTransactionMessage=True)
    assert await s.code(half) == 16
    await s.update(startAcceptSendRequestTimeStamp=s.node.clock.now_ms() + 60_000)
    assert await s.code(send()) == 1
    await asyncio.sleep(61)
    assert await s.code(send()) == 0


@live("autoCreateTopicEnable")
async def test_whether_topics_are_made(s: LiveScene) -> None:
    assert await s.code(send("A")) == 0
    await s.update(autoCreateTopicEnable=False)
    assert await s.code(send("B")) == 17
    await s.update(autoCreateTopicEnable=True)
    assert await s.code(send("B")) == 0


@live("sendThreadPoolQueueCapacity")
async def test_how_many_sends_may_wait(s: LiveScene) -> None:
    await s.update(sendThreadPoolQueueCapacity=0)
    assert await s.code(send()) == BUSY
    await s.update(sendThreadPoolQueueCapacity=1)
    assert await s.code(send()) == 0


@live("brokerFastFailureEnable", "waitTimeMillsInSendQueue")
async def test_how_long_sends_may_wait(s: LiveScene) -> None:
    endpoint = s.app.server
    with pytest.MonkeyPatch.context() as patch:
        # They are read half a second before the tick that serves them: the broker was busy.
        patch.setattr(endpoint, "now", lambda: s.node.clock.monotonic() - 0.5)
        assert await s.code(send()) == BUSY
        await s.update(waitTimeMillsInSendQueue=600)
        assert await s.code(send()) == 0
        await s.update(waitTimeMillsInSendQueue=400)
        assert await s.code(send()) == BUSY
        await s.update(brokerFastFailureEnable=False)
        assert await s.code(send()) == 0


@live("osPageCacheBusyTimeOutMills", flushDiskType="SYNC_FLUSH")
async def test_how_long_a_flush_may_last(s: LiveScene) -> None:
    await s.update(osPageCacheBusyTimeOutMills=60_000)
    s.node.world.offload.delay = 5.0  # type: ignore[attr-defined]
    sends = [asyncio.create_task(s.code(send()), name="client")]
    try:
        await asyncio.sleep(2)
        sends.append(asyncio.create_task(s.code(send()), name="client"))
        await asyncio.sleep(0.1)
        assert not sends[1].done()
        await s.update(osPageCacheBusyTimeOutMills=1_000)
        assert await s.code(send()) == BUSY
    finally:
        await asyncio.gather(*sends)


@live("syncFlushTimeout", flushDiskType="SYNC_FLUSH")
async def test_how_long_a_send_waits_for_the_disk(s: LiveScene) -> None:
    s.node.world.offload.delay = 30.0  # type: ignore[attr-defined]
    assert 4.9 < await s.took(s.tell(send())) < 6
    await s.update(syncFlushTimeout=2_000, osPageCacheBusyTimeOutMills=60_000)
    assert 1.9 < await s.took(s.tell(send())) < 3


@live("storeReplyMessageEnable")
async def test_whether_replies_are_kept(s: LiveScene) -> None:
    def reply() -> Command:
        command = send("DefaultCluster_REPLY_TOPIC", props="REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x01i")
        command.code = RequestCode.SEND_REPLY_MESSAGE_V2
        return command

    end = s.app.store.log.end
    await s.tell(reply())
    kept = s.app.store.log.end
    assert kept > end
    await s.update(storeReplyMessageEnable=False)
    await s.tell(reply())
    assert s.app.store.log.end == kept


def timed(seconds: int) -> Command:
    return send(props=properties.encode({"TIMER_DELAY_SEC": str(seconds), "UNIQ_KEY": f"k{seconds}"}))


@live("timerWheelEnable", "timerMaxDelaySec")
async def test_which_times_are_taken(s: LiveScene) -> None:
    assert await s.code(timed(1_000)) == 0
    await s.update(timerMaxDelaySec=999)
    assert [await s.code(timed(1_000)), await s.code(timed(999))] == [13, 0]
    await s.update(timerWheelEnable=False)
    assert await s.code(timed(10)) == 1


@live("timerPrecisionMs")
async def test_how_exact_times_are(s: LiveScene) -> None:
    end = s.app.store.queues.get_or_create("T", 0)

    async def waited() -> float:
        seen = end.visible
        assert await s.code(timed(5)) == 0
        return await eventually(lambda: end.visible > seen)

    assert await waited() < 6
    await s.update(timerPrecisionMs=30_000)
    began = s.node.clock.now_ms()
    await waited()
    assert s.node.clock.now_ms() // 30_000 > (began + 5_000) // 30_000 or (began + 5_000) % 30_000 < 1_000
    assert s.node.clock.now_ms() % 30_000 < 1_000


@live("recallMessageEnable")
async def test_whether_they_are_recalled(s: LiveScene) -> None:
    async def recalled() -> int:
        handle = ((await s.tell(timed(100))).ext or {})["recallHandle"]
        header = RecallMessageRequest(producer_group="g", topic="T", recall_handle=handle)
        return (await s.ask(RequestCode.RECALL_MESSAGE, header)).code

    assert await recalled() == 0
    await s.update(recallMessageEnable=False)
    assert await recalled() != 0


@live("transactionTimeOut", "transactionCheckInterval", "transactionCheckMax")
async def test_when_a_producer_is_asked(s: LiveScene) -> None:
    producer, numbers = Told(s), count()
    try:
        assert (await producer.ask(subscribe())).code == 0

        async def asked(seconds: int) -> int:
            """How often it is asked for one half message within so many seconds."""
            half = send(props=f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01half{next(numbers)}")
            assert half.ext is not None
            half.ext["f"] = "4"
            producer.commands.clear()
            assert (await producer.ask(half)).code == 0
            for _ in range(seconds // 20):
                await asyncio.sleep(20)
                await producer.ask(subscribe())
            return sum(command.code == RequestCode.CHECK_TRANSACTION_STATE for command in producer.commands)

        await s.update(transactionTimeOut=300_000)
        assert await asked(200) == 0
        await s.update(transactionTimeOut=1_000, transactionCheckMax=2)
        await asked(300)
        assert await asked(300) == 2
        await s.update(transactionCheckMax=100, transactionCheckInterval=5_000)
        await asked(80)
        assert await asked(100) > 10
    finally:
        await producer.client.close()

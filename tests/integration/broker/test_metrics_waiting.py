"""Metrics of what waits: half messages and their ends, messages with a time, delay levels, POP; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.transaction import EndTransactionRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.remoting.metrics import render
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def page(scene: PopScene) -> Series:
    _, families = await scene.app.metrics.page({})
    text = b"".join(await render(families)).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    found = [v for (n, have), v in series.items() if n == name and labels.items() <= dict(have).items()]
    assert len(found) <= 1, f"{name} {labels}: {len(found)}"
    return found[0] if found else None


async def end(scene: PopScene, sent: Any, verdict: int) -> None:
    _, _, offset = decode_offset_msg_id(sent["msgId"])
    header = EndTransactionRequest(
        producer_group="pg", tran_state_table_offset=int(sent["queueOffset"]), commit_log_offset=offset,
        commit_or_rollback=verdict, from_transaction_check=False, msg_id="u", transaction_id="u",
    )  # fmt: skip
    assert (await scene.ask(RequestCode.END_TRANSACTION, header)).code == 0


async def half(scene: PopScene) -> Any:
    ext = {"a": "pg", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "4", "g": str(scene.outside.clock.now_ms())}
    ext |= {"h": "0", "i": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u", "j": "0", "k": "false", "m": "false"}
    answer = await scene.client.request(scene.addr, Command(310, ext=dict(ext), body=b"x"), 5.0)
    assert answer.code == 0, answer.remark
    return answer.ext


@in_virtual_time
async def test_transactions() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        halves = [await half(scene) for _ in range(3)]
        await asyncio.sleep(100)
        await end(scene, halves[0], 8)
        await end(scene, halves[1], 12)
        series = await page(scene)
        assert value(series, "rocketmq_half_messages") == 1
        assert value(series, "rocketmq_commit_messages_total", topic="T") == 1
        assert value(series, "rocketmq_rollback_messages_total", topic="T") == 1
        assert value(series, "rocketmq_messages_in_total", topic="T", message_type="transaction") == 1
        assert value(series, "rocketmq_finish_message_latency_milliseconds_bucket", topic="T", le="60.0") == 0
        assert value(series, "rocketmq_finish_message_latency_milliseconds_bucket", topic="T", le="600.0") == 1
        assert 100 <= (value(series, "rocketmq_finish_message_latency_milliseconds_sum", topic="T") or 0) < 101


@in_virtual_time
async def test_timers_and_delay_levels() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        for seconds in ("3", "30", "3000"):
            await scene.send("later", properties=f"TIMER_DELAY_SEC\x01{seconds}")
        await scene.send("level", properties="DELAY\x015")
        await asyncio.sleep(5)
        series = await page(scene)
        assert value(series, "rocketmq_timer_enqueue_total", topic="T") == 3
        assert value(series, "rocketmq_timer_dequeue_total", topic="T") == 1
        assert value(series, "rocketmq_timing_messages") == 2
        periods = {
            bound: value(series, "rocketmq_timer_message_snapshot", timer_bound_s=bound)
            for bound in ("5", "60", "3600")
        }
        assert periods == {"5": 0, "60": 1, "3600": 1}
        for name in ("enqueue_lag", "dequeue_lag", "dequeue_latency_milliseconds"):
            assert value(series, f"rocketmq_timer_{name}") == 0
        assert value(series, "rmq_delayed_messages", level="5") == 1
        await asyncio.sleep(60)
        assert value(await page(scene), "rmq_delayed_messages", level="5") == 0


@in_virtual_time
async def test_pops() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        popped = await scene.pop(invisible_time=10_000)
        assert await scene.ack(popped[0]) == 0
        series = await page(scene)
        where = {"topic": "T", "consumer_group": "g"}
        assert value(series, "rocketmq_pop_checkpoint_buffer_size") == 1
        assert value(series, "rocketmq_consumer_inflight_messages", **where) == 2
        assert value(series, "rocketmq_pop_revive_in_message_total", revive_message_type="CK", **where) == 1
        assert value(series, "rocketmq_pop_revive_in_message_total", revive_message_type="ACK", **where) == 1
        assert value(series, "rocketmq_pop_revive_lag_milliseconds") == 0
        assert value(series, "rocketmq_pop_revive_retry_messages_total", **where) is None
        await asyncio.sleep(20)
        series = await page(scene)
        assert value(series, "rocketmq_pop_revive_retry_messages_total", **where) == 2
        assert value(series, "rocketmq_pop_checkpoint_buffer_size") == 0


@in_virtual_time
async def test_sizes_and_ages() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("x" * 10, "x" * 3000, "x" * 600_000, "x" * 3_000_000)
        await asyncio.sleep(7)
        scene.app.offsets.commit("TOOLS_CONSUMER", "T", 0, 1)
        series = await page(scene)
        below = {
            le: value(series, "rocketmq_message_size_bucket", topic="T", le=le)
            for le in ("1024.0", "4096.0", "1048576.0", "4194304.0", "+Inf")
        }
        assert below == {"1024.0": 1, "4096.0": 2, "1048576.0": 3, "4194304.0": 4, "+Inf": 4}
        assert value(series, "rocketmq_message_size_sum", topic="T") == value(
            series, "rocketmq_throughput_in_total", topic="T"
        )
        assert 7000 <= (value(series, "rocketmq_storage_message_reserve_time_milliseconds") or 0) < 8000
        late = value(series, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="TOOLS_CONSUMER", topic="T")
        assert late is not None
        assert 7000 <= late < 8000
        scene.app.offsets.commit("TOOLS_CONSUMER", "T", 0, 4)
        series = await page(scene)
        assert value(series, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="TOOLS_CONSUMER") is None
        # Each message is counted once, however often the page is read.
        assert value(series, "rocketmq_message_size_count", topic="T") == 4

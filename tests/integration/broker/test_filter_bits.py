"""Bit maps of SQL92 filters spare a pull the records that it does not want, and lose none; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time

ON = {"enablePropertyFilter": "true", "enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true"}


async def heartbeat(scene: PopScene, expression: str, version: int) -> None:
    wanted = SubscriptionData(topic="T", sub_string=expression, sub_version=version, expression_type="SQL92")
    consumer = ConsumerData(
        group_name="G", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET", subscription_data_set=[wanted],
    )  # fmt: skip
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()
    assert (await scene.ask(RequestCode.HEART_BEAT, None, body)).code == 0


async def pulled(scene: PopScene, version: int, offset: int = 0) -> tuple[list[str], int]:
    """Bodies, and how many records were read to find them."""
    read = 0
    log = scene.app.store.log
    read_many = log.read_many

    def counted(spans: Sequence[tuple[int, int]]) -> Any:
        nonlocal read
        read += len(spans)
        return read_many(spans)

    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32"}
    ext |= {"sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": str(version)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "read_many", counted)
        answer = await scene.client.request(scene.addr, Command(11, ext=dict(ext)), 10.0)
    found = [record.body.decode() for record in decode_records(answer.body)] if answer.code == 0 else []
    return found, read


async def sends(scene: PopScene, prefix: str) -> None:
    for number in range(60):
        await scene.send(f"{prefix}{number}", properties=f"a\x01{number % 20}")


@in_virtual_time
async def test_a_pull_reads_what_its_filter_may_want() -> None:
    async with pop_scene(1, **ON) as scene:
        await scene.topic()
        await sends(scene, "old")
        await asyncio.sleep(1)
        await heartbeat(scene, "a = 7", 1)
        await asyncio.sleep(1)
        await sends(scene, "new")
        new = ["new7", "new27", "new47"]
        # What came before the filter has to be read, each of it; what came after is known from its bit map.
        assert await pulled(scene, 1) == (["old7", "old27", "old47", *new], 60 + 3)
        assert await pulled(scene, 1, 60) == (new, 3)
        # Another expression begins a new life: what is there was not marked for it.
        await heartbeat(scene, "a = 8", 2)
        assert await pulled(scene, 2, 60) == (["new8", "new28", "new48"], 60)
        await asyncio.sleep(1)
        await sends(scene, "newer")
        assert await pulled(scene, 2, 120) == (["newer8", "newer28", "newer48"], 3)
        # The marks, and the filter they were made for, outlive the broker.
        await scene.restart()
        await heartbeat(scene, "a = 8", 3)
        assert await pulled(scene, 3, 120) == (["newer8", "newer28", "newer48"], 3)


@in_virtual_time
async def test_without_marks_everything_is_read() -> None:
    async with pop_scene(1, **{**ON, "enableCalcFilterBitMap": "false"}) as scene:
        await scene.topic()
        await heartbeat(scene, "a = 7", 1)
        await asyncio.sleep(1)
        await sends(scene, "m")
        assert await pulled(scene, 1) == (["m7", "m27", "m47"], 60)
        # Marks that come now are used at once.
        assert (await scene.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"enableCalcFilterBitMap=true")).code == 0
        await sends(scene, "n")
        assert await pulled(scene, 1, 60) == (["n7", "n27", "n47"], 3)

"""Light message queues in a whole broker: waiting messages, held pulls, limits, deletion, restarts; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from rmq.protocol import properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.offset import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.protocol.headers.transaction import EndTransactionRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.protocol.message import decode_records
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time

LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
GROUP = "%LMQ%GID@@client"


async def sent(scene: PopScene, body: str, names: str = "%LMQ%a", *, flag: int = 0, **more: str) -> Command:
    ext = {"a": "pg", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": str(flag), "g": "1", "h": "0", "j": "0"}
    ext |= {"i": properties.encode({"INNER_MULTI_DISPATCH": names, **more}), "k": "false", "m": "false"}
    return await scene.client.request(scene.addr, Command(310, ext=dict(ext), body=body.encode()), 5.0)


async def pulled(scene: PopScene, topic: str = "%LMQ%a", offset: int = 0, hold_ms: int = 0) -> Any:
    """(body, index in the light queue) of what a pull finds, or its code and remark."""
    ext = {"consumerGroup": GROUP, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32"}
    ext |= {"sysFlag": "6" if hold_ms else "4", "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms)}
    ext |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    answer = await scene.client.request(scene.addr, Command(11, ext=dict(ext)), 60.0)
    if answer.code:
        return answer.code, answer.remark
    return [(one.body.decode(), one.properties["INNER_MULTI_QUEUE_OFFSET"]) for one in decode_records(answer.body)]


@in_virtual_time
async def test_what_waits_is_in_the_light_queue_when_it_is_delivered() -> None:
    async with pop_scene(1, **LIGHT) as scene:
        await scene.topic()
        assert (await sent(scene, "level", DELAY="1")).code == 0
        assert (await sent(scene, "time", TIMER_DELAY_SEC="3")).code == 0
        half = await sent(scene, "half", flag=4, TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="u")
        assert half.code == 0
        assert (await sent(scene, "now")).code == 0
        assert await pulled(scene) == [("now", "0")]
        await asyncio.sleep(2)
        assert await pulled(scene, offset=1) == [("level", "1")]
        await asyncio.sleep(2)
        where = half.ext or {}
        _, _, offset = decode_offset_msg_id(str(where["msgId"]))
        header = EndTransactionRequest(
            producer_group="pg", tran_state_table_offset=int(str(where["queueOffset"])), commit_log_offset=offset,
            commit_or_rollback=8, from_transaction_check=False, msg_id="u", transaction_id="u",
        )  # fmt: skip
        assert (await scene.ask(RequestCode.END_TRANSACTION, header)).code == 0
        everything = await pulled(scene)
        assert everything == [("now", "0"), ("level", "1"), ("time", "2"), ("half", "3")]
        # All of it is found again by a broker whose queues were lost.
        await scene.app.stop()
        files = scene.node.world.files
        for topic in files.list("/store/consumequeue"):
            scene.app.store.queues.disk.remove_tree(f"/store/consumequeue/{topic}")
        await scene.start()
        assert await pulled(scene) == everything


@in_virtual_time
async def test_a_held_pull_of_a_light_queue_is_answered_by_an_arrival() -> None:
    async with pop_scene(1, **LIGHT) as scene:
        await scene.topic()
        waits = asyncio.create_task(pulled(scene, hold_ms=30_000), name="client pull")
        await asyncio.sleep(1)
        assert not waits.done()
        before = scene.outside.clock.monotonic()
        assert (await sent(scene, "x", "%LMQ%b,%LMQ%a")).code == 0
        assert await waits == [("x", "0,0")]
        assert scene.outside.clock.monotonic() - before < 1


@in_virtual_time
async def test_offsets_of_light_groups_survive_restarts_and_switches() -> None:
    async with pop_scene(1, **LIGHT) as scene:
        await scene.topic()
        for body in "ab":
            assert (await sent(scene, body)).code == 0
        where: dict[str, Any] = {"consumer_group": GROUP, "topic": "%LMQ%a"}
        commit = UpdateConsumerOffsetRequest(**where, queue_id=0, commit_offset=1)
        assert (await scene.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0

        async def offset() -> Any:
            answer = await scene.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest(**where, queue_id=7))
            return (answer.ext or {}).get("offset")

        assert await offset() == "1"
        await scene.restart()
        assert await offset() == "1"
        assert (await sent(scene, "c")).code == 0
        assert await pulled(scene, offset=1) == [("b", "1"), ("c", "2")]
        scene.settings["enableLmq"] = "false"
        await scene.restart()
        assert scene.app.offsets.query(GROUP, "%LMQ%a", 0) == 1
        scene.settings["enableLmq"] = "true"
        await scene.restart()
        assert await offset() == "1"
        assert await pulled(scene, offset=2) == [("c", "2")]


@in_virtual_time
async def test_limits_and_names() -> None:
    async with pop_scene(1, **LIGHT, maxLmqConsumeQueueNum="2") as scene:
        await scene.topic()
        assert (await sent(scene, "1", "%LMQ%a,%LMQ%b")).code == 0
        refused = await sent(scene, "2", "%LMQ%a,%LMQ%c")
        assert refused.code == 1
        assert (refused.remark or "").startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
        assert (await sent(scene, "3", "%LMQ%b")).code == 0
        assert await pulled(scene, "%LMQ%c") == (1, "store getMessage return null")
        assert await pulled(scene, "%LMQ%b", 1) == [("3", "1")]
        for names in ("%LMQ%../../x", "%LMQ%a,,%LMQ%b"):
            assert (await sent(scene, "x", names)).code == 13
        # The queue of a deleted name is gone, makes room, and begins anew.
        assert (await scene.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="%LMQ%b"))).code == 0
        assert (await sent(scene, "4", "%LMQ%c")).code == 0
        assert await pulled(scene, "%LMQ%c") == [("4", "0")]
        assert (await scene.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert await pulled(scene, "%LMQ%a") == [("1", "0,0")]


@in_virtual_time
async def test_light_queues_are_counted_as_one() -> None:
    async with pop_scene(1, **LIGHT) as scene:
        await scene.topic()
        assert (await sent(scene, "x", "%LMQ%a,%LMQ%b,%LMQ%c")).code == 0
        assert len(await pulled(scene, "%LMQ%a")) == len(await pulled(scene, "%LMQ%b")) == 1
        stats = scene.app.stats
        await stats.sample_minute()
        assert dict(stats.counters("TOPIC_PUT_NUMS")) == {"T": 1}
        assert dict(stats.counters("GROUP_GET_NUMS")) == {"%LMQ%@%LMQ%": 2}


@in_virtual_time
async def test_without_the_switch_a_name_is_only_a_property() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        assert (await sent(scene, "x", "%LMQ%a")).code == 0
        assert (await pulled(scene))[0] == 17
        assert scene.app.store.queues.get("%LMQ%a", 0) is None

"""Steps of the recorded broker run that are not in its sample, and what the clients of that run answered.

Each is done before the case it stands with; names and contents are what the following answers show.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rmq.protocol.codes import Language
from rmq.protocol.command import Command, SerializeType
from tests.support.answers.replay import Peer, Replay, body_of

__all__ = ["STEPS"]

#: The two consumers of group PB_CG in the recorded run.
FIRST, SECOND = "127.0.0.1:53332", "127.0.0.1:53338"
STEPS: dict[str, Callable[[Replay], Awaitable[None]]] = {}

Step = Callable[[Replay], Awaitable[None]]


def before(case: str) -> Callable[[Step], Step]:
    def add(step: Step) -> Step:
        STEPS[case] = step
        return step

    return add


async def between(replay: Replay) -> Peer:
    return await replay.peer("between")


async def ask(replay: Replay, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> Command:
    peer = await between(replay)
    return await peer.ask(Command(code, ext=dict(ext) if ext else None, body=body, **{**JAVA, **more}))


JAVA: dict[str, Any] = {"language": Language.JAVA, "version": 401}


async def send(
    replay: Replay, topic: str, queue: int, body: bytes, props: str = "", flag: int = 0, born: int = 1_700_000_000_000
) -> Command:
    ext = {"a": "PB_PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": str(flag), "g": str(born)}
    ext |= {"h": "0", "i": props, "j": "0", "k": "false", "m": "false"}
    answer = await ask(replay, 310, ext, body)
    assert answer.code == 0, answer
    return answer


async def config(replay: Replay, text: str) -> None:
    assert (await ask(replay, 25, body=text.encode())).code == 0


def drop_pushes(replay: Replay) -> None:
    for peer in replay.peers.values():
        peer.pushed.clear()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for what the broker does by itself."""
    while not reached():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def visible(replay: Replay, topic: str, queue_id: int) -> int:
    queue = replay.app.store.queues.get(topic, queue_id)
    return 0 if queue is None else queue.visible


@before("broker.topic.create.queues_0")
async def negative_queues(replay: Replay) -> None:
    ext = {**replay.cases["broker.topic.create"]["request"]["ext"], "topic": "PB_QN"}
    await ask(replay, 17, {**ext, "readQueueNums": "-1", "writeQueueNums": "-1"})
    await ask(replay, 17, {**ext, "topic": "PB_PERM_99", "perm": "99"})


@before("broker.topic.all")
async def large_topic_goes(replay: Replay) -> None:
    assert (await ask(replay, 215, {"topic": "PB_QBIG"})).code == 0


@before("broker.pull.found")
async def ten_messages(replay: Replay) -> None:
    for number in range(10):
        tag = "AB"[number % 2]
        props = f"KEYS\x01pk{number}\x02TAGS\x01{tag}\x02n\x01{number}\x02"
        await send(replay, "PB_PULL", 0, f"p{number}".encode(), props)


@before("broker.pull.empty_queue_0")
async def one_in_a_read_only_topic(replay: Replay) -> None:
    await send(replay, "PB_PERM_4", 0, b"m")


@before("broker.pull.group_disabled")
async def disabled_group(replay: Replay) -> None:
    await ask(replay, 200, body=b'{"groupName":"PB_CGOFF","consumeEnable":false}')


@before("broker.sql.found")
async def filter_on(replay: Replay) -> None:
    await config(replay, "enablePropertyFilter=true")


@before("broker.delay.stored")
async def delayed(replay: Replay) -> None:
    await replay.close("127.0.0.1:59586")  # the consumer of the cases before
    answer = await send(replay, "PB_T", 1, b"d", "DELAY\x0118\x02WAIT\x01true\x02TAGS\x01A\x02")
    replay.learn("7F00000100008516000000000040AB67", (answer.ext or {}).get("msgId"))


@before("broker.delay.delivered")
async def wait_for_delivery(replay: Replay) -> None:
    await until(lambda: visible(replay, "PB_DELAY", 1) >= 1)


@before("broker.back.retry_pull")
async def wait_for_the_retry(replay: Replay) -> None:
    await until(lambda: visible(replay, "%RETRY%PB_G0", 0) >= 4)


@before("broker.tran.half_stored")
async def half(replay: Replay) -> None:
    request = replay.cases["broker.tran.half2"]["request"]
    ext = {**request["ext"], "g": str(int(time.time() * 1000))}
    answer = await ask(replay, 310, ext, body_of(request["body"]))
    replay.learn("7F00000100008516000000000040C809", (answer.ext or {}).get("msgId"))


@before("broker.lp.topic")
async def transaction_producer_leaves(replay: Replay) -> None:
    await replay.close("127.0.0.1:59594")


def arrival(queue: int, tag: str) -> Step:
    """A message that comes while the pull is held."""

    async def step(replay: Replay) -> None:
        async def later() -> None:
            await until(lambda: replay.app.front.delivery.holds.count > 0)
            await send(replay, "PB_LP", queue, b"lp", f"TAGS\x01{tag}")

        replay.background = asyncio.create_task(later())

    return step


STEPS["broker.lp.arrival"] = arrival(1, "A")
STEPS["broker.lp.arrival_tag_match"] = arrival(2, "A")


@before("broker.lp.no_suspend_flag")
async def one_more(replay: Replay) -> None:
    await send(replay, "PB_LP", 1, b"lp")
    await send(replay, "PB_LP", 3, b"lp")


@before("broker.lp.short_polling")
async def long_polling_off(replay: Replay) -> None:
    await config(replay, "longPollingEnable=false")


@before("broker.offset.query.unknown_topic")
async def long_polling_on(replay: Replay) -> None:
    await config(replay, "longPollingEnable=true")


@before("broker.offset.all")
async def five(replay: Replay) -> None:
    ext = {"consumerGroup": "PB_OG", "topic": "PB_PULL", "queueId": "0", "commitOffset": "5"}
    await ask(replay, 15, ext)


@before("broker.hb.again.notified")
async def forget_the_first_notice(replay: Replay) -> None:
    peer = await replay.peer(FIRST)
    await peer.settled()
    assert [push.code for push in peer.pushed] == [40]
    drop_pushes(replay)


@before("broker.hb.second_client.notified_1")
async def second_client(replay: Replay) -> None:
    text = replay.cases["broker.hb.again"]["request"]["body"]["text"].replace("PB_A@1", "PB_A@2")
    beat = json.loads(text)
    beat["producerDataSet"] = []
    peer = await replay.peer(SECOND)
    await peer.ask(Command(34, body=json.dumps(beat).encode(), **JAVA))


@before("broker.ids.ok")
async def no_more_notices(replay: Replay) -> None:
    drop_pushes(replay)


def obliging(request: Command) -> Command | None:
    """What the recorded client answers."""
    if request.code == 307:
        body = b'{"mqTable":{},"properties":{"PROP_CLIENT_VERSION":"V4_9_4"},"statusTable":{},"subscriptionSet":[]}'
        return Command(0, body=body)
    if request.code == 309:
        body = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
        return Command(0, body=body)
    if request.code == 221:
        body = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"PB_PULL"}:5}}'
        return Command(0, body=body)
    if request.code == 326:
        return Command(0)
    return None


def refusing(request: Command) -> Command | None:
    return Command(1, remark="client says no")


@before("broker.relay.running_info")
async def client_answers(replay: Replay) -> None:
    drop_pushes(replay)
    (await replay.peer(FIRST)).answerer = obliging


@before("broker.relay.running_info@bin.pushed")
async def binary_running_info(replay: Replay) -> None:
    ext = replay.cases["broker.relay.running_info"]["request"]["ext"]
    assert (await ask(replay, 307, ext, serialize=SerializeType.ROCKETMQ)).code == 0


@before("broker.relay.running_info_client_error")
async def client_refuses(replay: Replay) -> None:
    (await replay.peer(FIRST)).answerer = refusing


@before("broker.relay.consume_directly.pushed")
async def consume_directly(replay: Replay) -> None:
    (await replay.peer(FIRST)).answerer = obliging
    ext = {"consumerGroup": "PB_CG", "clientId": "PB_A@1"}
    ext["msgId"] = replay.message_id("7F000001000085160000000000409F94")
    assert (await ask(replay, 309, ext)).code == 0


@before("broker.relay.status.pushed")
async def status(replay: Replay) -> None:
    answer = await ask(replay, 223, {"topic": "PB_PULL", "group": "PB_CG", "clientAddr": "PB_A@1"})
    assert answer.body == (
        b'{"consumerTable":{"PB_A@1":{{"brokerName":"broker-a","queueId":0,"topic":"PB_PULL"}:5}},"messageQueueTable":{}}'
    )


@before("broker.reset.to_max_force.pushed")
async def to_max_force(replay: Replay) -> None:
    drop_pushes(replay)
    ext = {"topic": "PB_PULL", "group": "PB_CG", "timestamp": "-1", "isForce": "true"}
    assert (await ask(replay, 222, ext)).code == 0


@before("broker.reset.query_after")
async def the_form_for_cpp(replay: Replay) -> None:
    peer = await replay.peer(FIRST)
    await peer.settled()
    pushed = peer.pushed[-1]
    assert pushed.body == b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"PB_PULL"}]}'


@before("broker.reply.ok.pushed")
async def reply(replay: Replay) -> None:
    drop_pushes(replay)
    replay.ports["127.0.0.1:38920"] = (await between(replay)).port
    request = replay.cases["broker.reply.v1"]["request"]
    assert (await ask(replay, 324, request["ext"], b"pong")).code == 0


@before("broker.reply.client_refuses")
async def reply_refused(replay: Replay) -> None:
    (await replay.peer(FIRST)).answerer = refusing


@before("broker.reply.no_property")
async def reply_accepted(replay: Replay) -> None:
    (await replay.peer(FIRST)).answerer = obliging


@before("broker.reply.not_stored")
async def not_stored(replay: Replay) -> None:
    await config(replay, "storeReplyMessageEnable=false")


@before("broker.unreg.consumer")
async def no_notices_yet(replay: Replay) -> None:
    drop_pushes(replay)


@before("broker.ids.after_close")
async def third_closes(replay: Replay) -> None:
    await replay.close(SECOND)


@before("broker.ids.none_left")
async def first_closes(replay: Replay) -> None:
    await replay.close(FIRST)


@before("broker.group.delete.remove_offset_query")
async def group_and_offsets_go(replay: Replay) -> None:
    assert (await ask(replay, 207, {"groupName": "PB_CG", "removeOffset": "true"})).code == 0


@before("broker.old.delete")
async def old_messages(replay: Replay) -> None:
    ext = {"topic": "PB_OLD", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    await ask(replay, 17, {**ext, "topicFilterType": "SINGLE_TAG"})
    for _ in range(6):
        await send(replay, "PB_OLD", 0, b"o" * 4_000_000)
    await config(replay, "fileReservedTime=0")


@before("broker.old.min")
async def clean_up(replay: Replay) -> None:
    while replay.app.store.log.start == 0:
        await replay.app.store.retention.run()

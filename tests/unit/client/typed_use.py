"""How users write it: type checkers have nothing to say, but for the lines that name what they are to say.

Where they are to complain stands what for: an ignore that nothing needs is an error of its own.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import rmq
from rmq import ConsumeContext, ConsumeResult, Message, MessageExt, MessageQueue, SendResult, aio

consumer = rmq.PushConsumer("g", namesrv="127.0.0.1:9876", consume_thread_max=4)
coroutines = aio.PushConsumer("g")
seen: list[bytes] = []

consumer.on("T")(lambda message: seen.append(message.body))
consumer.register_message_listener(lambda message: None)


@consumer.on("T", "TagA || TagB")
def plain(message: MessageExt) -> None:
    seen.append(message.body)


@consumer.on("T", sql=True)
def with_context(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
    context.ack_index = message.queue_id
    return ConsumeResult.SUCCESS


@consumer.on("T", batch=True)
def batch(messages: list[MessageExt]) -> bool:
    return bool(messages)


@coroutines.on("T")
async def coroutine(message: MessageExt) -> None:
    seen.append(message.body)


@consumer.on("T")
async def coroutine_on_the_loop(message: MessageExt, context: ConsumeContext) -> ConsumeResult | None:
    return None


@consumer.on("T")  # type: ignore[type-var]
def no_message() -> None: ...


@consumer.on("T")  # type: ignore[type-var]
def three(message: MessageExt, context: ConsumeContext, more: int) -> None: ...


@consumer.on("T")  # type: ignore[type-var]
def of_another_type(message: bytes) -> None: ...


@consumer.on("T")  # type: ignore[type-var]
def returns_text(message: MessageExt) -> str:
    return ""


@consumer.on("T", batch=True)  # type: ignore[type-var]
def one_for_a_batch(message: MessageExt) -> None: ...


@coroutines.on("T")  # type: ignore[type-var]
async def returns_number(message: MessageExt) -> int:
    return 1


@coroutines.on("T")  # type: ignore[type-var]
def many_for_one(messages: list[MessageExt]) -> None: ...


@consumer.on  # type: ignore[call-overload]
def without_topic(message: MessageExt) -> None: ...


def blocking(producer: rmq.Producer, queue: MessageQueue) -> SendResult:
    producer.send_async(Message("T", "text", delay=timedelta(minutes=5))).result(5).msg_id.upper()
    assert producer.search_offset(queue, datetime.now(UTC)) >= 0
    producer.send(b"bytes")  # type: ignore[arg-type]
    producer.send(Message("T", 5))  # type: ignore[arg-type]
    producer.send(Message("T", b"x", tag="TagA"))  # type: ignore[call-arg]
    rmq.Producer("g", namesrv_addr="127.0.0.1:9876")  # type: ignore[call-arg]
    rmq.PushConsumer("g", consume_thread_max="4")  # type: ignore[arg-type]
    return producer.send(Message("T", b"x"), queue=queue)


async def coroutine_calls(producer: aio.Producer, admin: aio.AdminClient) -> rmq.TopicStats:
    result: SendResult = producer.send(Message("T", b"x"))  # type: ignore[assignment]
    result = await producer.send(Message("T", b"x"))
    print(result.message_queue.topic)
    cluster: rmq.ClusterInfo = await admin.cluster_info()
    assert cluster
    return await admin.topic_stats("T")


class Seeing(rmq.Hook):
    """What is given several times may be a list, also of a class of one's own."""


rmq.Producer("g", hooks=[Seeing()], topics=["T"], retry_response_codes=[1, 2])
rmq.PullConsumer("g", register_topics=["T"], allocate_queues=[MessageQueue("T", "b", 0)], machine_rooms=["a"])
rmq.Producer("g", topics="T")  # type: ignore[arg-type]

"""What a push consumer tells of itself (307), and a single message tried on its listener (309; protocol.md 4.13)."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.message import MessageExt
from rmq.client.results import ConsumeResult
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.protocol.codes import version_name
from rmq.protocol.command import VERSION

if TYPE_CHECKING:
    from rmq.client.consumer.push import PushConsumer

__all__ = ["consume_directly", "describe", "stack_text"]

_RESULTS = {
    ConsumeResult.SUCCESS: "CR_SUCCESS",
    ConsumeResult.COMMIT: "CR_COMMIT",
    ConsumeResult.ROLLBACK: "CR_ROLLBACK",
    ConsumeResult.RECONSUME_LATER: "CR_LATER",
    ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
}


def describe(consumer: PushConsumer, *, stacks: bool) -> ConsumerRunningInfo:
    """:param stacks: with the stack of every thread, which Java calls jstack."""
    settings = consumer.settings
    instance = consumer._client
    now = consumer.world.clock.monotonic()
    properties = {
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in instance.name_servers.addresses),
        "PROP_THREADPOOL_CORE_SIZE": str(settings.consume_thread_max),
        "PROP_CONSUMEORDERLY": "true" if settings.orderly else "false",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        "consumerGroup": consumer.group,
        "instanceName": settings.instance_name,
        "messageModel": settings.message_model.value,
        "consumeFromWhere": settings.consume_from_where.value,
        "pullBatchSize": str(settings.pull_batch_size),
        "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
        "maxReconsumeTimes": str(settings.max_reconsume_times),
        "consumeTimeout": str(int(settings.consume_timeout // 60)),
    }
    return ConsumerRunningInfo(
        jstack=stack_text() if stacks else None,
        mq_table={queue: pq.info(consumer.noted(queue)) for queue, pq in consumer.process_queues().items()},
        mq_pop_table={queue: pq.info() for queue, pq in consumer.pop_queues().items()} or None,
        properties=properties,
        status_table={topic: consumer.statistics(topic).status(now) for topic in sorted(consumer.topics())},
        subscription_set=[data for _, data in sorted(consumer.subscriptions().items())],
    )


def stack_text() -> str:
    """Every thread's stack as text."""
    parts = []
    for number, frame in sys._current_frames().items():
        parts.append(f"THREAD {number}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


async def consume_directly(consumer: PushConsumer, message: MessageExt) -> ConsumeMessageDirectlyResult:
    """Call the listener as for a pulled message; the result is told, nothing else happens."""
    clock = consumer.world.clock
    began = clock.monotonic()
    message.topic = message.properties.get("RETRY_TOPIC") or message.topic
    consumer._client.namespace.message(message)
    context = ConsumeContext(message.message_queue)
    listener = consumer._listener_of(message.topic)
    result = ConsumeMessageDirectlyResult(order=consumer.settings.orderly)
    if listener is None:
        result.consume_result = "CR_THROW_EXCEPTION"
        result.remark = f"no listener for topic {message.topic}"
        return result
    if listener.is_coroutine:
        outcome = await listener.call_async(consumer.pool(), [message], context)
    else:
        outcome = await listener.call_on(consumer.pool(), [message], context)
    if outcome.error is not None:
        result.consume_result = "CR_THROW_EXCEPTION"
        result.remark = "".join(traceback.format_exception(outcome.error))
    else:
        result.consume_result = _RESULTS[outcome.result]
    result.auto_commit = context.auto_commit
    result.spent_time_mills = int((clock.monotonic() - began) * 1000)
    return result

"""Spans and metrics of OpenTelemetry, by its semantic conventions for messaging.

::

    from rmq.integrations.opentelemetry import OpenTelemetryHook

    hook = OpenTelemetryHook()                      # of the global providers
    producer = Producer("order_group", hooks=[hook])
    consumer = PushConsumer("payments", hooks=[hook])

The context travels in the message's properties under the propagator's names (``traceparent``, ``tracestate``,
``baggage``), where OpenTelemetry's agent for Java puts it, too. It stands beside RocketMQ's own message trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

import rmq
from rmq import ConsumeHookContext, ConsumeResult, Hook, Message, MessageExt, MessageQueue, SendHookContext
from rmq.protocol.keywords import keywords
from rmq.remoting.client import split_address
from rmq.runtime.world import World

__all__ = ["OpenTelemetryHook"]


class OpenTelemetryHook(Hook):
    """A hook for producers and consumers.

    Each message has a span ``create TOPIC``, which is what its consumers see; each attempt to send one or a batch a
    span ``send TOPIC``, linked with them; each call of a listener a span ``process TOPIC``, in which it runs: its own
    spans are children. The parent of a single message's ``process`` is what created it; that of a batch is linked
    with what created each.

    :param tracer_provider: the global one by default.
    :param meter_provider: the global one by default.
    """

    quick = True

    @keywords
    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        world: World | None = None,
    ) -> None:
        self._clock = (world or World.real()).clock
        self._tracer = trace.get_tracer("rmq", rmq.__version__, tracer_provider)
        meter = metrics.get_meter("rmq", rmq.__version__, meter_provider)
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of sends, each attempt by itself"
        )
        self._process = meter.create_histogram("messaging.process.duration", "s", "Duration of calls of listeners")
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages sent")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages given to listeners"
        )

    # -- sending ------------------------------------------------------------------------------------------------------

    def extra_properties(self, message: Message | MessageExt) -> Mapping[str, str]:
        told = {**_operation("create", message.topic), **_of_message(message)}
        span = self._tracer.start_span(f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=told)
        span.end()
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        return carrier

    def before_send(self, context: SendHookContext) -> None:
        told = {**_operation("send", context.queue.topic, context.queue), **_of_messages(context.messages)}
        told |= {"messaging.rocketmq.client.group": context.group, **_server(context.address)}
        context.data[_KEPT] = self._begin("send", context.queue.topic, SpanKind.CLIENT, told, _links(context.messages))

    def after_send(self, context: SendHookContext) -> None:
        span, began = context.data.pop(_KEPT)
        result = context.result
        if result is not None:
            span.set_attribute("messaging.message.id", result.msg_id)
            if not result.ok:
                span.set_status(Status(StatusCode.ERROR, result.send_status.name))
        figures = _operation("send", context.queue.topic, context.queue) | _server(context.address)
        _end(span, figures, context.error)
        self._operation.record(self._clock.monotonic() - began, figures)
        self._sent.add(len(context.messages), figures)

    # -- consuming ----------------------------------------------------------------------------------------------------

    def before_consume(self, context: ConsumeHookContext) -> None:
        messages, queue = context.messages, context.queue
        topic = messages[0].topic  # what is tried again comes from the group's retry topic
        told = {**_operation("process", topic, queue), **_of_messages(messages)}
        told["messaging.consumer.group.name"] = context.group
        parent = propagate.extract(messages[0].properties) if len(messages) == 1 else contexts.get_current()
        span, began = self._begin("process", topic, SpanKind.CONSUMER, told, _links(messages), parent)
        token = contexts.attach(trace.set_span_in_context(span, parent))
        context.data[_KEPT] = span, began, token

    def after_consume(self, context: ConsumeHookContext) -> None:
        span, began, token = context.data.pop(_KEPT)
        contexts.detach(token)
        figures = _operation("process", context.messages[0].topic, context.queue)
        figures["messaging.consumer.group.name"] = context.group
        if context.error is None and context.failed:
            result = context.result or ConsumeResult.RECONSUME_LATER
            span.set_status(Status(StatusCode.ERROR, f"{len(context.failed)} come again: {result.name}"))
        _end(span, figures, context.error)
        self._process.record(self._clock.monotonic() - began, figures)
        self._consumed.add(len(context.messages), figures)

    def _begin(
        self,
        what: str,
        topic: str,
        kind: SpanKind,
        told: dict[str, Any],
        links: Sequence[Link],
        parent: contexts.Context | None = None,
    ) -> tuple[Span, float]:
        span = self._tracer.start_span(f"{what} {topic}", context=parent, kind=kind, attributes=told, links=links)
        return span, self._clock.monotonic()


_KEPT = "opentelemetry"


def _end(span: Span, figures: dict[str, Any], error: BaseException | None) -> None:
    if error is not None:
        figures["error.type"] = type(error).__qualname__
        span.set_attribute("error.type", type(error).__qualname__)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


def _operation(what: str, topic: str, queue: MessageQueue | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": what,
        "messaging.operation.type": what,
        "messaging.destination.name": topic,
    }
    if queue is not None:
        told["messaging.destination.partition.id"] = f"{queue.broker_name}-{queue.queue_id}"
    return told


def _server(address: str) -> dict[str, Any]:
    host, port = split_address(address)
    return {"server.address": host, "server.port": port}


def _of_messages(messages: Sequence[Message | MessageExt]) -> dict[str, Any]:
    return _of_message(messages[0]) if len(messages) == 1 else {"messaging.batch.message_count": len(messages)}


def _of_message(message: Message | MessageExt) -> dict[str, Any]:
    told: dict[str, Any] = {"messaging.message.body.size": len(message.body)}
    if message.tags:
        told["messaging.rocketmq.message.tag"] = message.tags
    if keys := message.keys:
        told["messaging.rocketmq.message.keys"] = keys.split(" ") if isinstance(keys, str) else list(keys)
    if isinstance(message, MessageExt):
        told["messaging.message.id"] = message.msg_id
        told["messaging.rocketmq.message.reconsume_times"] = message.reconsume_times
    elif message.waits:
        told["messaging.rocketmq.message.type"] = "delay"
    return told


def _links(messages: Sequence[Message | MessageExt]) -> list[Link]:
    """Links to what created each message, as far as they say it."""
    spans = (trace.get_current_span(propagate.extract(message.properties)) for message in messages)
    found = (span.get_span_context() for span in spans)
    return [Link(context) for context in found if context.is_valid]

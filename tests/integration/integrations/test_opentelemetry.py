"""Spans and metrics of sends and listeners, with OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmq.aio import Message, MessageExt, MessageQueue, Producer, RMQError
from rmq.integrations.opentelemetry import OpenTelemetryHook
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


class Seen:
    """A hook, and what it told."""

    def __init__(self, s: Scene) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._metrics])
        world = s.cluster.world
        self.hook = OpenTelemetryHook(tracer_provider=self.traces, meter_provider=meters, world=world)
        self.producer = Producer("traced", namesrv=s.cluster.namesrv_addr, world=world, hooks=(self.hook,))
        self.consumer = s.consumer(hooks=(self.hook,), max_reconsume_times=1)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def figures(self) -> Iterator[tuple[str, dict[str, Any], Any]]:
        data = self._metrics.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                yield metric.name, dict(point.attributes), getattr(point, "value", None) or getattr(point, "count", 0)


def context_of(span: ReadableSpan) -> tuple[int, int]:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


@in_virtual_time
async def test_a_message_is_one_trace_from_the_sender_to_what_its_listener_does() -> None:
    async with scene() as s:
        seen, done = Seen(s), []
        tracer = seen.traces.get_tracer("app")

        @seen.consumer.on("T")
        async def take(message: MessageExt) -> None:
            with tracer.start_as_current_span("work"):
                done.append(message)

        sent = Message("T", b"body", tags="A", keys=["k1", "k2"], properties={"own": "1"})
        async with seen.producer, seen.consumer:
            with tracer.start_as_current_span("request"):
                result = await seen.producer.send(sent)
            await eventually(lambda: seen.spans("process T"))
        assert sent.properties == {"own": "1"}
        assert done[0].properties["own"] == "1"
        (request,), (created,), (send,), (process,), (work,) = map(
            seen.spans, ("request", "create T", "send T", "process T", "work")
        )
        assert len({context_of(span)[0] for span in (request, created, send, process, work)}) == 1
        for child, parent in ((created, request), (send, request), (process, created), (work, process)):
            assert child.parent is not None
            assert child.parent.span_id == context_of(parent)[1], child.name
        assert [link.context.span_id for link in send.links] == [context_of(created)[1]]
        assert send.attributes is not None
        assert send.attributes["messaging.message.id"] == result.msg_id
        assert send.attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
        assert send.attributes["messaging.destination.partition.id"] == f"broker-0-{result.message_queue.queue_id}"
        assert process.attributes is not None
        assert process.attributes["messaging.consumer.group.name"] == "g"
        assert process.kind is trace.SpanKind.CONSUMER
        told = {name: (attributes, value) for name, attributes, value in seen.figures()}
        assert {name: value for name, (_, value) in told.items()} == {
            "messaging.client.operation.duration": 1,
            "messaging.client.sent.messages": 1,
            "messaging.client.consumed.messages": 1,
            "messaging.process.duration": 1,
        }
        assert told["messaging.client.sent.messages"][0]["server.address"] == "127.0.0.1"


@in_virtual_time
async def test_failures_are_told_by_kind_and_leave_no_context_behind() -> None:
    async with scene() as s:
        seen, tries = Seen(s), []

        @seen.consumer.on("T", batch=False)
        def take(message: MessageExt) -> None:
            tries.append(trace.get_current_span().get_span_context().trace_id)
            raise KeyError("no such order")

        async with seen.producer, seen.consumer:
            await seen.producer.send(Message("T", b"1"))
            await eventually(lambda: len(seen.spans("process T")) == 2)
            with pytest.raises(RMQError):
                await seen.producer.send(Message("T", b"2"), queue=MessageQueue("T", "broker-0", 99))
        first, second = seen.spans("process T")
        assert tries == [context_of(first)[0], context_of(second)[0]] == [context_of(seen.spans("create T")[0])[0]] * 2
        assert first.attributes is not None
        assert first.attributes["error.type"] == "KeyError"
        assert not first.status.is_ok
        assert {s.attributes["error.type"] for s in seen.spans("send T") if s.attributes and not s.status.is_ok}
        assert trace.get_current_span() is trace.INVALID_SPAN


@in_virtual_time
async def test_a_batch_is_linked_with_each_of_its_messages() -> None:
    async with scene() as s:
        seen, done = Seen(s), []
        consumer = s.consumer(hooks=(seen.hook,), consume_message_batch_max_size=32)

        @consumer.on("T", batch=True)
        async def take(messages: list[MessageExt]) -> None:
            done.extend(messages)

        async with seen.producer:
            batch = [Message("T", b"%d" % number) for number in range(3)]
            await seen.producer.send(batch)
            async with consumer:
                await eventually(lambda: len(done) == 3 and seen.spans("process T"))
        created = {context_of(span)[1] for span in seen.spans("create T")}
        assert len(created) == 3
        for name in ("send T", "process T"):
            (span,) = seen.spans(name)
            assert {link.context.span_id for link in span.links} == created
            assert span.attributes is not None
            assert span.attributes["messaging.batch.message_count"] == 3

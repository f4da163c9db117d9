"""Figures of clients as Prometheus' own library shows them."""

from __future__ import annotations

import asyncio
import gc

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from rmq.aio import Message, MessageExt, MessageQueue, Producer, RMQError
from rmq.integrations.prometheus import PrometheusHook
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time


def figures(registry: CollectorRegistry) -> dict[str, float]:
    """Samples but the buckets', as text writes them."""
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs if "_bucket" not in name and "_created" not in name}


@in_virtual_time
async def test_sends_listeners_and_lag_are_counted() -> None:
    registry = CollectorRegistry()
    async with scene() as s:
        world = s.cluster.world
        hook = PrometheusHook(registry, world=world)
        producer = Producer("p", namesrv=s.cluster.namesrv_addr, world=world, hooks=(hook,))
        consumer, going = hook.watch(s.consumer(hooks=(hook,), max_reconsume_times=0)), asyncio.Event()

        @consumer.on("T")
        async def take(message: MessageExt) -> None:
            await going.wait()
            if message.body == b"bad":
                raise ValueError("bad")

        async with producer, consumer:
            await producer.send([Message("T", b"1"), Message("T", b"2")])
            await producer.send(Message("T", b"bad"))
            await producer.send_oneway(Message("T", b"3"))
            with pytest.raises(RMQError):
                await producer.send(Message("T", b"4"), queue=MessageQueue("T", "broker-0", 99))
            await eventually(lambda: sum(consumer.lag().values()) == 4)
            assert figures(registry)['rmq_client_lag_messages{group="g",topic="T"}'] == 4
            await asyncio.sleep(2)
            going.set()
            await eventually(lambda: not sum(consumer.lag().values()))
            seen = figures(registry)
    assert seen['rmq_client_sends_total{group="p",result="SEND_OK",topic="T"}'] == 2
    assert seen['rmq_client_sends_total{group="p",result="ONEWAY",topic="T"}'] == 1
    assert seen['rmq_client_sends_total{group="p",result="ResponseError",topic="T"}'] >= 1
    assert seen['rmq_client_sent_messages_total{group="p",topic="T"}'] == 3
    assert seen['rmq_client_consumed_messages_total{group="g",result="ok",topic="T"}'] == 3
    assert seen['rmq_client_consumed_messages_total{group="g",result="failed",topic="T"}'] == 1
    assert seen['rmq_client_consume_seconds_count{group="g",topic="T"}'] == 4
    assert seen['rmq_client_consume_seconds_sum{group="g",topic="T"}'] >= 8
    assert seen['rmq_client_lag_messages{group="g",topic="T"}'] == 0


def test_a_consumer_that_is_gone_is_shown_no_more() -> None:
    registry = CollectorRegistry()
    hook = PrometheusHook(registry)

    class Behind:
        group = "g"

        def lag(self) -> dict[MessageQueue, int]:
            return {MessageQueue("T", "b", 0): 3, MessageQueue("T", "b", 1): 4}

    consumer = hook.watch(Behind())
    assert figures(registry) == {'rmq_client_lag_messages{group="g",topic="T"}': 7}
    del consumer
    gc.collect()
    assert figures(registry) == {}

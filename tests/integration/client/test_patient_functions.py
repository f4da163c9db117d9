"""An application's functions may take their time: nothing of the SDK waits on its loop for one of them.

In virtual time a function waits by :func:`on_loop`, which only a thread can: one that is called on the loop fails.
"""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import MessageQueue
from rmq.runtime.lockstep import on_loop
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time


@pytest.mark.parametrize("kind", ["push", "lite", "pull"])
def test_the_listener_of_queues(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            told: list[int] = []

            def waits(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
                on_loop(asyncio.sleep(5))
                told.append(len(mine))

            if kind == "push":
                push = consumer = s.consumer(message_queue_listener=waits)
                push.on("T")(lambda message: None)
            elif kind == "lite":
                consumer = s.lite(message_queue_listener=waits)
                consumer.subscribe("T")
            else:
                consumer = s.puller(message_queue_listener=waits, register_topics=["T"])
            async with consumer:
                await eventually(lambda: told)
            assert told[0] == 4

    run()

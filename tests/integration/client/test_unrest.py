"""Members come and go, brokers restart, listeners fail: whatever was acknowledged is consumed at least once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rmq.aio import Message, MessageExt, PushConsumer, RMQError
from rmq.runtime.real import seeded
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize(
    ("seed", "listeners"), [(1, "coroutine"), (2, "coroutine"), (1, "plain")], indirect=["listeners"]
)
def test_nothing_acknowledged_is_lost(seed: int, orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        random = seeded(seed)
        settings = {"listenPort": "20911", "messageDelayLevel": " ".join(["1s"] * 18)}
        async with scene(**settings) as s:
            seen: Counter[str] = Counter()
            last: dict[int, int] = {}
            backwards: list[tuple[int, int]] = []

            def member() -> PushConsumer:
                made = s.consumer(orderly=orderly, suspend_current_queue_time=0.1, rebalance_interval=5)

                @made.on("T")
                async def handle(message: MessageExt) -> None:
                    await asyncio.sleep(random.random() * 0.05)
                    if random.random() < 0.05:
                        raise ValueError("now and then")
                    seen[message.msg_id] += 1
                    if orderly and message.queue_offset > last.get(message.queue_id, -1) + 1:
                        backwards.append((message.queue_id, message.queue_offset))
                    last[message.queue_id] = max(last.get(message.queue_id, -1), message.queue_offset)

                return made

            acknowledged: list[str] = []
            done = False

            async def produce() -> None:
                number = 0
                while not done:
                    number += 1
                    try:
                        acknowledged.append((await s.producer.send(Message("T", b"%d" % number), timeout=1)).msg_id)
                    except RMQError:
                        await asyncio.sleep(0.2)
                    await asyncio.sleep(0.05)

            members = [member()]
            await members[0].start()
            producing = asyncio.ensure_future(produce())
            for _ in range(12):
                await asyncio.sleep(random.random() * 8)
                choice = random.random()
                if choice < 0.4 and len(members) < 4:
                    members.append(member())
                    await members[-1].start()
                elif choice < 0.7 and len(members) > 1:
                    await members.pop(random.randrange(len(members))).shutdown()
                elif choice < 0.85:
                    await s.cluster.stop_broker(s.cluster.brokers[0])
                    await asyncio.sleep(random.random() * 3)
                    await s.cluster.start_broker(0)
            done = True
            await producing
            await eventually(lambda: set(acknowledged) <= set(seen), within=120)
            await asyncio.sleep(30)
            for one in members:
                await one.shutdown()
            assert len(acknowledged) > 300
            assert not backwards, "a message was skipped on the way"
            assert set((await s.diff()).values()) == {0}
            repeated = sum(times > 1 for msg_id, times in seen.items())
            assert repeated < len(seen) / 2

    run()

"""Every setting that may change while running is asked for again after it changed, by a broker in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import Message, TransactionProducer
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.settings import StoreSettings
from rmq.client.message import MessageExt
from rmq.client.transaction import TransactionState
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull, send
from tests.support.scenes.client import Scene, scene
from tests.support.scenes.pop import pop_scene
from tests.support.virtual import in_virtual_time

#: What the broker is begun with, so that what depends on a key is done at all.
SETTINGS = {
    "longPollingEnable": "false", "disableConsumeIfConsumerReadSlowly": "true", "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true", "flushCommitLogTimed": "false", "enablePropertyFilter": "true",
    "messageDelayLevel": "1s 2s", "transactionTimeOut": "1000", "transactionCheckInterval": "2000",
    "filterSupportRetry": "true", "mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400",
    "fileReservedTime": "0", "deleteWhen": ";".join(str(hour) for hour in range(24)),
}  # fmt: skip

#: Keys that another value of would end the work.
UNCHANGED = {"brokerPermission", "startAcceptSendRequestTimeStamp", "fileReservedTime"}
#: Keys that the broker follows by being told; the test that sees what they do.
FOLLOWED = dict.fromkeys(
    (
        "maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInDisk",
        "maxTransferCountOnMessageInDisk", "accessMessageInMemoryMaxRatio",
    ),
    "test_how_much_a_pull_carries_follows_the_settings",
)  # fmt: skip
#: Keys of what happens seldom; another test sees them.
ELSEWHERE = {
    "autoCreateTopicEnable": "tests/integration/broker/test_switches.py",
    "cleanFileForciblyEnable": "tests/unit/broker/store/care/test_retention.py",
}


@asynccontextmanager
async def recorded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[set[str]]:
    """The attributes of settings that are read."""
    read: set[str] = set()
    for kind in (BrokerSettings, StoreSettings):

        def note(self: Any, name: str) -> Any:
            read.add(name)
            return object.__getattribute__(self, name)

        monkeypatch.setattr(kind, "__getattribute__", note, raising=False)
    yield read
    monkeypatch.undo()


async def work(s: Scene, turn: str) -> None:
    """Whatever clients do, and what the broker does by itself in three minutes."""

    async def tried(command: Command) -> Command:
        return await s.admin.instance.remoting.request(s.cluster.broker_addr, command, 60)

    consumer = s.consumer(f"g{turn}")

    @consumer.on("T", "a > 1", sql=True)
    async def take(message: MessageExt) -> None:
        raise ValueError("once more")

    async def unknown(message: Message | MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    transactions = TransactionProducer(f"tp{turn}", unknown, namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
    async with transactions, consumer:
        await s.send(100, properties={"a": "2", "long": "x" * 500})
        await s.producer.send([Message("T", b"1"), Message("T", b"2")])
        sent = await s.producer.send(Message(f"New{turn}", b"x", keys="k"))
        await s.producer.send(Message("T", b"later", delay_level=1))
        await transactions.send_in_transaction(Message("T", b"half"), unknown)
        await s.admin.query_message("T", "k1")
        await s.admin.query_message(f"New{turn}", sent.msg_id)
        unique: dict[str, str | None] = {"topic": "T", "key": sent.msg_id, "maxNum": "9", "_UNIQUE_KEY_QUERY": "true"}
        await tried(Command(RequestCode.QUERY_MESSAGE, ext={**unique, "beginTimestamp": "0", "endTimestamp": "1"}))
        reply = send("DefaultCluster_REPLY_TOPIC")
        reply.code = RequestCode.SEND_REPLY_MESSAGE_V2
        await tried(reply)
        await tried(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        waits = await s.producer.send(Message("T", b"timer", delay=3600))
        await s.producer.recall_message("T", waits.recall_handle or "")
        await asyncio.sleep(30)
        await tried(pull(f"g{turn}", offset=10_000, hold_ms=20_000))
    await asyncio.sleep(200)
    await s.admin.delete_subscription_group(s.cluster.broker_addr, f"g{turn}")
    await tried(Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": f"New{turn}"}))


@in_virtual_time
async def test_every_live_key_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    live = {line.attribute: line for line in BrokerSettings.lines() if line.live}
    stored = {source: target for target, source in BrokerSettings._LIVE_STORE.items()}
    seen: set[str] = set()
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        async with recorded(monkeypatch) as read, scene(**SETTINGS, flushDiskType=flush) as s:
            await work(s, "1")
            settings = s.cluster.brokers[0].settings
            changed = "".join(
                f"{line.key}={value - 1 if value == line.highest else value + 1}\n"
                for line in live.values()
                if line.kind is int
                and line.key not in UNCHANGED
                and isinstance(value := getattr(settings, line.attribute), int)
            )
            settings.update(changed)
            read.clear()
            await work(s, "2")
            seen |= {name for name in live if name in read or stored.get(name) in read}
    unread = {line.key for name, line in live.items() if name not in seen}
    assert unread - FOLLOWED.keys() - ELSEWHERE.keys() == set()


def test_what_other_tests_see_is_there() -> None:
    for key, path in ELSEWHERE.items():
        line = BrokerSettings.line(key)
        assert line is not None
        text = (Path(__file__).parents[3] / path).read_text()
        assert key in text or {v: k for k, v in BrokerSettings._LIVE_STORE.items()}[line.attribute] in text
    assert set(FOLLOWED.values()) <= globals().keys()


@pytest.mark.parametrize("pop", [False, True])
@in_virtual_time
async def test_how_much_a_pull_carries_follows_the_settings(pop: bool) -> None:
    """They were read once at start, and an update of them was a success that changed nothing."""
    async with pop_scene(1) as scene:
        await scene.topic()
        for _ in range(20):
            await scene.send("x" * 100)

        async def carried() -> int:
            if pop:
                group = f"g{len(scene.app.groups.all())}"
                return len(await scene.pop(consumer_group=group, init_mode=0))
            answer = await scene.client.request(scene.addr, pull(), 60.0)
            return len(list(decode_records(answer.body))) if answer.body else 0

        async def update(text: str) -> None:
            assert (await scene.ask(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())).code == 0

        assert await carried() == 20
        await update("maxTransferCountOnMessageInMemory=7")
        assert await carried() == 7
        await update("maxTransferBytesOnMessageInMemory=700")
        assert 1 <= await carried() < 7
        await update("accessMessageInMemoryMaxRatio=0\nmaxTransferCountOnMessageInDisk=5")
        assert await carried() == 5
        await update("maxTransferBytesOnMessageInDisk=400")
        assert 1 <= await carried() < 5
        await update("accessMessageInMemoryMaxRatio=40\nmaxTransferBytesOnMessageInMemory=100000")
        assert await carried() == 7

"""Live settings of pulls, groups and queries."""

from __future__ import annotations

import asyncio
import json

from rmq.broker.store.queues.ext_queues import ExtQueueTable
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from tests.support.raw_peer import pull, subscribe
from tests.support.scenes.live import LiveScene, Told, live

OFF_DISK = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"}


def sql(group: str, expression: str = "a > 1", topic: str = "T") -> Command:
    """A heartbeat with an SQL92 subscription."""
    command = subscribe(group, topic)
    beat = json.loads(command.body)
    beat["consumerDataSet"][0]["subscriptionDataSet"][0] |= {"subString": expression, "expressionType": "SQL92"}
    command.body = json.dumps(beat).encode()
    return command


def pull_as_subscribed(group: str, topic: str = "T") -> Command:
    command = pull(group, topic)
    assert command.ext is not None
    command.ext |= {"sysFlag": "0", "subVersion": "1"}
    return command


@live(
    "maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInDisk",
    "maxTransferBytesOnMessageInDisk", "accessMessageInMemoryMaxRatio",
)  # fmt: skip
async def test_how_much_a_pull_carries(s: LiveScene) -> None:
    for _ in range(20):
        await s.send("x" * 100)

    async def carried() -> list[int]:
        """By a pull, and by a pop of a new group."""
        group = f"g{len(s.app.groups.all())}"
        return [len(await s.pulled()), len(await s.pop(consumer_group=group, init_mode=0))]

    assert await carried() == [20, 20]
    await s.update(maxTransferCountOnMessageInMemory=7)
    assert await carried() == [7, 7]
    await s.update(maxTransferBytesOnMessageInMemory=700)
    assert all(1 <= count < 7 for count in await carried())
    await s.update(maxTransferBytesOnMessageInMemory=100_000)
    await s.update(accessMessageInMemoryMaxRatio=0, maxTransferCountOnMessageInDisk=5)
    assert await carried() == [5, 5]
    await s.update(maxTransferBytesOnMessageInDisk=400)
    assert all(1 <= count < 5 for count in await carried())
    await s.update(accessMessageInMemoryMaxRatio=40)
    assert await carried() == [7, 7]


@live("longPollingEnable", "shortPollingTimeMills")
async def test_how_long_a_pull_waits(s: LiveScene) -> None:
    assert 9 < await s.took(s.tell(pull(hold_ms=10_000))) < 12
    await s.update(longPollingEnable=False)
    assert 0.5 < await s.took(s.tell(pull(hold_ms=10_000))) < 3
    await s.update(shortPollingTimeMills=5_000)
    assert 4.5 < await s.took(s.tell(pull(hold_ms=10_000))) < 7


@live("brokerPermission", "autoCreateSubscriptionGroup")
async def test_who_may_pull(s: LiveScene) -> None:
    await s.send("x")
    assert [await s.code(pull("A")), await s.code(pull("B"))] == [0, 0]
    await s.update(autoCreateSubscriptionGroup=False)
    assert [await s.code(pull("A")), await s.code(pull("C"))] == [0, 26]
    await s.update(brokerPermission=2)
    assert await s.code(pull("A")) == 16


@live("enablePropertyFilter")
async def test_whether_expressions_filter(s: LiveScene) -> None:
    await s.send("x", properties="a\x012")
    command = pull()
    assert command.ext is not None
    command.ext |= {"subscription": "a > 1", "expressionType": "SQL92"}
    assert await s.code(command) == 1
    await s.update(enablePropertyFilter=True)
    assert await s.code(command) == 0


@live("filterSupportRetry", enablePropertyFilter="true")
async def test_whether_retries_are_filtered(s: LiveScene) -> None:
    assert await s.code(sql("G")) == 0
    for body, value in (("more", 2), ("less", 1)):
        properties = f"RETRY_TOPIC\x01T\x02a\x01{value}"
        await s.send(body, topic="%RETRY%G", properties=properties)
    assert await s.pulled(topic="%RETRY%G") == ["more", "less"]
    await s.update(filterSupportRetry=True)
    assert await s.pulled(topic="%RETRY%G") == ["more"]


@live("enableCalcFilterBitMap", enablePropertyFilter="true", enableConsumeQueueExt="true")
async def test_whether_filters_are_noted_with_messages(s: LiveScene) -> None:
    assert await s.code(sql("G")) == 0
    await s.send("before", properties="a\x012")
    await s.update(enableCalcFilterBitMap=True)
    await s.send("x", properties="a\x012")
    queues = s.app.store.queues
    assert isinstance(queues, ExtQueueTable)
    units = await queues.units_cold(queues.get_or_create("T", 0), 0, 2)
    assert [bool(unit and unit.bit_map) for unit in units] == [False, True]


@live("filterDataCleanTimeSpan", enablePropertyFilter="true")
async def test_how_long_a_filter_outlives_its_group(s: LiveScene) -> None:
    client = Told(s)
    assert (await client.ask(sql("G"))).code == 0
    await client.client.close()
    await asyncio.sleep(600)
    assert s.app.filters.get("T", "G") is not None
    await s.update(filterDataCleanTimeSpan=1_000)
    await asyncio.sleep(60)
    assert s.app.filters.get("T", "G") is None


@live("notifyConsumerIdsChangedEnable")
async def test_whether_members_are_told_of_others(s: LiveScene) -> None:
    first = Told(s)
    try:
        await first.ask(subscribe(client="c1"))
        await s.tell(subscribe(client="c2"))
        await asyncio.sleep(1)
        told = len(first.commands)
        assert told
        await s.update(notifyConsumerIdsChangedEnable=False)
        third = Told(s)
        await third.ask(subscribe(client="c3"))
        await asyncio.sleep(1)
        await third.client.close()
        await asyncio.sleep(1)
        assert len(first.commands) == told
    finally:
        await first.client.close()


@live("disableConsumeIfConsumerReadSlowly", "consumerFallbehindThreshold")
async def test_who_reads_from_too_far_back(s: LiveScene) -> None:
    for _ in range(3):
        await s.send("x" * 1_000)

    async def may_go_on(group: str) -> bool:
        """Whether it may still read after it has read the first message."""
        command = pull(group)
        assert command.ext is not None
        command.ext["maxMsgNums"] = "1"
        for _ in range(5):
            await s.tell(command)
            await asyncio.sleep(60)
        return await s.code(command) == 0

    assert await may_go_on("A")
    await s.update(disableConsumeIfConsumerReadSlowly=True)
    assert await may_go_on("A")
    await s.update(consumerFallbehindThreshold=1_000)
    assert not await may_go_on("A")
    await s.update(disableConsumeIfConsumerReadSlowly=False)
    assert await may_go_on("B")


@live("defaultQueryMaxNum", "maxMsgsNumBatch")
async def test_how_many_a_query_finds(s: LiveScene) -> None:
    for _ in range(10):
        await s.send("x", properties="KEYS\x01k\x02UNIQ_KEY\x01u")

    async def found(key: str, **more: str) -> int:
        ext: dict[str, str | None] = {
            "topic": "T", "key": key, "maxNum": "8", "beginTimestamp": "0", "endTimestamp": str(1 << 60), **more,
        }  # fmt: skip
        return (await s.tell(Command(RequestCode.QUERY_MESSAGE, ext=ext))).body.count(b"UNIQ_KEY")

    unique = {"_UNIQUE_KEY_QUERY": "true"}
    assert [await found("k"), await found("u", **unique)] == [8, 10]
    await s.update(defaultQueryMaxNum=3)
    assert [await found("k"), await found("u", **unique)] == [8, 3]
    await s.update(maxMsgsNumBatch=2)
    assert [await found("k"), await found("u", **unique)] == [2, 2]


@live("pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity", "endTransactionPoolQueueCapacity")
async def test_what_the_runtime_information_shows(s: LiveScene) -> None:
    async def shown() -> list[str]:
        table = fastjson.loads((await s.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        names = ("pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity", "EndTransactionThreadPoolQueueCapacity")
        return [table[name] for name in names]

    assert await shown() == ["100000", "20000", "100000"]
    await s.update(pullThreadPoolQueueCapacity=1, queryThreadPoolQueueCapacity=2, endTransactionPoolQueueCapacity=3)
    assert await shown() == ["1", "2", "3"]


@live("enableDetailStat")
async def test_whether_latencies_are_kept_by_queue(s: LiveScene) -> None:
    async def kept(key: str) -> bool:
        ext: dict[str, str | None] = {"statsName": "GROUP_GET_LATENCY", "statsKey": key}
        return await s.code(Command(RequestCode.VIEW_BROKER_STATS_DATA, ext=ext)) == 0

    await s.send("x")
    await s.pulled("A")
    assert [await kept("0@T@A"), await kept("T@A")] == [True, False]
    await s.update(enableDetailStat=False)
    await s.pulled("B")
    assert [await kept("0@T@B"), await kept("T@B")] == [False, True]


@live("checkCRCInMemory")
async def test_whether_bodies_in_memory_are_compared(s: LiveScene) -> None:
    await s.send("one", "two", "end")
    await asyncio.sleep(70)
    log = s.app.store.log
    for message in ("one", "two"):
        # The page cache has it, and what this process remembers of its writes has it no more.
        log._tail.clear()
        path = log.segments[0].path
        content = s.node.files.read(path)[: log.end]
        s.node.disk.open(path).pwrite(b"X", content.index(message.encode()))
    assert await s.pulled() == ["Xne", "Xwo", "end"]
    await s.update(checkCRCInMemory=True)
    assert await s.pulled() == ["end"]

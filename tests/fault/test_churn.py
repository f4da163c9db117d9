"""Topics and groups come and go for years: a broker holds no more for those that have been (torture: 2,000)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from rmq.protocol.command import Command
from rmq.protocol.ids import decode_offset_msg_id
from tests.support.held import files_below, held_by
from tests.support.kills.campaign import amount
from tests.support.raw_peer import pull, send
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time

SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "enableDetailStat": "true",
    "metricsExporterType": "PROM",
    "fileReservedTime": "1",
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueueExt": "4096",
    "transactionCheckInterval": "60000",
}

#: A topic and a group that stay, whatever topics and groups come and go.
LASTING, LASTING_GROUP = "Filler0", "lasting"


class Life:
    """One topic and one group that use every feature, and are deleted as mqadmin does it."""

    def __init__(self, scene: PopScene, number: int) -> None:
        self.scene = scene
        self.number = number
        self.topic, self.group, self.client = f"T{number}", f"g{number}", f"client-{number}"
        self.light = f"%LMQ%{number}"
        self.keys = f"KEYS\x01key-{number}\x02UNIQ_KEY\x010A00{number:028d}\x02"

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: object = None, *, ok: int = 0) -> Command:
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self.scene.client.request(self.scene.addr, Command(code, ext=dict(ext or {}), body=data), 60)
        assert answer.code == ok, f"{code}: {answer.code} {answer.remark}"
        return answer

    async def send(self, properties: str, *, flag: int = 0) -> Command:
        command = send(self.topic, props=self.keys + properties)
        assert command.ext is not None
        command.ext["a"], command.ext["f"] = f"P{self.group}", str(flag)
        answer = await self.scene.client.request(self.scene.addr, command, 60)
        assert answer.code == 0, answer.remark
        return answer

    async def run(self) -> None:
        await self._begin()
        await self._send()
        await asyncio.sleep(3)
        await self._consume()
        await self.scene.app.metrics.page({})
        await self._end()

    async def _begin(self) -> None:
        topic, group = self.topic, self.group
        await self.scene.topic(topic, queues=2)
        await self.ask(200, body={"groupName": group, "retryMaxTimes": 1})
        producers = [{"groupName": f"P{group}"}]
        consumers = [self._consumer(group, topic, LASTING), self._consumer(LASTING_GROUP, topic)]
        await self.ask(34, body={"clientID": self.client, "consumerDataSet": consumers, "producerDataSet": producers})
        queue = {"topic": topic, "brokerName": "b", "queueId": 0}
        await self.ask(41, body={"consumerGroup": group, "clientId": self.client, "mqSet": [queue]})
        for on, by in ((topic, group), (LASTING, group), (topic, LASTING_GROUP)):
            await self.ask(401, body={"topic": on, "consumerGroup": by, "mode": "POP", "popShareQueueNum": 1})
        for forbidden in (topic, f"{topic}-other"):
            await self.ask(353, {"group": group, "topic": forbidden, "readable": "false"})
        await self.ask(353, {"group": group, "topic": topic, "readable": "true"})
        await self.ask(353, {"group": LASTING_GROUP, "topic": topic, "readable": "false"})

    def _consumer(self, group: str, *topics: str) -> dict[str, object]:
        subscriptions = [
            {
                "topic": topic, "subString": f"a > 1 or b = '{group}-{self.number}'", "subVersion": 1,
                "expressionType": "SQL92", "classFilterMode": False, "tagsSet": [], "codeSet": [],
            } for topic in topics
        ]  # fmt: skip
        return {
            "groupName": group, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
        }  # fmt: skip

    async def _send(self) -> None:
        """Some are due before, and some after the deletion."""
        for _ in range(3):
            await self.send(f"INNER_MULTI_DISPATCH\x01{self.light}\x02a\x015\x02")
        for waits in ("DELAY\x011\x02", "DELAY\x015\x02", "TIMER_DELAY_MS\x01700\x02", "TIMER_DELAY_SEC\x0160\x02"):
            await self.send(waits)
        for verdict in (8, 12, 0):
            half = await self.send(f"TRAN_MSG\x01true\x02PGROUP\x01P{self.group}\x02", flag=4)
            assert half.ext is not None
            _, _, offset = decode_offset_msg_id(half.ext["msgId"] or "")
            end = {
                "producerGroup": f"P{self.group}", "tranStateTableOffset": half.ext["queueOffset"] or "",
                "commitLogOffset": str(offset), "commitOrRollback": str(verdict), "fromTransactionCheck": "false",
            }  # fmt: skip
            if verdict:
                await self.ask(37, end)

    async def _consume(self) -> None:
        topic, group = self.topic, self.group
        sql = pull(group, topic)
        assert sql.ext is not None
        sql.ext |= {"sysFlag": "0", "subVersion": "1", "expressionType": "SQL92"}
        answer = await self.scene.client.request(self.scene.addr, sql, 60)
        assert answer.code == 0, answer.remark
        position = str(int.from_bytes(answer.body[28:36], "big"))
        back = {"offset": position, "group": group, "originTopic": topic, "maxReconsumeTimes": "1"}
        for level in ("0", "-1"):
            await self.ask(36, {**back, "delayLevel": level})
        for on, by in ((topic, group), (LASTING, group), (topic, LASTING_GROUP)):
            await self.ask(15, {"consumerGroup": by, "topic": on, "queueId": "0", "commitOffset": "1"})
        query = {"key": f"key-{self.number}", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        await self.ask(12, {**query, "topic": topic})
        await self.ask(12, {**query, "topic": f"{topic}-none"}, ok=22)
        # Acknowledged, left to come again, and open when the topic goes; orderly, too.
        popping, ordered = f"pop-{group}", f"ord-{group}"
        first = await self.scene.pop(topic=topic, consumer_group=popping, invisible_time=1000, queue_id=0)
        assert len(first) > 3
        await self.scene.ack(first[0], popping)
        await self.scene.pop(topic=topic, consumer_group=ordered, queue_id=0, order=True, attempt_id="1")
        await asyncio.sleep(4)
        assert await self.scene.pop(topic=topic, consumer_group=popping, invisible_time=20_000, queue_id=0)

    async def _end(self) -> None:
        group = self.group
        for name in ({"consumerGroup": group}, {"consumerGroup": LASTING_GROUP}, {"producerGroup": f"P{group}"}):
            await self.ask(35, {"clientID": self.client, **name})
        # Groups first, or topics first.
        for step in (self._end_topics, self._end_groups)[:: 1 if self.number % 2 else -1]:
            await step()
        # What was on its way still asks.
        await self.scene.client.request(self.scene.addr, pull("late", self.topic), 60)

    async def _end_topics(self) -> None:
        for topic in (self.topic, self.light):
            await self.ask(215, {"topic": topic})

    async def _end_groups(self) -> None:
        for group in (self.group, f"pop-{self.group}", f"ord-{self.group}"):
            await self.ask(207, {"groupName": group, "removeOffset": "true"})
            for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
                await self.ask(215, {"topic": topic})


async def series(scene: PopScene) -> Counter[str]:
    """Series by metric, in both vocabularies."""
    found: Counter[str] = Counter()
    for names in ("native", "exporter"):
        _, families = await scene.app.metrics.page({"names": names})
        found.update(f"{names} {family.name}" for family in families for _ in family.samples)
    return found


#: What is bounded by itself, and may be anywhere below its bound: the newest bytes of the log, where it ended lately,
#: the last times of appends, samples of the last minute, hour and day, and the last 1,000 versions of the topics.
BOUNDED = (
    "MemoryTail.", "LmqStats._put_times", "_Window._stamps", "_Window._samples[]",
    "Versions._history", "(DataVersion)", "MasterReplication._ends",
    "Checksums._held", "Checksums._known", "(_Known)", "_Known.",
)  # fmt: skip


async def measured(scene: PopScene) -> dict[str, int]:
    """What is held once all that was on its way has come or expired, and retention has taken the records."""
    await asyncio.sleep(200)
    for number in range(80):  # so that files roll
        await scene.send("x" * 4000, topic=f"Filler{number % 2}")
    await asyncio.sleep(3700)
    for _ in range(amount(5, 50)):  # ten files at a time, as in Java
        scene.app.store.retention.trigger()
        await asyncio.sleep(60)
    told = await series(scene)  # and what was read for the last page is of now
    held = Counter({f"held {name}": size for name, size in held_by(scene.app).items() if not name.startswith(BOUNDED)})
    held.update({f"series {name}": count for name, count in told.items()})
    await scene.app.metadata.persist_offsets()
    await scene.app.filters.persist()
    held.update({f"store {name}": size for name, size in files_below(scene.node.files, "/store").items()})
    return dict(held)


async def lives(scene: PopScene, first: int, count: int) -> None:
    """Some at a time, as on a busy broker."""
    for start in range(first, first + count, 25):
        numbers = range(start, min(start + 25, first + count))
        await asyncio.gather(*(Life(scene, number).run() for number in numbers))


async def churned(first: int, count: int) -> dict[str, tuple[int, int]]:
    async with pop_scene(**SETTINGS) as scene:
        for number in range(2):
            await scene.topic(f"Filler{number}")
        await lives(scene, 0, first)
        before = await measured(scene)
        await lives(scene, first, count)
        after = await measured(scene)
        kept = set(scene.app.store.queues.topics())
        await scene.restart()
        assert set(scene.app.store.queues.topics()) == kept
        assert not [topic for topic in kept if topic.startswith(("T", "%")) and topic not in scene.app.topics]
        return {
            name: (before.get(name, 0), after.get(name, 0))
            for name in before.keys() | after.keys()
            if before.get(name, 0) != after.get(name, 0)
        }


@in_virtual_time
async def test_a_broker_holds_nothing_of_topics_and_groups_that_have_been() -> None:
    grown = await churned(25, amount(25, 2000))
    for name, (before, after) in sorted(grown.items()):
        print(f"{name:70} {before:8} {after:8}")
    assert not grown

"""Messages that wait in a whole broker, in virtual time: sends, answers, recall, dead letters, damaged offsets."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

from rmq.broker.schedule.timing import RecallHandle
from rmq.protocol import properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import RecallMessageRequest
from rmq.protocol.headers.send import ConsumerSendMsgBackRequest, SendMessageV2Request
from rmq.protocol.ids import decode_offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from rmq.testing.simfiles import SimFiles
from tests.support.virtual import in_virtual_time, one_world


class Caller:
    """One broker with one raw client on it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.world = one_world()
        self.cluster = Cluster(
            folder, world=self.world, settings={"messageDelayLevel": "1s 2s 3s 4s 5s 1h", **settings}
        )
        self.client = RemotingClient(self.world)

    async def __aenter__(self) -> Caller:
        await self.cluster.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.cluster.stop()

    @property
    def broker(self) -> Any:
        return self.cluster.brokers[0]

    async def ask(self, command: Command) -> Command:
        return await self.client.request(self.cluster.broker_addr, command, 10)

    async def send(
        self, body: str, topic: str = "T", *, tries: int = 0, most: int | None = None, queue: int = 0, **table: str
    ) -> Command:
        """SEND_MESSAGE_V2 with these properties."""
        header = SendMessageV2Request(
            producer_group="g", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue,
            sys_flag=0, born_timestamp=self.world.clock.now_ms(), flag=0,
            properties=properties.encode({"UNIQ_KEY": f"U{body}", **table}), reconsume_times=tries, unit_mode=False,
            max_reconsume_times=most, batch=False,
        )  # fmt: skip
        return await self.ask(Command.request(RequestCode.SEND_MESSAGE_V2, header, body.encode()))

    async def recall(self, handle: str, topic: str = "T") -> Command:
        header = RecallMessageRequest(producer_group="g", topic=topic, recall_handle=handle)
        return await self.ask(Command.request(RequestCode.RECALL_MESSAGE, header))

    async def give_back(self, record: MessageRecord, level: int, group: str = "G", most: int = 16) -> Command:
        header = ConsumerSendMsgBackRequest(
            offset=record.physical_offset, group=group, delay_level=level, max_reconsume_times=most,
        )  # fmt: skip
        return await self.ask(Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header))

    async def records(self, topic: str, queue_id: int = 0) -> list[MessageRecord]:
        store = self.broker.store
        queue = store.queues.get(topic, queue_id)
        found = []
        for index in range(queue.visible if queue else 0):
            entry = await store.queues.entries_cold(queue, index, 1)
            found.append(decode_record(await store.messages.at(int.from_bytes(entry[:8], "big"))))
        return found

    async def bodies(self, topic: str, queue_id: int = 0) -> list[str]:
        return [record.body.decode() for record in await self.records(topic, queue_id)]


@in_virtual_time
async def test_a_send_names_its_own_queue_and_a_recall_handle(tmp_path: Path) -> None:
    async with Caller(tmp_path) as caller:
        await caller.send("warm", queue=2)
        answer = await caller.send("x", queue=2, TIMER_DELAY_MS="1500", TAGS="A")
        assert (answer.code, (answer.ext or {})["queueId"], (answer.ext or {})["queueOffset"]) == (0, "2", "0")
        handle = RecallHandle.decode(str((answer.ext or {})["recallHandle"]))
        due = handle.deliver_at
        assert handle[:2] == ("T", "broker-0")
        assert handle.unique_key == "Ux"
        _, _, offset = decode_offset_msg_id(str((answer.ext or {})["msgId"]))
        assert (await caller.broker.store.messages.at(offset)) is not None
        await asyncio.sleep(3)
        record = (await caller.records("T", 2))[-1]
        assert record.body == b"x"
        assert due <= record.store_timestamp <= due + 200
        assert "recallHandle" not in ((await caller.send("plain")).ext or {})
        assert "recallHandle" not in ((await caller.send("past", TIMER_DELAY_SEC="-3")).ext or {})
        assert (await caller.send("far", TIMER_DELAY_SEC="345600")).code == 13
        both = await caller.send("both", TIMER_DELAY_SEC="60", DELAY="1")
        assert "recallHandle" not in (both.ext or {})
        await asyncio.sleep(2)
        assert "both" in await caller.bodies("T")


@in_virtual_time
async def test_recall_and_every_way_it_can_fail(tmp_path: Path) -> None:
    """Field case B053."""
    async with Caller(tmp_path) as caller:
        handles = {
            key: str(((await caller.send(key, TIMER_DELAY_SEC="10")).ext or {})["recallHandle"])
            for key in ("taken", "kept")
        }
        await caller.send("w", topic="Other")
        await asyncio.sleep(2)
        answer = await caller.recall(handles["taken"])
        assert (answer.code, (answer.ext or {})["msgId"]) == (0, "Utaken")
        good = RecallHandle.decode(handles["kept"])
        remarks = set()
        for handle, topic, code in (
            (handles["taken"], "T", 604),
            (handles["kept"], "Other", 604),
            (handles["kept"], "Nowhere", 17),
            (handles["kept"], "%RETRY%g", 17),
            ("broken", "T", 604),
            (good._replace(broker_name="b2").encode(), "T", 604),
            (good._replace(deliver_at=good.deliver_at + 400_000_000).encode(), "T", 604),
        ):
            refused = await caller.recall(handle, topic)
            assert refused.code == code, refused.remark
            remarks.add(refused.remark)
        assert len(remarks) == 7
        caller.broker.settings.update("recallMessageEnable=false")
        refused = await caller.recall(handles["kept"])
        assert refused.code == 16
        assert "recallMessageEnable" in (refused.remark or "")
        caller.broker.settings.update("recallMessageEnable=true")
        await asyncio.sleep(12)
        assert await caller.bodies("T") == ["kept"]
        late = await caller.recall(handles["kept"])
        assert late.code == 604
        assert "delivered" in (late.remark or "")


@in_virtual_time
async def test_what_waits_comes_after_a_restart(tmp_path: Path) -> None:
    async with Caller(tmp_path) as caller:
        await caller.send("timed", TIMER_DELAY_SEC="5")
        await caller.send("due-meanwhile", TIMER_DELAY_SEC="2")
        await caller.send("level", DELAY="5")
        await caller.cluster.stop_broker(caller.broker)
        await asyncio.sleep(3)
        await caller.cluster.start_broker()
        await asyncio.sleep(0.5)
        assert await caller.bodies("T") == ["due-meanwhile"]
        await asyncio.sleep(4)
        assert sorted(await caller.bodies("T")) == ["due-meanwhile", "level", "timed"]


@in_virtual_time
async def test_a_dead_letter_is_there_at_once(tmp_path: Path) -> None:
    """B048."""
    async with Caller(tmp_path) as caller:
        await caller.send("x", KEYS="k")
        (record,) = await caller.records("T")
        for tries in (1, 2):
            assert (await caller.give_back(record, 6, most=2)).code == 0
            schedule = await caller.records("SCHEDULE_TOPIC_XXXX", 5)
            assert len(schedule) == tries
            record = schedule[-1]
        assert (await caller.give_back(record, 6, most=2)).code == 0
        (dead,) = await caller.records("%DLQ%G")
        assert dead.reconsume_times == 3
        assert {"ORIGIN_MESSAGE_ID", "RETRY_TOPIC"} <= dead.properties.keys()
        # The other way there: the client sends the retry itself.
        answer = await caller.send("y", topic="%RETRY%G", tries=2, most=2, DELAY="6", TIMER_DELAY_MS="5000")
        assert answer.code == 0
        await asyncio.sleep(0.1)
        assert await caller.bodies("%DLQ%G") == ["x", "y"]
        last = (await caller.records("%DLQ%G"))[-1]
        assert last.properties["DELAY"] == "0"
        assert "TIMER_DELAY_MS" not in last.properties


@in_virtual_time
async def test_retries_begin_at_level_three_and_go_up(tmp_path: Path) -> None:
    """B049."""
    async with Caller(tmp_path, messageDelayLevel=" ".join(f"{level}s" for level in range(1, 19))) as caller:
        await caller.send("x")
        (record,) = await caller.records("T")
        for tries in range(16):
            given = caller.world.clock.now_ms()
            assert (await caller.give_back(record, 0)).code == 0
            await asyncio.sleep(3 + tries + 0.5)
            record = (await caller.records("%RETRY%G"))[-1]
            assert record.reconsume_times == tries + 1
            assert 0 <= record.store_timestamp - given - (3 + tries) * 1000 <= 200
        assert await caller.bodies("%DLQ%G") == []
        await caller.give_back(record, 0)
        assert await caller.bodies("%DLQ%G") == ["x"]
        await caller.send("at-once")
        await caller.give_back((await caller.records("T"))[-1], -1)
        assert await caller.bodies("%DLQ%G") == ["x", "at-once"]


@in_virtual_time
async def test_an_offset_beyond_the_queue_stops_no_level(tmp_path: Path) -> None:
    """B050; and what was still waiting is not skipped either."""
    async with Caller(tmp_path) as caller:
        for number in range(5):
            await caller.send(f"old{number}", DELAY="2")
        await asyncio.sleep(3)
        await caller.send("waits", DELAY="2")
        await caller.cluster.stop_broker(caller.broker)
        path = f"{caller.cluster.folder}/broker-0/config/delayOffset.json"
        caller.world.files.write_atomic(path, b'{"offsetTable":{2:999}}')
        await caller.cluster.start_broker()
        for number in range(3):
            await caller.send(f"new{number}", DELAY="2")
        await asyncio.sleep(2.3)
        wanted = [*(f"old{number}" for number in range(5)), "waits", *(f"new{number}" for number in range(3))]
        assert await caller.bodies("T") == wanted
        await caller.cluster.stop_broker(caller.broker)
        text = caller.world.files.read(path).decode()
        assert json.loads(text.replace("2:", '"2":')) == {"offsetTable": {"2": 9}}
        await caller.cluster.start_broker()
        await asyncio.sleep(3)
        assert await caller.bodies("T") == wanted


@in_virtual_time
async def test_level_delays_last_whatever_the_wall_clock_does(tmp_path: Path) -> None:
    """Field case B142."""
    async with Caller(tmp_path) as caller:
        clock: Any = caller.world.clock
        for step in (-3_600_000, 3_600_000, 7_200_000, -7_200_000):
            before = len(await caller.bodies("T"))
            loop = asyncio.get_running_loop()
            began = loop.time()
            await caller.send("before", DELAY="5")
            await asyncio.sleep(2)
            clock.skew_ms += step
            await caller.send("after", DELAY="3")
            times: list[float] = []
            while len(times) < 2:
                await asyncio.sleep(0.01)
                times += [loop.time()] * (len(await caller.bodies("T")) - before - len(times))
                assert loop.time() < began + 30, step
            assert all(5.0 <= time - began <= 5.2 for time in times), (step, times)


@in_virtual_time
async def test_a_recall_is_answered_when_it_is_as_durable_as_configured(tmp_path: Path) -> None:
    async with Caller(tmp_path, flushDiskType="SYNC_FLUSH") as caller:
        handles = []
        for body in ("x", "y"):
            answer = await caller.send(body, TIMER_DELAY_MS="60000")
            handles.append(str((answer.ext or {})["recallHandle"]))
        assert (await caller.recall(handles[0])).code == 0
        files = caller.world.files
        assert isinstance(files, SimFiles)
        files.disk.fail("datasync", errno.EIO, "*commitlog*")
        refused = await caller.recall(handles[1])
        assert (refused.code, refused.remark) == (1, "recall is not as durable as configured (code 10)")

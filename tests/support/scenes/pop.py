"""A broker in virtual time and a client that speaks POP to it, for the tests of pop consumption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from rmq.protocol.headers.send import SendMessageRequest
from rmq.protocol.headers.topic import CreateTopicRequest
from rmq.protocol.message import MessageRecord, decode_records
from rmq.remoting.client import RemotingClient
from rmq.testing.simworld import Simulation

__all__ = ["Given", "PopScene", "pop_scene"]


@dataclass
class Given:
    """One message as a pop gave it, with its handle."""

    record: MessageRecord
    handle: str
    #: The topic it lies in.
    topic: str
    order_count: int = 0

    @property
    def body(self) -> str:
        return self.record.body.decode()

    @property
    def offset(self) -> int:
        return int(self.handle.split(" ")[-1])


class PopScene:
    """One broker machine; ``app`` is the process that runs on it now."""

    def __init__(self, seed: int, settings: dict[str, str]) -> None:
        self.simulation = Simulation(seed)
        self.node = self.simulation.node("broker")
        self.outside = self.simulation.node("client").world
        self.settings = settings
        self.client = RemotingClient(self.outside)
        self.app: BrokerApp = None  # type: ignore[assignment]

    async def start(self) -> None:
        made = BrokerSettings.from_sources(
            overrides={
                "brokerIP1": self.node.address,
                "bindAddress": self.node.address,
                "brokerName": "b",
                "namesrvAddr": "",
                "listenPort": "10911",
                "storePathRootDir": "/store",
                "mappedFileSizeCommitLog": str(4 << 20),
                "mappedFileSizeConsumeQueue": "600000",
                "maxHashSlotNum": "1000",
                "maxIndexNum": "4000",
                **self.settings,
            }
        )
        self.app = BrokerApp(self.node.world, made)
        await self.app.start()

    async def kill(self) -> None:
        """kill -9 and a start."""
        old = self.app
        self.simulation.kill(self.node)
        await self._drop(old)
        await self.start()

    async def power_cut(self) -> None:
        """The same with everything lost that was not forced to the disk."""
        old = self.app
        self.simulation.power_cut(self.node, all_lost=True)
        await self._drop(old)
        await self.start()

    @staticmethod
    async def _drop(old: BrokerApp) -> None:
        """End the tasks of a process that is dead: its files and network answer nothing any more."""
        current = asyncio.current_task()
        tasks = [
            task for task in asyncio.all_tasks() if task is not current and not task.get_name().startswith("client")
        ]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def restart(self) -> None:
        """A clean stop and a start."""
        await self.app.stop()
        await self.start()

    @property
    def addr(self) -> str:
        return f"{self.node.address}:10911"

    async def ask(self, code: int, header: Any = None, body: bytes = b"", timeout: float = 60.0) -> Command:
        return await self.client.request(self.addr, Command.request(code, header, body), timeout)

    async def topic(self, name: str = "T", queues: int = 1) -> None:
        answer = await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            CreateTopicRequest(
                topic=name, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
                topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
            ),
        )  # fmt: skip
        assert answer.code == 0, answer.remark

    async def send(
        self, *bodies: str, topic: str = "T", queue_id: int = 0, properties: str = "", tries: int = 0
    ) -> None:
        for body in bodies:
            header = SendMessageRequest(
                producer_group="pg", topic=topic, default_topic="TBW102", default_topic_queue_nums=1,
                queue_id=queue_id, sys_flag=0, born_timestamp=1, flag=0, properties=properties, reconsume_times=tries,
                unit_mode=False, batch=False, max_reconsume_times=None,
            )  # fmt: skip
            answer = await self.ask(RequestCode.SEND_MESSAGE, header, body.encode())
            assert answer.code == 0, answer.remark

    def pop_request(self, **changes: Any) -> PopMessageRequest:
        values: dict[str, Any] = {
            "consumer_group": "g", "topic": "T", "queue_id": -1, "max_msg_nums": 32, "invisible_time": 10_000,
            "poll_time": 0, "born_time": self.outside.clock.now_ms(), "init_mode": 0, "exp_type": "TAG", "exp": "*",
        }  # fmt: skip
        return PopMessageRequest(**{**values, **changes})

    async def pop_answer(self, **changes: Any) -> Command:
        return await self.ask(RequestCode.POP_MESSAGE, self.pop_request(**changes))

    async def pop(self, **changes: Any) -> list[Given]:
        answer = await self.pop_answer(**changes)
        if answer.code != 0:
            assert answer.code in (
                ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL
            ), f"{answer.code} {answer.remark}"  # fmt: skip
            return []
        return given(answer, str(changes.get("topic", "T")))

    async def ack(self, message: Given, group: str = "g") -> int:
        header = AckMessageRequest(
            consumer_group=group, topic=message.topic, queue_id=_queue(message.handle), extra_info=message.handle,
            offset=message.offset,
        )  # fmt: skip
        return (await self.ask(RequestCode.ACK_MESSAGE, header)).code

    async def change(self, message: Given, invisible: int, group: str = "g") -> Given | int:
        """The message with its new handle, or the code of the refusal."""
        header = ChangeInvisibleTimeRequest(
            consumer_group=group, topic=message.topic, queue_id=_queue(message.handle), extra_info=message.handle,
            offset=message.offset, invisible_time=invisible,
        )  # fmt: skip
        answer = await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        if answer.code:
            return answer.code
        new = answer.header(ChangeInvisibleTimeResponse)
        tokens = message.handle.split(" ")
        handle = [str(message.offset), str(new.pop_time), str(new.invisible_time), str(new.revive_qid), *tokens[4:]]
        return Given(message.record, " ".join(handle), message.topic)


def _queue(handle: str) -> int:
    tokens = handle.split(" ")
    return int(tokens[-2])


def given(answer: Command, topic: str) -> list[Given]:
    """The messages of an answer with their handles, put together as Java's client does it."""
    header = answer.header(PopMessageResponse)
    starts = {tuple(part.split(" ")[:2]): part.split(" ")[2] for part in (header.start_offset_info or "").split(";")}
    offsets = {}
    for part in (header.msg_offset_info or "").split(";"):
        mark, queue_id, several = part.split(" ")
        offsets[mark, queue_id] = several.split(",")
    counts = dict(part.rsplit(" ", 1) for part in (header.order_count_info or "").split(";") if part)
    found = []
    for record in decode_records(answer.body):
        handle = record.properties.get("POP_CK")
        lies_in = topic
        if handle is None:
            key = ("1" if record.topic.startswith("%RETRY%") else "0", str(record.queue_id))
            assert str(record.queue_offset) in offsets[key]
            handle = (
                f"{starts[key]} {header.pop_time} {header.invisible_time} {header.revive_qid} {key[0]} b "
                f"{record.queue_id} {record.queue_offset}"
            )
        elif handle.split(" ")[4] == "1":
            lies_in = f"%RETRY%g_{topic}"
        count = int(counts.get(f"0 qo{record.queue_id}%{record.queue_offset}", 0))
        found.append(Given(record, handle, lies_in, count))
    return found


@asynccontextmanager
async def pop_scene(seed: int = 1, **settings: str) -> AsyncIterator[PopScene]:
    made = PopScene(seed, settings)
    await made.start()
    try:
        yield made
    finally:
        await made.client.close()
        await made.app.stop()

"""Transactions in virtual time: a store, the ends and the check on it, and producers that are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from rmq.broker.delays import DelayLevels
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.lane.admit import Admission
from rmq.broker.lane.topic_lane import LaneTable
from rmq.broker.parts import Ground, Tables
from rmq.broker.schedule.timing import TimerSends
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.broker.transaction.check import TransactionCheck
from rmq.broker.transaction.ends import TransactionEnds
from rmq.broker.transaction.halves import Halves
from rmq.protocol import properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import SendMessageRequest
from rmq.protocol.headers.transaction import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from rmq.protocol.ids import offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record
from rmq.remoting.conn import Conn
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation

HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))
COMMIT = 8
ROLLBACK = 12


@dataclass(frozen=True)
class Half:
    """A half message as its producer knows it, or as a check names it."""

    index: int
    position: int
    key: str
    group: str = "P"


@dataclass
class Asked:
    """A producer's connection, and the checks that came over it."""

    host: str
    port: int
    broker: TransactionBroker
    #: What it answers to a check; None: nothing, as with UNKNOWN.
    answer: int | None = None
    closed: bool = False
    congested: bool = False
    grant: Any = None
    checks: list[tuple[Half, MessageRecord]] = field(default_factory=list)

    @property
    def born_host(self) -> bytes:
        return bytes(map(int, self.host.split("."))) + self.port.to_bytes(4, "big")

    @property
    def peer(self) -> str:
        return f"{self.host}:{self.port}"

    def oneway(self, request: Command) -> None:
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        header = request.header(CheckTransactionStateRequest)
        record = decode_record(request.body)
        half = Half(header.tran_state_table_offset, header.commit_log_offset, header.msg_id or "", "P")
        self.checks.append((half, record))
        if self.answer is not None:
            self.broker.later(self.broker.end(half, self.answer))

    def send(self, data: bytes) -> None:
        self.broker.sent.append(data)

    def numbers(self) -> list[str | None]:
        """The counts of the checks."""
        return [record.properties.get("TRANSACTION_CHECK_TIMES") for _, record in self.checks]


class Members:
    """Producers by group."""

    def __init__(self) -> None:
        self.conns: list[Asked] = []

    def group(self, name: str) -> list[Any]:
        @dataclass
        class Channel:
            conn: Asked
            grant: Any

        return [Channel(conn, conn.grant) for conn in self.conns] if name == "P" else []


class TransactionBroker:
    """One process: ``async with`` starts and stops it."""

    def __init__(self, node: SimNode, offsets: OffsetTable | None = None, **settings: Any) -> None:
        self.node = node
        world = node.world
        self.settings = settings_ = BrokerSettings(
            broker_name="b", broker_ip1="10.0.0.1",
            **{"transaction_time_out": 1000, "transaction_check_interval": 1000, **settings},
        )  # fmt: skip
        self.offsets = offsets if offsets is not None else OffsetTable()
        self.store = Store(
            world,
            StoreSettings(
                "/store",
                commit_log_file_size=1 << 22,
                index_slots=1000,
                sync_flush=settings_.flush_disk_type == "SYNC_FLUSH",
            ),
        )
        self.topics = TopicTable(world, settings_, "/store/config/topics.json")
        tables = Tables(
            self.topics, GroupTable(world, settings_, "/store/config/groups.json"), self.offsets, cast(Any, None)
        )
        self.admission = Admission(
            Ground(world, settings_, self.store, HOST), tables, LaneTable(self.topics, self.store.queues),
            DelayLevels("1s 5s"), TimerSends(world.clock, settings_, self.topics, self.store),
        )  # fmt: skip
        halves = Halves(world.clock, self.store, self.admission, HOST)
        self.members = Members()
        self.check = TransactionCheck(
            world, settings_, self.topics, self.offsets, cast(Any, self.members), self.store, halves
        )
        self.ends = TransactionEnds(world.clock, self.store, halves, self.admission, self.check)
        self.sent: list[bytes] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stranger = Asked("10.0.0.99", 99, self)

    async def __aenter__(self) -> TransactionBroker:
        await self.store.load()
        await self.check.load()
        await self.store.start()
        self.check.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.check.close()
        await self.store.stop()

    async def killed(self, simulation: Simulation, *, power: bool = False) -> TransactionBroker:
        """The next process after kill -9 or a power cut that loses all that was not flushed; not started."""
        await asyncio.sleep(0.1)  # what topics and groups are is on disk
        if power:
            simulation.power_cut(self.node, all_lost=True)
        else:
            simulation.kill(self.node)
        await self.check.tasks.close()
        await self.store.tasks.close()
        return TransactionBroker(
            self.node, self.offsets,
            transaction_time_out=self.settings.transaction_time_out,
            transaction_check_max=self.settings.transaction_check_max,
        )  # fmt: skip

    def later(self, work: Awaitable[Any]) -> None:
        async def do() -> None:
            await work

        task = asyncio.get_running_loop().create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def producer(self, host: str = "10.0.0.5", port: int = 5, answer: int | None = None) -> Asked:
        """One more member of producer group P."""
        member = Asked(host, port, self, answer)
        self.members.conns.append(member)
        return member

    def send(self, key: str, by: Asked | None = None, group: str = "P", **more: str) -> Half:
        """A half message for topic T, queue 1."""
        table = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": key, "KEYS": f"k{key}", "TAGS": "A", **more}
        header = SendMessageRequest(
            producer_group=group, topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
            sys_flag=4, born_timestamp=self.node.clock.now_ms(), flag=3, properties=properties.encode(table),
            reconsume_times=0, unit_mode=False, max_reconsume_times=0, batch=False,
        )  # fmt: skip
        ticket = self.admission.admit(cast(Conn, by or self.stranger), header, b"body of " + key.encode(), 409)
        (index, position) = self.store.append(ticket.puts).offsets[0]
        return Half(index, position, key, group)

    async def end(self, half: Half, verdict: int, group: str | None = None) -> Command | None:
        """END_TRANSACTION, as a request that is answered."""
        header = EndTransactionRequest(
            producer_group=group or half.group, tran_state_table_offset=half.index, commit_log_offset=half.position,
            commit_or_rollback=verdict, from_transaction_check=False, msg_id=half.key,
        )  # fmt: skip
        request = Command.request(RequestCode.END_TRANSACTION, header)
        return await self.ends.end(cast(Conn, self.stranger), request, header)

    async def resume(self, record: MessageRecord) -> Command | None:
        """RESUME_CHECK_HALF_MESSAGE by the id of a record."""
        header = ResumeCheckHalfMessageRequest(msg_id=offset_msg_id(*record.store_host, record.physical_offset))
        request = Command.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        return await self.ends.resume(cast(Conn, self.stranger), request, header)

    async def records(self, topic: str, queue_id: int = 0) -> list[MessageRecord]:
        """Everything visible in a queue."""
        queue = self.store.queues.get(topic, queue_id)
        found = []
        for index in range(queue.min if queue else 0, queue.visible if queue else 0):
            assert queue is not None
            entry = await self.store.queues.entries_cold(queue, index, 1)
            data = await self.store.messages.at(int.from_bytes(entry[:8], "big"))
            assert data is not None
            found.append(decode_record(data))
        return found

    async def delivered(self) -> list[str]:
        """The unique keys of what consumers see."""
        return [record.properties["UNIQ_KEY"] for record in await self.records("T", 1)]


def in_a_broker(test: Callable[[TransactionBroker], Awaitable[None]], **settings: Any) -> None:
    """Run a test on one broker in virtual time."""

    async def main() -> None:
        async with TransactionBroker(Simulation(seed=1).node("a"), **settings) as broker:
            await test(broker)

    run(main())

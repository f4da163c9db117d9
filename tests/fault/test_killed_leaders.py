"""R05 and C01 for a group: three brokers as processes, whose leader is killed again and again while producers send."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rmq.aio import AdminClient, Producer
from rmq.client.message import Message
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from tests.support.kills.campaign import amount
from tests.support.kills.killer import OsTree
from tests.support.raft.processes import FILE_SIZE, NAMES, ProcessGroup
from tests.support.store_scan import scan_log

KILLS = amount(1, 500)


async def test_leaders_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    ended = asyncio.Event()

    async def send(producer: Producer) -> None:
        number = 0
        while not ended.is_set():
            body = b"%d" % number
            number += 1
            try:
                result = await producer.send(Message("Topic", body))
            except RMQError:
                await asyncio.sleep(0.05)
                continue
            if result.send_status.name == "SEND_OK":
                acknowledged.append(body)

    async def more(count: int = 50) -> None:
        wanted = len(acknowledged) + count
        async with patience.timeout(90):
            while True:
                if len(acknowledged) >= wanted:
                    return
                await asyncio.sleep(0.02)

    async with (
        ProcessGroup(tmp_path) as group,
        AdminClient(namesrv=group.namesrv) as admin,
        Producer("killed_leaders", namesrv=group.namesrv) as producer,
    ):
        await group.leader(admin)
        sending = asyncio.create_task(send(producer))
        await more()
        for _ in range(KILLS):
            leader = await group.leader(admin)
            await more()
            await group.kill(leader)
            await group.leader(admin)
            await more()
            await group.begin(leader)
        ended.set()
        await sending
        await group.stop()

    scans = [scan_log(OsTree(), str(group.store(name) / "commitlog"), FILE_SIZE).records for name in NAMES]
    lacking = [set(acknowledged) - {record.body for record in records} for records in scans]
    # The one that was stopped first may lack what came last.
    assert sum(not lost for lost in lacking) >= 2, [len(lost) for lost in lacking]
    logs = [[record.raw for record in records] for records in scans]
    shortest = min(len(log) for log in logs)
    assert logs[0][:shortest] == logs[1][:shortest] == logs[2][:shortest]

"""A member whose log ends before what it had on its disk, and the group had committed: it has lost what it promised."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message, Producer
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

_LOG = "/store/commitlog/00000000000000000000"


@in_virtual_time
async def test_who_has_lost_the_end_of_its_log_elects_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """One of three has been away, and one has lost what it acknowledged: the third alone has it, and is waited for."""
    settings = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "1048576"}
    async with GroupCluster(seed=4, settings=settings) as cluster:
        leader = await cluster.led_by()
        away, lossy = (name for name in cluster.names if name != leader)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for number in range(5):
                await producer.send(Message("T", b"first %d" % number))
            await cluster.alike()
            await cluster.kill(away)
            bodies = [b"acknowledged %d" % number for number in range(20)]
            for body in bodies:
                await producer.send(Message("T", body))
        await asyncio.sleep(3)  # what is committed is noted
        for name in (lossy, leader):
            await cluster.kill(name)
        files = cluster.simulation.nodes[lossy].files
        data = files.read(_LOG)
        end = data.rfind(b"\xda\xa3\x20\xa7", 0, data.index(b"first 3")) - 4
        files.write_atomic(_LOG, data[:end] + bytes(len(data) - end))
        caplog.clear()
        for name in (lossy, away):
            await cluster.begin(name)
        await asyncio.sleep(20)
        assert cluster.leader() is None
        assert cluster.driver(lossy).returning
        assert "it neither votes nor counts before it has that again" in caplog.text
        await cluster.kill(lossy)
        await cluster.begin(lossy)  # it is known after another start, too
        await asyncio.sleep(10)
        assert cluster.leader() is None
        await cluster.begin(leader)
        await cluster.led_by()
        await eventually(lambda: not cluster.driver(lossy).returning, 30)
        await cluster.alike()
        for name in cluster.names:
            assert set(bodies) <= set(await cluster.bodies(name, "T"))
        await cluster.kill(leader)
        await cluster.led_by()  # it is the second of a majority again

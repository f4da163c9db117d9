"""A leader of whose log a byte has changed on its disk: that costs one message, and no other member its place."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message, Producer
from rmq.testing.simdisk import SimDisk
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

_LOG = "/store/commitlog/00000000000000000000"
_SETTINGS = {"preferredLeaderId": "n0", "mappedFileSizeCommitLog": "1048576"}


def bodies(numbers: range) -> list[bytes]:
    return [b"body-%03d-" % number * 20 for number in numbers]


@pytest.mark.parametrize("place", [0, 3, 7], ids=["a size that none has", "a size", "a magic"])
@in_virtual_time
async def test_a_member_comes_up_to_a_leader_whose_log_is_spoilt(place: int, caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster(seed=3, settings=_SETTINGS) as cluster:
        await cluster.led_by()
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for body in bodies(range(30)):
                await producer.send(Message("T", body))
        await cluster.alike()
        await asyncio.sleep(3)  # what is committed is noted
        for name in cluster.names:
            await cluster.stop_broker(cluster.members.pop(name))
        files = cluster.simulation.nodes["n0"].files
        data = bytearray(files.read(_LOG))
        start = data.rfind(b"\xda\xa3\x20\xa7", 0, data.index(b"body-010-")) - 4
        data[start + place] ^= 1 << (6 if place == 0 else 0)
        files.write_atomic(_LOG, bytes(data))
        await cluster.begin("n0")
        await cluster.begin("n1")
        await eventually(lambda: cluster.leader() == "n0", 30)
        node = cluster.simulation.nodes["n2"]
        node.disk = SimDisk(node.clock.now_ms)
        cluster._wiped.add("n2")
        cluster.simulation.kill(node)
        caplog.clear()
        await cluster.begin("n2")
        await eventually(lambda: not cluster.driver("n2").returning, 60)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("T", b"goes on"))
        store = cluster.members["n2"].store
        await eventually(lambda: store.log.end == cluster.members["n0"].store.log.end and store.dispatcher.done)
        found = await cluster.bodies("n2", "T")
        assert sorted(found) == sorted([*bodies(range(10)), *bodies(range(11, 30)), b"goes on"])
        assert [part.start for part in store.damaged.parts] == [start]
        assert cluster.driver("n2").parted is None
        assert f" bytes, were skipped: {_LOG} at {start}; the messages there are lost, all others are" in caplog.text

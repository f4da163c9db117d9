"""A leader of whose log a byte has changed on its disk: that costs one message, and no other member its place."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message, Producer
from rmq.testing.simdisk import SimDisk
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

_LOG = "/store/commitlog/00000000000000000000"
_SETTINGS = {"mappedFileSizeCommitLog": "1048576"}


def bodies(numbers: range) -> list[bytes]:
    return [b"body-%03d-" % number * 20 for number in numbers]


class Spoilt:
    """A group of which ``n0`` leads, with a byte of one message changed in its log, and ``n2`` has lost its disk."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        #: Where the message begins.
        self.start = 0

    async def begin(self, place: int) -> None:
        """Up to where ``n2`` is to come back.

        :param place: of the byte, in the message.
        """
        cluster = self.cluster
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
        start = self.start = data.rfind(b"\xda\xa3\x20\xa7", 0, data.index(b"body-010-")) - 4
        data[start + place] ^= 1 << (6 if place == 0 else 0)
        files.write_atomic(_LOG, bytes(data))
        await cluster.begin("n0")
        await cluster.begin("n1")
        if await cluster.led_by() != "n0":
            cluster.driver("n1").transfer("n0")
        await eventually(lambda: cluster.leader() == "n0", 30)
        node = cluster.simulation.nodes["n2"]
        node.disk = SimDisk(node.clock.now_ms)
        cluster._wiped.add("n2")
        cluster.simulation.kill(node)

    async def goes_on(self) -> list[bytes]:
        """``n2`` comes up, and the group takes messages; what ``n2`` shows then."""
        cluster = self.cluster
        await eventually(lambda: not cluster.driver("n2").returning, 60)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("T", b"goes on"))
        store, leader = cluster.members["n2"].store, cluster.members[await cluster.led_by()].store
        await eventually(lambda: store.log.end == leader.log.end and store.dispatcher.done)
        assert cluster.driver("n2").parted is None
        return sorted(await cluster.bodies("n2", "T"))


@pytest.mark.parametrize("place", [0, 3, 7], ids=["a size that none has", "a size", "a magic"])
@in_virtual_time
async def test_a_member_comes_up_to_a_leader_whose_log_is_spoilt(place: int, caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster(seed=3, settings=_SETTINGS) as cluster:
        spoilt = Spoilt(cluster)
        await spoilt.begin(place)
        cluster.driver("n0")._left = True  # nobody else has it good, say
        caplog.clear()
        await cluster.begin("n2")
        assert await spoilt.goes_on() == sorted([*bodies(range(10)), *bodies(range(11, 30)), b"goes on"])
        assert cluster.leader() == "n0"
        assert [part.start for part in cluster.members["n2"].store.damaged.parts] == [spoilt.start]
        told = f" bytes, were skipped: {_LOG} at {spoilt.start}; the messages there are lost, all others are"
        assert told in caplog.text


@in_virtual_time
async def test_what_is_damaged_at_the_leader_another_one_sends(caplog: pytest.LogCaptureFixture) -> None:
    """Of three members one has lost a message, and one everything: the third has it."""
    async with GroupCluster(seed=3, settings=_SETTINGS) as cluster:
        spoilt = Spoilt(cluster)
        await spoilt.begin(100)
        await cluster.begin("n2")
        assert await spoilt.goes_on() == sorted([*bodies(range(30)), b"goes on"])
        assert cluster.leader() == "n1"
        assert cluster.members["n2"].store.damaged.parts == []
        assert "n2 lacks a part of the log that is damaged here" in caplog.text
        cluster.driver("n1").transfer("n0")
        await eventually(lambda: cluster.leader() == "n0", 30)
        await asyncio.sleep(5)
        assert cluster.leader() == "n0", "it may lead all the same"

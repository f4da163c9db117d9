"""Live settings of a master: what its slaves get, and how long sends wait for them."""

from __future__ import annotations

import asyncio

from rmq.broker.replication.wire import HEADER_SIZE
from tests.support.raw_peer import send
from tests.support.scenes.live import LiveScene, live
from tests.support.scenes.replication import RawSlave
from tests.support.virtual import eventually

PUT_OK, NOT_AVAILABLE, TIMEOUT = 0, 11, 12


async def slave(s: LiveScene) -> RawSlave:
    """A connection that has reported an empty log."""
    made = RawSlave(reads=True)
    host = s.addr.rpartition(":")[0]
    await s.outside.network.connect(lambda: made, host, s.app.settings.ha_listen_port)
    made.report(0)
    await asyncio.sleep(0.1)
    return made


@live("haTransferBatchSize")
async def test_the_size_of_a_piece(s: LiveScene) -> None:
    def largest(data: bytes) -> int:
        at = most = 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + HEADER_SIZE], "big")
            at, most = at + HEADER_SIZE + size, max(most, size)
        return most

    assert await s.code(send(body=b"x" * 5000)) == 0
    first = await slave(s)
    assert largest(first.got) > 5000
    await s.update(haTransferBatchSize=1000)
    second = await slave(s)
    assert largest(second.got) == 1000


@live("haSendHeartbeatInterval", "haHousekeepingInterval")
async def test_signs_of_life(s: LiveScene) -> None:
    one = await slave(s)
    await asyncio.sleep(4.8)
    one.report(0)
    await s.update(haSendHeartbeatInterval=1000)
    await asyncio.sleep(6)
    assert len(one.got) >= 5 * HEADER_SIZE
    await s.update(haHousekeepingInterval=8000)
    assert await eventually(lambda: one.lost) < 5


@live("slaveTimeout", "haSlaveFallbehindMax", brokerRole="SYNC_MASTER")
async def test_how_long_a_slave_is_waited_for(s: LiveScene) -> None:
    await slave(s)
    assert (await s.took(s.code(send()))) > 2.9
    await s.update(slaveTimeout=1000)
    assert (await s.took(s.code(send()))) < 1.1
    assert await s.code(send()) == TIMEOUT
    await s.update(haSlaveFallbehindMax=10)
    assert await s.code(send()) == NOT_AVAILABLE

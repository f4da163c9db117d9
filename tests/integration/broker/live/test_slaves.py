"""Live settings of a slave: whether it serves pulls, and what it says of offsets that it does not have."""

from __future__ import annotations

from rmq.broker.roles.role import Role
from rmq.protocol.codes import ResponseCode
from tests.support.raw_peer import pull
from tests.support.scenes.live import LiveScene, live


async def slave(s: LiveScene) -> None:
    """It has two messages, and is a slave from now on."""
    await s.send("a")
    await s.send("b")
    await s.app.roles.become(Role.slave(1))


@live("slaveReadEnable")
async def test_whether_it_serves_pulls(s: LiveScene) -> None:
    await slave(s)
    assert await s.pulled() == []
    await s.update(slaveReadEnable=True)
    assert await s.pulled() == ["a", "b"]


@live("offsetCheckInSlave", slaveReadEnable="true")
async def test_whether_it_corrects_offsets(s: LiveScene) -> None:
    await slave(s)
    wrong = pull("G", "T", 50, hold_ms=5_000)
    assert await s.took(s.code(wrong)) > 4.9
    await s.update(offsetCheckInSlave=True)
    assert await s.code(wrong) == ResponseCode.PULL_OFFSET_MOVED
    assert await s.took(s.code(wrong)) < 1

"""A leader's store and the log of a member, which takes the bytes of it as a member of a group does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq.broker.raft.announced import Announced
from rmq.broker.raft.member_log import MemberLog
from rmq.broker.raft.met import Met
from rmq.broker.raft.sidecar import Kept, Sidecar, Whose
from rmq.broker.store.told import Told
from rmq.raft.position import Position
from tests.support.scenes.told import Pair

__all__ = ["Member", "member"]


class Member(Pair):
    """The follower takes bytes as a member of a group does, and is told of them before."""

    change: Callable[[Told], Told] = staticmethod(lambda told: told)
    #: Bytes that come together, at most.
    most = 1 << 20

    def begin(self) -> None:
        world = self.simulation.nodes["f"].world
        kept = Kept(1, None, (Position(1, 0),), 0, Met("f"), new=False)
        sidecar = Sidecar(world, "/store", Whose("g", "f", ("f", "l")))
        self.log = MemberLog(self.follower, sidecar, kept, lambda to, message: None, on_disk=False)
        self.announced = Announced()

    def send(self, start: int) -> None:
        for told in self.told:
            self.announced.add("l", 1, Told.decode(self.change(told).encode()))
        self.told.clear()
        log = self.leader.log
        data, size = b"", log.file_size
        while (at := start + len(data)) < log.end:
            data += log.read(at, min(log.end, at - at % size + size) - at) or b""
        memory = memoryview(bytearray(data))
        for lo in range(0, len(data), self.most):
            part = memory[lo : lo + self.most]
            end = start + lo + len(part)
            self.log.write(start + lo, Position(1, end), part, self.announced.take("l", 1, end))
        memory[:] = bytes(len(data))

    @property
    def kept(self) -> bool:
        """Whether the follower has what came last in memory."""
        return self.follower.log.has_written(self.follower.log.end - 1)


async def member(**changes: Any) -> Member:
    made = await Member.made(**changes)
    assert isinstance(made, Member)
    made.begin()
    return made

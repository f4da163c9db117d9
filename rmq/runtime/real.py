"""The world as it is: system clock, disk, TCP, threads."""

from __future__ import annotations

import random
import time

from rmq.runtime.files import RealFiles
from rmq.runtime.identity import RealIdentity
from rmq.runtime.network import RealNetwork
from rmq.runtime.offload import ThreadOffload
from rmq.runtime.world import World

__all__ = ["RealClock", "real_world"]


class RealClock:
    """The system's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def real_world() -> World:
    """A world made of this machine; its random numbers are seeded by the operating system."""
    offload = ThreadOffload()
    return World(
        clock=RealClock(),
        random=random.Random(random.SystemRandom().getrandbits(128)),
        files=RealFiles(),
        network=RealNetwork(offload),
        offload=offload,
        identity=RealIdentity(),
    )

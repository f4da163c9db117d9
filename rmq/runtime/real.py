"""The world as it is: system clock, disk, TCP, threads."""

from __future__ import annotations

import secrets
import time

from rmq.runtime.files import RealFiles
from rmq.runtime.identity import RealIdentity
from rmq.runtime.network import RealNetwork
from rmq.runtime.offload import ThreadOffload
from rmq.runtime.stall import ThreadWatch
from rmq.runtime.world import Random, World

__all__ = ["RealClock", "real_world", "seeded"]


class RealClock:
    """The system's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    #: The function itself: every loop tick asks several times.
    monotonic = staticmethod(time.monotonic)


def seeded(seed: int) -> Random:
    """Random numbers that a seed decides: for simulations."""
    return Random(seed)


def real_world() -> World:
    """A world made of this machine; its random numbers are seeded by the operating system."""
    return World(
        clock=RealClock(),
        random=Random(secrets.randbits(128)),
        files=RealFiles(),
        network=RealNetwork(ThreadOffload(patient=False)),
        offload=ThreadOffload(),
        identity=RealIdentity(),
        stalls=ThreadWatch,
    )

"""The world as it is: system clock, disk, TCP, threads."""

from __future__ import annotations

import os
import secrets
import time
import weakref

from rmq.runtime.files import RealFiles
from rmq.runtime.identity import RealIdentity
from rmq.runtime.network import RealNetwork
from rmq.runtime.offload import ThreadOffload
from rmq.runtime.pool import ThreadPool
from rmq.runtime.stall import ThreadWatch
from rmq.runtime.thread_bridge import bridge
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


#: Seeded anew in a forked child, which would draw what its parent and its siblings draw.
_seeded_by_system: weakref.WeakSet[Random] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for chance in list(_seeded_by_system):
        chance.seed(secrets.randbits(128))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def real_world() -> World:
    """A world made of this machine; its random numbers are seeded by the operating system, in a forked child anew."""
    chance = Random(secrets.randbits(128))
    _seeded_by_system.add(chance)
    return World(
        clock=RealClock(),
        random=chance,
        files=RealFiles(),
        network=RealNetwork(ThreadOffload(patient=False)),
        offload=ThreadOffload(),
        identity=RealIdentity(),
        pool=ThreadPool,
        bridge=bridge,
        stalls=ThreadWatch,
    )

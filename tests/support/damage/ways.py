"""The ways of a start that a damaged store is taken through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmq.broker.schedule.timing import may_have
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import Verified, verify
from rmq.protocol.names import TIMER_TOPIC
from rmq.testing.simworld import SimNode
from tests.support.damage.damages import Damage
from tests.support.damage.stored import LOG_SIZE, QUEUE_SIZE, Files

__all__ = ["WAYS", "Way", "rebuilt", "verified"]


@dataclass(frozen=True)
class Way:
    """How a store came to its damage, and what is done before the start.

    :param clean: it was stopped, not killed.
    :param same_boot: the machine was not booted since.
    :param lost: is gone beside the damage.
    :param tool: is run before the start: ``rebuild`` or ``verify``.
    :param ext: queues have units.
    """

    name: str
    clean: bool = True
    same_boot: bool = True
    lost: Callable[[str], bool] = lambda path: False
    tool: str = ""
    ext: bool = False

    def left(self, files: Files) -> Files:
        return {path: data for path, data in files.items() if not self.lost(path)}

    def matters(self, damage: Damage, files: Files) -> bool:
        """Whether anything that was damaged is still there when the broker starts."""
        if self.ext and damage.kind not in ("ext", "queue"):
            return False  # as without units
        if self.tool == "rebuild" and damage.kind in ("queue", "index"):
            return False
        return self.left(files) != self.left(damage.done(files))


WAYS = (
    Way("stopped"),
    Way("stopped, another boot", same_boot=False),
    Way("killed", clean=False),
    Way("killed, another boot", clean=False, same_boot=False),
    Way("queues lost", lost=lambda path: "/consumequeue/" in path),
    Way("killed, a queue lost", clean=False, lost=lambda path: "/consumequeue/A/0/" in path),
    Way("queues and checksums lost", lost=lambda path: "/consumequeue/" in path or "/checksums/" in path),
    Way("index lost", lost=lambda path: "/index/" in path),
    Way("rebuilt", tool="rebuild"),
    Way("killed and rebuilt", clean=False, same_boot=False, tool="rebuild"),
    Way("verified", tool="verify"),
    Way("stopped, with units", ext=True),
    Way("killed, with units", clean=False, ext=True),
)


def _settings() -> StoreSettings:
    return StoreSettings(
        "/store", commit_log_file_size=LOG_SIZE, queue_file_size=QUEUE_SIZE, index_slots=16, index_entries=50
    )


async def rebuilt(node: SimNode) -> bool:
    """``mqadmin store rebuild``; whether it says that something is damaged."""
    made = await rebuild(node.world, _settings())
    return bool(made.damages or made.unread or made.lost)


async def verified(node: SimNode) -> Verified:
    """``mqadmin store verify``."""
    async with StoppedStore(node.world, _settings()) as store:
        return await verify(store, codes={TIMER_TOPIC: may_have})

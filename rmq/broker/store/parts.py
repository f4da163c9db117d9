"""The parts of a store in groups of what goes together: what constructors take."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.index.index import Index
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["OnDisk", "StoreGround"]


@dataclass(frozen=True, slots=True)
class StoreGround:
    """What everything in a store stands on."""

    world: World
    settings: StoreSettings
    #: Owns what runs behind a served store.
    tasks: TaskOwner


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What a store holds on disk: the log, what is derived from it, and what is known of both."""

    log: CommitLog
    queues: QueueTable
    #: None where ``messageIndexEnable`` is off.
    index: Index | None
    checkpoint: Checkpoint
    #: Which topics were deleted, and up to where the log holds what is left of them.
    deletions: Deletions
    #: What of the log is known to be damaged.
    damaged: DamagedParts

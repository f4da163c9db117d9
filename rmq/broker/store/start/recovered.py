"""What a start knows of the life before it, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rmq.broker.store.log.reader import Damage

__all__ = ["LastStop", "Recovered"]


@dataclass(slots=True)
class Recovered:
    """What a start found, for logs, metrics and tests."""

    clean: bool = True
    start: int = 0
    end: int = 0
    #: Records were checked from here on.
    checked_from: int = 0
    #: Checksums of bodies were compared from here on: what is older was on disk long before the stop.
    compared_from: int = 0
    #: Queues were built anew from here on.
    dispatched_from: int = 0
    damages: list[Damage] = field(default_factory=list)
    #: Queues did not have the messages that the log has.
    queues_wrong: bool = False
    #: Entries of queues that were on disk and pointed elsewhere.
    wrong_entries: int = 0
    #: What the disk does not give, from the last good record before it to the first behind it.
    unreadable: list[Damage] = field(default_factory=list)
    #: Behind the end of the log: what was known to be there and is not.
    lost: Damage | None = None


class LastStop(NamedTuple):
    """How the life before ended."""

    #: There was no ``abort`` file.
    clean: bool
    #: The log was forced to disk up to here since the machine was booted; -1 when that is not known.
    forced: int
    #: The same in whatever boot, -1 after a clean stop.
    noted: int

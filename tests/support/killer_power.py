"""A campaign whose every death is a power cut (reliability.md C03)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rmq.testing.simdisk import SimDisk
from tests.support.faulty_os import Rule
from tests.support.faulty_power import before, cut
from tests.support.history import OK, Seen, Verdict, judge, read_histories, sends_of
from tests.support.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.killer_campaign import Campaign
from tests.support.store_scan import LogScan, scan_log

__all__ = ["PowerCampaign"]


class _PoweredBroker(BrokerProcess):
    """Notes what it does to its disk."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.journal = folder / "journal"
        super().__init__(folder, RMQTEST_JOURNAL=str(self.journal), **settings)
        self.disk = SimDisk()

    async def start(self, *rules: Rule) -> str:
        self.store.mkdir(exist_ok=True)
        self.journal.unlink(missing_ok=True)
        self.disk = before(self.store)
        return await super().start(*rules)


class _CutTree(OsTree):
    """A file that lost its size reads as the zeros that it was made of."""

    def read(self, path: str) -> bytes:
        return super().read(path).ljust(LOG_FILE_SIZE, b"\0")


@dataclass
class PowerCampaign(Campaign):
    """Everything that was not forced is lost: bytes, sizes, names. Tests on a simulated disk keep and tear some of it.

    What an asynchronous flush had not forced is lost by right: the youngest of the log and no other.
    """

    #: Milliseconds from the oldest message that a cut took to the youngest that was there.
    oldest_lost_ms: int = 0
    _lost: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.broker = self._powered = _PoweredBroker(self.folder / "broker", **self.settings)
        self._sync = self.settings.get("RMQ_FLUSH_DISK_TYPE") == "SYNC_FLUSH"

    def _note_death(self) -> None:
        super()._note_death()
        written = self._log()
        broker = self._powered
        self.counts["calls that forced"] += cut(broker.store, broker.disk, broker.journal, None)
        self.counts["power cuts"] += 1
        left = self._log()
        here = [record.raw for record in left.records]
        assert here == [record.raw for record in written.records[: len(here)]], "a cut takes the end of the log"
        gone = written.records[len(here) :]
        if gone:
            self.counts["cuts that took messages"] += 1
            self.counts["messages taken"] += len(gone)
            age = written.records[-1].store_timestamp - gone[0].store_timestamp
            self.oldest_lost_ms = max(self.oldest_lost_ms, age)
            self._lost |= {record.properties.get("UNIQ_KEY", "") for record in gone}

    def _log(self) -> LogScan:
        return scan_log(_CutTree(), str(self.broker.store / "commitlog"), LOG_FILE_SIZE)

    def _look(self, when: str) -> None:
        """Nothing: what lies there before the next recovery was compared at the cut."""

    def _judge(self, readers: list[Seen]) -> Verdict:
        lines = list(read_histories(self.folder / "history"))
        sends, _ = sends_of(lines)
        # Under SYNC_FLUSH that is what claimed nothing (WAIT=false), and consumers do not see it before it is on disk.
        excused = {key for key in self._lost & sends.keys() if not (self._sync and sends[key].claims)}
        self.counts["acknowledged and lost by right"] = sum(sends[key].outcome == OK for key in excused)
        return judge(lines, readers, lost_ok=excused, consumed_ok=not self._sync)

"""A campaign whose every death is a power cut (reliability.md C03)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from rmq.runtime.real import seeded
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from tests.support.faults.os_calls import Rule
from tests.support.faults.power import before, lay_out, replay
from tests.support.history import OK, Seen, Verdict, judge, read_histories, sends_of
from tests.support.kills.campaign import Campaign
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.kills.load import scan_back
from tests.support.store_scan import Record, Tree, scan_through

__all__ = ["PowerCampaign", "PoweredBroker"]


class PoweredBroker(BrokerProcess):
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

    def cut_power(self, seed: int) -> int:
        """Its process was killed, and the power goes, too: what was not forced is lost, kept or torn, as it falls.

        :return: forcing calls that had ended in its life.
        """
        forced = replay(self.disk, self.journal)
        self.disk.power_cut(seeded(seed))
        lay_out(self.store, self.disk)
        return forced


class _CutTree:
    """Of files on a disk; one that lost its size reads as the zeros that it was made of."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def list(self, path: str) -> list[str]:
        return self._tree.list(path)

    def is_dir(self, path: str) -> bool:
        return self._tree.is_dir(path)

    def read(self, path: str) -> bytes:
        return self._tree.read(path).ljust(LOG_FILE_SIZE, b"\0")


@dataclass
class PowerCampaign(Campaign):
    """What was not forced is lost: bytes, sizes, names.

    What an asynchronous flush had not forced is lost by right: the youngest of the log and no other.

    :param tear: some of it is kept instead, page by page, or torn at sectors, and some names, in whatever order: holes
        may remain between messages that nobody was told of.
    """

    tear: bool = False
    #: Milliseconds from the oldest message that a cut took to the youngest that was there.
    oldest_lost_ms: int = 0
    #: Messages that were not on disk when a cut came; those of them that it took, with their places.
    _not_forced: set[str] = field(default_factory=set)
    _lost: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.broker = self._powered = PoweredBroker(self.folder / "broker", **self.settings)
        self._sync = self.settings.get("RMQ_FLUSH_DISK_TYPE") == "SYNC_FLUSH"
        self._fates = seeded(self.seed)

    def _note_death(self) -> None:
        super()._note_death()
        broker = self._powered
        self.counts["calls that forced"] += replay(broker.disk, broker.journal)
        # Not what lies in the directory: the last call may have been noted, and the process killed before it was made.
        written = self._log(SimFiles(broker.disk))
        self.counts["power cuts"] += 1
        if self.tear:
            least = deepcopy(broker.disk)
            least.power_cut()
            forced = self._log(SimFiles(least))
            broker.disk.power_cut(self._fates)
        else:
            broker.disk.power_cut()
            forced = self._log(SimFiles(broker.disk))
        lay_out(broker.store, broker.disk)
        left = self._log(OsTree())
        assert left.items() <= written.items(), "a cut makes no messages"
        assert forced.items() <= left.items(), "a cut takes nothing that was forced"
        if not self.tear:
            ahead = list(left.keys() - list(written)[: len(left)])
            assert not ahead, f"a cut takes the end of the log: it was {list(written)}, and left {list(left)}"
        unforced = [record for offset, record in written.items() if offset not in forced]
        self._not_forced |= {record.properties.get("UNIQ_KEY", "") for record in unforced}
        gone = [record for record in unforced if record.offset not in left]
        if gone:
            self.counts["cuts that took messages"] += 1
            self.counts["messages taken"] += len(gone)
            kept = [record for record in unforced if record.offset in left]
            self.counts["messages kept behind lost ones"] += sum(record.offset > gone[0].offset for record in kept)
            youngest = next(reversed(written.values()))
            self.oldest_lost_ms = max(self.oldest_lost_ms, youngest.store_timestamp - gone[0].store_timestamp)
            for record in gone:
                key = record.properties.get("UNIQ_KEY", "")
                self._lost[key] = (record.topic, record.queue_id, record.queue_offset)

    def _log(self, tree: Tree) -> dict[int, Record]:
        directory = str(self.broker.store / "commitlog")
        return {record.offset: record for record in scan_through(_CutTree(tree), directory)}

    def _look(self, when: str) -> None:
        """Nothing: what lies there before the next recovery was compared at the cut."""

    def _scan(self) -> Seen:
        return scan_back(OsTree(), str(self.broker.store / "commitlog"), LOG_FILE_SIZE, through=self.tear)

    def _judge(self, readers: list[Seen]) -> Verdict:
        lines = list(read_histories(self.folder / "history"))
        sends, _ = sends_of(lines)
        # Under SYNC_FLUSH that is what claimed nothing (WAIT=false), and consumers do not see it before it is on disk.
        excused = {key for key in self._lost.keys() & sends.keys() if not (self._sync and sends[key].claims)}
        self.counts["acknowledged and lost by right"] = sum(sends[key].outcome == OK for key in excused)
        # What a queue's entry on disk pointed to is lost with the end of the log, and its offset is given to no other.
        verdict = judge(lines, readers, lost_ok=excused, consumed_ok=not self._sync, torn=self._lost)
        if self._sync:
            # Also of what a cut happened to spare.
            for key in self._not_forced & sends.keys():
                if sends[key].outcome == OK and sends[key].claims:
                    verdict.fault("I9", f"{key} was acknowledged and was not on disk when the power failed")
        return verdict

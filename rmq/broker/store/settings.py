"""What the store can be told: plain values, named after the Java keys they come from (store-and-broker.md 10.3)."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.broker.store.state import ENTRY_SIZE
from rmq.protocol.errors import ConfigError

__all__ = ["DEFAULT_DELAYS_MS", "QUEUE_FILE_SIZE", "StoreSettings"]

_S, _M, _H = 1000, 60_000, 3_600_000
#: ``messageDelayLevel`` of Java, milliseconds of level 1, 2, ...
DEFAULT_DELAYS_MS: tuple[int, ...] = (
    _S, 5 * _S, 10 * _S, 30 * _S, _M, 2 * _M, 3 * _M, 4 * _M, 5 * _M, 6 * _M, 7 * _M, 8 * _M, 9 * _M, 10 * _M,
    20 * _M, 30 * _M, _H, 2 * _H,
)  # fmt: skip


#: Bytes of a queue's file unless somebody says another size, as in Java.
QUEUE_FILE_SIZE = 6_000_000


@dataclass(slots=True)
class StoreSettings:
    """The store's keys. Fields that Java re-reads while running are read each time here too.

    :raises ConfigError: a size that no store can have.
    """

    #: ``storePathRootDir``.
    root: str
    #: ``storePathCommitLog``: one or several directories; none means ``root/commitlog``.
    commit_log_paths: tuple[str, ...] = ()
    #: ``readOnlyCommitLogStorePaths``: files here are read and never added to.
    read_only_paths: tuple[str, ...] = ()
    #: ``mappedFileSizeCommitLog``, bytes.
    commit_log_file_size: int = 1 << 30
    #: ``mappedFileSizeConsumeQueue``, bytes; rounded up to whole entries.
    queue_file_size: int = QUEUE_FILE_SIZE
    #: ``enableConsumeQueueExt``: messages get units in ``consumequeue_ext``.
    ext_enable: bool = False
    #: ``mappedFileSizeConsumeQueueExt``, bytes.
    ext_file_size: int = 48 << 20
    #: ``flushDiskType`` is SYNC_FLUSH.
    sync_flush: bool = False
    #: ``brokerRole`` is SYNC_MASTER: a message is visible when a replica has it, too.
    sync_master: bool = False
    #: A group of brokers decides what is acknowledged and seen; it elects its master.
    group: bool = False
    #: ``flushIntervalCommitLog``, ms.
    flush_interval_ms: int = 500
    #: ``flushCommitLogLeastPages``: 4 KiB pages that start a flush before its time when ``flush_timed`` is off.
    flush_least_pages: int = 4
    #: ``flushCommitLogTimed``.
    flush_timed: bool = True
    #: ``syncFlushTimeout``, ms.
    sync_flush_timeout_ms: int = 5000
    #: ``slaveTimeout``, ms.
    slave_timeout_ms: int = 3000
    #: ``haAckSlaves``: how many replicas must have a message, for a sync master.
    ack_slaves: int = 1
    #: ``flushIntervalConsumeQueue``, ms.
    queue_flush_interval_ms: int = 1000
    #: ``flushConsumeQueueThoroughInterval``, ms: how often queues are forced to disk and the checkpoint moves.
    queue_thorough_interval_ms: int = 60_000
    #: ``messageIndexEnable``.
    index_enable: bool = True
    #: ``maxHashSlotNum`` and ``maxIndexNum``.
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    #: Bytes of the log that a start indexes before messages are taken; more is indexed behind the running broker.
    index_at_start: int = 64 << 20
    #: ``checkCRCOnRecover``.
    check_crc_on_recover: bool = True
    #: ``checkCRCInMemory``: bodies that this process wrote are checked also where they come from the page cache.
    check_crc_in_memory: bool = False
    #: ``commitLogChecksumEnable``: checksums of what stands beside the bodies are made, in files of their own.
    checksums: bool = True
    #: ``commitLogChecksumOnAppend``: they are made as messages are stored, and not by the scrub alone.
    checksums_on_append: bool = False
    #: ``commitLogScrubRate``: how fast the log is read behind the running broker, MiB/s; 0 = never.
    scrub_rate_mib: int = 4
    #: ``commitLogScrubMaxRate``: how fast it may get, MiB/s, so that a pass is done before the next is due.
    scrub_most_mib: int = 16
    #: ``commitLogScrubInterval``: hours from the beginning of one pass to that of the next.
    scrub_interval_hours: int = 24
    #: ``cleanResourceInterval``, ms, and the pauses between deleted files, ms.
    clean_interval_ms: int = 10_000
    delete_log_pause_ms: int = 100
    delete_queue_pause_ms: int = 100
    #: ``fileReservedTime``, hours.
    file_reserved_hours: int = 72
    #: ``deleteWhen``: local hours, separated by ``;``.
    delete_when: str = "04"
    #: ``diskMaxUsedSpaceRatio``, percent; clamped to 10..95.
    disk_max_used_percent: int = 75
    #: ``cleanFileForciblyEnable``.
    clean_forcibly: bool = True
    #: ``diskSpaceCleanForciblyRatio``: percent of the disk beyond which files of any age go.
    disk_clean_forcibly_percent: int = 85
    #: ``diskSpaceWarningLevelRatio``: percent of the disk beyond which messages are refused.
    disk_warning_percent: int = 90
    #: ``messageDelayLevel``, ms of level 1, 2, ...: the tags code of a delayed message is its delivery time.
    delays_ms: tuple[int, ...] = DEFAULT_DELAYS_MS
    #: ``enableMultiDispatch``, ``enableLmq`` and ``maxLmqConsumeQueueNum``.
    multi_dispatch: bool = False
    lmq: bool = False
    most_lmq: int = 20_000

    def __post_init__(self) -> None:
        if self.commit_log_file_size < 4096:
            raise ConfigError(f"mappedFileSizeCommitLog={self.commit_log_file_size}: must be at least 4096 bytes")
        if self.queue_file_size < ENTRY_SIZE:
            raise ConfigError(f"mappedFileSizeConsumeQueue={self.queue_file_size}: must be at least {ENTRY_SIZE} bytes")
        if self.ext_file_size < 4096:
            raise ConfigError(f"mappedFileSizeConsumeQueueExt={self.ext_file_size}: must be at least 4096 bytes")
        self.queue_file_size = -(-self.queue_file_size // ENTRY_SIZE) * ENTRY_SIZE
        if self.index_slots < 1 or self.index_entries < 2:
            raise ConfigError("maxHashSlotNum must be at least 1 and maxIndexNum at least 2")
        if not self.commit_log_paths:
            self.commit_log_paths = (f"{self.root}/commitlog",)

"""Why the store takes no messages: one bit a reason (store-and-broker.md 2.10; the higher bits are ours)."""

from __future__ import annotations

from typing import Final

__all__ = ["Gate"]


class Gate:
    """The bits of ``CommitLog.gate``; 0 is open."""

    NOT_READABLE: Final = 1
    NOT_WRITABLE: Final = 2
    DISK_FULL: Final = 16
    #: Set from construction until the store has started, and again from stop on.
    SHUT_DOWN: Final = 32
    SLAVE: Final = 64
    #: A flush failed: what the kernel did with those pages is unknown, so it is never tried again in this process.
    FSYNC_FAILED: Final = 128
    #: The system does not let the process write: a file system mounted read-only, a limit of the size of files.
    WRITE_FORBIDDEN: Final = 256
    #: Replication takes back what the master, or the group, does not have.
    CUT: Final = 512
    #: Its folder, or a file in it that says whose it is, is not the one any more that this process has open.
    NOT_OWNED: Final = 1024

    _REASONS: Final = {
        NOT_OWNED: "the store was moved, replaced or unlocked while it was in use; stop this broker, the log says why",
        FSYNC_FAILED: "a flush to disk failed; check the disk and restart the broker",
        NOT_WRITABLE: "writing to the commit log failed; check the disk and restart the broker",
        WRITE_FORBIDDEN: "the commit log may not be written; they are taken again, without a restart, once it may",
        DISK_FULL: "the disk is full; free space or lower fileReservedTime",
        CUT: "its log is being cut back",
        SLAVE: "this broker is a slave",
        SHUT_DOWN: "it is shut down",
        NOT_READABLE: "it is not readable",
    }

    #: Reasons that somebody has to see to, as metrics name them.
    ALARMS: Final = {
        "not_owned": NOT_OWNED,
        "flush_failed": FSYNC_FAILED,
        "write_failed": NOT_WRITABLE,
        "write_forbidden": WRITE_FORBIDDEN,
        "disk_full": DISK_FULL,
    }

    @classmethod
    def reason(cls, gate: int) -> str:
        """The reasons in words, the gravest first; "none" for an open gate."""
        return "; ".join(text for bit, text in cls._REASONS.items() if gate & bit) or "none"

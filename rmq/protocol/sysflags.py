"""The small flag sets of the wire (protocol.md 5.2, 5.7)."""

from __future__ import annotations

__all__ = [
    "BORN_HOST_V6",
    "COMPRESSED",
    "COMPRESSION_LZ4",
    "COMPRESSION_MASK",
    "COMPRESSION_ZLIB",
    "COMPRESSION_ZLIB_OLD",
    "COMPRESSION_ZSTD",
    "INNER_BATCH",
    "MULTI_TAGS",
    "NEED_UNWRAP",
    "PERM_INHERIT",
    "PERM_PRIORITY",
    "PERM_READ",
    "PERM_READ_WRITE",
    "PERM_WRITE",
    "PULL_CLASS_FILTER",
    "PULL_COMMIT_OFFSET",
    "PULL_LITE",
    "PULL_SUBSCRIPTION",
    "PULL_SUSPEND",
    "STORE_HOST_V6",
    "TOPIC_UNIT",
    "TOPIC_UNIT_SUB",
    "TRANSACTION_COMMIT",
    "TRANSACTION_MASK",
    "TRANSACTION_NONE",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "perm_text",
    "transaction_type",
]

# A message's sysFlag
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_ZLIB_OLD = 0x000
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

# A pull request's sysFlag (Java: PullSysFlag)
PULL_COMMIT_OFFSET = 1
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8
PULL_LITE = 16

# A topic's sysFlag (Java: TopicSysFlag)
TOPIC_UNIT = 1
TOPIC_UNIT_SUB = 2

# A topic's or broker's permission (Java: PermName)
PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
PERM_PRIORITY = 8


def transaction_type(sys_flag: int) -> int:
    """The transaction bits of a message's sysFlag."""
    return sys_flag & TRANSACTION_MASK


def perm_text(perm: int) -> str:
    """A permission as Java prints it, such as ``RW-``."""
    return (
        ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & PERM_INHERIT else "-")
    )

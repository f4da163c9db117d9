"""Which file systems keep what they say of a file: inode and time of change mean something there."""

from __future__ import annotations

import functools
import os

__all__ = ["is_local"]

#: Local ones: nobody changes a file there but this kernel, which notes when. Network file systems, FUSE and what is
#: shared with a host (9p, virtiofs) take times from elsewhere.
_LOCAL = frozenset((
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs",
    "ubifs", "xfs", "zfs",
))  # fmt: skip


@functools.lru_cache(maxsize=256)
def is_local(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether the file system of a path is one of those; False where nothing tells. Blocks.

    :param mounts: the kernel's list of mounts, of which the last that fits a path is the one that is seen.
    """
    whole = os.path.realpath(path)
    best, kind = -1, ""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                before, _, behind = line.partition(" - ")
                point = before.split(" ")[4].encode(errors="surrogateescape").decode("unicode_escape")
                if len(point) >= best and (whole + "/").startswith(point.rstrip("/") + "/"):
                    best, kind = len(point), behind.split(" ")[0]
    except (OSError, IndexError, ValueError):
        return False
    return kind in _LOCAL

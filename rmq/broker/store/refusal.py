"""The one line about files that cannot be read or written: which, why, and what to do."""

from __future__ import annotations

import errno

from rmq.protocol.errors import StoreError
from rmq.runtime.backed_file import BAD_PLACE, FORBIDDEN, MISPLACED, SPOILT

__all__ = ["BAD_PLACE", "FORBIDDEN", "MISPLACED", "NO_SPACE", "SPOILT", "remedy", "told", "unusable"]

#: Errors that pass when there is room again.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_ACCESS = "let the user that runs the broker read and write it"
_SPACE = "free space on that disk"
_REMEDIES = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "mount that file system writable",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "let the process write larger files (ulimit -f, or LimitFSIZE of the unit), or lower "
    "mappedFileSizeCommitLog where that file system takes none so large",
    errno.EMFILE: "allow more open files (ulimit -n, or LimitNOFILE of the unit)",
    errno.ENFILE: "allow more open files on the machine (fs.file-max)",
    **dict.fromkeys(BAD_PLACE, "check that disk"),
    errno.ENOTDIR: "it, or a part of its path, is a file: move that away or name another directory",
    errno.EEXIST: "it is a file, or a link to nothing: move it away or name another directory",
    errno.EISDIR: "move it away",
    errno.ELOOP: "it, or a part of its path, is a symbolic link to itself: take that away or let it lead somewhere",
    errno.ENOENT: "it, or what it links to, is not there: bring that back, or take the link away",
    errno.EBUSY: "it is in use, or another file system is mounted there",
}


def remedy(error: OSError) -> str:
    """What to do about an operating system error, behind a colon; nothing where that is not known."""
    known = _REMEDIES.get(error.errno or 0)
    return f": {known}" if known else ""


def told(error: OSError, where: str = "") -> str:
    """An operating system error in a line: which file, why, and what to do.

    :param where: named when the error names no file.
    """
    path = error.filename or where
    return f"{path}: {error.strerror or error}{remedy(error)}" if path else f"{error.strerror or error}{remedy(error)}"


def unusable(root: str, error: OSError) -> StoreError:
    """What is said when an operating system error keeps a broker from its store.

    :param root: the store.
    :param error: with the file it is about.
    """
    return StoreError(f"the store in {root} cannot be used: {told(error, root)}")

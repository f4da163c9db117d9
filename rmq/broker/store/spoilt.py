"""Files that can be made anew: one that is bad itself (:data:`SPOILT`) is taken out of the way, and costs no start.

Not so one that may not be read, or not now: whoever runs the broker can mend that.
"""

from __future__ import annotations

import logging
import os

from rmq.broker.store.refusal import BAD_PLACE
from rmq.runtime.world import Files

__all__ = ["bury", "make_way", "set_aside"]

log = logging.getLogger(__name__)


def make_way(files: Files, root: str, path: str) -> bool:
    """Free a name for a file that is made anew. Blocks.

    What is in a directory that has this name nobody knows: it is moved to ``aside`` in the store, and told of.

    :param root: the store.
    :returns: False when the disk does not let the name go; its directory can still be moved away as a whole.
    :raises OSError: for another reason.
    """
    try:
        if files.is_dir(path):
            log.error("%s is a directory where a file belongs: it is %s now", path, set_aside(files, root, path))
        else:
            files.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in BAD_PLACE:
            raise
        log.error("%s cannot be removed, either: %s", path, error.strerror or error)
        return False
    return True


def set_aside(files: Files, root: str, path: str) -> str:
    """Move what nobody knows to ``aside`` in the store, where it stays; its new path. Blocks."""
    return _move(files, path, root, "aside", "-")


def bury(files: Files, root: str, directory: str, mark: str = "-") -> str:
    """Move a directory to ``trash`` in the store, where a start removes it; its new path. Blocks.

    :param mark: what stands between a number and the directory's own name.
    """
    return _move(files, directory, root, "trash", mark)


def _move(files: Files, path: str, root: str, folder: str, mark: str) -> str:
    place = os.path.join(root, folder)
    files.mkdir(place)
    # What was moved there before may still be there.
    serial = 0
    while files.exists(to := os.path.join(place, f"{serial}{mark}{os.path.basename(path)}")):
        serial += 1
    files.rename(path, to)
    return to

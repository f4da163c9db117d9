"""A file that is replaced as a whole, with its last good content beside it in ``.bak`` as a net.

Every file of settings, topics, groups and offsets is one: of the broker, of the nameserver, of the SDK.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from rmq.protocol.errors import ProtocolError, StoreError
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["BAD_PLACE", "FORBIDDEN", "MISPLACED", "SPOILT", "BackedFile", "DamagedFile"]

log = logger(__name__)

#: Errors that stay until somebody does something about them.
FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG})
#: Errors of a path that leads through something that is no directory.
MISPLACED = frozenset({errno.ENOTDIR, errno.ELOOP})
#: What a disk or a file system says of a place, and not of the process, the file's name or its rights.
BAD_PLACE = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA})
#: What is said of a file that is bad itself: of its place, or that it is a directory.
SPOILT = BAD_PLACE | {errno.EISDIR}


class DamagedFile(StoreError):
    """A file is there, and neither it nor its backup can be read."""

    def __init__(self, path: str, damage: str) -> None:
        #: What is wrong with each of them.
        self.damage = damage
        super().__init__(
            f"{path}: neither the file nor its .bak can be read ({damage}); "
            f"restore one of them, or remove both to start without"
        )


class BackedFile:
    """One such file.

    :param world: its files and its offload.
    :param path: the file; ``path + '.bak'`` keeps the content before the last write.
    """

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self.path = path
        #: What stands in the file is good: it may become the backup. A damaged one must not replace a good backup.
        self._good = False
        # Writers share the name of the temporary file. Who waits for one may be cancelled, its thread goes on.
        self._one = threading.Lock()
        self._asked = self._written = 0

    def load(self, parse: Callable[[bytes], None]) -> bool:
        """Read the file, or its backup when it is missing, empty or damaged. Blocks.

        No version is ever written that is empty: an empty file is what a power cut or a full disk made of another one.

        :param parse: takes the content over; raises ValueError or ProtocolError when it is no such file.
        :returns: False when there is neither: a fresh start.
        :raises DamagedFile: a file is there, and neither can be read.
        :raises OSError: it may not be read, or not now; the content may be there: an older one does not take its place.
        """
        damage: list[str] = []
        for path in (self.path, self.path + ".bak"):
            try:
                data = self._world.files.read(path)
                if not data.strip():
                    raise ValueError("no content")
                parse(data)
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError, ValueError) as error:
                if isinstance(error, OSError) and error.errno not in SPOILT:
                    raise
                damage.append(f"{path}: {error}" if damage or path != self.path else str(error))
                continue
            if path != self.path:
                log.warning(
                    "%s cannot be used (%s): the backup %s is used", self.path, "; ".join(damage) or "no content", path
                )
            self._good = path == self.path
            return True
        if not damage:
            return False
        raise DamagedFile(self.path, "; ".join(damage))

    def probe(self) -> None:
        """Make and remove the temporary file of a write. Blocks.

        :raises OSError: nothing can be made in the directory.
        """
        files = self._world.files
        with self._one:
            files.open(f"{self.path}.tmp", create=True).close()
            files.unlink(f"{self.path}.tmp")

    async def replace(self, data: bytes) -> None:
        """Write the content; it is on the disk when this returns. One that was asked for later is never overtaken.

        :raises OSError: the old content stands.
        """
        self._asked += 1
        await self._world.offload(self._replace, data, self._asked)

    def _replace(self, data: bytes, number: int) -> None:
        files = self._world.files
        with self._one:
            if number < self._written:
                return
            folder = self.path.rpartition("/")[0]
            if folder and not files.is_dir(folder):
                files.mkdir(folder)
                # A file survives a power cut only with its folder's name, which the folder's own fsync does not cover.
                files.sync_dir(os.path.dirname(folder))
            files.write_atomic(self.path, data, backup=self._good)
            self._good = True
            self._written = number

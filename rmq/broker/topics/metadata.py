"""One metadata file under ``config/``: read with its backup as a net, written off the loop whenever it changed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable

from rmq.broker.store.refusal import FORBIDDEN, MISPLACED, unusable
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.runtime.world import Files, World

__all__ = ["MetadataFile"]

log = logging.getLogger(__name__)


class MetadataFile:
    """A JSON file that is replaced as a whole (store-and-broker.md 1.4, design.md section 4).

    Changes that come while a write is under way are written together by the next one, so a storm of changes costs a
    few writes. ``render`` is called on the loop: it joins pieces that are kept ready, or it is a coroutine function.

    :param world: its files and its offload.
    :param path: the file; ``path + '.bak'`` keeps the content before the last write.
    :param render: makes the file's text.
    """

    def __init__(self, world: World, path: str, render: Callable[[], bytes | Awaitable[bytes]]) -> None:
        self._world = world
        self.path = path
        self._render = render
        self._trouble = Trouble(
            world.clock, log, f"writing {os.path.basename(path)}", "changes stay in memory and are lost with a kill"
        )
        self._dirty = False
        #: What stands in the file is good: it may become the backup. A damaged one must not replace a good backup.
        self._good = False
        self._writing: asyncio.Task[None] | None = None
        #: Changes asked for so far, and up to which of them a write has ended.
        self.asked = self.settled = 0
        #: Called when a write has ended: the content is in the file, or the log says why it is not.
        self.on_settled: Callable[[], None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def load(self, parse: Callable[[bytes], None]) -> bool:
        """Read the file, or its backup when it is missing, empty or damaged.

        No version is ever written that is empty: an empty file is what a power cut or a full disk made of another one.

        :param parse: takes the content over; raises ValueError or ProtocolError when it is no such file.
        :returns: False when there is neither: a fresh start.
        :raises StoreError: a file is there, and neither can be read.
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
                if isinstance(error, OSError) and error.errno in FORBIDDEN | MISPLACED:
                    # The content may be there: an older one must not take its place.
                    raise unusable(os.path.dirname(os.path.dirname(self.path)), error) from error
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
        raise StoreError(
            f"{self.path}: neither the file nor its .bak can be read ({'; '.join(damage)}); "
            f"restore one of them, or remove both to start without"
        )

    def check(self) -> None:
        """Make sure that the file can be replaced: no change is to be lost for a reason that is known at start. Blocks.

        :raises StoreError: nothing can be made in its directory.
        """
        files = self._world.files
        folder = os.path.dirname(self.path)
        if not files.is_dir(folder):
            return
        probe = f"{self.path}.tmp"
        try:
            files.open(probe, create=True).close()
            files.unlink(probe)
        except OSError as error:
            if error.errno in FORBIDDEN:
                raise unusable(os.path.dirname(folder), error) from error

    def changed(self) -> None:
        """Ask for a write; returns at once."""
        self._dirty = True
        self.asked += 1
        self._begin()

    def _begin(self) -> None:
        if self._writing is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # before the broker runs: the next change, or stop, writes it
            self._writing = loop.create_task(self._write_all(), name=f"write {self.path}")

    async def _write_all(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                asked = self.asked
                try:
                    await self._write()
                except OSError as error:
                    # Kept in memory; the next change or the stop tries again.
                    self._dirty = True
                    self._trouble.failed(error)
                    return
                else:
                    self._trouble.over()
                finally:
                    self._settle(asked)
        finally:
            self._writing = None

    def _settle(self, asked: int) -> None:
        self.settled = asked
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self.on_settled is not None:
            self.on_settled()

    @property
    def writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing is not None

    async def saved(self) -> None:
        """Wait until the changes asked for so far are on the disk, or cannot be written, as the log says.

        What is answered after it outlives a kill. Unlike :meth:`flush` it waits for no change that comes meanwhile.
        """
        asked = self.asked
        while self.settled < asked:
            self._begin()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def _write(self) -> None:
        rendered = self._render()
        data = await rendered if inspect.isawaitable(rendered) else rendered
        await self._world.offload(_replace, self._world.files, self.path, data, self._good)
        self._good = True

    async def flush(self) -> None:
        """Wait until everything asked for so far is on the disk."""
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if self._dirty:
            await self._write_all()


def _replace(files: Files, path: str, data: bytes, backup: bool) -> None:
    folder = path.rpartition("/")[0]
    if folder and not files.is_dir(folder):
        files.mkdir(folder)
        # A file survives a power cut only with its folder's name, which the folder's own fsync does not cover.
        files.sync_dir(os.path.dirname(folder))
    files.write_atomic(path, data, backup=backup)

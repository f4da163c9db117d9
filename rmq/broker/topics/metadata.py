"""One metadata file under ``config/``: a backed file that is written off the loop whenever it changed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable

from rmq.broker.store.refusal import unusable
from rmq.broker.store.trouble import Trouble
from rmq.runtime.backed_file import FORBIDDEN, BackedFile
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

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
        self._file = BackedFile(world, path)
        self._owner = TaskOwner(f"file {os.path.basename(path)}")
        self._render = render
        self._trouble = Trouble(
            world.clock, log, f"writing {os.path.basename(path)}", "changes stay in memory and are lost with a kill"
        )
        self._dirty = False
        self._writing: asyncio.Task[None] | None = None
        #: Changes asked for so far, and up to which of them a write has ended.
        self.asked = self.settled = 0
        #: Awaited before each write: what it brings to disk is there whenever the file tells of it.
        self.before_write: Callable[[], Awaitable[None]] | None = None
        #: Called when a write has ended: the content is in the file, or the log says why it is not.
        self.on_settled: Callable[[], None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def load(self, parse: Callable[[bytes], None]) -> bool:
        """Read the file, or its backup when it is missing, empty or damaged.

        :param parse: takes the content over; raises ValueError or ProtocolError when it is no such file.
        :returns: False when there is neither: a fresh start.
        :raises StoreError: a file is there, and neither can be read.
        """
        try:
            return self._file.load(parse)
        except OSError as error:
            raise unusable(os.path.dirname(os.path.dirname(self.path)), error) from error

    def check(self) -> None:
        """Make sure that the file can be replaced: no change is to be lost for a reason that is known at start. Blocks.

        :raises StoreError: nothing can be made in its directory.
        """
        folder = os.path.dirname(self.path)
        if not self._world.files.is_dir(folder):
            return
        try:
            self._file.probe()
        except OSError as error:
            if error.errno in FORBIDDEN:
                raise unusable(os.path.dirname(folder), error) from error

    def changed(self) -> None:
        """Ask for a write; returns at once."""
        self._dirty = True
        self.asked += 1
        self._begin()

    def _begin(self) -> None:
        if self._writing is None and not self._owner.closed:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return  # before the broker runs: the next change, or stop, writes it
            self._writing = self._owner.spawn(self._write_all(), "write")

    async def _write_all(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                asked = self.asked
                try:
                    if self.before_write is not None:
                        await self.before_write()
                    rendered = self._render()
                    await self._file.replace(await rendered if inspect.isawaitable(rendered) else rendered)
                except Exception as error:
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
        while self.settled < asked and not self._owner.closed:
            self._begin()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Wait until everything asked for so far is on the disk; what could not be written is tried once more."""
        await self._ended()
        if self._dirty:
            self._begin()
            await self._ended()

    async def _ended(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Write what is not written yet, and nothing any more after that."""
        await self.flush()
        await self._owner.close()
        self._settle(self.asked)

"""One run at a time works with a checkpoint: two would do every batch twice, and one sweeps what the other writes.

No lock holds on every file system. A run keeps a mark in ``_rmq/running`` of the checkpoint, a file whose name has a
number that goes up every few seconds. Who finds a mark waits for the next number: when it comes, that run is at work;
when it does not, the run was killed, and its mark goes. No clock is compared with another one.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from rmq.protocol.errors import RMQError
from rmq.runtime.background import LoopThread
from rmq.runtime.dial import Dial
from rmq.runtime.tasks import TaskOwner

__all__ = ["BEAT", "SILENCE", "Claim", "Marks", "claimed"]

log = logging.getLogger(__name__)

#: Seconds between two numbers, and after which a run that has given no new one is taken for dead.
BEAT = 5.0
SILENCE = 20.0
_HOME = "_rmq/running"


class Marks(Protocol):
    """What is needed of a checkpoint's files."""

    def full(self, path: str) -> str: ...

    def names(self, folder: str) -> list[str]: ...

    def write(self, path: str, text: str) -> None: ...

    def delete(self, path: str) -> None: ...


class Claim:
    """A checkpoint that is this run's until :meth:`release`.

    :param say: tells the user a line. :raises RMQError: another run works with it.
    """

    def __init__(self, files: Marks, clock: Dial, say: Callable[[str], object]) -> None:
        self._files = files
        self._run = f"{platform.node() or 'here'}-{os.getpid()}-{os.urandom(4).hex()}"
        self._number = 0
        #: Another run took this one for dead, which was silent for too long: it goes on, and this one must not.
        self.is_lost = False
        dead = self._marks()
        if dead:
            say(f"a run before this one was killed, or is still at work: waiting for {SILENCE:g} s to see which")
            until = clock.monotonic() + SILENCE
            while dead and clock.monotonic() < until:
                clock.sleep(BEAT / 2)
                self._refuse(self._marks() - dead)
                dead &= self._marks()
        self._files.write(self._path(), "")
        try:  # of two runs that begin together, one sees the other, or both do
            self._refuse(self._marks() - dead - {self._name()})
        except RMQError:
            self.release()
            raise
        for mark in dead:
            self._files.delete(f"{_HOME}/{mark}")

    def _refuse(self, alive: set[str]) -> None:
        if alive:
            run = min(alive).rpartition("-")[0]
            raise RMQError(
                f"{self._files.full('')} is the checkpoint of a run that is at work ({run}: machine, process, run): "
                "two runs on one would do everything twice; end the other one first, or give this one its own"
            )

    def beat(self) -> None:
        """Show that this run is at work."""
        if self.is_lost:
            return
        before = self._path()
        if self._name() not in self._marks():
            self.is_lost = True
            log.error("another run has taken over %s: this one stops", self._files.full(""))
            return
        self._number += 1
        self._files.write(self._path(), "")
        self._files.delete(before)

    def release(self) -> None:
        """The next run need not wait."""
        self._files.delete(self._path())

    def _name(self) -> str:
        return f"{self._run}-{self._number}"

    def _path(self) -> str:
        return f"{_HOME}/{self._name()}"

    def _marks(self) -> set[str]:
        """Names of all there are, without what is being written or belongs to the file system."""
        return {name for name in self._files.names(_HOME) if not name.startswith(".") and not name.endswith(".tmp")}


@contextmanager
def claimed(files: Marks, clock: Dial, say: Callable[[str], object], on_lost: Callable[[], object]) -> Iterator[Claim]:
    """A claim that is kept up on a thread of its own.

    :param on_lost: called there when another run took over.
    :raises RMQError: another run works with the checkpoint, or has taken it over.
    """
    claim = Claim(files, clock, say)

    def beat() -> None:
        claim.beat()
        if claim.is_lost:
            on_lost()

    thread, owner = LoopThread("rmq-pipeline-claim"), TaskOwner("claim")

    async def begin() -> None:
        owner.every(BEAT, beat, "beat")

    try:
        thread.call(begin())
        try:
            yield claim
        finally:
            thread.call(owner.close())
    finally:
        thread.stop()
        with suppress(Exception):  # Spark may be gone, whose file systems these are: the next run waits a moment then
            claim.release()
    if claim.is_lost:
        raise RMQError(f"another run has taken over {files.full('')}: this one was silent for more than {SILENCE:g} s")

"""Pulls whose messages are read from the disk, beside those that memory answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rmq.broker.delivery.holds import Pull
from rmq.broker.delivery.read import Batch, ReadLimits, Scan
from rmq.broker.store.trouble import Trouble
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, Command
from rmq.protocol.frame import encode
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["ColdPulls"]

log = logging.getLogger(__name__)


class ColdPulls:
    """Goes on with scans that need the disk.

    :param tasks: own what is being read.
    :param failed: answers a pull that met what nobody expected.
    """

    def __init__(
        self, clock: Clock, tasks: TaskOwner, limits: ReadLimits, failed: Callable[[Pull, Exception], None]
    ) -> None:
        self._tasks = tasks
        self._limits = limits
        self._failed = failed
        self._trouble = Trouble(clock, log, "reading messages from disk", "who pulls them is told so")

    def read(self, pull: Pull, scan: Scan, waits_for: Awaitable[Any], done: Callable[[Batch], None]) -> None:
        """Have a scan read from the disk: until it is answered it counts as owed, as much as it may bring."""
        conn, size = pull.conn, self._limits.bytes_in_memory
        conn.promise(size)

        async def reading() -> None:
            try:
                await self._read(pull, scan, waits_for, done)
            finally:
                conn.promise(-size)

        self._tasks.spawn(reading(), "cold read")

    async def _read(self, pull: Pull, scan: Scan, waits_for: Awaitable[Any], done: Callable[[Batch], None]) -> None:
        try:
            while True:
                data = await waits_for
                try:
                    waits_for = scan.send(data)
                except StopIteration as end:
                    self._trouble.over()
                    if not pull.conn.closed:
                        done(end.value)
                    return
        except OSError as error:
            self._trouble.failed(error)
            answer = Command(
                ResponseCode.SYSTEM_ERROR,
                remark="the broker cannot read these messages from its disk",
                flag=FLAG_RESPONSE,
                opaque=pull.opaque,
                serialize=pull.serialize,
            )
            pull.conn.send(encode(answer))
        except Exception as error:
            self._failed(pull, error)

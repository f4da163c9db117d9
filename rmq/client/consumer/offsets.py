"""Where a group stands in its queues: kept by the broker, or in a local file for broadcasting (protocol.md 7.6)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Protocol

from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.protocol import fastjson
from rmq.protocol.bodies.offset import LocalOffsetTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ConnectFailed, RMQError, StoreError, TransportError
from rmq.protocol.headers.offset import (
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.runtime.aside import logger
from rmq.runtime.backed_file import BackedFile, DamagedFile
from rmq.runtime.world import FileLock, World

__all__ = ["LocalFileOffsetStore", "OffsetStore", "RemoteBrokerOffsetStore", "Table"]

log = logger(__name__)


class OffsetStore(Protocol):
    """Offsets of one group (Java: OffsetStore)."""

    async def open(self) -> None:
        """Read what was kept, once at start.

        :raises ClientError: it cannot be read, or somebody else keeps his offsets there.
        """

    async def close(self) -> None:
        """Nothing is kept any more: the end of the consumer."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Note the offset of the next message to consume."""

    def known(self, queue: MessageQueue) -> int:
        """The offset in memory; -1 = none."""
        ...

    async def read(self, queue: MessageQueue) -> int:
        """The offset as it is kept; -1 = the group has none for this queue.

        A broker says 0 for a group without one as long as the first message of the queue is still at hand: who has
        missed nothing yet shall miss nothing, whatever is younger, the queue or the group.

        :raises RMQError: it cannot be known now.
        """
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> RMQError | None:
        """Keep the offsets of these queues.

        :param wait: until they are kept, as at a shutdown. :returns: why some were not, where that is known.
        """

    def remove(self, queue: MessageQueue) -> None:
        """The queue is no longer ours."""

    def table(self) -> dict[MessageQueue, int]: ...


class Table:
    """The offsets in memory."""

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        old = self._offsets.get(queue)
        if old is None or not increase_only or offset > old:
            self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int:
        return self._offsets.get(queue, -1)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def table(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)


class RemoteBrokerOffsetStore(Table):
    """Kept by the broker that has the queue (Java: RemoteBrokerOffsetStore)."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        #: The last offsets could not be kept.
        self._failing = False
        #: Brokers and topics that have been told an offset, and said so.
        self._begun: set[tuple[str, str]] = set()

    def remove(self, queue: MessageQueue) -> None:
        super().remove(queue)
        self._begun.discard((queue.broker_name, queue.topic))

    async def read(self, queue: MessageQueue) -> int:
        address, _ = await self._instance.find_reader(queue)
        header = QueryConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            bname=queue.broker_name,
        )
        reply = await self._instance.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        offset = reply.header(QueryConsumerOffsetResponse).offset if reply.code == ResponseCode.SUCCESS else None
        if offset is None:
            return -1
        self._offsets.setdefault(queue, offset)
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> RMQError | None:
        together: dict[tuple[str, str], dict[MessageQueue, int]] = {}
        for queue in queues:
            if (offset := self.known(queue)) >= 0:
                together.setdefault((queue.broker_name, queue.topic), {})[queue] = offset
        calls = [self._commit_topic(where, offsets, wait) for where, offsets in together.items()]
        outcomes = [outcome for each in await asyncio.gather(*calls) for outcome in each]
        failed = [outcome for outcome in outcomes if isinstance(outcome, RMQError)]
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and outcome not in failed:
                raise outcome
        if failed:
            # Once while it lasts: with every queue and every five seconds nothing else could be read.
            level = self._instance.outages.level(failed[0])
            if wait:
                level = logging.WARNING  # they are lost
            elif self._failing:
                level = logging.DEBUG
            log.log(
                level,
                "group %s: %d offsets were not kept%s: %s",
                self._group,
                len(failed),
                "" if wait else ", they are tried again",
                failed[0],
            )
        if outcomes:
            self._failing = bool(failed)
        return failed[0] if failed else None

    async def _commit_topic(
        self, where: tuple[str, str], offsets: dict[MessageQueue, int], wait: bool
    ) -> list[BaseException | None]:
        """Commit offsets of a broker's queues of one topic. :returns: for each why it was not kept.

        The first that is waited for goes before the others. A Java broker, which has threads for them, begins the
        group's table of the topic anew for each of the first that come at once, and loses those of the others.
        """
        if not wait or where in self._begun:
            return await self._commit_each(offsets, wait)
        first = next(iter(offsets))
        (outcome,) = await self._commit_each({first: offsets.pop(first)}, wait)
        if outcome is None:
            self._begun.add(where)
        if isinstance(outcome, ConnectFailed):
            return [outcome] * (1 + len(offsets))
        # Of queues that went meanwhile the offsets are kept already, and who does not answer is not waited for twice.
        others = {queue: self._offsets[queue] for queue in offsets if queue in self._offsets}
        silent = isinstance(outcome, TransportError)
        outcomes = await self._commit_each(others, wait and not silent)
        return [outcome, *([outcome] * len(others) if silent else outcomes)]

    async def _commit_each(self, offsets: dict[MessageQueue, int], wait: bool) -> list[BaseException | None]:
        calls = [self._commit(queue, offset, wait) for queue, offset in offsets.items()]
        return await asyncio.gather(*calls, return_exceptions=True)

    async def _commit(self, queue: MessageQueue, offset: int, wait: bool) -> None:
        header = UpdateConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        address, _ = await self._instance.find_reader(queue)
        if not wait:
            command = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            await self._instance.remoting.oneway(address, command.mark_oneway())
            return
        try:
            await self._instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        except RMQError as error:
            if not isinstance(error, TransportError) and error.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                raise
            # Nobody tells it again. Who does not answer is not waited for twice, but somebody else may have the queue.
            other, _ = await self._instance.find_reader(queue)
            if other == address:
                raise
            await self._instance.call(other, RequestCode.UPDATE_CONSUMER_OFFSET, header)


class LocalFileOffsetStore(Table):
    """Kept in ``<directory>/<client id>/<group>/offsets.json`` (Java: LocalFileOffsetStore).

    One consumer keeps its offsets there: while it is open, a lock beside the file says so.

    :param ignore_damage: start without offsets when neither the file nor its backup can be read.
    """

    def __init__(
        self, world: World, directory: str | None, client_id: str, group: str, *, ignore_damage: bool = False
    ) -> None:
        super().__init__()
        self._world = world
        base = directory or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets")
        self.path = os.path.join(base, client_id, group, "offsets.json")
        self._file = BackedFile(world, self.path)
        self._ignore_damage = ignore_damage
        self._written: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()
        self._lock: FileLock | None = None
        #: Saves that failed so far.
        self.failed_saves = 0

    async def open(self) -> None:
        claiming = asyncio.ensure_future(self._world.offload(self._claim))
        try:
            await asyncio.shield(claiming)
            await self.load()
        except BlockingIOError:
            raise ClientError(
                "another consumer on this machine broadcasts under the same client id and group, and keeps its offsets "
                f"in {self.path}: each would miss what the other has read. Give each an instance_name of its own, the "
                "same one at every start, or another offset_store_dir"
            ) from None
        except BaseException:
            await asyncio.wait({claiming})  # its thread goes on when we are cancelled
            await self.close()
            raise

    def _claim(self) -> None:
        folder = os.path.dirname(self.path)
        try:
            self._world.files.mkdir(folder)
            self._lock = self._world.files.lock(os.path.join(folder, "lock"))
        except BlockingIOError:
            raise
        except OSError as error:
            text = "%s cannot be locked, and another consumer that keeps its offsets there would not be noticed: %s"
            log.warning(text, self.path, error)

    async def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await self._world.offload(lock.release)

    async def load(self) -> None:
        """Read the file, or its backup. :raises ClientError: neither can be read."""
        try:
            await self._world.offload(self._file.load, self._parse)
        except OSError as error:
            self._damaged(str(error))
        except DamagedFile as error:
            self._damaged(error.damage)

    def _parse(self, data: bytes) -> None:
        """What would have the group begin elsewhere than it has been is damage, and not no offset."""
        held = fastjson.loads(data)
        if not isinstance(held, dict) or not isinstance(held.get("offsetTable"), dict):
            raise ValueError("no offsetTable: a file of something else?")
        table = LocalOffsetTable.decode(data).offset_table
        if len(table) != len(held["offsetTable"]):
            raise ValueError("a queue without an offset")
        for queue, offset in table.items():
            if not queue.topic or not queue.broker_name or queue.queue_id < 0:
                raise ValueError(f"{queue} is no queue")
            if offset < -1:  # -1 is none
                raise ValueError(f"{queue} has the offset {offset}")
        self._offsets.update(table)

    def _damaged(self, text: str) -> None:
        if not self._ignore_damage:
            raise ClientError(
                f"the offsets of this broadcasting group cannot be read ({self.path}: {text}): restore or delete the "
                "files, or set ignore_damaged_offset_file to start as consume_from_where says"
            )
        log.warning("damaged offsets are ignored: %s: %s", self.path, text)

    async def read(self, queue: MessageQueue) -> int:
        return self.known(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> RMQError | None:
        """Keep every offset known, whichever queues are asked for: the file holds the others, too, and a queue that
        is gone for now (its broker is down) goes on where it was when it is back."""
        async with self._writing:  # an older table never overtakes a newer one
            table = {queue: offset for queue, offset in self._offsets.items() if offset >= 0}
            if not table or table == self._written:
                return None
            try:
                await self._file.replace(fastjson.pretty(LocalOffsetTable(dict(sorted(table.items()))).to_object()))
                self._written = table
            except OSError as error:
                self.failed_saves += 1
                log.error("%s cannot be written (failure %d): %s", self.path, self.failed_saves, error)
                return StoreError(f"{self.path} cannot be written: {error}")
        return None

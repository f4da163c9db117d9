"""Topics, subscription groups and modes of consumption of a group of brokers: their changes go through its log.

A leader puts a change into the log before it shows it, so that whoever has a message has its topic; who asked for it
is answered when the group has committed it. Every member applies it when it is committed and its turn has come: at the
place in the log where queues are filled. Each table's file tells up to where that is done, with what came of it: a
start goes on there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rmq.broker.forgetting import Forgetting
from rmq.broker.groups.configs import GroupTable
from rmq.broker.parts import Ground, Tables
from rmq.broker.pop.modes import RequestModes
from rmq.broker.raft.settling import Settling
from rmq.broker.raft.table_records import LONGEST, config_of, decode, encode
from rmq.broker.store.own import own_message
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.state import ENTRY, Queue
from rmq.broker.topics.changes import FORBIDDEN, GROUP, MODE, TOPIC, Change
from rmq.broker.topics.table import TopicTable
from rmq.protocol.addresses import join
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import BodyError, ProtocolError, ResponseError, StoreError
from rmq.protocol.message import decode_record
from rmq.protocol.names import TABLE_CHANGES_TOPIC
from rmq.remoting.limits import Rationed

__all__ = ["TableChanges"]

log = logging.getLogger(__name__)

#: Entries of the queue of changes read in one go.
_AT_ONCE = 1024


class _Pending(NamedTuple):
    """A change in the log that is not known to be committed."""

    start: int
    end: int
    change: Change


class TableChanges:
    """The changes of one member's tables (a :class:`~rmq.broker.topics.changes.Journal`)."""

    def __init__(self, ground: Ground, tables: Tables, modes: RequestModes, forgetting: Forgetting) -> None:
        self._clock = ground.world.clock
        self._settings = ground.settings
        self._store = ground.store
        self._host = ground.store_host
        self._topics, self._groups = tables.topics, tables.groups
        self._modes = modes
        self._forgetting = forgetting
        self._tables = (tables.topics, tables.groups, modes)
        self._table_of: dict[str, TopicTable | GroupTable | RequestModes] = {
            TOPIC: tables.topics, GROUP: tables.groups, FORBIDDEN: tables.groups, MODE: modes,
        }  # fmt: skip
        tables.topics.drafts.journal = tables.groups.drafts.journal = modes.journal = self
        self._notes = Rationed(ground.world.clock)
        self._leads = False
        #: Up to where the log is committed.
        self._committed = 0
        self._pending: deque[_Pending] = deque()
        self._applying = False
        self._settling = Settling(lambda: self._store.settings.slave_timeout_ms)
        #: By file: up to where it says that it has them.
        self._noted: dict[str, int | None] = {}
        #: Of tables whose files did not say where they are in the log, by kind: how many changes they had seen, and
        #: where the log ended then.
        self._seen: dict[str, int] = {}
        self._seen_until = 0
        #: Changes that were applied since the start.
        self.applied = 0

    # -- the leader's

    @property
    def records(self) -> bool:
        """Whether this broker leads: every change is to be written."""
        return self._leads

    def lead(self) -> None:
        """The services of a master run, and everything is applied."""
        self._leads = True

    def follow(self) -> None:
        """They are about to end."""
        self.step_back()
        self._leads = False

    def step_back(self) -> None:
        """It does not lead any more: what it shows and the group has not committed is not there until that is."""
        self._topics.drafts.take_back()
        self._groups.drafts.take_back()

    def write(self, change: Change, show: Callable[[], None] | None = None) -> None:
        """Put a change into the log.

        :param show: shows it, which is done before anything can be committed.
        :raises ResponseError: it cannot be written: nothing is changed.
        """
        body = encode(change)
        if len(body) > LONGEST:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the settings of {change.kind} {change.name} take {len(body)} bytes, and {LONGEST} at most in a group "
                "that elects its master",
            )
        try:
            config_of(change)
            queue = self._store.queues.get_or_create(TABLE_CHANGES_TOPIC, 0)
            span = self._store.append(
                [own_message(queue, body, {"TAGS": change.kind}, self._clock.now_ms(), self._host)]
            )
        except BodyError as error:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{change.kind} {change.name} is not changed: {error}"
            ) from None
        except (OSError, StoreError) as error:
            raise ResponseError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"{change.kind} {change.name} is not changed: {error}"
            ) from error
        if show is not None:
            show()
        self._settling.wrote(span.end)
        self._pending.append(_Pending(span.start, span.end, change))
        self._apply_committed()

    async def settled(self) -> None:
        """Wait until what was written so far is committed; as long as a message may take.

        :raises ResponseError: it was taken back, or its time is over.
        """
        await self._settling.settled()

    # -- everybody's

    async def load(self, committed: int, *, plain: int, new: bool) -> None:
        """Go on where the tables' files end; the store is loaded.

        :param committed: up to where the log is known to be.
        :param plain: up to where the log was a plain broker's, whose tables have everything.
        :param new: it is a member for the first time: what files say is of an earlier group's.
        :raises StoreError: the changes cannot be read.
        """
        self._committed = committed
        self._settling.committed(committed)
        # A release before, which knows nothing of the log's changes, may have written the files since they came: what
        # they have is newer.
        for kind, counted in ((TOPIC, self._topics), (GROUP, self._groups), (FORBIDDEN, self._groups)):
            if counted.applied is None:
                self._seen[kind] = counted.data_version.counter
        if self._modes.applied is None and self._modes.all():
            self._seen[MODE] = 0  # nobody counts theirs
        self._seen_until = 0 if new else self._store.log.end
        for table in self._tables:
            if new or table.applied is None:
                table.applied = plain  # also where the first start has ended before a file said so
            else:
                self._noted[table.file.path] = table.applied
                table.applied = self._possible(table.file.path, table.applied)
        queue = self._store.queues.get(TABLE_CHANGES_TOPIC, 0)
        if queue is not None:
            try:
                for offset, size in await self._places(queue, min(table.applied or 0 for table in self._tables)):
                    self._found(offset, await self._store.log.read_cold(offset, size))
            except OSError as error:
                raise StoreError(f"the changes of topics and groups cannot be read from the log: {error}") from error
        self._store.dispatcher.watch(TABLE_CHANGES_TOPIC, self._dispatched)

    def _possible(self, path: str, applied: int) -> int:
        """Up to where a table can have the changes of the log; those that its file claims besides come again."""
        end = self._store.log.end
        if applied > end:
            log.warning(
                "%s has the changes of topics and groups up to %d, as it says, and the log ends at %d: what comes "
                "behind that is applied", path, applied, end,
            )  # fmt: skip
        return min(applied, end)

    async def _places(self, queue: Queue, begin: int) -> list[tuple[int, int]]:
        """Where the records of a queue are that lie at ``begin`` or behind, and their sizes."""
        places: list[tuple[int, int]] = []
        index = queue.next
        while index > queue.min:
            first = max(queue.min, index - _AT_ONCE)
            data, at = b"", first
            while at < index:  # a read ends with the file of its first entry
                data += await self._store.queues.entries_cold(queue, at, index - at)
                if first + len(data) // ENTRY.size == at:
                    break
                at = first + len(data) // ENTRY.size
            found = [(offset, size) for offset, size, _ in ENTRY.iter_unpack(data) if not is_blank(offset, size)]
            places[:0] = [place for place in found if place[0] >= begin]
            if found and found[0][0] < begin:
                break
            index = first
        return places

    def _found(self, offset: int, record: bytes) -> None:
        """A change that is in the log already: it holds once that is committed there."""
        change = self._read(offset, record)
        if change is not None:
            self._pending.append(_Pending(offset, offset + len(record), change))
            self._apply_committed()

    def _dispatched(self, offset: int, record: bytes) -> None:
        """The turn of a committed one has come."""
        change = self._read(offset, record)
        if change is not None:
            self._apply(_Pending(offset, offset + len(record), change))

    def _read(self, offset: int, record: bytes) -> Change | None:
        """What a record says; None when it costs itself, whatever it is: a plain broker's log may have any there."""
        try:
            found = decode_record(record, check_crc=True)
            if found.born_host != found.store_host:  # which a client cannot say of itself
                host, port = found.born_host
                raise BodyError(f"not a broker has written it, but {join(host, port)}")
            return decode(found.body)
        except Exception as error:
            why = error if isinstance(error, ProtocolError) else f"{type(error).__name__}: {error}"
            self._notes.say(log.error, "the change of a topic or a group at %d is not applied: %s", offset, why)
            return None

    def committed(self, end: int) -> None:
        """The group has everything before ``end``."""
        self._committed = max(self._committed, end)
        self._apply_committed()
        self._settling.committed(end)

    def cut(self, to: int) -> None:
        """The log is cut back to ``to``."""
        while self._pending and self._pending[-1].start >= to:
            self._pending.pop()
        self._settling.cut(to)

    def note(self) -> None:
        """Have every table's file say how far it is, so that a start reads no more than it has to.

        A table that never changes is never written else.
        """
        for table in self._tables:
            if table.applied != self._noted.get(table.file.path):
                self._noted[table.file.path] = table.applied
                table.file.changed()

    def _apply_committed(self) -> None:
        if self._applying:  # one that is applied has brought another one
            return
        self._applying = True
        try:
            while self._pending and self._pending[0].end <= self._committed:
                self._apply(self._pending.popleft())
        finally:
            self._applying = False

    def _apply(self, pending: _Pending) -> None:
        change, end = pending.change, pending.end
        if pending.start >= (self._table_of[change.kind].applied or 0):
            try:
                if self._has(pending):
                    self._clear_away(change, end)
                else:
                    self._do(change, end)
            except Exception as error:  # costs itself alone
                log.error(
                    "the change of %s %s at %d is not applied: %s: %s",
                    change.kind, change.name, pending.start, type(error).__name__, error,
                )  # fmt: skip
            self.applied += 1
        for one in self._tables:
            one.applied = max(one.applied or 0, end)

    def _do(self, change: Change, end: int) -> None:
        config, version = config_of(change), change.version or DataVersion()
        match config:
            case TopicConfig():
                self._topics.committed(config, version)
            case SubscriptionGroupConfig():
                self._groups.committed(config, version)
            case SetMessageRequestModeRequestBody():
                self._modes.put(config)
            case _ if change.kind == FORBIDDEN:
                self._groups.forbid(change.name, change.beside, config or 0, version)
            case None if change.kind == GROUP:
                self._forgetting.forget_group(change.name, version, offsets=change.offsets)
            case None if change.kind == TOPIC:
                self._forget_topic(change.name, version, end)

    def _has(self, pending: _Pending) -> bool:
        """Whether a table had a change before this release had its file."""
        change, count = pending.change, self._seen.get(pending.change.kind)
        if count is None or pending.start >= self._seen_until:
            return False
        return change.version is None or change.version.counter <= count

    def _clear_away(self, change: Change, end: int) -> None:
        """A table has a change, and whoever wrote it may never have heard of a topic that came and went."""
        if change.kind == TOPIC and change.value is None and change.name not in self._topics:
            self._forgetting.forget_topic(change.name, end)

    def _forget_topic(self, topic: str, version: DataVersion, end: int) -> None:
        if not self._leads:
            self._forgetting.forget_topic(topic, end, version)
            return
        # What was delayed may have come since: it goes, too, at every member.
        late = any(queue.max_phys > end for queue in self._store.queues.all(topic))
        self._forgetting.forget_topic(topic, version=version)
        if late:
            self._topics.drafts.delete(topic)

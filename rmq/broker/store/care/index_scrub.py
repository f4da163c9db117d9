"""Compares the index with the records that the scrub reads, and puts right what does not fit.

Entries are in the order of the log, one a key, so both are walked side by side: an entry that differs between two that
fit has changed on the disk, and is written as its message says. What leads from an entry to the one before it in its
slot, and from the slots to the newest, follows from the entries; it is compared when those of a file have gone by.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import NamedTuple

from rmq.broker.store.index.feed import ROLLED_BACK
from rmq.broker.store.index.file import INDEX_ENTRY, IndexFile
from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.index.words import MOST_WORDS
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import index_keys
from rmq.broker.store.trouble import Trouble
from rmq.protocol.record import places, store_time, topic_of
from rmq.runtime.world import Clock

__all__ = ["IndexScrub"]

log = logging.getLogger(__name__)

_entry = INDEX_ENTRY
_offset_of = attrgetter("offset")
#: Entries that are read at a time, and the pause between two such blocks when a whole file is read, s.
_BLOCK = 4096
_PAUSE = 0.01
#: Entries that are read beyond those that the keys need: some may be of messages that are gone.
_AHEAD = 1024
#: So many entries in a row may be wrong: their neighbours tell.
_MOST_WRONG = 8192
_MOST = 2 * _MOST_WRONG
#: Entries of one message that a start may have put a second time: all its keys, of which the first ones were there.
_MOST_TWICE = 2 * (MOST_WORDS + 1)


class _Key(NamedTuple):
    hash: int
    offset: int
    #: Store time of the message, ms.
    stamp: int


class _Entry(NamedTuple):
    file: IndexFile
    number: int
    #: Hash, offset, seconds, entry before it in its slot.
    says: tuple[int, int, int, int]


class IndexScrub:
    """Compares the index of one store.

    :param hasher: hashes a topic's keys.
    :param record_at: the record at a commit-log offset; None where there is none to be had.
    """

    def __init__(
        self,
        clock: Clock,
        index: Index,
        hasher: Callable[[str], KeyHasher],
        record_at: Callable[[int], Awaitable[bytes | None]],
    ) -> None:
        self._index = index
        self._record_at = record_at
        #: Files whose headers were compared in this pass.
        self._headed: set[IndexFile] = set()
        self._hasher = hasher
        #: The links of the file that is being filled are to be compared: once a pass.
        self._unlinked = True
        #: Where the next entry is; None: where the next key has its own.
        self._at: tuple[IndexFile, int] | None = None
        #: Keys that have gone by and whose entries are not compared yet.
        self._keys: list[_Key] = []
        #: Entries and slots that were put right since the start.
        self.mended = 0
        self._trouble = Trouble(clock, log, "comparing the index with the log", "it is done with the next pass")

    def begin(self) -> None:
        """A pass begins, or goes on somewhere."""
        self._unlinked = True
        self._headed.clear()

    def end(self) -> None:
        """A pass ends, or is broken off: files that retention takes before the next are not held."""
        self._lose()
        self._headed.clear()

    def _lose(self) -> None:
        self._at = None
        self._keys = []

    async def compare(self, run: Run) -> None:
        """Some good records of the log, in its order."""
        if not self._index.checked:
            return
        hashers: dict[str, KeyHasher] = {}
        for at, size, sys_flag, _, _, topic, text in run.records:
            if sys_flag & ROLLED_BACK != ROLLED_BACK and (keys := index_keys(run.data, text, at + size)):
                hasher = hashers.get(topic)
                if hasher is None:
                    hasher = hashers[topic] = self._hasher(topic)
                stamp = store_time(run.data, at)
                self._keys += [_Key(hasher.of(key), run.base + at, stamp) for key in keys]
        try:
            if self._unlinked and self._index.files and self._index.files[-1].filling:
                self._unlinked = False
                await self._relink(self._index.files[-1])
            goes_on = True
            while goes_on:
                goes_on = await self._some()
                await asyncio.sleep(0)
        except OSError as error:
            self._lose()
            self._trouble.failed(error)
        else:
            self._trouble.over()

    async def _some(self) -> bool:
        """Compare a block of entries; whether to go on."""
        if not self._keys:
            return False
        at = self._at or await self._index.first_of(self._keys[0].offset)
        if at is None or at[0] not in self._index.files:
            self._lose()  # the index begins behind these messages, or retention took the file
            return False
        entries = await self._read(*at, min(len(self._keys) + _AHEAD, _MOST))
        keys, passed, wrong = _aligned(self._keys[:_MOST], entries, self._last(entries))
        if wrong:
            await self._put(wrong)
        done = entries[:passed]
        self._keys = self._keys[keys:]
        if done:
            file, number, _ = done[-1]
            self._at = (file, number + 1)
            for one in dict.fromkeys(entry.file for entry in done):
                if one is not file or number + 1 >= one.capacity:
                    await self._relink(one)
        else:
            self._at = at
        if not keys and len(self._keys) > _MOST:
            self._lose()  # the two have nothing in common here: they are looked for anew
            return False
        return keys > 0

    async def _read(self, file: IndexFile, number: int, count: int) -> list[_Entry]:
        """Entries from a place on, those in the next files, too; only what is on disk."""
        found: list[_Entry] = []
        for one in self._index.files[self._index.files.index(file) :]:
            await self._compare_header(one)
            data = await self._index.read_entries(one, number, count - len(found))
            found += [_Entry(one, n, says) for n, says in enumerate(_entry.iter_unpack(data), number)]
            number = 1
            if len(found) >= count or not one.full:
                break
        return found

    def _last(self, entries: list[_Entry]) -> int:
        """Commit-log offset of the last message that the index has, where its entry is one of these; else -1."""
        if not entries:
            return -1
        file, number, _ = entries[-1]
        return file.end_offset if file is self._index.files[-1] and number == file.count - 1 else -1

    async def _compare_header(self, file: IndexFile) -> None:
        """Compare what a header says of the first and the last message with these: times in entries count from it."""
        if file in self._headed:
            return
        self._headed.add(file)
        last = file.count - 1
        right: dict[str, int] = {}
        if (first := await self._message_of(file, 1)) is not None:
            right["begin_offset"], right["begin_timestamp"] = first
        if file.on_disk > last and (newest := await self._message_of(file, last)) is not None:
            right["end_offset"], stamp = newest
            # Where a start has followed the entries, it is known to the second.
            if not 0 <= file.end_timestamp - stamp <= 1000:
                right["end_timestamp"] = stamp
        await self._correct(file, right)

    async def _message_of(self, file: IndexFile, number: int) -> tuple[int, int] | None:
        """Commit-log offset and store time of an entry's message; None where there is none with its key."""
        data = await self._index.read_entries(file, number, 1)
        value, offset, _, _ = _entry.unpack(data) if data else (0, -1, 0, 0)
        record = await self._record_at(offset) if offset >= 0 else None
        if record is None:
            return None
        hasher = self._hasher(topic_of(record))
        keys = index_keys(record, places(record)[3] + 2, len(record)) or ()
        return (offset, store_time(record, 0)) if value in map(hasher.of, keys) else None

    async def _correct(self, file: IndexFile, right: dict[str, int]) -> None:
        """Have a header say what is right."""
        wrong = {name: value for name, value in right.items() if getattr(file, name) != value}
        if wrong and await self._index.correct(file, wrong):
            self._tell(file, -1, len(wrong), "fields of its header")

    async def _put(self, wrong: list[tuple[_Entry, _Key]]) -> None:
        for entry, key in wrong:
            data = _entry.pack(key.hash, key.offset, entry.file.seconds_of(key.stamp), entry.says[3])
            await self._index.rewrite(entry.file, entry.file.entry_position(entry.number), data)
        self._tell(wrong[0][0].file, wrong[0][0].number, len(wrong), "entries")

    async def _relink(self, file: IndexFile) -> None:
        """Compare what leads from entry to entry, and from the slots to them: it follows from the entries."""
        table = file.empty_slots()
        entries = slots = first = 0
        number = 1
        while data := await self._index.read_entries(file, number, _BLOCK):
            for value, offset, seconds, before in _entry.iter_unpack(data):
                slot = value % file.slots
                if table[slot] != before:
                    made = _entry.pack(value, offset, seconds, int(table[slot]))
                    await self._index.rewrite(file, file.entry_position(number), made)
                    first = first or number
                    entries += 1
                table[slot] = number
                number += 1
            await asyncio.sleep(_PAUSE)
        right = file.copied(table)
        if number == file.count:
            await self._correct(file, {"slot_count": sum(map(file.used_slots, right))})
        if file.filling:
            if number == file.count and file.take_slots(table):
                slots = 1
        elif self._index.is_whole(file):
            for piece in range(file.slot_pieces()):
                size, position = file.piece(piece)
                data = file.slot_piece(right, piece) or bytes(size)
                if await self._index.read_bytes(file, position, size) != data:
                    await self._index.rewrite(file, position, data)
                    slots += 1
                await asyncio.sleep(_PAUSE)
        if entries:
            self._tell(file, first, entries, "links")
        if slots:
            self._tell(file, 0, slots, "pieces of its slots")

    def _tell(self, file: IndexFile, number: int, count: int, what: str) -> None:
        self.mended += count
        log.critical(
            "%s is damaged at %d: %d %s did not lead to their messages, and were made anew from the commit log; have "
            "the disk checked",
            file.path, max(0, file.entry_position(number)) if number >= 0 else 0, count, what,
        )  # fmt: skip


def _aligned(keys: list[_Key], entries: list[_Entry], last: int) -> tuple[int, int, list[tuple[_Entry, _Key]]]:
    """How many keys and entries are done with, and the entries that have changed, each with its key.

    :param last: commit-log offset of the last entry's message where no more follow; else -1.
    """
    wrong: list[tuple[_Entry, _Key]] = []
    places: dict[tuple[int, int], int] = {}

    def fit(key: int, at: int) -> bool:
        return key < len(keys) and at < len(entries) and entries[at].says[:2] == keys[key][:2]

    key = at = 0
    while key < len(keys) and at < len(entries):
        if fit(key, at):
            entry = entries[at]
            if entry.says[2] != entry.file.seconds_of(keys[key].stamp):
                wrong.append((entry, keys[key]))
            key, at = key + 1, at + 1
        elif fit(key, at + 1):
            at += 1  # its message is not in the log any more, or was put twice
        elif fit(key + 1, at):
            key += 1  # the index has refused it
        elif twice := _twice(keys[key], entries, at):
            at += twice
        elif ahead := next(
            (n for n in range(1, len(entries) - at) if fit(key + n, at + n) and _is_once(keys, key + n)), 0
        ):
            wrong += zip(entries[at : at + ahead], keys[key : key + ahead], strict=True)
            key, at = key + ahead, at + ahead
        elif last >= 0 and len(entries) - at == bisect_right(keys, last, key, key=_offset_of) - key:
            wrong += zip(entries[at:], keys[key:], strict=False)
            key, at = key + len(entries) - at, len(entries)
        elif len(keys) - key <= _MOST_WRONG:
            break  # the next records tell
        else:
            # They part here, and are together again where one says what the other does, if anywhere.
            places = places or {one[:2]: number for number, one in enumerate(keys)}
            found = (n for n in range(at, len(entries)) if places.get(entries[n].says[:2], -1) >= key)
            if (following := next(found, -1)) < 0:
                break
            key, at = places[entries[following].says[:2]], following
    return key, at, wrong


def _twice(key: _Key, entries: list[_Entry], at: int) -> int:
    """How many entries from ``at`` on come before that of a key, all of its message or of such as have gone by."""
    for number in range(at + 1, min(len(entries), at + _MOST_TWICE)):
        if entries[number - 1].says[1] > key.offset:
            return 0
        if entries[number].says[:2] == key[:2]:
            return number - at
    return 0


def _is_once(keys: list[_Key], number: int) -> bool:
    """Whether a message has a key once: where an entry says the same of one that is there twice, it may be either."""
    own, offset, _ = keys[number]
    for step in (-1, 1):
        other = number + step
        while 0 <= other < len(keys) and keys[other].offset == offset:
            if keys[other].hash == own:
                return False
            other += step
    return True

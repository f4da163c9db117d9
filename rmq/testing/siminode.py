"""A file as a simulated disk has it: page by page what its readers see, and what would survive a power cut."""

from __future__ import annotations

from rmq.runtime.world import Random

__all__ = ["PAGE", "SECTOR", "Inode"]

PAGE = 4096
#: What a disk writes whole or not at all.
SECTOR = 512
_ZEROS = bytes(PAGE)


class Inode:
    """A file's pages as readers see them, and as the platters have them. Missing pages are zeros."""

    __slots__ = ("cold", "dirty", "forced", "forced_size", "lost", "mtime_ms", "pages", "size")

    def __init__(self, now_ms: int) -> None:
        self.pages: dict[int, bytearray] = {}
        self.size: int = 0
        self.forced: dict[int, bytes] = {}
        self.forced_size: int = 0
        self.dirty: set[int] = set()
        #: Pages that count as clean although a flush of them failed: seen while they stay in the cache.
        self.lost: set[int] = set()
        self.cold: set[int] = set()
        self.mtime_ms: int = now_ms

    def read(self, size: int, offset: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        number, start = divmod(offset, PAGE)
        if start + size <= PAGE:  # most reads
            page = self.pages.get(number)
            return bytes(page[start : start + size]) if page is not None else _ZEROS[:size]
        parts = []
        while size > 0:
            number, start = divmod(offset, PAGE)
            count = min(size, PAGE - start)
            page = self.pages.get(number)
            parts.append(bytes(page[start : start + count]) if page is not None else _ZEROS[:count])
            offset += count
            size -= count
        return b"".join(parts)

    def data_from(self, offset: int) -> int:
        """The first byte of the first page with anything but zeros at ``offset`` or behind it, else the size."""
        first, start = divmod(offset, PAGE)
        written = [
            number
            for number, page in self.pages.items()
            if number >= first and page[(at := start if number == first else 0) :] != bytes(PAGE - at)
        ]
        return max(offset, min(written) * PAGE) if written else self.size

    def write(self, data: memoryview, offset: int) -> None:
        end = offset + len(data)
        done = 0
        while done < len(data):
            number, start = divmod(offset + done, PAGE)
            count = min(len(data) - done, PAGE - start)
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE)
            page[start : start + count] = data[done : done + count]
            self._dirtied(number)
            self.cold.discard(number)
            done += count
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        if size < self.size:
            last, start = divmod(size, PAGE)
            for number in [n for n in self.pages if n > last or (n == last and start == 0)]:
                del self.pages[number]
                self._dirtied(number)
            if start and last in self.pages:
                self.pages[last][start:] = bytes(PAGE - start)
                self._dirtied(last)
        self.size = size

    def _dirtied(self, number: int) -> None:
        self.dirty.add(number)
        self.lost.discard(number)

    def force(self) -> None:
        for number in sorted(self.dirty):
            page = self.pages.get(number)
            if page is None:
                self.forced.pop(number, None)
            else:
                self.forced[number] = bytes(page)
        self.dirty.clear()
        self.forced_size = self.size

    def lose_dirty(self) -> None:
        """What Linux does after a failed fsync: the pages count as clean, the platters have the old ones."""
        self.lost |= self.dirty
        self.dirty.clear()

    def forget_lost(self) -> None:
        """Pages that count as clean leave the cache: what is read now is on the platters."""
        for number in sorted(self.lost):
            self._revert(number)
        self.lost.clear()

    def power_cut(self, random: Random | None) -> None:
        """Pages that were not forced are kept, lost, or torn at sectors, as ``random`` has it; without it, lost."""
        self.forget_lost()
        keep_size = random is not None and random.random() < 0.5
        for number in sorted(self.dirty):
            fate = random.choice(("lost", "kept", "torn")) if random is not None else "lost"
            if fate == "lost":
                self._revert(number)
            elif fate == "torn" and random is not None:
                new = self.pages.get(number, bytearray(PAGE))
                old = self.forced.get(number, _ZEROS)
                page = bytearray(old)
                for start in range(0, PAGE, SECTOR):
                    if random.random() < 0.5:
                        page[start : start + SECTOR] = new[start : start + SECTOR]
                self.pages[number] = page
        size = self.size if keep_size else self.forced_size
        self.size = max(self.size, self.forced_size)
        self.resize(size)
        self.force()

    def _revert(self, number: int) -> None:
        old = self.forced.get(number)
        if old is None:
            self.pages.pop(number, None)
        else:
            self.pages[number] = bytearray(old)

    @property
    def blocks(self) -> int:
        return len(self.pages)

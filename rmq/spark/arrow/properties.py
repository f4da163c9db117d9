"""Property strings of many records at once: the map column, and single properties.

The strings lie behind each other in one buffer, in which names end with 0x01 and values with 0x02 or the string
(:mod:`rmq.protocol.properties`). The separators are found all at once, and serve every column that is made of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmq.spark.arrow.pieces import Numbers, cut

__all__ = ["PropertyColumns"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_NAME_END, _ITEM_END = 1, 2


class PropertyColumns:
    """The properties of an array of property strings (binary).

    As :func:`rmq.protocol.properties.decode`: items without a name or a value vanish, of equal names the last counts,
    bytes that are no UTF-8 are replaced.

    :param strings: each behind one byte that is not read. Records hold them so, behind their length; with a separator
        in the place of that byte every item follows one, whichever record it belongs to.
    """

    def __init__(self, strings: Any) -> None:
        self._count = len(strings)
        self._data, starts = _separated(strings)
        self._split(starts)
        self._names = self._cut(self._begins, self._middles)
        if not self._alike():
            self._tell_apart()

    def _split(self, starts: Numbers) -> None:
        """Where the items are, and the edges of the records among them.

        :param starts: the separator before each record.
        """
        data = self._data
        places = np.flatnonzero(data <= _ITEM_END)
        kinds = data[places]
        if len(kinds) % 2 == 0 and (kinds[::2] == _ITEM_END).all() and (kinds[1::2] == _NAME_END).all():
            separators, middles = places[::2], places[1::2]
        else:
            separators, middles = places[kinds == _ITEM_END], places[kinds == _NAME_END]
        begins, ends = separators + 1, np.append(separators[1:], len(data))
        filled = ends > begins  # others follow a separator after the last item, as some clients write it
        if not filled.all():
            begins, ends = begins[filled], ends[filled]
        if len(middles) != len(begins) or (middles < begins).any() or (middles >= ends).any():
            middles = np.append(middles, len(data))[np.searchsorted(middles, begins)]
        edges = np.append(np.searchsorted(begins, starts + 1), len(begins))
        whole = (middles > begins) & (middles + 1 < ends)
        if not whole.all():
            edges = np.append(0, np.cumsum(whole))[edges]
            begins, middles, ends = begins[whole], middles[whole], ends[whole]
        self._begins, self._middles, self._ends, self._edges = begins, middles, ends, edges

    def _alike(self) -> bool:
        """Whether every record has the same names in the same order, as those of one producer do."""
        size, rest = divmod(len(self._begins), self._count) if self._count else (0, 0)
        lengths = (self._middles - self._begins).reshape(-1, size) if size and not rest else None
        if lengths is None or (np.diff(self._edges) != size).any() or (lengths != lengths[0]).any():
            return False
        names = np.frombuffer(self._names.buffers()[2], np.uint8, int(lengths.sum())).reshape(self._count, -1)
        if (names != names[0]).any():
            return False
        self._kinds: list[str] = self._names[:size].to_pylist()
        self._codes: Numbers | None = None
        return len(set(self._kinds)) == size

    def _tell_apart(self) -> None:
        """Number the names, and keep the last of equal names of a record."""
        names = self._names.dictionary_encode()
        self._kinds = names.dictionary.to_pylist()
        self._codes = codes = names.indices.to_numpy().astype(np.int64)
        self._rows: Numbers = np.repeat(np.arange(self._count), np.diff(self._edges))
        kinds = len(self._kinds)
        places = self._rows * kinds + codes
        seen = np.zeros(self._count * kinds, np.bool_)
        seen[places] = True
        if int(seen.sum()) == len(places):
            return
        _, last = np.unique(places[::-1], return_index=True)
        kept = np.sort(len(places) - 1 - last)
        self._begins, self._middles, self._ends = self._begins[kept], self._middles[kept], self._ends[kept]
        self._rows, self._codes, self._names = self._rows[kept], codes[kept], self._names.take(pa.array(kept))
        self._edges = np.append(0, np.cumsum(np.bincount(self._rows, minlength=self._count)))

    def value(self, name: str) -> Any:
        """One property of each record; null where it has none."""
        if name not in self._kinds:
            return pa.nulls(self._count, pa.string())
        number = self._kinds.index(name)
        if self._codes is None:
            return self._some(np.arange(number, len(self._begins), len(self._kinds)))
        found = np.flatnonzero(self._codes == number)
        texts = self._some(found)
        if len(found) == self._count:
            return texts
        places = np.full(self._count, -1, np.int64)
        places[self._rows[found]] = np.arange(len(found))
        return texts.take(pa.array(places, mask=places < 0))

    def map(self) -> Any:
        """All properties of each record."""
        values = self._cut(self._middles + 1, self._ends)
        return pa.MapArray.from_arrays(pa.array(self._edges.astype(np.int32)), self._names, values)

    def _some(self, which: Numbers) -> Any:
        """The values of some items."""
        return self._cut(self._middles[which] + 1, self._ends[which])

    def _cut(self, begins: Numbers, ends: Numbers) -> Any:
        return cut(self._data, begins, ends, pa.string())


def _separated(strings: Any) -> tuple[Bytes, Numbers]:
    """The bytes of all strings behind each other, valid UTF-8, and where the separator before each stands."""
    _, offsets, data = strings.buffers()
    edges = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    found = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]].copy() if data is not None else np.empty(0, np.uint8)
    starts = edges[:-1] - edges[0]
    found[starts] = _ITEM_END
    if found.size and found.max() > 127:
        try:
            found.tobytes().decode()
        except UnicodeDecodeError:
            plain = [b"\x02" + str(each[1:], "utf-8", "replace").encode() for each in strings.to_pylist()]
            return _separated(pa.array(plain, pa.binary()))
    return found, starts

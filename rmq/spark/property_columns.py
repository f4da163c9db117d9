"""Property strings of many records at once: the map column, and single properties.

The strings lie behind each other in one buffer, in which names end with 0x01 and values with 0x02 or the string
(:mod:`rmq.protocol.properties`); the separators are found all at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmq.spark.pieces import Numbers, cut

__all__ = ["PropertyColumns"]


class PropertyColumns:
    """The properties of an array of property strings (binary).

    As :func:`rmq.protocol.properties.decode`: items without a name or a value vanish, of equal names the last counts,
    bytes that are no UTF-8 are replaced.
    """

    def __init__(self, strings: Any) -> None:
        self._count = len(strings)
        self._data, self._edges = _utf8(strings)
        self._split()

    def _split(self) -> None:
        data, edges = self._data, self._edges
        separators = np.flatnonzero(data == 2)
        begins = np.concatenate((edges[:-1], separators + 1))
        ends = np.concatenate((separators, edges[1:]))
        begins.sort(kind="stable")
        ends.sort(kind="stable")
        filled = ends > begins
        begins, ends = begins[filled], ends[filled]
        marks = np.flatnonzero(data == 1)
        which = np.searchsorted(marks, begins)
        middles = np.append(marks, len(data))[which]
        whole = (middles > begins) & (middles + 1 < ends)
        self._begins, self._middles, self._ends = begins[whole], middles[whole], ends[whole]
        self._rows: Numbers = np.searchsorted(edges, self._begins, side="right") - 1
        names = _cut(data, self._begins, self._middles).dictionary_encode()
        self._names: list[str] = names.dictionary.to_pylist()
        self._codes: Numbers = names.indices.to_numpy().astype(np.int64)
        self._drop_repeated()

    def _drop_repeated(self) -> None:
        """Keep the last of equal names of a record."""
        kinds = len(self._names)
        places = self._rows * kinds + self._codes
        seen = np.zeros(self._count * kinds, np.bool_)
        seen[places] = True
        if int(seen.sum()) == len(places):
            return
        _, last = np.unique(places[::-1], return_index=True)
        kept = np.sort(len(places) - 1 - last)
        self._begins, self._middles, self._ends = self._begins[kept], self._middles[kept], self._ends[kept]
        self._rows, self._codes = self._rows[kept], self._codes[kept]

    def value(self, name: str) -> Any:
        """One property of each record; null where it has none."""
        if name not in self._names:
            return pa.nulls(self._count, pa.string())
        found = np.flatnonzero(self._codes == self._names.index(name))
        texts = _cut(self._data, self._middles[found] + 1, self._ends[found])
        if len(found) == self._count:
            return texts
        places = np.full(self._count, -1, np.int64)
        places[self._rows[found]] = np.arange(len(found))
        return texts.take(pa.array(places, mask=places < 0))

    def map(self) -> Any:
        """All properties of each record."""
        edges = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(self._rows, minlength=self._count), out=edges[1:])
        names = _cut(self._data, self._begins, self._middles)
        values = _cut(self._data, self._middles + 1, self._ends)
        return pa.MapArray.from_arrays(pa.array(edges), names, values)


def _utf8(strings: Any) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Numbers]:
    """The bytes of all strings behind each other, and where each begins; valid UTF-8."""
    _, offsets, data = strings.buffers()
    edges = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    found = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]] if data is not None else np.empty(0, np.uint8)
    if found.size and found.max() > 127:
        try:
            found.tobytes().decode()
        except UnicodeDecodeError:
            plain = [str(each, "utf-8", "replace").encode() for each in strings.to_pylist()]
            return _utf8(pa.array(plain, pa.binary()))
    return found, edges - edges[0]


def _cut(data: np.ndarray[Any, np.dtype[np.uint8]], begins: Numbers, ends: Numbers) -> Any:
    return cut(data, begins, ends, pa.string())

"""The CRC of bodies and spans is zlib's, whoever makes it."""

from __future__ import annotations

import importlib
import sys
import zlib

import pytest

from rmq.protocol import crc


@pytest.mark.parametrize("size", [0, 1, 7, 16, 255, 1024, 65_537])
def test_it_is_the_crc_of_zlib(size: int) -> None:
    data = bytes(number * 31 & 0xFF for number in range(size))
    for given in (data, bytearray(data), memoryview(b"x" + data)[1:]):
        assert crc.crc32(given) == zlib.crc32(data)
        assert crc.crc32(given, 0xDEADBEEF) == zlib.crc32(data, 0xDEADBEEF)


def test_without_isal_zlib_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    try:
        assert importlib.reload(crc).crc32 is zlib.crc32
    finally:
        monkeypatch.undo()
        importlib.reload(crc)

"""(f) CRC-32 and (g) cutting a received chunk into frames."""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

from benchmark.micro.messages import send_frame
from benchmark.micro.timing import Program, compare, show


def run_crc() -> None:
    found: list[tuple[str, Callable[[bytes], int]]] = [("zlib", zlib.crc32)]
    for label, module in (("zlib-ng", "zlib_ng.zlib_ng"), ("isal", "isal.isal_zlib")):
        try:
            found.append((label, importlib.import_module(module).crc32))
        except ImportError:
            print(f"          {label}: not installed")
    for size in (128, 1024, 65536):
        compare(f"(f) crc32 of {size} bytes", [(bytes(range(256)) * 256)[:size]] * (65536 * 4 // (size + 1024)), found)


unpack = struct.Struct(">i").unpack_from
unpack_both = struct.Struct(">iI").unpack_from


def by_length(chunk: bytes) -> list[Any]:
    out = []
    lo, end = 0, len(chunk)
    while lo + 4 <= end:
        (length,) = unpack(chunk, lo)
        lo += 4
        hi = lo + length
        if hi > end or length < 4:
            break
        out.append((chunk, lo, hi))
        lo = hi
    return out


def by_both(chunk: bytes) -> list[Any]:
    out = []
    lo, end = 0, len(chunk)
    while end - lo >= 8:
        length, header = unpack_both(chunk, lo)
        hi = lo + 4 + length
        if hi > end or length < 4:
            break
        out.append((chunk, lo + 4, hi, header))
        lo = hi
    return out


def by_from_bytes(chunk: bytes) -> list[Any]:
    out = []
    lo, end = 0, len(chunk)
    while lo + 4 <= end:
        length = int.from_bytes(chunk[lo : lo + 4], "big")
        lo += 4
        hi = lo + length
        if hi > end or length < 4:
            break
        out.append((chunk, lo, hi))
        lo = hi
    return out


def frames_copied(chunk: bytes) -> list[Any]:
    out = []
    lo, end = 0, len(chunk)
    while lo + 4 <= end:
        (length,) = unpack(chunk, lo)
        lo += 4
        hi = lo + length
        if hi > end or length < 4:
            break
        out.append(chunk[lo:hi])
        lo = hi
    return out


def parts_copied(chunk: bytes) -> list[Any]:
    out = []
    lo, end = 0, len(chunk)
    while end - lo >= 8:
        length, header = unpack_both(chunk, lo)
        hi = lo + 4 + length
        if hi > end or length < 4:
            break
        cut = lo + 8 + header
        out.append((chunk[lo + 8 : cut], chunk[cut:hi]))
        lo = hi
    return out


def run_split() -> None:
    for body in (128, 1024):
        chunk = b"".join(send_frame(i, body) for i in range(16))
        ways: list[tuple[str, Callable[[bytes], list[Any]]]] = [
            ("unpack_from length: (buffer, lo, hi)", by_length),
            ("unpack_from both lengths: (buffer, lo, hi, header)", by_both),
            ("int.from_bytes of a slice: (buffer, lo, hi)", by_from_bytes),
            ("unpack_from, frame copied out", frames_copied),
            ("unpack_from both, header and body copied out", parts_copied),
        ]
        programs: list[Program] = [(name, lambda way=way: way(chunk)) for name, way in ways]  # type: ignore[misc]  # noqa: B023
        show(f"(g) {len(chunk)} bytes of 16 frames with {body} B, a frame", programs, 16, again=50)

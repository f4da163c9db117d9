"""Compressed bodies (protocol.md 5.2): zlib always, LZ4 and Zstandard when their extras are installed.

Bit 0 of the sysFlag says that a body is compressed, bits 8 to 10 how: 0 and 3 zlib, 1 LZ4 frame, 2 Zstandard frame.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any

from rmq.protocol import sysflags
from rmq.protocol.errors import ProtocolError

__all__ = ["MAX_CONTENT", "MissingExtra", "compress", "decompress", "flags_of"]

#: Bytes a body may have once decompressed: a 4 MiB body of zeros must not take all memory.
MAX_CONTENT = 128 * 1024 * 1024

_KINDS = {
    "zlib": sysflags.COMPRESSION_ZLIB,
    "lz4": sysflags.COMPRESSION_LZ4,
    "zstd": sysflags.COMPRESSION_ZSTD,
}


class MissingExtra(ProtocolError):
    """A body compressed with a library that is not installed here: names the extra to install."""


def _library(extra: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(
            f"the body is compressed with {extra}, which needs an extra: pip install 'rmq[{extra}]'"
        ) from None


def flags_of(kind: str) -> int:
    """The sysFlag bits of a body compressed as ``zlib``, ``lz4`` or ``zstd``, as clients from 4.9.4 set them.

    :raises ValueError: another kind.
    """
    bits = _KINDS.get(kind.lower())
    if bits is None:
        raise ValueError(f"{kind!r} is no compression: zlib, lz4 or zstd")
    return sysflags.COMPRESSED | bits


def compress(body: bytes, kind: str = "zlib", level: int = 5) -> bytes:
    """Compress a body.

    :param kind: ``zlib``, ``lz4`` or ``zstd``.
    :param level: 0 to 9 for zlib, else the library's own scale.
    :raises MissingExtra: the library of ``kind`` is not installed.
    :raises ValueError: another kind.
    """
    bits = flags_of(kind) & sysflags.COMPRESSION_MASK
    if bits == sysflags.COMPRESSION_ZLIB:
        return zlib.compress(body, level)
    if bits == sysflags.COMPRESSION_LZ4:
        frame = _library("lz4", "lz4.frame")
        packed = frame.compress(
            body,
            block_size=frame.BLOCKSIZE_MAX4MB,
            block_linked=False,  # Java's library refuses blocks that lean on earlier ones
            compression_level=level if level > 5 else 0,
            store_size=False,
            content_checksum=False,
        )
        return bytes(packed)
    return bytes(_library("zstd", "zstandard").ZstdCompressor(level=level, write_content_size=False).compress(body))


def _unpack_zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    """Piece by piece: the library can either bound its output or tell that the input was cut off, not both.

    512 bytes hold at most 128 blocks of 128 KiB, which is what a piece may go beyond ``limit`` for a moment.
    """
    unpacker = _library("zstd", "zstandard").ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(body), 512):
        part = unpacker.decompress(body[at : at + 512])
        parts.append(part)
        size += len(part)
        if size > limit or unpacker.eof:
            break
    return b"".join(parts), unpacker.eof


def decompress(body: bytes, sys_flag: int, limit: int = MAX_CONTENT) -> bytes:
    """The plain body; as it is when its sysFlag says that it is not compressed.

    :param limit: bytes that it may have.
    :raises MissingExtra: the library it needs is not installed.
    :raises ProtocolError: damaged, longer than ``limit``, or compressed in an unknown way.
    """
    if not sys_flag & sysflags.COMPRESSED:
        return body
    kind = sys_flag & sysflags.COMPRESSION_MASK
    try:
        if kind in (sysflags.COMPRESSION_ZLIB_OLD, sysflags.COMPRESSION_ZLIB):
            engine = zlib.decompressobj()
            plain = engine.decompress(body, limit + 1)
            whole = engine.eof
        elif kind == sysflags.COMPRESSION_LZ4:
            unpacker = _library("lz4", "lz4.frame").LZ4FrameDecompressor()
            plain = unpacker.decompress(body, max_length=limit + 1)
            whole = unpacker.eof
        elif kind == sysflags.COMPRESSION_ZSTD:
            plain, whole = _unpack_zstd(body, limit)
        else:
            raise ProtocolError(f"a body compressed in an unknown way: sysFlag {sys_flag:#x}")
    except ProtocolError:
        raise
    except Exception as error:  # each library has errors of its own, all of them mean damaged input
        raise ProtocolError(f"a compressed body that is damaged: {error}") from None
    if len(plain) > limit:
        raise ProtocolError(f"a compressed body of more than {limit} bytes")
    if not whole:
        raise ProtocolError("a compressed body that is cut off")
    return bytes(plain)

"""Plain HTTP by hand: what a probe or a scraper sends, and what nobody should."""

from __future__ import annotations

import asyncio

__all__ = ["fetch", "raw"]


async def raw(address: tuple[str, int], data: bytes) -> bytes:
    """Everything that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
    finally:
        writer.close()


async def fetch(address: tuple[str, int], path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    answer = await raw(address, f"GET {path} HTTP/1.1\r\nHost: test\r\nAccept: */*\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(fields["Content-Length"]) == len(body)
    return int(head.split(b" ")[1]), body.decode()

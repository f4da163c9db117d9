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


async def fetch(address: tuple[str, int], path: str, *fields: str) -> tuple[int, str]:
    """Status and body of a GET.

    :param fields: lines of its head besides.
    """
    lines = (f"GET {path} HTTP/1.1", "Host: test", "Accept: */*", *fields)
    answer = await raw(address, "".join(f"{line}\r\n" for line in (*lines, "")).encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    told = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(told["Content-Length"]) == len(body)
    return int(head.split(b" ")[1]), body.decode()

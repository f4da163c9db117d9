"""The one HTTP call there is: asking an address server (protocol.md 6.5)."""

from __future__ import annotations

import asyncio

import pytest

from rmq.runtime.world import World


class AddressServer:
    """Answers one prepared text and remembers what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = b""

    async def __aenter__(self) -> AddressServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/rocketmq/nsaddr"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readuntil(b"\r\n\r\n")
        if self.answer:
            writer.write(self.answer)
            writer.write_eof()
        else:
            await reader.read()  # never answers
        writer.close()


async def test_status_body_and_headers() -> None:
    world = World.real()
    async with AddressServer(b"HTTP/1.0 200 OK\r\n\r\n10.0.0.1:9876;10.0.0.2:9876\n") as server:
        status, body = await world.network.http_get(f"{server.url}-unit?nofix=1", {"Client-Version": "V4_9_8"}, 60.0)
        assert (status, body) == (200, b"10.0.0.1:9876;10.0.0.2:9876\n")
        assert server.asked.startswith(b"GET /rocketmq/nsaddr-unit?nofix=1 HTTP/1.1\r\n")
        assert b"Client-Version: V4_9_8\r\n" in server.asked
    async with AddressServer(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n") as server:
        assert await world.network.http_get(server.url, {}, 60.0) == (404, b"")


@pytest.mark.parametrize("answer", [b"nonsense", b""])
async def test_what_is_no_answer_is_an_os_error(answer: bytes) -> None:
    world = World.real()
    async with AddressServer(answer) as server:
        with pytest.raises(OSError, match=r".+"):
            await world.network.http_get(server.url, {}, 0.2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "ftp://127.0.0.1/x", "no address at all", "http:///x"])
async def test_nobody_there(url: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        await World.real().network.http_get(url, {}, 60.0)

"""The lines between members that are processes: each member reaches each other over one, which may fall silent."""

from __future__ import annotations

import asyncio

__all__ = ["Line"]


class Line:
    """From one member to another: that one speaks over it, and hears nothing but that it was heard.

    :param port: where the other listens.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._carries = asyncio.Event()
        self._carries.set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._linked, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def silence(self) -> None:
        """No byte passes from now on; connections stay open, and can be made, as on a real network."""
        self._carries.clear()

    def heal(self) -> None:
        """What was held back passes, and what follows."""
        self._carries.set()

    async def _linked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        ends = [writer]
        try:
            await self._carries.wait()
            back, forth = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(forth)
            pumps = [asyncio.ensure_future(self._pump(reader, forth)), asyncio.ensure_future(self._pump(back, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            return  # the other is not there: so the connection ends
        finally:
            for end in ends:
                end.close()
            self._links.discard(link)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._carries.wait()
            writer.write(data)
            await writer.drain()

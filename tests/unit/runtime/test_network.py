"""Ports that are kept until their listeners begin."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from functools import partial

import pytest

from rmq.runtime.dial import RealDial
from rmq.runtime.world import World


def taken(port: int) -> bool:
    """Whether another process that wants this port is refused, as a server asks for it."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
            other.listen()
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False


def refused(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
async def test_kept_ports_are_nobody_elses_and_do_not_answer(host: str) -> None:
    network = World.real().network
    kept = await network.reserve(host, (-2, 1))
    ports: Sequence[int] = (kept.port - 2, kept.port, kept.port + 1)
    assert all(taken(port) and refused(port) for port in ports)
    listener = await network.listen(asyncio.Protocol, host, kept.port)
    assert listener.address[1] == kept.port
    assert taken(kept.port)
    assert not refused(kept.port)
    kept.release()
    assert [taken(port) for port in ports] == [False, True, False]
    await listener.close()
    kept.release()
    again = await network.listen(asyncio.Protocol, host, kept.port)  # beside the connection that was there
    await again.close()


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
@pytest.mark.parametrize("reserved", [False, True])
async def test_what_is_accepted_sends_at_once(host: str, reserved: bool) -> None:
    """Or the second of two answers waits for the other side's word that it has the first: 40 ms."""
    network = World.real().network
    accepted: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    port = (await network.reserve(host)).port if reserved else 0
    listener = await network.listen(Accepted, host, port)
    opened, _ = await network.connect(asyncio.Protocol, "127.0.0.1", listener.address[1])
    taken_in = await accepted
    for one in (opened, taken_in):
        assert one.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        one.close()
    await listener.close()


def _behind_a_free_one() -> socket.socket:
    """One that listens at a port whose lower neighbour nobody has: other tests choose ports, too."""
    while True:
        other = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", other.getsockname()[1] - 1)).close()
        except OSError:
            other.close()
        else:
            return other


async def test_a_port_whose_neighbour_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    network = World.real().network
    with _behind_a_free_one() as other:
        neighbour = other.getsockname()[1] - 1
        choices = [neighbour]
        bind = socket.socket.bind

        def choose(made: socket.socket, where: tuple[str, int]) -> None:
            bind(made, (where[0], choices.pop()) if choices and not where[1] else where)

        monkeypatch.setattr(socket.socket, "bind", choose)
        kept = await network.reserve("127.0.0.1", (1,))
        assert not choices
        assert kept.port != neighbour
        kept.release()


async def test_a_host_that_is_not_here_has_no_ports() -> None:
    with pytest.raises(OSError, match="assign"):
        await World.real().network.reserve("192.0.2.1", (1,))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as other:
        return int(other.getsockname()[1])


async def test_a_connection_to_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel chooses the port for the end here that nobody listens at: it keeps nobody from listening there."""
    network, loop, port = World.real().network, asyncio.get_running_loop(), _free_port()
    connect = loop.create_connection
    from_there = partial(connect, local_addr=("127.0.0.1", port))
    monkeypatch.setattr(loop, "create_connection", from_there)
    with pytest.raises(ConnectionRefusedError):
        await network.connect(asyncio.Protocol, "127.0.0.1", port)
    await asyncio.sleep(0)
    with socket.socket() as other:  # not even as what a connection leaves for a minute
        other.bind(("127.0.0.1", port))


def test_a_connection_to_itself_that_blocks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    port = _free_port()
    from_there = partial(socket.create_connection, source_address=("127.0.0.1", port))
    monkeypatch.setattr(socket, "create_connection", from_there)
    with pytest.raises(ConnectionRefusedError):
        RealDial().connect("127.0.0.1", port, 1.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


async def test_a_port_that_a_connection_has_is_told_from_one_where_somebody_listens() -> None:
    network = World.real().network
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()) as one:
        with pytest.raises(
            OSError, match="in use, and nobody answers there: a connection that was opened here may have"
        ):
            await network.listen(asyncio.Protocol, "127.0.0.1", one.getsockname()[1])
        with pytest.raises(OSError, match=r"in use$"):
            await network.listen(asyncio.Protocol, "127.0.0.1", other.getsockname()[1])

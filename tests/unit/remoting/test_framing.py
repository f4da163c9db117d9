"""What arrives in whatever pieces is framed alike, without copies of what is whole, and refused where Java refuses."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import tracemalloc
from typing import Any

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command, SerializeType
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.testing import simloop
from rmq.testing.simworld import Simulation


class Wire:
    """A transport that remembers."""

    def __init__(self, peer: tuple[Any, ...] = ("10.9.8.7", 4321)) -> None:
        self.peer = peer
        self.written = b""
        self.closed = False
        self.reading = True
        self.buffered = 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.peer if name == "peername" else default

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Rig:
    """A server whose step only notes the frames, and one connection to it."""

    def __init__(self, limits: Limits | None = None, peer: tuple[Any, ...] = ("10.9.8.7", 4321)) -> None:
        self.seen: list[bytes] = []
        self.buffers: list[bytes] = []
        self.turns: list[list[Conn]] = []
        world = Simulation().node("server").world
        self.server = Server(world, Router(), limits, step=self.step)
        self.conn, self.wire = self.open(peer)

    def open(self, peer: tuple[Any, ...] = ("10.9.8.7", 4321)) -> tuple[Conn, Wire]:
        conn, wire = Conn(self.server), Wire(peer)
        conn.connection_made(wire)  # type: ignore[arg-type]
        return conn, wire

    def step(self, ready: list[Conn]) -> None:
        self.turns.append(list(ready))
        for conn in ready:
            frames, conn.frames = conn.frames, []
            for buffer, low, high in frames:
                self.buffers.append(buffer)
                self.seen.append(buffer[low:high])


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def frames_of(count: int) -> list[bytes]:
    kinds = (SerializeType.JSON, SerializeType.ROCKETMQ)
    return [
        frame.encode(Command(10, opaque=n, body=bytes([n % 256]) * (n * 7 % 900), serialize=kinds[n % 2]))
        for n in range(count)
    ]


def test_pieces_of_any_size_give_the_same_frames() -> None:
    async def main() -> None:
        whole = frames_of(60)
        stream = b"".join(whole)
        cuts = [1, 2, 3, 5, 7, 8, 9, 64, 1000, len(stream)]
        for size in cuts:
            rig = Rig()
            for at in range(0, len(stream), size):
                rig.conn.data_received(stream[at : at + size])
            await turn()
            assert rig.seen == [data[4:] for data in whole], size
            assert rig.conn.queued == 0
        chance = random.Random(7)
        for _ in range(50):
            rig = Rig()
            at = 0
            while at < len(stream):
                size = chance.choice((1, 3, 4, 11, 200, 4000))
                rig.conn.data_received(stream[at : at + size])
                at += size
            await turn()
            assert rig.seen == [data[4:] for data in whole]

    simloop.run(main())


def test_a_chunk_of_whole_frames_is_not_copied() -> None:
    async def main() -> None:
        rig = Rig()
        chunk = b"".join(frames_of(10))
        rig.conn.data_received(chunk)
        rig.conn.data_received(chunk)
        await turn()
        assert len(rig.buffers) == 20
        assert all(buffer is chunk for buffer in rig.buffers)

    simloop.run(main())


def test_a_frame_in_tiny_pieces_takes_little_more_than_its_bytes() -> None:
    async def main() -> None:
        rig = Rig()
        data = frame.encode(Command(10, body=bytes(range(256)) * 400))
        rig.conn.data_received(data[:20])
        tracemalloc.start()
        try:
            for at in range(20, len(data), 2):
                rig.conn.data_received(data[at : at + 2])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await turn()
        assert rig.seen == [data[4:]]
        assert peak < 4 * len(data)

    simloop.run(main())


def test_a_large_frame_in_pieces_is_joined_once() -> None:
    async def main() -> None:
        rig = Rig()
        data = frame.encode(Command(10, body=b"z" * 8_000_000))
        for at in range(0, len(data), 65_536):
            rig.conn.data_received(data[at : at + 65_536])
            assert sum(map(len, rig.conn._chunks)) == rig.conn._have
        await turn()
        assert rig.seen == [data[4:]]
        assert rig.conn._chunks == []

    simloop.run(main())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">I", 0), "a frame of length 0 "),
        (struct.pack(">I", 3), "a frame of length 3 "),
        (struct.pack(">I", 16_777_213), "a frame of length 16777213 "),
        (struct.pack(">I", 0xFFFFFFFF), "a frame of length -1 "),
        (struct.pack(">I", 0x80000000), "a frame of length -2147483648 "),
        (b"HTTP/1.1 400 Bad Request\r\n", "it speaks HTTP"),
        (b"GET / HTTP/1.1\r\n", "it speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it speaks SSH"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "it speaks TLS"),
        (struct.pack(">II", 20, 17), "header length 17 in a frame of length 20"),
        (struct.pack(">II", 20, 2 << 24 | 2), "unknown serialize type 2"),
        (struct.pack(">II", 20, 0xFF << 24 | 2), "unknown serialize type 255"),
        (struct.pack(">II", 3_000_000, 2_000_000), "a header of 2000000 bytes (262144 are allowed)"),
    ],
)
def test_what_breaks_the_format_closes_the_connection_with_one_line(
    data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for pieces in ([data], [data[:2], data[2:]], [data[:-1], data[-1:]]):
            caplog.clear()
            rig = Rig()
            for piece in pieces:
                rig.conn.data_received(piece)
            assert rig.wire.closed
            warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            assert len(warnings) == 1
            assert f"10.9.8.7:4321: closed: {why}" in warnings[0]

    simloop.run(main())


def test_good_frames_before_a_bad_one_are_served() -> None:
    async def main() -> None:
        rig = Rig()
        whole = frames_of(3)
        rig.conn.data_received(b"".join(whole) + struct.pack(">II", 20, 17))
        assert not rig.wire.closed
        assert not rig.wire.reading
        await turn()
        assert rig.seen == [data[4:] for data in whole]
        assert rig.wire.closed

    simloop.run(main())


def test_a_frame_that_does_not_decode_closes_and_the_rest_is_dropped() -> None:
    async def main() -> None:
        router = Router()
        seen: list[int] = []
        router.on(10, lambda conn, request: seen.append(request.opaque))
        server = Server(Simulation().node("server").world, router)
        conn, wire = Conn(server), Wire()
        conn.connection_made(wire)  # type: ignore[arg-type]
        bad = b"[1,2]"
        good = [frame.encode(Command(10, opaque=n)) for n in (1, 2)]
        conn.data_received(good[0] + struct.pack(">II", 4 + len(bad), len(bad)) + bad + good[1])
        await turn()
        assert seen == [1]
        assert wire.closed

    simloop.run(main())


def test_where_a_message_was_born() -> None:
    async def main() -> None:
        rig = Rig()
        assert rig.conn.peer == "10.9.8.7:4321"
        assert rig.conn.born_host == bytes((10, 9, 8, 7)) + struct.pack(">i", 4321)
        assert not rig.conn.born_v6
        mapped, _ = rig.open(("::ffff:10.0.0.5", 99, 0, 0))
        assert (mapped.peer, mapped.born_host[:4], mapped.born_v6) == ("10.0.0.5:99", bytes((10, 0, 0, 5)), False)
        six, _ = rig.open(("fe80::1%eth0", 99, 0, 2))
        assert (six.host, six.peer, six.born_v6, len(six.born_host)) == ("fe80::1", "[fe80::1]:99", True, 20)

    simloop.run(main())


def test_the_budget_of_a_tick_cuts_and_nobody_is_forgotten() -> None:
    async def main() -> None:
        rig = Rig(Limits(tick_frames=100))
        conns = [rig.open(("10.0.0.1", port))[0] for port in range(1, 4)]
        data = b"".join(frames_of(80))
        for conn in conns:
            conn.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sizes = []
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(rig.seen) == 240
        sizes = [[conns.index(conn) for conn in conns_of_turn] for conns_of_turn in rig.turns]
        # 100 a tick: the one that had no turn goes first, the one that was cut comes last.
        assert sizes == [[0, 1], [2, 1], [1]]

    simloop.run(main())


@pytest.mark.parametrize("by", ["frames", "bytes"])
@pytest.mark.parametrize(
    ("waiting", "served"),
    [
        ([4, 3], [[(0, 4)], [(1, 3)]]),  # the first has all of a tick
        ([3, 1, 2], [[(0, 3), (1, 1)], [(2, 2)]]),
        ([6], [[(0, 4)], [(0, 2)]]),
        ([3, 4], [[(0, 3), (1, 1)], [(1, 3)]]),
        ([1, 9, 2], [[(0, 1), (1, 3)], [(2, 2), (1, 2)], [(1, 4)]]),
    ],
)
def test_a_tick_serves_four_frames_or_the_bytes_of_four(
    by: str, waiting: list[int], served: list[list[tuple[int, int]]]
) -> None:
    async def main() -> None:
        data = frame.encode(Command(10, body=b"x" * 100))
        limits = Limits(tick_frames=4) if by == "frames" else Limits(tick_bytes=4 * (len(data) - 4))
        rig = Rig(limits)
        conns = [rig.open(("10.0.0.1", port))[0] for port in range(len(waiting))]
        turns: list[list[tuple[int, int]]] = []

        def step(ready: list[Conn]) -> None:
            turns.append([(conns.index(conn), len(conn.frames)) for conn in ready])
            for conn in ready:
                conn.frames = []

        rig.server._step = step
        for conn, count in zip(conns, waiting, strict=True):
            conn.data_received(data * count)
        for _ in range(10):
            await asyncio.sleep(0)
        assert turns == served

    simloop.run(main())


def test_answers_of_a_tick_are_written_together() -> None:
    async def main() -> None:
        rig = Rig()
        writes: list[bytes] = []
        rig.wire.write = writes.append  # type: ignore[method-assign]

        def step(ready: list[Conn]) -> None:
            for conn in ready:
                frames, conn.frames = conn.frames, []
                for number, _ in enumerate(frames):
                    conn.send(b"%d;" % number)

        rig.server._step = step
        rig.conn.data_received(b"".join(frames_of(4)))
        await turn()
        assert writes == [b"0;1;2;3;"]
        rig.conn.send(b"a")
        rig.conn.send(b"b")
        await turn()
        assert writes[1:] == [b"ab"]

    simloop.run(main())


def test_what_can_wait_for_the_answers_comes_after_they_are_written() -> None:
    async def main() -> None:
        wire, seen = Wire(), []

        def step(ready: list[Conn]) -> None:
            for conn in ready:
                conn.frames.clear()
                conn.send(b"answer")

        world = Simulation().node("server").world
        server = Server(world, Router(), step=step, after=lambda: seen.append(wire.written))
        conn = Conn(server)
        conn.connection_made(wire)  # type: ignore[arg-type]
        conn.data_received(frame.encode(Command(1)))
        await turn()
        assert seen == [b"answer"]

    simloop.run(main())


def test_a_connection_that_owes_too_much_is_not_read() -> None:
    async def main() -> None:
        rig = Rig(Limits(owed=1000))

        def step(ready: list[Conn]) -> None:
            for conn in ready:
                frames, conn.frames = conn.frames, []
                conn.owed_bytes += sum(high - low for _, low, high in frames)

        rig.server._step = step
        data = frame.encode(Command(10, body=b"x" * 2000))
        rig.conn.data_received(data)
        await turn()
        assert not rig.wire.reading
        rig.conn.settle(len(data) - 4)
        assert rig.wire.reading

    simloop.run(main())


def test_a_peer_that_does_not_read_is_not_served_until_it_does() -> None:
    async def main() -> None:
        rig = Rig()
        rig.wire.buffered = 5 << 20
        rig.conn.pause_writing()
        assert not rig.wire.reading
        rig.conn.data_received(frames_of(1)[0])  # what was under way already
        await turn()
        assert rig.seen == []
        rig.conn.resume_writing()
        assert rig.wire.reading
        await turn()
        assert len(rig.seen) == 1

    simloop.run(main())


def test_pushes_to_a_peer_that_never_reads_end_in_a_close() -> None:
    async def main() -> None:
        rig = Rig(Limits(write_most=10_000))
        rig.conn.pause_writing()
        rig.wire.buffered = 10_001
        rig.conn.send(b"x")
        await turn()
        assert rig.conn.closed
        assert rig.wire.closed

    simloop.run(main())


def test_a_flood_of_tiny_frames_stops_the_reading() -> None:
    async def main() -> None:
        rig = Rig(Limits(queued=1000, tick_frames=10))
        data = b"".join(frames_of(40))
        rig.conn.data_received(data)
        assert not rig.wire.reading
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(rig.seen) == 40
        assert rig.wire.reading

    simloop.run(main())


def test_frames_that_came_before_the_end_are_served_and_then_the_end_is_told() -> None:
    async def main() -> None:
        rig = Rig()
        told: list[int] = []
        rig.server.on_close.append(lambda conn: told.append(len(rig.seen)))
        rig.conn.data_received(b"".join(frames_of(3)))
        rig.conn.connection_lost(None)
        assert told == []
        await turn()
        assert told == [3]
        assert rig.server.connections == {}

    simloop.run(main())


def test_a_step_that_fails_costs_the_connections_that_make_it_fail_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        rig = Rig()
        sound = rig.server._step

        def step(ready: list[Conn]) -> None:
            if bad in ready:
                raise ZeroDivisionError
            sound(ready)

        rig.server._step = step
        bad, wire = rig.open(("10.0.0.2", 1))
        other, other_wire = rig.open(("10.0.0.3", 1))
        for conn in (rig.conn, bad, other):
            conn.data_received(frames_of(1)[0])
        await turn()
        assert len(rig.seen) == 2
        assert wire.closed
        assert [rig.wire.closed, other_wire.closed] == [False, False]
        other.data_received(frames_of(1)[0])
        await turn()
        assert len(rig.seen) == 3

    simloop.run(main())
    assert "the step failed" in caplog.text


@pytest.mark.parametrize("seed", range(25))
def test_no_frame_is_lost_doubled_or_overtaken(seed: int) -> None:
    """Whatever the chunks, budgets, pauses, congestion and steps that leave frames for later."""

    async def main() -> None:
        chance = random.Random(seed)
        limits = Limits(
            tick_frames=chance.choice((1, 3, 10, 2000)),
            tick_bytes=chance.choice((100, 2000, 4 << 20)),
            queued=chance.choice((200, 5000, 512 << 10)),
            owed=chance.choice((300, 16 << 20)),
        )
        rig = Rig(limits)
        seen: dict[Conn, list[bytes]] = {}
        owing: list[tuple[Conn, int]] = []

        def step(ready: list[Conn]) -> None:
            for conn in ready:
                assert not conn.congested
                frames, conn.frames = conn.frames, []
                assert frames
                for number, (buffer, low, high) in enumerate(frames):
                    if number and chance.random() < 0.1:
                        conn.frames = frames[number:]
                        break
                    seen[conn].append(buffer[low - 4 : high])
                    if chance.random() < 0.3:
                        conn.owed_bytes += high - low
                        owing.append((conn, high - low))

        rig.server._step = step
        streams: dict[Conn, bytes] = {}
        expected: dict[Conn, list[bytes]] = {}
        for port in range(1, 9):
            conn, _ = rig.open(("10.0.0.1", port))
            expected[conn] = frames_of(chance.randint(1, 60))
            streams[conn] = b"".join(expected[conn])
            seen[conn] = []
        wires = {conn: conn._transport for conn in streams}
        for _ in range(100_000):
            if not any(streams.values()) and not any(conn.queued or conn.congested for conn in streams) and not owing:
                break
            conn = chance.choice(list(streams))
            what = chance.random()
            if what < 0.1 and not conn.congested:
                wires[conn].buffered = 5 << 20  # type: ignore[attr-defined]
                conn.pause_writing()
            elif what < 0.3 and conn.congested:
                wires[conn].buffered = 0  # type: ignore[attr-defined]
                conn.resume_writing()
            elif what < 0.4 and owing:
                owner, size = owing.pop(chance.randrange(len(owing)))
                owner.settle(size)
            elif wires[conn].reading and streams[conn]:  # type: ignore[attr-defined]
                size = chance.choice((1, 7, 100, 3000))
                chunk, streams[conn] = streams[conn][:size], streams[conn][size:]
                conn.data_received(chunk)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert seen == expected
        assert all(wire.reading for wire in wires.values())  # type: ignore[attr-defined]

    simloop.run(main())

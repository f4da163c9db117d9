"""What a blocking connection reads: every byte once and in order, a short answer with one call of the system."""

from __future__ import annotations

import socket
from typing import cast

import pytest

from rmq.runtime.dial import _Socket

FLOW = bytes(range(256)) * 2000


class Pieces:
    """A socket that gives what it was sent in pieces, and then ends."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [*pieces]
        self.calls = 0
        self.timeouts: list[float] = []

    def recv_into(self, into: memoryview) -> int:
        self.calls += 1
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        size = min(len(piece), len(into))
        into[:size] = piece[:size]
        if size < len(piece):
            self.pieces.insert(0, piece[size:])
        return size

    def settimeout(self, timeout: float) -> None:
        self.timeouts.append(timeout)


def parts(peer: Pieces, *sizes: int) -> list[bytes]:
    """The next parts that are read of a connection."""
    wire = _Socket(cast(socket.socket, peer), 1.0)
    found = []
    for size in sizes:
        into = bytearray(size)
        wire.read(memoryview(into), 1.0)
        found.append(bytes(into))
    return found


def test_a_short_answer_takes_one_call() -> None:
    peer = Pieces(FLOW[:40_000])
    assert b"".join(parts(peer, 8, 0, 120, 39_872)) == FLOW[:40_000]
    assert peer.calls == 1


@pytest.mark.parametrize("piece", [1000, 65_535, 65_536, 65_537, 200_000, len(FLOW)])
def test_nothing_is_lost_or_read_twice(piece: int) -> None:
    peer = Pieces(*(FLOW[at : at + piece] for at in range(0, len(FLOW), piece)))
    sizes = [8, 100, 300_000, 8, 65_536, 8, 65_535, 8, 65_537]
    sizes.append(len(FLOW) - sum(sizes))
    assert b"".join(parts(peer, *sizes)) == FLOW


@pytest.mark.parametrize("size", [20, 100_000])
def test_an_end_before_all_is_there_is_told(size: int) -> None:
    with pytest.raises(ConnectionError, match="closed"):
        parts(Pieces(b"0123456789"), size)


def test_each_wait_has_its_own_time() -> None:
    peer = Pieces(b"head", b"body")
    wire = _Socket(cast(socket.socket, peer), 1.0)
    for timeout in (1.0, 30.0):
        wire.read(memoryview(bytearray(4)), timeout)
    assert peer.timeouts == [30.0]

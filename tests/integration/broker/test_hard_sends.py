"""Sends that are small to make and long to store: how much of them is done before others have their turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.lane.admit import Admission
from rmq.broker.store.index.index import Index
from rmq.protocol import batch, properties
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, send
from tests.support.turns import Turns

#: Nearly the longest property string that is taken, of words and of properties.
WORDS = {"KEYS": "a " * 15_900}
MANY = {f"{number:x}": "a" for number in range(4_500)}
#: The words of a message that are indexed.
INDEXED = 256


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, settings={"maxMessageSize": str(4 << 20)}) as cluster:
        yield cluster


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer(*cluster.brokers[0].address) as peer:
        assert (await peer.ask(send())).code == 0  # the topic is there
        yield peer


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Keys that are put into the index."""
    turns = Turns(monkeypatch, Index, "put_many", lambda _, hashes, stamp: len(hashes))
    turns.also(monkeypatch, Index, "put_columns", lambda _, hashes, offsets, stamp: len(hashes))
    return turns


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Bytes of properties that are looked at, without names and separators."""

    def weight(_: Admission, queue: object, body: bytes, table: dict[str, str], *more: Any, **named: Any) -> int:
        return len(properties.encode(table))

    return Turns(monkeypatch, Admission, "put", weight)


def batched(member: dict[str, str], count: int, shared: dict[str, str] | None = None) -> Command:
    command = send(props=properties.encode(shared or {}), body=batch.encode([(0, b"x", member)] * count))
    command.code = 320
    assert command.ext is not None
    command.ext["m"] = "true"
    return command


async def _codes(peer: RawPeer, commands: list[Command]) -> list[int]:
    return [(await asked).code for asked in [peer.submit(command) for command in commands]]


@pytest.mark.parametrize("words", [WORDS["KEYS"], "a " * INDEXED, "key " * 20])
async def test_sends_with_many_keys(peer: RawPeer, hashed: Turns, words: str) -> None:
    """One with 16,000 held the loop for 50 ms, and a tick may have a hundred of them."""
    commands = [send(props=properties.encode({"KEYS": words})) for _ in range(150)]
    assert await _codes(peer, commands) == [0] * 150
    assert hashed.whole == 150 * min(INDEXED, words.count(" "))
    assert hashed.longest <= 5_000


@pytest.mark.parametrize(("words", "count"), [(WORDS["KEYS"], 120), ("a " * INDEXED, 900), ("a " * INDEXED, 3_000)])
async def test_a_batch_with_many_keys(peer: RawPeer, hashed: Turns, words: str, count: int) -> None:
    """4 MiB of them held the loop for two seconds."""
    assert (await peer.ask(batched({"KEYS": words}, count))).code == 0
    assert hashed.whole == count * INDEXED
    assert hashed.longest <= 6_000


async def test_sends_with_many_properties(peer: RawPeer, admitted: Turns) -> None:
    commands = [send(props=properties.encode(MANY)) for _ in range(60)]
    assert await _codes(peer, commands) == [0] * 60
    assert admitted.longest < admitted.whole // 10


@pytest.mark.parametrize(
    "command",
    [batched(MANY, 120), batched({}, 900, MANY), batched(MANY, 100, {"one": "more"})],
    ids=["its own", "shared", "both"],
)
async def test_a_batch_with_many_properties(peer: RawPeer, admitted: Turns, command: Command) -> None:
    """900 messages that share 32 KB of properties held it for half a second."""
    assert (await peer.ask(command)).code == 0
    assert admitted.longest < 100_000


async def test_a_batch_whose_properties_would_be_stored_a_hundred_thousand_times(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path, settings={"maxMessageSize": "65536"}) as cluster,
        RawPeer(*cluster.brokers[0].address) as peer,
    ):
        assert (await peer.ask(send())).code == 0
        end = cluster.brokers[0].store.log.end
        assert (await peer.ask(batched({}, 2_000, MANY))).code == 13
        assert cluster.brokers[0].store.log.end == end
        assert (await peer.ask(batched({}, 2_000, {"one": "more"}))).code == 0


async def test_which_keys_a_message_is_found_by(cluster: Cluster, peer: RawPeer) -> None:
    store = cluster.brokers[0].store
    words = " ".join(f"k{number}" for number in range(2 * INDEXED))
    assert (await peer.ask(send(props=properties.encode({"KEYS": words, "UNIQ_KEY": "one"})))).code == 0
    assert (await peer.ask(batched({"KEYS": words}, 2))).code == 0

    async def found(key: str) -> int:
        return len((await store.query_message("T", key, 10, 0, 1 << 62)).records)

    assert [await found(key) for key in ("one", "k0", f"k{INDEXED - 1}", f"k{INDEXED}")] == [1, 3, 3, 0]

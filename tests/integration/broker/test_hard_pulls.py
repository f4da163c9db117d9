"""Pulls with conditions that take long: how much of them is asked before others have their turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.filter.sql import SqlFilter
from rmq.protocol import properties
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, send
from tests.support.turns import Turns

#: Nearly the longest expression that is taken, of which nothing but the last word is true of a message.
LONG = "a = 'x'" + " or a = 'x'" * 950
MESSAGES = 120


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RawPeer]:
    async with (
        Cluster(tmp_path, settings={"enablePropertyFilter": "true"}) as cluster,
        RawPeer(*cluster.brokers[0].address) as peer,
    ):
        yield peer


async def sent(peer: RawPeer, count: int, *, last: str, more: dict[str, str] | None = None) -> None:
    assert (await peer.ask(send())).code == 0
    for number in range(1, count):
        value = last if number == count - 1 else "no"
        assert (await peer.ask(send(props=properties.encode({"a": value, **(more or {})})))).code == 0


def asking(expression: str) -> Command:
    command = pull()
    assert command.ext is not None
    command.ext |= {"subscription": expression, "expressionType": "SQL92"}
    return command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Characters of expressions, and of the properties they are asked of."""
    return Turns(monkeypatch, SqlFilter, "matches", lambda sql, table: len(sql.text) + len(properties.encode(table)))


@pytest.mark.parametrize("pulls", [1, 20])
async def test_a_long_expression(peer: RawPeer, asked: Turns, pulls: int) -> None:
    """One pull held the loop for a second."""
    await sent(peer, MESSAGES, last="x")
    answers = [await answer for answer in [peer.submit(asking(LONG)) for _ in range(pulls)]]
    assert [len(list(decode_records(answer.body))) for answer in answers] == [1] * pulls
    assert asked.whole > pulls * MESSAGES * 10_000
    assert asked.longest <= 70_000


async def test_messages_with_many_properties(peer: RawPeer, asked: Turns) -> None:
    await sent(peer, 30, last="x", more={f"p{number:x}": "a" for number in range(4_000)})
    answer = await peer.ask(asking("a = 'x'"))
    assert len(list(decode_records(answer.body))) == 1
    assert asked.longest <= 130_000

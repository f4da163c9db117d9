"""Long arrays read piece by piece: the same items, and no long piece."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest

from rmq.broker.admin.slices import read_items
from rmq.protocol.errors import BodyError
from rmq.testing.simloop import run

ITEMS: list[dict[str, Any]] = [
    {"topicName": f"T{number}", "perm": 6, "attributes": {"+a": "}, {" * (number % 3)}, "sets": [{"a": 1}, {"b": 2}]}
    for number in range(6500)
]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of what is parsed."""
    lengths: list[int] = []
    loads = orjson.loads

    def counted(data: bytes) -> Any:
        lengths.append(len(data))
        return loads(data)

    monkeypatch.setattr(orjson, "loads", counted)
    return lengths


async def reading(data: bytes, most: int = 10_000) -> tuple[list[object], int]:
    """The items, and how often others had their turn meanwhile."""
    task = asyncio.ensure_future(read_items(data, "list", most))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


@pytest.mark.parametrize(
    "separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")], ids=["as Java", "with blanks", "with lines"]
)
def test_the_items_come_as_they_are_in_short_pieces(parsed: list[int], separators: tuple[str, str]) -> None:
    data = json.dumps({"list": ITEMS}, separators=separators).encode()
    items, turns = run(reading(data))
    assert items == ITEMS
    assert len(data) > 500_000
    assert max(parsed) < 200_000
    assert turns >= len(data) // 200_000


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_items(count: int) -> None:
    assert run(reading(json.dumps({"list": ITEMS[:count]}).encode()))[0] == ITEMS[:count]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"other":[{}]}', "list alone is expected"),
        (b'{"list":[{}],"more":1}', "list alone is expected"),
        (b'{"list":[{},', "list alone is expected"),
        (b'{"list":[{} {}]}', "no JSON array of objects"),
        (b'{"list":[' + b"{]," * 300_000 + b"]}", "an item of more than 524288 bytes"),
        (b'{"list":["' + b"},{" * 500_000 + b'"]}', "no JSON array of objects"),
        (b'{"list":[' + b"{}," * 300_000 + b"{}]}", "more than 10000 at a time"),
    ],
)
def test_anything_else_is_refused_before_much_of_it_is_parsed(parsed: list[int], data: bytes, words: str) -> None:
    with pytest.raises(BodyError, match=words):
        run(reading(data))
    assert max(parsed, default=0) < 600_000
    assert len(parsed) <= 64

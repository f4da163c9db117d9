"""Files of the folder ``raft``: whatever changes in one, a member believes what was written, or nothing."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from rmq.broker.raft.sidecar import Sidecar, Whose
from rmq.broker.store import kept_file
from rmq.protocol.errors import StoreError
from rmq.raft.position import Position
from rmq.testing.simworld import Simulation
from tests.support.virtual import in_virtual_time

WHOSE = Whose("group", "n0", ("n0", "n1", "n2"))
CONTENT = {"term": 1234567, "vote": "n2", "returning": False, "starts": [[0, 0], [4, 700]], "none": None}


def test_what_was_written_is_read() -> None:
    assert kept_file.decode(kept_file.encode(CONTENT)) == CONTENT


def test_a_file_of_the_release_before_has_no_sum() -> None:
    assert kept_file.decode(orjson.dumps(CONTENT)) == CONTENT


def test_no_bit_that_changes_makes_it_say_something_else() -> None:
    data = kept_file.encode(CONTENT)
    refused = 0
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            found = kept_file.decode(bytes(changed))
        except ValueError:
            refused += 1
        else:  # the name of the sum has changed, and what is left is as it was
            assert {name: found[name] for name in CONTENT} == CONTENT
    assert refused > len(data) * 7


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b'{"a":1,"sum":"x"}', b'{"a":1,"sum":1}', b"[" * 100_000, b"\0" * 9]
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        kept_file.decode(data)


@in_virtual_time
async def test_a_promise_that_has_changed_by_a_byte_keeps_a_member_from_starting() -> None:
    """A term that is one less, and it could vote twice; another end, and it could show what is not committed."""
    world = Simulation(1).node("n0").world
    sidecar = Sidecar(world, "/store", WHOSE)
    first = await sidecar.load()
    await sidecar.save_vote(5, "n2")
    await sidecar.save_terms((Position(0, 0), Position(4, 700)))
    await sidecar.save_members(replace(first.met, others={"n1": "b7"}, begun=True))
    await sidecar.save_commit(690)
    kept = await sidecar.load()
    for name, was, now in (
        ("vote", b"5", b"4"), ("vote", b'"n2"', b'"n1"'), ("vote", b'"n2"', b"null"), ("vote", b"false", b"true"),
        ("terms", b"700", b"708"), ("terms", b"4,", b"5,"), ("commit", b"690", b"691"), ("members", b'"b7"', b'"b6"'),
        ("members", first.met.disk.encode(), b"a" * 24), ("members", b"true", b"false"),
    ):  # fmt: skip
        path = f"/store/raft/{name}"
        data = world.files.read(path)
        assert was in data, name
        world.files.write_atomic(path, data.replace(was, now, 1))
        with pytest.raises(StoreError, match=rf"^{path} is damaged, .* changed; start it with an empty store"):
            await sidecar.load()
        world.files.write_atomic(path, data)
    assert await sidecar.load() == kept

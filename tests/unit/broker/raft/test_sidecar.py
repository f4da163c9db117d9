"""What a member keeps beside its log, and what it refuses to go on with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.broker.raft.sidecar import Sidecar, Whose
from rmq.protocol.errors import StoreError
from rmq.raft.position import Position
from rmq.testing.simworld import Simulation
from tests.support.virtual import in_virtual_time

WHOSE = Whose("group", "n0", ("n0", "n1", "n2"))


@in_virtual_time
async def test_what_was_kept_is_found_after_a_power_cut() -> None:
    simulation = Simulation(1)
    node = simulation.node("n0")
    first = await Sidecar(node.world, "/store", WHOSE).load()
    assert first[:4] == (0, None, (Position(0, 0),), 0)
    assert first.new
    sidecar = Sidecar(node.world, "/store", WHOSE)
    await sidecar.save_vote(4, "n2")
    await sidecar.save_terms((Position(0, 0), Position(4, 700)))
    met = replace(first.met, others={"n1": "b"}, retired={"n1": ["a"]}, begun=True)
    await sidecar.save_members(met)
    await sidecar.save_commit(690)
    node.disk.power_cut(simulation.random)
    found = await Sidecar(node.world, "/store", WHOSE).load()
    assert found == (4, "n2", (Position(0, 0), Position(4, 700)), 690, met, False, False)


@pytest.mark.parametrize(
    ("gone", "known_by"),
    [
        ("members", "its vote"), ("members", "its log"), ("vote", "its log"), ("vote", "whom it has met"),
        ("terms", "its vote"), ("terms", "whom it has met"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_a_member_that_has_lost_what_it_promised_does_not_start(gone: str, known_by: str) -> None:
    world = Simulation(1).node("n0").world
    sidecar = Sidecar(world, "/store", WHOSE)
    first = await sidecar.load()
    if known_by == "whom it has met":
        await sidecar.save_members(replace(first.met, begun=True))
    elif known_by == "its vote":
        await sidecar.save_vote(4, "n2")
    else:
        await sidecar.save_terms((Position(0, 0), Position(4, 700)))
    world.files.unlink(f"/store/raft/{gone}")
    with pytest.raises(StoreError, match=f"{gone} is gone"):
        await sidecar.load()


@pytest.mark.parametrize("gone", [["vote", "terms"], ["terms"], ["vote"]])
@in_virtual_time
async def test_a_first_start_that_ended_half_way_is_gone_on_with(gone: list[str]) -> None:
    world = Simulation(1).node("n0").world
    sidecar = Sidecar(world, "/store", WHOSE)
    first = await sidecar.load()
    for name in gone:
        world.files.unlink(f"/store/raft/{name}")
    again = await sidecar.load()
    assert again == first._replace(new=False)
    assert world.files.exists("/store/raft/vote")
    assert world.files.exists("/store/raft/terms")


@in_virtual_time
async def test_what_a_plain_broker_has_left_counts_as_committed_whatever_ends_the_first_start() -> None:
    world = Simulation(1).node("n0").world

    async def fails(end: int) -> dict[str, object]:
        raise OSError(f"no room to say that {end} bytes are there")

    first = Sidecar(world, "/store", WHOSE)
    first.save_commit = fails  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="/store/raft cannot be written: no room"):
        await first.load(700)
    again = Sidecar(world, "/store", WHOSE)
    found = await again.load(700)
    assert (found.commit, found.new) == (700, True)
    assert (await again.load(900)).commit == 700, "what has come since is the group's"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"term":"x"}', b'{"vote":1}', b"\xff", b'{"term":1,"vote":"a"'],
)  # fmt: skip
@in_virtual_time
async def test_a_damaged_vote_is_named(content: bytes) -> None:
    world = Simulation(1).node("n0").world
    sidecar = Sidecar(world, "/store", WHOSE)
    await sidecar.load()
    world.files.write_atomic("/store/raft/vote", content)
    with pytest.raises(StoreError, match="raft"):
        await sidecar.load()


@in_virtual_time
async def test_a_directory_in_the_place_of_a_file_is_named_with_what_to_do() -> None:
    world = Simulation(1).node("n0").world
    sidecar = Sidecar(world, "/store", WHOSE)
    await sidecar.load()
    world.files.unlink("/store/raft/vote")
    world.files.mkdir("/store/raft/vote")
    with pytest.raises(StoreError) as refused:
        await sidecar.load()
    assert str(refused.value) == (
        "what a member has promised cannot be read: /store/raft/vote: Is a directory: move it away"
    )


@pytest.mark.parametrize(
    ("whose", "told"),
    [
        (Whose("other", "n0", WHOSE.ids), "dLegerGroup group, and the settings say other: put"),
        (Whose("group", "n1", WHOSE.ids), "dLegerSelfId n0, and the settings say n1: put"),
        (Whose("group", "n0", ("n0", "n1", "n3")), "the ids in dLegerPeers n0;n1;n2, and the settings say n0;n1;n3"),
        (Whose("other", "n1", WHOSE.ids), "dLegerGroup group, and the settings say other; dLegerSelfId n0, and"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_another_member_does_not_go_on_with_it(whose: Whose, told: str) -> None:
    world = Simulation(1).node("n0").world
    await Sidecar(world, "/store", WHOSE).load()
    with pytest.raises(StoreError, match=f"/store/raft is of a member with {told}"):
        await Sidecar(world, "/store", whose).load()
    with pytest.raises(StoreError):  # nothing was written meanwhile
        await Sidecar(world, "/store", whose).load()
    again = WHOSE._replace(ids=("n2", "n0", "n1"))
    assert not (await Sidecar(world, "/store", again).load()).new

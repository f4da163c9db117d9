"""Queue sharing agrees with the Java client (vectors of protocol.md 7.1)."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.client.allocate import (
    AllocateByMachineRoom,
    AllocateByMachineRoomNearby,
    AllocateConsistentHash,
    AllocateMessageQueueStrategy,
    AllocateQueuesAveragely,
    AllocateQueuesAveragelyByCircle,
    AllocateQueuesByConfig,
    allocation_strategy,
)
from rmq.client.message import MessageQueue
from rmq.protocol.errors import ClientError

CLIENTS = ["10.0.0.1@1", "10.0.0.2@1", "10.0.0.3@1"]


def queues(count: int, broker: str = "b1") -> list[MessageQueue]:
    return [MessageQueue("T1", broker, i) for i in range(count)]


@pytest.mark.parametrize(
    ("strategy", "count", "broker", "expected"),
    [
        (AllocateQueuesAveragely(), 8, "b1", [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (AllocateQueuesAveragely(), 2, "b1", [[0], [1], []]),
        (AllocateQueuesAveragelyByCircle(), 8, "b1", [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (AllocateConsistentHash(), 8, "b1", [[4, 5], [0, 2], [1, 3, 6, 7]]),
        (AllocateByMachineRoom({"r1"}), 5, "r1@b", [[0, 3], [1, 4], [2]]),
        (AllocateByMachineRoom({"r2"}), 5, "r1@b", [[], [], []]),
    ],
)
def test_shares_are_javas(
    strategy: AllocateMessageQueueStrategy, count: int, broker: str, expected: list[list[int]]
) -> None:
    shares = [[q.queue_id for q in strategy.allocate("g", c, queues(count, broker), CLIENTS)] for c in CLIENTS]
    assert shares == expected


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_every_queue_has_one_owner(name: str) -> None:
    strategy = allocation_strategy(name)
    assert strategy.name == name
    for members in range(1, 8):
        clients = sorted(f"c{i}" for i in range(members))
        for count in (1, 3, 8, 17):
            given = [q for c in clients for q in strategy.allocate("g", c, queues(count), clients)]
            assert sorted(given) == queues(count)


def test_config_gives_the_fixed_list() -> None:
    fixed = queues(2)
    assert AllocateQueuesByConfig(fixed).allocate("g", "x", queues(8), CLIENTS) == fixed


def test_rooms_serve_themselves_and_orphans_are_shared() -> None:
    all_queues = [MessageQueue("T", f"{room}-b", i) for room in ("r1", "r2", "r3") for i in range(2)]
    clients = ["r1-a", "r1-b", "r2-a"]
    nearby = AllocateByMachineRoomNearby(
        AllocateQueuesAveragely(), lambda queue: queue.broker_name.split("-")[0], lambda client: client.split("-")[0]
    )
    assert nearby.name == "MACHINE_ROOM_NEARBY-AVG"
    given = {c: nearby.allocate("g", c, all_queues, clients) for c in clients}
    assert [str(q.broker_name) for q in given["r2-a"]] == ["r2-b", "r2-b"]
    assert sorted(q for share in given.values() for q in share) == all_queues
    assert [q.broker_name for q in given["r1-a"]] == ["r1-b", "r3-b"]


def test_an_empty_room_is_refused() -> None:
    nearby = AllocateByMachineRoomNearby(AllocateQueuesAveragely(), lambda queue: "", lambda client: "r")
    with pytest.raises(ClientError, match="machine room of broker"):
        nearby.allocate("g", "c", queues(1), ["c"])


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ClientError, match="use one of AVG, AVG_BY_CIRCLE, CONSISTENT_HASH"):
        allocation_strategy("AVERAGE")


@pytest.mark.parametrize("given", ["EVENLY", None, 5, object(), ["AVG"]])
def test_what_is_no_strategy_is_refused(given: Any) -> None:
    with pytest.raises(ClientError, match=r"no allocation strategy .*: use one of AVG, AVG_BY_CIRCLE, CONSISTENT_HASH"):
        allocation_strategy(given)

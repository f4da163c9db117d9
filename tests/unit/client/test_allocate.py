"""Queue sharing agrees with the Java client (what its classes gave, tests/golden/client)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq.aio import PushConsumer
from rmq.client.allocate import (
    AllocateByMachineRoomNearby,
    AllocateConsistentHash,
    AllocateMessageQueueStrategy,
    AllocateQueuesAveragely,
    allocation_strategy,
)
from rmq.client.application import ApplicationThreads
from rmq.client.consumer.rebalance import our_share
from rmq.client.message import MessageQueue
from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime.lockstep import on_loop
from tests.support.virtual import in_virtual_time, one_world

GOLDEN = Path(__file__).parents[2] / "golden" / "client"


def queues(count: int, broker: str = "b1") -> list[MessageQueue]:
    return [MessageQueue("T1", broker, i) for i in range(count)]


RECORDED = [json.loads(line) for line in (GOLDEN / "shares-4.9.4.jsonl").read_text().splitlines()]


def strategy(name: str) -> AllocateMessageQueueStrategy:
    """As the program that recorded Java's shares sets it up."""
    kind, _, detail = name.partition(", ")
    inner = "-AVG_BY_CIRCLE" if detail == "by circle" else ""
    match kind:
        case "averagely":
            return allocation_strategy("AVG")
        case "by circle":
            return allocation_strategy("AVG_BY_CIRCLE")
        case "by config":
            fixed = (MessageQueue("T", "r1@a", 1), MessageQueue("T", "r9@z", 7))
            return allocation_strategy("CONFIG", queues=fixed)
        case "machine room":
            return allocation_strategy("MACHINE_ROOM", rooms=("r1", "r3"))
        case "nearby":
            return allocation_strategy("MACHINE_ROOM_NEARBY" + inner, client_room=lambda client: client.split("-")[0])
    return AllocateConsistentHash(3) if detail else allocation_strategy("CONSISTENT_HASH")


@pytest.mark.parametrize("name", sorted({case["strategy"] for case in RECORDED}))
def test_shares_and_names_are_javas(name: str) -> None:
    """What Java's strategies give each member of groups of 1, 3 and 5, of queues of one to four brokers."""
    made = strategy(name)
    cases = [case for case in RECORDED if case["strategy"] == name]
    assert cases
    for case in cases:
        assert made.name == case["name"]
        every = sorted(MessageQueue("T", broker, i) for broker in case["brokers"] for i in range(case["each"]))
        shares = [made.allocate("g", client, every, case["clients"]) for client in case["clients"]]
        if name.startswith("nearby"):  # Java takes the rooms without members in the order of a hash table
            shares, case["shares"] = [sorted(one) for one in shares], [sorted(one) for one in case["shares"]]
        assert [[[q.broker_name, q.queue_id] for q in share] for share in shares] == case["shares"], case


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_every_queue_has_one_owner(name: str) -> None:
    strategy = allocation_strategy(name)
    assert strategy.name == name
    for members in range(1, 8):
        clients = sorted(f"c{i}" for i in range(members))
        for count in (1, 3, 8, 17):
            given = [q for c in clients for q in strategy.allocate("g", c, queues(count), clients)]
            assert sorted(given) == queues(count)


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


@pytest.mark.parametrize("given", ["EVENLY", "MACHINE_ROOM_NEARBY-EVENLY", "AVG-AVG", None, 5, object(), ["AVG"]])
def test_what_is_no_strategy_is_refused(given: Any) -> None:
    known = "AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, CONFIG, MACHINE_ROOM, MACHINE_ROOM_NEARBY"
    with pytest.raises(ClientError, match=rf"no allocation strategy .*: use one of {known}, or a strategy object"):
        allocation_strategy(given)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("CONFIG", "allocate_queues"),
        ("MACHINE_ROOM", "machine_rooms"),
        ("MACHINE_ROOM_NEARBY", "client_machine_room"),
        ("MACHINE_ROOM_NEARBY-CONFIG", "allocate_queues"),
    ],
)
def test_a_strategy_that_lacks_something_says_what(name: str, setting: str) -> None:
    with pytest.raises(ClientError, match=f"the allocation strategy {name} needs the setting {setting}"):
        PushConsumer("g", allocate_message_queue_strategy=name)


def test_the_settings_make_the_strategy() -> None:
    consumer = PushConsumer(
        "g",
        allocate_message_queue_strategy="MACHINE_ROOM_NEARBY-MACHINE_ROOM",
        machine_rooms=["r1"],
        broker_machine_room=lambda queue: "hall",
        client_machine_room=lambda client: "hall",
    )
    mine = [MessageQueue("T", "r1@a", 0)]
    assert consumer._settings.strategy().allocate("g", "c", [*mine, MessageQueue("T", "r2@b", 0)], ["c"]) == mine


def test_a_ring_may_have_a_hash_of_its_own() -> None:
    ring = AllocateConsistentHash(1, hash_function=len)
    assert [len(ring.allocate("g", client, queues(3), ["a", "bb"])) for client in ("a", "bb")] == [3, 0]


class Own:
    name = "OWN"

    def __init__(self, given: Any, before: Callable[[], object] = lambda: None) -> None:
        self.given = given
        self.before = before

    def allocate(self, group: str, client_id: str, queues: Any, client_ids: Any) -> Any:
        self.before()
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def client() -> Any:
    return SimpleNamespace(client_id="c", application=ApplicationThreads(one_world(), "c"))


@pytest.mark.parametrize("given", [KeyError("rack"), None, [1], "T1"])
@in_virtual_time
async def test_a_strategy_of_an_applications_own_that_fails_is_an_error_of_its_topic(given: Any) -> None:
    with pytest.raises(ClientError, match="the allocation strategy OWN"):
        await our_share(Own(given), client(), "g", queues(2), ["c"])


@in_virtual_time
async def test_a_strategy_that_takes_its_time_holds_nobody_else_up() -> None:
    share = await our_share(Own([], lambda: on_loop(asyncio.sleep(9))), client(), "g", queues(2), ["c"])
    assert share == []
    with pytest.raises(RequestTimeout, match="the allocation strategy OWN did not return in 10 s"):
        await our_share(Own([], lambda: on_loop(asyncio.sleep(11))), client(), "g", queues(2), ["c"])
    with pytest.raises(ClientError, match=r"the allocation strategy OWN raised ClientError: .* SystemExit: 3"):
        await our_share(Own([], lambda: sys.exit(3)), client(), "g", queues(2), ["c"])


@in_virtual_time
async def test_of_a_fixed_list_the_queues_of_the_topic_are_taken() -> None:
    other = MessageQueue("T2", "b1", 0)
    assert await our_share(Own([*queues(1), other]), client(), "g", queues(2), ["c"]) == queues(1)

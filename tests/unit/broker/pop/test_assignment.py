"""Who gets which queues from the broker: the same as clients that divide by themselves."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from rmq.broker.pop import allocate
from rmq.broker.pop.allocate import STRATEGIES, allocate_to_pop, strategy_for
from rmq.client.allocate import allocation_strategy
from rmq.protocol.queue import MessageQueue
from rmq.testing.simloop import run


def queues(count: int, brokers: int = 2) -> list[MessageQueue]:
    return sorted(MessageQueue("T", f"b{i % brokers}", i // brokers) for i in range(count))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_as_the_clients_do(name: str) -> None:
    for count, members in itertools.product((1, 4, 7, 16), (1, 2, 3, 5, 9)):
        ids = sorted(f"10.0.0.{i}@{i * 7919}" for i in range(members))
        every = queues(count)
        mine = {client: STRATEGIES[name](client, every, ids) for client in ids}
        assert mine == {client: allocation_strategy(name).allocate("g", client, every, ids) for client in ids}
        assert sorted(itertools.chain(*mine.values())) == every


def test_every_member_pops_from_every_broker_unless_told_otherwise() -> None:
    ids = ["a", "b", "c", "d"]
    everywhere = [MessageQueue("T", "b0", -1), MessageQueue("T", "b1", -1)]
    for share in (-1, 0, 3, 4):
        assert allocate_to_pop(STRATEGIES["AVG"], "b", queues(8), ids, share) == everywhere


def test_members_share_with_the_next_ones() -> None:
    ids = ["a", "b", "c", "d"]
    every = queues(8)
    for share in (1, 2):
        got = [queue for client in ids for queue in allocate_to_pop(STRATEGIES["AVG"], client, every, ids, share)]
        assert sorted(got) == sorted(every * (share + 1))
    few = [queue for client in ids for queue in allocate_to_pop(STRATEGIES["AVG"], client, every[:3], ids, 1)]
    assert sorted(few) == every[:3]
    assert allocate_to_pop(STRATEGIES["AVG"], "stranger", every, ids, 1) == []


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_very_many_queues_and_members_are_divided_some_a_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing the names of 100,000 queues took a third of a second of the loop."""

    async def main() -> None:
        many, ids = queues(2_500), sorted(f"c{number}" for number in range(300))
        alike = {client: STRATEGIES[name](client, many, ids) for client in ids[:3]}
        hashed = [0]
        real = allocate._point

        def point(text: str) -> int:
            if not hashed[-1]:
                asyncio.get_running_loop().call_soon(hashed.append, 0)
            hashed[-1] += 1
            return real(text)

        monkeypatch.setattr(allocate, "_point", point)
        strategy = await strategy_for(name, many, ids)
        assert {client: strategy(client, many, ids) for client in ids[:3]} == alike
        assert max(hashed) <= 1_000
        assert sum(hashed) == (2_500 + 3_000 if name == "CONSISTENT_HASH" else 0)

    run(main())

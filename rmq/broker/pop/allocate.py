"""How a broker shares the queues of a topic among the members of a group (protocol.md 7.1).

The same answers as those of a client which divides by itself: strategies that clients set up with lists or functions of
their own cannot be served here, and such a client goes on dividing by itself when it is told so.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from rmq.protocol.queue import MessageQueue

__all__ = ["STRATEGIES", "allocate_to_pop", "strategy_for"]

#: (client id, queues, client ids) to the client's queues; both lists are sorted.
Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

_VIRTUAL_NODES = 10
#: Names hashed before the loop gets its turn: some 3 ms.
_HASHED_PER_TURN = 1_000


def _averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    i = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    start = i * share + min(i, rest)
    return list(queues[start : start + share + (i < rest)])


def _by_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def _by_hash(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    return next(shares for shares in _shares(queues, client_ids) if shares is not None).get(client_id, [])


def _shares(
    queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Iterator[dict[str, list[MessageQueue]] | None]:
    """Every client's queues at once, by the hashes of names: None in between, where the loop may have a turn."""
    owners: dict[int, str] = {}
    for number, client in enumerate(client_ids, 1):
        owners.update({_point(f"{client}-{k}"): client for k in range(_VIRTUAL_NODES)})
        if not number % (_HASHED_PER_TURN // _VIRTUAL_NODES):
            yield None
    ring = sorted(owners)
    shares: dict[str, list[MessageQueue]] = {}
    for number, queue in enumerate(queues, 1):
        shares.setdefault(owners[ring[bisect_left(ring, _point(str(queue))) % len(ring)]], []).append(queue)
        if not number % _HASHED_PER_TURN:
            yield None
    yield shares


def _point(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


STRATEGIES: dict[str, Strategy] = {"AVG": _averagely, "AVG_BY_CIRCLE": _by_circle, "CONSISTENT_HASH": _by_hash}


async def strategy_for(name: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Strategy:
    """The strategy of a name, one of ``STRATEGIES``, for these queues and clients, both sorted.

    What hashes each of them has done so when it is returned, some of them a turn of the loop.
    """
    strategy = STRATEGIES[name]
    if strategy is not _by_hash:
        return strategy
    shares: dict[str, list[MessageQueue]] | None = None
    for shares in _shares(queues, client_ids):
        if shares is None:
            await asyncio.sleep(0)
    divided = shares or {}
    return lambda client_id, _, __: list(divided.get(client_id, ()))


def allocate_to_pop(
    strategy: Strategy, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], share: int
) -> list[MessageQueue]:
    """The queues from which a member pops.

    :param share: ``popShareQueueNum``: with how many members each shares its queues. Not positive, or as many as there
        are others: every member pops from every broker, and the broker chooses the queue (queue id -1).
    """
    if share <= 0 or share >= len(client_ids) - 1:
        return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in _one_a_broker(queues)]
    if client_id not in client_ids:
        return []
    mine = strategy(client_id, queues, client_ids)
    if len(client_ids) <= len(queues):
        at = client_ids.index(client_id)
        for i in range(1, share + 1):
            mine += strategy(client_ids[(at + i) % len(client_ids)], queues, client_ids)
    return mine


def _one_a_broker(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    return list({(queue.topic, queue.broker_name): queue for queue in queues}.values())

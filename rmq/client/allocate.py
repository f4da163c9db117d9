"""How the members of a group share the queues of a topic (protocol.md 7.1).

Every member computes the same answer from the same sorted inputs, so Java and Python members of one group agree.
A strategy has a ``name`` and ``allocate(group, client_id, queues, client_ids) -> queues of client_id``; both lists are
sorted and ``client_id`` is in ``client_ids``.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rmq.client.checks import several_queues, several_texts, typed
from rmq.client.message import MessageQueue
from rmq.client.shown import shown
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import keywords

__all__ = [
    "AllocateByMachineRoom",
    "AllocateByMachineRoomNearby",
    "AllocateConsistentHash",
    "AllocateMessageQueueStrategy",
    "AllocateQueuesAveragely",
    "AllocateQueuesAveragelyByCircle",
    "AllocateQueuesByConfig",
    "allocation_strategy",
    "is_quick",
]


class AllocateMessageQueueStrategy(Protocol):
    """What a strategy of an application's own must have (Java: AllocateMessageQueueStrategy)."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


class AllocateQueuesAveragely:
    """Neighbouring queues to each member; the first members get one more when it does not come out even."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        i, n, q = client_ids.index(client_id), len(client_ids), len(queues)
        share, rest = divmod(q, n)
        start = i * share + min(i, rest)
        return list(queues[start : start + share + (i < rest)])


class AllocateQueuesAveragelyByCircle:
    """Queues dealt out in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateQueuesByConfig:
    """A fixed list, whatever the group looks like."""

    name = "CONFIG"

    @keywords
    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = several_queues(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self._queues)


class AllocateByMachineRoom:
    """Only queues of brokers named ``room@broker`` in one of ``rooms``, shared averagely."""

    name = "MACHINE_ROOM"

    @keywords
    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(several_texts(rooms, "rooms"))

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        i, n = client_ids.index(client_id), len(client_ids)
        near = []
        for queue in queues:
            parts = queue.broker_name.split("@")
            if len(parts) == 2 and parts[0] in self._rooms:
                near.append(queue)
        share, rest = divmod(len(near), n)
        mine = near[share * i : share * (i + 1)]
        if rest > i:
            mine.append(near[n * share + i])
        return mine


@typed(inner=("allocate",))
class AllocateByMachineRoomNearby:
    """Queues to members in their own room; rooms without any member are shared by all.

    :param inner: the strategy used inside a room.
    :param broker_room: the room of a queue's broker.
    :param client_room: the room of a client id.
    """

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        if not callable(getattr(inner, "allocate", None)):
            raise WrongType(f"inner is {shown(inner)}: give a strategy, such as AllocateQueuesAveragely()")
        self._inner = inner
        self._broker_room = broker_room
        self._client_room = client_room

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        queues_of: dict[str, list[MessageQueue]] = {}
        clients_of: dict[str, list[str]] = {}
        for queue in queues:
            queues_of.setdefault(self._room(self._broker_room(queue), f"broker {queue.broker_name}"), []).append(queue)
        for client in client_ids:
            clients_of.setdefault(self._room(self._client_room(client), f"client {client}"), []).append(client)
        own = self._client_room(client_id)
        mine: list[MessageQueue] = []
        if own in queues_of:
            mine += self._inner.allocate(group, client_id, queues_of.pop(own), clients_of[own])
        for room in sorted(queues_of):
            if room not in clients_of:
                mine += self._inner.allocate(group, client_id, queues_of[room], client_ids)
        return mine

    @staticmethod
    def _room(room: str, of: str) -> str:
        if not room:
            raise ClientError(f"the machine room of {of} is empty: the resolver must name one")
        return room


@typed(inner=("allocate",))
class AllocateConsistentHash:
    """Queues by their place on a hash ring, so that few of them move when a member comes or goes.

    :param virtual_nodes: ring entries a member.
    :param hash_function: the place of a text on the ring; by default its MD5's first four bytes.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10, hash_function: Callable[[str], int] | None = None) -> None:
        if virtual_nodes < 1:
            raise ClientError(f"virtual_nodes is {virtual_nodes}: it must be at least 1")
        self._virtual_nodes = virtual_nodes
        self._place = hash_function or _md5

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        owners = {self._place(f"{client}-{k}"): client for client in client_ids for k in range(self._virtual_nodes)}
        ring = sorted(owners)
        mine = []
        for queue in queues:
            at = bisect_left(ring, self._place(str(queue)))
            if owners[ring[at % len(ring)]] == client_id:
                mine.append(queue)
        return mine


def _md5(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def allocation_strategy(
    given: str | AllocateMessageQueueStrategy,
    *,
    queues: Sequence[MessageQueue] = (),
    rooms: Collection[str] = (),
    broker_room: Callable[[MessageQueue], str] | None = None,
    client_room: Callable[[str], str] | None = None,
) -> AllocateMessageQueueStrategy:
    """A strategy by its name, or the strategy itself.

    :param queues: what CONFIG gives. :param rooms: those of MACHINE_ROOM.
    :param broker_room: for MACHINE_ROOM_NEARBY; what stands before the ``@`` of the broker's name by default.
    :param client_room: for MACHINE_ROOM_NEARBY; without a default. Behind its name and a ``-`` the name of what shares
        the queues of a room may stand, AVG if nothing does.
    :raises ClientError: no such strategy, or it lacks something.
    """
    kinds: dict[str, Callable[[], AllocateMessageQueueStrategy]] = {
        "AVG": AllocateQueuesAveragely,
        "AVG_BY_CIRCLE": AllocateQueuesAveragelyByCircle,
        "CONSISTENT_HASH": AllocateConsistentHash,
        "CONFIG": lambda: AllocateQueuesByConfig(queues),
        "MACHINE_ROOM": lambda: AllocateByMachineRoom(rooms),
    }
    if not isinstance(given, str) and callable(getattr(given, "allocate", None)):
        return given
    text = given if isinstance(given, str) else ""
    name, _, inner = text.partition("-")
    nearby = name == "MACHINE_ROOM_NEARBY" and (inner or "AVG") in kinds
    if not nearby and text not in kinds:
        raise ClientError(
            f"no allocation strategy {shown(given)}: use one of {', '.join(kinds)}, MACHINE_ROOM_NEARBY, "
            "or a strategy object"
        )
    for lacking, needed, setting in (
        (not queues, "CONFIG", "allocate_queues"),
        (not rooms, "MACHINE_ROOM", "machine_rooms"),
        (client_room is None, "MACHINE_ROOM_NEARBY", "client_machine_room"),
    ):
        if lacking and needed in (name, inner):
            raise ClientError(f"the allocation strategy {given} needs the setting {setting}")
    if client_room is None or not nearby:
        return kinds[text]()
    return AllocateByMachineRoomNearby(kinds[inner or "AVG"](), broker_room or _room_of, client_room)


def is_quick(strategy: AllocateMessageQueueStrategy) -> bool:
    """Whether it calls no function of an application's, which may take its time."""
    return type(strategy) in (
        AllocateQueuesAveragely, AllocateQueuesAveragelyByCircle, AllocateQueuesByConfig, AllocateByMachineRoom,
    )  # fmt: skip


def _room_of(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]

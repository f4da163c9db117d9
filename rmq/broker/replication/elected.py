"""A member of a group is elected before it has heard how far groups and deliveries are: it asks the others first.

Progress comes from the master every second, beside the log. Whoever has just started has the log sooner, and leads at
once where ``preferredLeaderId`` names it, or where the master dies at that moment. What it knew when it ended may be
hours old: groups would be given those hours again, and delayed messages delivered once more.

Those are believed that follow: a member that still takes itself for the master may be ahead of what is committed. What
one says that has heard of it in the last moments is how it is, also where a group was reset; where none has, all were
away, and of two offsets the larger one stays.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from rmq.broker.groups.offsets import read_offsets
from rmq.broker.schedule.levels import DelayOffsets
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.limits import Rationed
from rmq.runtime import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.parts import Ground
    from rmq.remoting.client import RemotingClient

__all__ = ["KNOWS_PROGRESS", "ask_members"]

log = logging.getLogger(__name__)

#: Of the runtime information of a member that follows: whether it has heard of the progress in the last moments.
KNOWS_PROGRESS = "slaveKnowsProgress"
#: Seconds that all of them may take: nobody leads meanwhile. And between two looks whether one follows by now.
_PATIENCE, _AGAIN = 2.0, 0.05


class _Told(NamedTuple):
    """What a member says."""

    address: str
    #: It has the progress of the last moments.
    knows: bool
    offsets: dict[str, dict[int, int]]
    delays: DelayOffsets


async def ask_members(
    ground: Ground,
    offsets: OffsetTable,
    delays: DelayOffsets,
    client: RemotingClient,
    members: Callable[[], Sequence[str]],
) -> None:
    """Bring the progress to where the other members have it; at most 2 s.

    :param offsets: of groups; changed, as ``delays`` is, how far delayed messages are delivered.
    :param client: calls the members.
    :param members: the addresses of those that are there.
    """
    if not ground.store.log.end:
        return
    log.info("this member has not heard yet how far groups and deliveries are: it asks the others")
    told = await _answers(client, members())
    for number, one in enumerate(told):
        if told[0].knows and not one.knows:
            break
        levels = delays.merge(one.delays)
        if one.knows and not number:
            moved = await offsets.follow(one.offsets, {}, whole=True)
        else:
            moved = offsets.merge(one.offsets)
        if moved or levels:
            log.info(
                "%d offsets of groups, and %d delay levels, are where the member at %s has them",
                moved, levels, one.address,
            )  # fmt: skip


async def _answers(client: RemotingClient, addresses: Sequence[str]) -> list[_Told]:
    """What members say: who knows is the first, and then nobody else is waited for."""
    tasks = [asyncio.ensure_future(_ask(client, address)) for address in addresses]
    told: list[_Told] = []
    waiting = set(tasks)
    try:
        while waiting and not any(one.knows for one in told):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            told = [one for task in tasks if task.done() and (one := task.result()) is not None]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return sorted(told, key=lambda one: not one.knows)


async def _ask(client: RemotingClient, address: str) -> _Told | None:
    def refused(name: str, why: str) -> None:
        complaints.say(log.warning, "the member at %s has no offsets for %.40r: %s", address, name, why)

    complaints = Rationed(client.world.clock)
    delays = DelayOffsets()
    try:
        async with patience.timeout(_PATIENCE):
            said = await _once_it_follows(client, address)
            levels = await client.ask(address, Command.request(RequestCode.GET_ALL_DELAY_OFFSET), _PATIENCE)
            delays.parse(levels.body)
            groups = await client.ask(address, Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET), _PATIENCE)
            offsets = await read_offsets(groups.body, refused)
    except Exception as error:
        log.warning("the member at %s does not tell how far groups and deliveries are: %s", address, error)
        return None
    return _Told(address, said.get(KNOWS_PROGRESS) == "true", offsets, delays)


async def _once_it_follows(client: RemotingClient, address: str) -> dict[str, str]:
    while True:
        answer = await client.ask(address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), _PATIENCE)
        said = KVTable.decode(answer.body).table
        if said.get("brokerRole") == "slave":
            return said
        await asyncio.sleep(_AGAIN)

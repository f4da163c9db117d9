"""A master that was away asks its slaves how far groups have come: they went on there, and their offsets with them.

It asks before it serves anybody, and takes the larger of two offsets. What it has not got itself it does not believe:
an offset ends where the queue here does, and a queue that is not here gets none. What the broker itself keeps as an
offset (how far timers are delivered, how far POP's journal is read) is about this log alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmq.broker.groups.offsets import pair_of, read_offsets
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.names import BROKER_GROUPS, MASTER_ID
from rmq.remoting.limits import Rationed

if TYPE_CHECKING:
    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.parts import Ground
    from rmq.remoting.client import RemotingClient

__all__ = ["ask_slaves"]

log = logging.getLogger(__name__)

#: Seconds that a name server, or a slave, may take: the broker does not serve yet.
_TIMEOUT = 3.0


async def ask_slaves(
    ground: Ground,
    offsets: OffsetTable,
    client: RemotingClient,
    peers: RemotingClient,
    name_servers: Sequence[str],
) -> None:
    """Bring the offsets to where groups are at the slaves that name servers know; at most 6 s.

    :param client: calls name servers,
    :param peers: and slaves.
    """
    if not ground.store.log.end:
        return
    found = await asyncio.gather(*(_slaves(ground, client, address) for address in name_servers))
    slaves = list(dict.fromkeys(address for some in found for address in some))
    for told in await asyncio.gather(*(_offsets(peers, address) for address in slaves)):
        moved = offsets.merge(_here(ground, told))
        if moved:
            log.info("%d offsets of groups are where they went on at a slave", moved)


async def _slaves(ground: Ground, client: RemotingClient, name_server: str) -> list[str]:
    """Addresses of this broker's slaves, as a name server knows them."""
    try:
        answer = await client.ask(name_server, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), _TIMEOUT)
        broker = ClusterInfo.decode(answer.body).broker_addr_table.get(ground.settings.broker_name)
    except Exception as error:
        # The registration, which comes next, warns of one that does not answer.
        log.info("the name server %s does not say whether this broker has slaves: %s", name_server, error)
        return []
    addresses = {} if broker is None else broker.broker_addrs
    return [addr for number, addr in addresses.items() if number != MASTER_ID and addr != ground.broker_addr]


async def _offsets(client: RemotingClient, slave: str) -> dict[str, dict[int, int]]:
    try:
        answer = await client.ask(slave, Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET), _TIMEOUT)

        def refused(name: str, why: str) -> None:
            complaints.say(log.warning, "the slave %s has no offsets for %.40r: %s", slave, name, why)

        complaints = Rationed(client.world.clock)
        return await read_offsets(answer.body, refused)
    except Exception as error:
        log.warning("the slave %s does not tell its offsets, groups that went on there repeat: %s", slave, error)
        return {}


def _here(ground: Ground, told: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    """What of a slave's offsets is of queues here, and no further than those go."""
    find = ground.store.queues.get
    here: dict[str, dict[int, int]] = {}
    for name, offsets in told.items():
        topic, group = pair_of(name)
        if group not in BROKER_GROUPS:
            queues = [(find(topic, queue_id), offset) for queue_id, offset in offsets.items()]
            here[name] = {queue.id: min(offset, queue.next) for queue, offset in queues if queue is not None}
    return here

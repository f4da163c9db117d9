"""The locks that brokers keep on the queues of an orderly group (requests 41 and 42)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

from rmq.client import lookup
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.runtime.aside import logger

__all__ = ["QueueLocks"]

log = logger(__name__)

_TIMEOUT = 1.0


class QueueLocks:
    """Asks for the locks of one group and gives them back.

    What is said to one broker is said in turn: a queue that is given up while its lock is being renewed is unlocked
    after that, and not before, when its next owner would wait for the end of a lock that nobody wants.
    """

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def busy(self, broker_name: str) -> bool:
        """Something is being said to a broker already."""
        return self._turns[broker_name].locked()

    async def lock(
        self,
        queues: Iterable[MessageQueue],
        *,
        wanted: Callable[[MessageQueue], bool] = lambda queue: True,
        level: int = logging.WARNING,
    ) -> set[MessageQueue]:
        """Ask the masters of queues for their locks.

        :param wanted: asked of each queue when its master's turn comes: it may have been given up meanwhile.
        :param level: of the line in the log about a master that does not answer.
        :returns: those that are ours now.
        """
        held: set[MessageQueue] = set()
        for broker_name, of_broker in lookup.queues_by_broker(queues).items():
            async with self._turns[broker_name]:
                asked = [queue for queue in of_broker if wanted(queue)]
                if not asked:
                    continue
                body = LockBatchRequestBody(
                    client_id=self._instance.client_id,
                    consumer_group=self._group,
                    mq_set=asked,
                    lost_with_connection=True,
                )
                try:
                    address = await self._instance.find_master(asked[0])
                    reply = await self._instance.call(address, RequestCode.LOCK_BATCH_MQ, None, body.encode(), _TIMEOUT)
                    granted = LockBatchResponseBody.decode(reply.body).lock_ok_mq_set
                    held.update(granted)
                    if not set(asked) <= set(granted):
                        # Another member has them; or this one leads no more, and nothing else would say so: without a
                        # lock nothing is pulled.
                        self._instance.suspect(address)
                except RMQError as error:
                    text = "group %s: no lock from the master of %s, orderly queues wait: %s"
                    log.log(level, text, self._group, broker_name, error)
        return held

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Give locks back, so that the next owner need not wait for their end (field case B036)."""
        for broker_name, of_broker in lookup.queues_by_broker(queues).items():
            async with self._turns[broker_name]:
                await self._unlock(broker_name, of_broker, wait)

    async def _unlock(self, broker_name: str, queues: list[MessageQueue], wait: bool) -> None:
        address = self._instance.routes.master_addr(broker_name)
        if address is None:
            return
        body = UnlockBatchRequestBody(client_id=self._instance.client_id, consumer_group=self._group, mq_set=queues)
        command = Command.request(RequestCode.UNLOCK_BATCH_MQ, None, body.encode())
        try:
            if wait:
                await self._instance.remoting.request(address, command, _TIMEOUT)
            else:
                await self._instance.remoting.oneway(address, command.mark_oneway())
        except RMQError as error:
            log.warning("group %s: the locks at %s were not given back: %s", self._group, broker_name, error)

"""Batches: the messages of one send, which lie in one file of the log and are answered together.

One of very many messages would hold the loop too long: it is admitted in a task of its own, a slice a turn of the loop,
and appended in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from rmq.broker.lane.outcomes import with_sharding_key
from rmq.broker.store.state import Put, Queue
from rmq.protocol import batch
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError, ResponseError

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission, AnySend, Ticket
    from rmq.broker.lane.outcomes import Ack, Outcomes
    from rmq.broker.lane.pressure import Pressure
    from rmq.broker.store.store import Store
    from rmq.remoting.conn import Conn

__all__ = ["Batches"]

#: A batch that weighs more (:func:`batch.holds_more_than`; a thousand messages with few properties) is admitted in a
#: task of its own, a slice a turn of the loop. One such batch at a time: its records take many times its bytes until
#: they are stored.
_LONG = 128 << 10
#: Messages of a batch that are appended in one go, some 10 ms, each with three keys at most; and one less for each key
#: more. The next of them come a turn of the loop later.
_PART = 5_000
_PLAIN_KEYS = 3
#: What a batch that waits for its turn takes, bytes, besides its body.
_WAITING_COST = 4_096


class Batches:
    """Appends batches, long ones between other work.

    :param ready: takes a long batch that is admitted: connection, request, header, ticket.
    """

    def __init__(
        self,
        store: Store,
        admission: Admission,
        outcomes: Outcomes,
        pressure: Pressure,
        ready: Callable[[Conn, Command, AnySend, Ticket], None],
    ) -> None:
        self._store = store
        self._admission = admission
        self._outcomes = outcomes
        self._pressure = pressure
        self._ready = ready
        self._one_at_a_time = asyncio.Lock()

    # -- admission -------------------------------------------------------------------------------------------------

    def take_long(self, conn: Conn, request: Command, header: AnySend) -> bool:
        """Take over a batch if it is long; others are admitted at once.

        :raises ResponseError: its body is no batch.
        """
        if not (header.batch and batch.holds_more_than(request.body, _LONG, len(header.properties or ""))):
            return False
        cost = len(request.body) + _WAITING_COST
        self._spawn(conn, self._admit(conn, request, header, cost), cost)
        return True

    async def _admit(self, conn: Conn, request: Command, header: AnySend, cost: int) -> None:
        """Between the slices others are served."""
        try:
            async with self._one_at_a_time:
                steps = self._admission.batch(conn, header, request.body, request.grant)
                while True:
                    try:
                        next(steps)
                    except StopIteration as end:
                        ticket: Ticket = end.value
                        break
                    await asyncio.sleep(0)
            self._check_there(ticket.puts[0].queue)
            self._ready(conn, request, header, ticket)
        except (ResponseError, HeaderError) as error:
            self._outcomes.refused(conn, request, error)
        except Exception as error:
            self._outcomes.failed(conn, request, error)
        finally:
            self._settle(conn, cost)

    def _check_there(self, queue: Queue) -> None:
        if self._store.queues.get(queue.topic, queue.id) is not queue:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{queue.topic}] was deleted meanwhile")

    # -- append ----------------------------------------------------------------------------------------------------

    def append(self, conn: Conn, request: Command, ticket: Ticket) -> None:
        """A batch lies in one file; one that would hold the loop too long is stored in parts. Never raises."""
        ack: Ack = (conn, None if request.is_oneway else request.opaque, ticket.queue_id, ticket.wait, request)
        parts = list(_parts(ticket.puts))
        if len(parts) > 1:
            self._spawn(conn, self._append_parts(ack, request, parts, cost := len(request.body)), cost)
            return
        try:
            span = self._store.append(ticket.puts, together=True)
        except Exception as error:
            self._outcomes.not_appended(error, [ack])
            return
        self._outcomes.batch_stored(ack, ticket.puts, span.end, span.offsets)

    async def _append_parts(self, ack: Ack, request: Command, parts: list[list[Put]], cost: int) -> None:
        ordered: list[Put] = []
        end = 0
        offsets: list[tuple[int, int]] = []
        ids: list[str] = []
        try:
            for part in parts:
                self._check_there(part[0].queue)
                span = self._store.append(part, together=True)
                end = span.end
                offsets += span.offsets
                ids.append(self._outcomes.ids(span.offsets))
                ordered += with_sharding_key(part)
                # A million key words take as long to be let go of as they took to be made: each part its own, now.
                part.clear()
                await asyncio.sleep(0)
        except ResponseError as error:
            self._outcomes.refused(ack[0], request, error)
        except Exception as error:
            self._outcomes.not_appended(error, [ack])
        else:
            self._outcomes.batch_stored(ack, ordered, end, offsets, ",".join(ids))
        finally:
            self._settle(ack[0], cost)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _spawn(self, conn: Conn, work: Coroutine[Any, Any, None], cost: int) -> None:
        """Go on with a send in a task, which ends with :meth:`_settle`.

        :param cost: what it counts as owed meanwhile, bytes.
        """
        try:
            conn.spawn(work, "long batch")
        except RuntimeError:  # stopping: the other side finds the connection closed
            return
        conn.owed_bytes += cost
        self._pressure.held += 1

    def _settle(self, conn: Conn, cost: int) -> None:
        self._pressure.held -= 1
        conn.settle(cost)


def _parts(puts: list[Put]) -> Iterator[list[Put]]:
    """A batch in pieces that do not hold the loop too long."""
    first = weight = 0
    for number, put in enumerate(puts, 1):
        weight += max(1, len(put.keys) - _PLAIN_KEYS + 1)
        if weight >= _PART:
            yield puts[first:number]
            first, weight = number, 0
    if first < len(puts):
        yield puts[first:]

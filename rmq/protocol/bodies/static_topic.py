"""Where the queues of a 5.x static topic are: passed on, not acted upon (protocol.md 4.4, 4.6)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = ["LogicQueueMappingItem", "TopicQueueMappingDetail", "TopicQueueMappingInfo"]


@body
class TopicQueueMappingInfo(Body):
    """A static topic's queues on one broker."""

    bname: str | None = member("bname", default=None)
    curr_id_map: dict[int, int] | None = member("currIdMap", default=None)
    dirty: bool = member("dirty", default=False)
    epoch: int = member("epoch", default=0)
    scope: str | None = member("scope", default=None)
    topic: str | None = member("topic", default=None)
    total_queues: int = member("totalQueues", default=0)


@body
class LogicQueueMappingItem(Body):
    """A stretch of a logical queue on one broker."""

    bname: str | None = member("bname", default=None)
    end_offset: int = member("endOffset", default=-1)
    gen: int = member("gen", default=0)
    logic_offset: int = member("logicOffset", default=0)
    queue_id: int = member("queueId", default=0)
    start_offset: int = member("startOffset", default=0)
    time_of_end: int = member("timeOfEnd", default=-1)
    time_of_start: int = member("timeOfStart", default=-1)


@body
class TopicQueueMappingDetail(Body):
    """The same as :class:`TopicQueueMappingInfo`, with the stretches of every queue the broker holds."""

    bname: str | None = member("bname", default=None)
    curr_id_map: dict[int, int] | None = member("currIdMap", default=None)
    dirty: bool = member("dirty", default=False)
    epoch: int = member("epoch", default=0)
    hosted_queues: dict[int, list[LogicQueueMappingItem]] | None = member("hostedQueues", default=None)
    scope: str | None = member("scope", default=None)
    topic: str | None = member("topic", default=None)
    total_queues: int = member("totalQueues", default=0)

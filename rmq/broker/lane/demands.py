"""What a send needs of who sends it: every queue that its message gets into."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmq.protocol.permissions import Need, publish_topic
from rmq.protocol.properties import INNER_MULTI_DISPATCH

if TYPE_CHECKING:
    from rmq.broker.lane.admit import AnySend

__all__ = ["named_queues"]

#: The property of a message, or of any message in the body of a batch.
_DISPATCHED = re.compile(INNER_MULTI_DISPATCH.encode() + rb"\x01([^\x02]*)")


def named_queues(header: AnySend, body: bytes, *, dispatching: bool) -> list[Need]:
    """The topic, and with multi-dispatch the queues that the message names besides.

    :param dispatching: whether such queues count here at all.
    """
    needs = [publish_topic(header.topic or "")]
    if dispatching:
        text = body if header.batch else (header.properties or "").encode("utf-8", "replace")
        for names in _DISPATCHED.findall(text):
            needs += [publish_topic(name) for name in names.decode("utf-8", "replace").split(",") if name]
    return needs

"""Building what a consumer sends of a subscription (protocol.md 4.2; Java: FilterAPI)."""

from __future__ import annotations

from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.errors import ClientError
from rmq.protocol.tags import string_hash

__all__ = ["SQL92", "SUB_ALL", "TAG", "build"]

TAG = "TAG"
SQL92 = "SQL92"
SUB_ALL = "*"


def build(
    topic: str, expression: str | None, expression_type: str | None = TAG, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription of a topic.

    :param expression: tags separated by ``||``; None, "" and ``*`` mean everything. With SQL92 the condition.
    :param expression_type: ``TAG`` (also None, "") or ``SQL92``.
    :param sub_version: when it was made, ms; brokers take over only a greater one.
    :raises ClientError: only separators where tags were expected, or SQL92 without a condition.
    """
    if expression_type and expression_type != TAG:
        if not expression or not expression.strip():
            raise ClientError(f"a subscription of {topic} by {expression_type} needs an expression")
        return SubscriptionData(topic, expression, sub_version=sub_version, expression_type=expression_type)
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, sub_version=sub_version)
    tags = list(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))
    if not tags:
        raise ClientError(f"the subscription {expression!r} of {topic} names no tag: write TagA || TagB, or *")
    return SubscriptionData(
        topic, expression, tags, list(dict.fromkeys(string_hash(tag) for tag in tags)), sub_version=sub_version
    )

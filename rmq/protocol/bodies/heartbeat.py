"""HeartbeatData (34) and what it holds, CheckClientRequestBody (46) (protocol.md 4.2, 4.3)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = [
    "CONSUME_FROM_WHERE",
    "CONSUME_TYPES",
    "MESSAGE_MODELS",
    "CheckClientRequestBody",
    "ConsumerData",
    "HeartbeatData",
    "ProducerData",
    "SubscriptionData",
]

#: Enum names in ordinal order.
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


@body
class SubscriptionData(Body):
    """What a consumer wants of a topic; ``code_set`` are Java hashes of ``tags_set``, ``sub_version`` is in ms."""

    topic: str = member("topic", default="")
    sub_string: str = member("subString", default="*")
    tags_set: list[str] = member("tagsSet", factory=list)
    code_set: list[int] = member("codeSet", factory=list)
    sub_version: int = member("subVersion", default=0)
    expression_type: str | None = member("expressionType", default="TAG")
    class_filter_mode: bool = member("classFilterMode", default=False)
    filter_class_source: str | None = member("filterClassSource", default=None, written=False)

    @property
    def is_tag_type(self) -> bool:
        """Filtered by tag: no expression type, or ``TAG``."""
        return not self.expression_type or self.expression_type == "TAG"


@body
class ProducerData(Body):
    group_name: str = member("groupName", default="")


@body
class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str = member("groupName", default="")
    consume_type: str | None = member("consumeType", default="CONSUME_PASSIVELY", values=CONSUME_TYPES)
    message_model: str | None = member("messageModel", default="CLUSTERING", values=MESSAGE_MODELS)
    consume_from_where: str | None = member(
        "consumeFromWhere", default="CONSUME_FROM_LAST_OFFSET", values=CONSUME_FROM_WHERE
    )
    subscription_data_set: list[SubscriptionData] = member("subscriptionDataSet", factory=list)
    unit_mode: bool = member("unitMode", default=False)


@body
class HeartbeatData(Body):
    """34 HEART_BEAT; the last two members are 5.x's."""

    client_id: str = member("clientID", default="")
    consumer_data_set: list[ConsumerData] = member("consumerDataSet", factory=list)
    producer_data_set: list[ProducerData] = member("producerDataSet", factory=list)
    heartbeat_fingerprint: int | None = member("heartbeatFingerprint", default=None)
    without_sub: bool | None = member("withoutSub", default=None)


@body
class CheckClientRequestBody(Body):
    """46 CHECK_CLIENT_CONFIG; ``namespace`` is 5.x's."""

    client_id: str = member("clientId", default="")
    group: str = member("group", default="")
    subscription_data: SubscriptionData | None = member("subscriptionData", default=None)
    namespace: str | None = member("namespace", default=None)

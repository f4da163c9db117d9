"""Who is connected: 203, 204, 328 (protocol.md 4.10)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.heartbeat import CONSUME_FROM_WHERE, CONSUME_TYPES, MESSAGE_MODELS, SubscriptionData
from rmq.protocol.codes import Language

__all__ = ["Connection", "ConsumerConnection", "ProducerConnection", "ProducerInfo", "ProducerTableInfo"]

_LANGUAGES = tuple(language.name for language in Language)


@body
class Connection(Body):
    """One client: address ``ip:port``, id, language name, version ordinal."""

    client_addr: str = member("clientAddr", default="")
    client_id: str = member("clientId", default="")
    language: str | None = member("language", default=None, values=_LANGUAGES)
    version: int = member("version", default=0)


@body
class ConsumerConnection(Body):
    """203 GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = member("connectionSet", factory=list)
    consume_from_where: str | None = member("consumeFromWhere", default=None, values=CONSUME_FROM_WHERE)
    consume_type: str | None = member("consumeType", default=None, values=CONSUME_TYPES)
    message_model: str | None = member("messageModel", default=None, values=MESSAGE_MODELS)
    subscription_table: dict[str, SubscriptionData] = member("subscriptionTable", factory=dict)


@body
class ProducerConnection(Body):
    """204 GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = member("connectionSet", factory=list)


@body
class ProducerInfo(Body):
    """One producer client; ``remote_ip`` is written ``/ip:port``."""

    client_id: str = member("clientId", default="")
    language: str | None = member("language", default=None, values=_LANGUAGES)
    last_update_timestamp: int = member("lastUpdateTimestamp", default=0)
    remote_ip: str = member("remoteIP", default="")
    version: int = member("version", default=0)


@body
class ProducerTableInfo(Body):
    """328 GET_ALL_PRODUCER_INFO: group to its clients."""

    data: dict[str, list[ProducerInfo]] = member("data", factory=dict)

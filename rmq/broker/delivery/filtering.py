"""What a subscription lets through: tag hashes on the queue entry, SQL92 on the record's properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rmq.filter.sql import compile_sql
from rmq.protocol import properties
from rmq.protocol.record import places

if TYPE_CHECKING:
    from rmq.broker.groups.filters import Bits, ConsumerFilters
    from rmq.protocol.bodies.heartbeat import SubscriptionData

__all__ = ["EVERYTHING", "Condition", "Filter", "RetryCondition", "filter_of", "property_string"]

#: A record without properties and an expression of nothing, in characters of an expression.
_WEIGHT = 50


class Condition(Protocol):
    """What a message's properties are asked."""

    @property
    def weight(self) -> int:
        """How long it takes to ask, in characters of an expression."""
        ...

    def matches(self, properties: dict[str, str]) -> bool: ...


@dataclass(frozen=True, slots=True)
class RetryCondition:
    """Retried messages of a group, each judged by the group's filter of the topic it came from."""

    filters: ConsumerFilters
    group: str

    @property
    def weight(self) -> int:
        return max((held.compiled.weight for held in self.filters.of_group(self.group)), default=0)

    def matches(self, properties: dict[str, str]) -> bool:
        held = self.filters.get(properties.get("RETRY_TOPIC", ""), self.group)
        return held is None or held.compiled.matches(properties)


@dataclass(frozen=True, slots=True)
class Filter:
    """A subscription, ready to be asked about each message."""

    #: Tag hashes that match, as unsigned 32-bit numbers; None = any.
    codes: frozenset[int] | None = None
    #: The condition on the properties, or None.
    sql: Condition | None = None
    #: Its place in messages' bit maps, or None.
    bits: Bits | None = None

    def judge(self, record: bytes) -> tuple[bool, int]:
        """Whether the condition is true of a record, and what that weighed, in characters of an expression."""
        if self.sql is None:
            return True, 0
        text = property_string(record)
        weight = _WEIGHT + self.sql.weight + len(text) // 2
        return self.sql.matches(properties.decode(text.decode("utf-8", "replace"))), weight


EVERYTHING = Filter()


def filter_of(data: SubscriptionData) -> Filter:
    """The filter of a subscription.

    :raises ExpressionError: SQL92 that does not compile.
    """
    if data.is_tag_type:
        codes = frozenset(code & 0xFFFFFFFF for code in data.code_set or ())
        return Filter(codes) if codes else EVERYTHING
    return Filter(sql=compile_sql(data.sub_string))


def property_string(record: bytes) -> bytes:
    """The property string of one whole record, without decoding the rest of it."""
    return record[places(record)[3] + 2 :]

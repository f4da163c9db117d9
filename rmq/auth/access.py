"""What a request code asks of an account: the words in which broker and name server classify theirs, in one table each.

Deny by default: a code without an entry is for administrators, and a test fails over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from rmq.protocol.codes import RequestCode
from rmq.protocol.header import Header
from rmq.protocol.permissions import Need, publish_topic, use_group, use_topic

__all__ = ["ADMIN", "BROKER", "Access", "AccessTable", "Role", "inside", "member", "publisher", "signed"]


class Role(Enum):
    """Who may ask at all."""

    ACCOUNT = "any account"
    BROKER = "a broker's account or an administrator"
    ADMIN = "an administrator"


@dataclass(frozen=True, slots=True)
class Access:
    """What one code needs.

    Resources are read from the typed header that the handler is given, by its attributes.
    """

    role: Role = Role.ACCOUNT
    #: Attributes of the header: topics that are sent to, topics that are read, groups that are used.
    publishes: str = ""
    reads: str = ""
    groups: str = ""
    #: Why it needs nothing else, or what its handler demands once it has read what it is about.
    reason: str = ""
    #: Its handler demands it (``Command.demand``).
    inside: bool = False
    #: A broker's account may ask it for any client: it has looked at that one's permissions before it passed this on.
    passed_on: bool = False

    def needs(self, header: Header | None) -> Iterator[Need]:
        """What the header names; an optional field that is absent names nothing."""
        for attribute, need in ((self.publishes, publish_topic), (self.reads, use_topic), (self.groups, use_group)):
            if attribute:
                name = getattr(header, attribute)
                if name is not None:
                    yield need(name)


AccessTable = Mapping[int, Access]

ADMIN = Access(Role.ADMIN)
BROKER = Access(Role.BROKER)


def signed(reason: str) -> Access:
    """Any account, with the reason."""
    return Access(reason=reason)


def inside(what: str) -> Access:
    """The handler demands it.

    :param what: permission and resource, for people.
    """
    return Access(reason=what, inside=True)


def publisher(topic: str) -> Access:
    """PUB on the topic that the header names there."""
    return Access(publishes=topic)


def member(group: str = "", topic: str = "", *, passed_on: bool = False) -> Access:
    """SUB on the group and on the topic that the header names there."""
    return Access(reads=topic, groups=group, passed_on=passed_on)


_C = RequestCode
#: What Java checks besides the signature; it lets any account do everything else, codes of accounts included.
CHECKED_BY_JAVA = frozenset(
    {
        _C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.CONSUMER_SEND_MSG_BACK, _C.GET_CONSUMER_LIST_BY_GROUP, _C.PULL_MESSAGE,
        _C.UPDATE_CONSUMER_OFFSET, _C.QUERY_MESSAGE, _C.HEART_BEAT, _C.UNREGISTER_CLIENT, _C.UPDATE_AND_CREATE_TOPIC,
        _C.UPDATE_BROKER_CONFIG, _C.DELETE_TOPIC_IN_BROKER, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        _C.DELETE_SUBSCRIPTIONGROUP,
    }
)  # fmt: skip
#: Accounts are an administrator's, whatever Java does.
NEVER_LENIENT = frozenset(
    {
        _C.UPDATE_AND_CREATE_ACL_CONFIG, _C.DELETE_ACL_CONFIG, _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        _C.GET_BROKER_CLUSTER_ACL_CONFIG, _C.GET_BROKER_CLUSTER_ACL_INFO,
    }
)  # fmt: skip

"""Every error this project raises, in one tree.

::

    RMQError
    ├── ProtocolError          bytes or fields that break the wire format
    │   ├── FrameError         the connection cannot go on: close it
    │   └── HeaderError        one request is wrong: answer it, keep the connection
    │       └── BodyError      the same, about its body
    ├── TransportError         no answer was had from the other side
    │   ├── ConnectFailed      a ConnectionError, too
    │   │   └── ConnectTimeout in the time there was: a TimeoutError, too
    │   ├── ConnectionLost     a ConnectionError, too
    │   ├── RequestTimeout     a TimeoutError, too
    │   │   └── ReplyTimeout   the request was stored, and nobody has answered it
    │   └── TooManyRequests    a limit of ours refused the call before it was sent
    ├── ResponseError          the other side answered with a code that is not success
    │   └── AccessDenied       it was about the account: who asks, or what that may do
    ├── ClientError            a call that the SDK refuses before anything is sent
    │   ├── NotFound           what it is about is not there
    │   ├── UnknownOption      a TypeError, too
    │   └── WrongType          a TypeError, too
    ├── ConfigError            settings or command line that cannot be used
    ├── StoreError             files that cannot be read, written or trusted
    ├── ReplicationError
    └── AuthError

Callers branch on the class, on ``code`` or on a flag; never on a text. Python's own classes serve who catches those, as
with any other client: ``except ConnectionError``, ``except TimeoutError``, ``except OSError``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rmq.protocol.queue import MessageQueue

__all__ = [
    "FAQ",
    "AccessDenied",
    "AuthError",
    "BodyError",
    "ClientError",
    "ConfigError",
    "ConnectFailed",
    "ConnectTimeout",
    "ConnectionLost",
    "FrameError",
    "HeaderError",
    "NotFound",
    "ProtocolError",
    "RMQError",
    "ReplicationError",
    "ReplyTimeout",
    "RequestTimeout",
    "ResponseError",
    "StoreError",
    "TooManyRequests",
    "TransportError",
    "UnknownOption",
    "WrongType",
]

#: How Java ends a remark about a topic or a group that is not there.
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class RMQError(Exception):
    """Base of every error of this project."""

    #: The same call may succeed on another broker, or later.
    retriable: bool = False
    #: The route the call was based on is out of date.
    refresh_route: bool = False
    #: The response code, where the other side answered (``ResponseCode`` where it is a known one).
    code: int | None = None
    #: The topic the call was about, where it was about one.
    topic: str | None = None
    #: The queue it was about.
    queue: MessageQueue | None = None
    #: ``host:port`` of the broker or name server that failed it.
    address: str | None = None
    #: That is a name server.
    of_name_server: bool = False

    def about(self, *, topic: str | None = None, queue: MessageQueue | None = None, address: str | None = None) -> Self:
        """This error, which now says what it is about; what it says already stays."""
        if self.queue is None:
            self.queue = queue
        if self.topic is None:
            self.topic = topic if queue is None else queue.topic
        if self.address is None:
            self.address = address
        return self

    @property
    def hint(self) -> str | None:
        """The command that tells more, or None where none does; name servers are those of NAMESRV_ADDR."""
        if self.queue is not None and self.address is not None and not self.of_name_server and self.code != _NO_TOPIC:
            return f"mqadmin brokerStatus -b {self.address}"
        return None if self.topic is None else f"mqadmin topicRoute -t {shlex.quote(self.topic)}"


class ProtocolError(RMQError):
    """Bytes or fields that break the wire format."""


class FrameError(ProtocolError):
    """A frame that cannot be decoded: the connection it came on is to be closed."""


class HeaderError(ProtocolError):
    """A request whose header fields are missing or wrong: it is answered, the connection stays."""


class BodyError(HeaderError):
    """A body that cannot be read: the request is answered, the connection stays."""


class TransportError(RMQError):
    """No answer was had from the other side."""

    retriable = True


class ConnectFailed(TransportError, ConnectionError):
    """The connection could not be opened."""


class ConnectTimeout(ConnectFailed, TimeoutError):
    """The connection could not be opened, or nobody said whom to call, in the time given; nothing was sent."""


class ConnectionLost(TransportError, ConnectionError):
    """The connection closed while the call was under way; whether it took effect is unknown."""


class RequestTimeout(TransportError, TimeoutError):
    """No answer in the time given; whether the call took effect is unknown."""


class ReplyTimeout(RequestTimeout):
    """A request was stored, and no reply to it came in the time given: it may be answered yet, to nobody."""

    #: The id of the request's message.
    msg_id: str | None = None

    @property
    def hint(self) -> str | None:
        """The command that tells whether anybody has consumed the request."""
        if self.msg_id is None or self.topic is None:
            return super().hint
        return f"mqadmin queryMsgByUniqueKey -t {shlex.quote(self.topic)} -i {self.msg_id}"


class TooManyRequests(TransportError):
    """A limit of this process refused the call; nothing was sent."""

    retriable = False


#: How access control of 4.x and 5.x begins what it says.
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
_DENIED = ("AclException", "AuthenticationException", "AuthorizationException")
_NO_TOPIC = 17
#: Codes on which the Java producer tries another broker (protocol.md 2.2, client.md 2).
_RETRIABLE = frozenset({1, 2, 14, 16, 17, 204, 205})
#: Codes which say that the route is out of date: a broker that is no master any more answers sends with 14.
_REFRESH = frozenset({_NO_TOPIC, 14})


class ResponseError(RMQError):
    """The other side answered with a code that is not success.

    :param code: the response code (``ResponseCode`` where it is a known one).
    :param remark: what the other side said, or None.
    :param address: ``host:port`` of the one that answered, or None.
    """

    code: int

    def __new__(cls, code: int, remark: str | None = None, address: str | None = None) -> ResponseError:
        """An :class:`AccessDenied`, where that is what the other side said."""
        denied = remark is not None and any(word in remark for word in _DENIED)
        return super().__new__(AccessDenied if denied and cls is ResponseError else cls)

    def __init__(self, code: int, remark: str | None = None, address: str | None = None) -> None:
        self.code = code
        self.remark = remark
        self.address = address
        self.retriable: bool = code in _RETRIABLE
        self.refresh_route: bool = code in _REFRESH
        where = f" from {address}" if address else ""
        super().__init__(f"code {code}{where}: {remark or 'no remark'}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled from what it was made of, and not from its text."""
        return type(self), (self.code, self.remark, self.address), self.__dict__


class AccessDenied(ResponseError):
    """An account that is missing, unknown or has another secret, or that may not do this (Java: AclException).

    No other broker is tried: they have the same accounts, and a wrong secret is wrong everywhere.
    """

    def __init__(self, code: int, remark: str | None = None, address: str | None = None) -> None:
        super().__init__(code, remark, address)
        self.retriable = False

    def __str__(self) -> str:
        where = f"{self.address}: " if self.address else ""
        said = (self.remark or "").removeprefix(_ACL_EXCEPTION).split(", org.apache.rocketmq", 1)[0]
        return f"{where}access denied (code {self.code}): {said}"


class ClientError(RMQError):
    """A call that is refused before anything is sent."""


class NotFound(ClientError):
    """What a call is about is not there: a cluster, a topic at a broker, an offset of a group."""


class UnknownOption(ClientError, TypeError):
    """A keyword argument that a client does not have: names the nearest one."""

    #: The argument, and what there is.
    name: str | None = None
    known: tuple[str, ...] = ()


class WrongType(ClientError, TypeError):
    """An argument of another type than the call takes: names it, and says what to give."""


class ConfigError(RMQError):
    """Settings or a command line that cannot be used: says which key, where, and what to do."""


class StoreError(RMQError):
    """Files that cannot be read, written or trusted: says which file and what to do."""


class ReplicationError(RMQError):
    """A replication link that broke the rules of the HA stream."""


class AuthError(RMQError):
    """An identity that is unknown, a signature that differs, or a permission that is missing."""

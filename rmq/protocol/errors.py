"""Every error this project raises, in one tree.

::

    RMQError
    ├── ProtocolError          bytes or fields that break the wire format
    │   ├── FrameError         the connection cannot go on: close it
    │   └── HeaderError        one request is wrong: answer it, keep the connection
    │       └── BodyError      the same, about its body
    ├── TransportError         no answer was had from the other side
    │   ├── ConnectFailed
    │   ├── ConnectionLost
    │   ├── RequestTimeout
    │   └── TooManyRequests    a limit of ours refused the call before it was sent
    ├── ResponseError          the other side answered with a code that is not success
    ├── ClientError            a call that the SDK refuses before anything is sent
    ├── ConfigError            settings or command line that cannot be used
    ├── StoreError             files that cannot be read, written or trusted
    ├── ReplicationError
    └── AuthError

Callers branch on the class, on ``code`` or on a flag; never on a text.
"""

from __future__ import annotations

__all__ = [
    "FAQ",
    "AuthError",
    "BodyError",
    "ClientError",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "FrameError",
    "HeaderError",
    "ProtocolError",
    "RMQError",
    "ReplicationError",
    "RequestTimeout",
    "ResponseError",
    "StoreError",
    "TooManyRequests",
    "TransportError",
]

#: How Java ends a remark about a topic or a group that is not there.
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class RMQError(Exception):
    """Base of every error of this project."""

    #: The same call may succeed on another broker.
    retriable: bool = False
    #: The route the call was based on is out of date.
    refresh_route: bool = False


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


class ConnectFailed(TransportError):
    """The connection could not be opened."""


class ConnectionLost(TransportError):
    """The connection closed while the call was under way; whether it took effect is unknown."""


class RequestTimeout(TransportError):
    """No answer in the time given; whether the call took effect is unknown."""


class TooManyRequests(TransportError):
    """A limit of this process refused the call; nothing was sent."""

    retriable = False


#: Codes on which the Java producer tries another broker (protocol.md 2.2, client.md 2).
_RETRIABLE = frozenset({1, 2, 14, 16, 17, 204, 205})
#: Codes which say that the route is out of date.
_REFRESH = frozenset({17})


class ResponseError(RMQError):
    """The other side answered with a code that is not success.

    :param code: the response code (``ResponseCode`` where it is a known one).
    :param remark: what the other side said, or None.
    :param addr: ``host:port`` of the one that answered, or None.
    """

    def __init__(self, code: int, remark: str | None = None, addr: str | None = None) -> None:
        self.code = code
        self.remark = remark
        self.addr = addr
        self.retriable = code in _RETRIABLE
        self.refresh_route = code in _REFRESH
        where = f" from {addr}" if addr else ""
        super().__init__(f"code {code}{where}: {remark or 'no remark'}")


class ClientError(RMQError):
    """A call that is refused before anything is sent."""


class ConfigError(RMQError):
    """Settings or a command line that cannot be used: says which key, where, and what to do."""


class StoreError(RMQError):
    """Files that cannot be read, written or trusted: says which file and what to do."""


class ReplicationError(RMQError):
    """A replication link that broke the rules of the HA stream."""


class AuthError(RMQError):
    """An identity that is unknown, a signature that differs, or a permission that is missing."""

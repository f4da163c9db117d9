"""How much one account may ask for: requests and bytes a second, connections; off unless set (docs/limits.md).

It is asked once a signature was found to be right, so that nobody uses up what is another's. What an answer carries is
taken when it is sent; who has taken more than there was is refused until a second's worth has flowed in again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.remoting.buckets import Buckets
from rmq.runtime.world import Clock

if TYPE_CHECKING:
    from rmq.auth.plain_acl import Account
    from rmq.auth.settings import AclSettings
    from rmq.remoting.conn import Conn

__all__ = ["Quotas"]

#: Refused only who owes another second's worth: without these a client loses its place in its groups, or consumes again
#: what it has consumed.
_PATIENT = frozenset(
    {
        RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION,
    }
)  # fmt: skip
#: What a request counts for besides its body, bytes: its header.
_HEADER = 256


class Quotas:
    """What each account has used of its shares.

    :param settings: the live ones.
    """

    def __init__(self, clock: Clock, settings: AclSettings) -> None:
        self._settings = settings
        self._requests = Buckets(clock.monotonic)
        self._bytes = Buckets(clock.monotonic)
        #: Account -> its open connections, and the other way round; empty while they are not bounded.
        self._conns: dict[str, set[Conn]] = {}
        self._accounts: dict[Conn, set[str]] = {}

    def admit(self, conn: Conn, account: Account, request: Command) -> None:
        """Count a request of an account.

        :raises ResponseError: SYSTEM_BUSY: it has used up its share of this second, or has too many connections.
        """
        settings, key = self._settings, account.access_key
        requests, request_limit = account.requests, "maxRequestsPerSecond"
        if requests is None:
            requests, request_limit = settings.account_max_requests_per_second, "accountMaxRequestsPerSecond"
        size, size_limit = account.bytes, "maxBytesPerSecond"
        if size is None:
            size, size_limit = settings.account_max_bytes_per_second, "accountMaxBytesPerSecond"
        most, most_limit = account.connections, "maxConnections"
        if most is None:
            most, most_limit = settings.account_max_connections, "accountMaxConnections"
        if most:
            self._connected(conn, key, most, most_limit)
        elif key in self._conns:
            self._uncounted(key)
        if requests:
            self._demand(self._requests, key, requests, request, "requests", request_limit)
        if size:
            self._demand(self._bytes, key, size, request, "bytes", size_limit)
            self._bytes.take(key, len(request.body) + _HEADER, size, size)
        if requests:
            self._requests.take(key, 1, requests, requests)

    def charge(self, account: Account, size: int) -> None:
        """An answer of so many bytes was sent."""
        rate = self._settings.account_max_bytes_per_second if account.bytes is None else account.bytes
        if rate:
            self._bytes.take(account.access_key, size, rate, rate)

    def _uncounted(self, key: str) -> None:
        """An account's connections are bounded no more."""
        for conn in self._conns.pop(key):
            others = self._accounts[conn]
            others.discard(key)
            if not others:
                del self._accounts[conn]

    def closed(self, conn: Conn) -> None:
        """A connection is gone."""
        for key in self._accounts.pop(conn, ()):
            conns = self._conns[key]
            conns.discard(conn)
            if not conns:
                del self._conns[key]

    def _demand(self, buckets: Buckets, key: str, rate: int, request: Command, what: str, setting: str) -> None:
        owed = -float(rate) if request.code in _PATIENT else 0.0
        if buckets.level(key, rate, rate) <= owed:
            raise ResponseError(
                ResponseCode.SYSTEM_BUSY,
                f"[FLOW] accessKey={key} has used up its {rate} {what} a second ({setting}): ask less, or for more",
            )

    def _connected(self, conn: Conn, key: str, most: int, setting: str) -> None:
        conns = self._conns.get(key)
        if conns is not None and conn in conns:
            return
        if conns is not None and len(conns) >= most:
            raise ResponseError(
                ResponseCode.SYSTEM_BUSY,
                f"[FLOW] accessKey={key} has {len(conns)} connections open: it may have {most} ({setting})",
            )
        if conn.closed:
            return
        self._conns.setdefault(key, set()).add(conn)
        self._accounts.setdefault(conn, set()).add(key)

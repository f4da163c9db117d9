"""Requests that fail in a way nobody expected: each is answered by itself, and logged with its place.

Whatever one request meets, its neighbours in the same tick and their connections never hear of it (design.md section
3). The answer is SYSTEM_ERROR without internals; the log has the first of a kind with its traceback, the next ones in a
line each, and then the hundredth, the thousandth and so on: a stranger may send many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.protocol import frame
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, Command
from rmq.protocol.errors import AuthError, ProtocolError, ResponseError
from rmq.runtime.aside import logger

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn

__all__ = ["Faults", "system_error"]

log = logger(__name__)

#: Kinds that are counted; of one beyond them every fault is one line.
_MOST_KINDS = 1_000
#: Lines for faults of one kind before they get rare.
_TOLD = 10
_ONEWAY = 2
#: Begins the remark when access control refuses: what clients of 4.x look for.
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"


def system_error(request: Command, remark: str) -> Command:
    """The answer for a handler that threw: always JSON, without ext fields (protocol.md 1.1, 1.7)."""
    return Command(ResponseCode.SYSTEM_ERROR, flag=FLAG_RESPONSE, opaque=request.opaque, remark=remark)


class Faults:
    """Answers the requests of one daemon that raised."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        #: How often: by request code, kind of error and place.
        self._seen: dict[tuple[int, str, str], int] = {}

    def fail(self, conn: Conn, request: Command, place: str, error: Exception) -> int:
        """Answer a request with what it raised; never raises.

        :param place: whose error it is, for the log.
        :returns: the code it was answered with, or would have been: a oneway request is not.
        """
        if isinstance(error, ResponseError):
            answer = request.reply(error.code, error.remark)
        elif isinstance(error, AuthError):
            answer = system_error(request, f"{_ACL_EXCEPTION}: {error}")
        elif isinstance(error, ProtocolError):
            answer = system_error(request, str(error))
        else:
            answer = self.unexpected(conn, request, place, error)
        if not request.flag & _ONEWAY:
            try:
                data = frame.encode(answer)
            except ProtocolError:  # its code has no place in a ROCKETMQ header
                data = frame.encode(system_error(request, str(answer.remark)))
            conn.send(data)
        return answer.code

    def unexpected(self, conn: Conn, request: Command, place: str, error: Exception) -> Command:
        """Log an error nobody expected; the answer of its request."""
        key = (request.code, type(error).__name__, place)
        count = self._seen.get(key, 0) + 1
        if count > 1 or len(self._seen) < _MOST_KINDS:
            self._seen[key] = count
        known = request.code in RequestCode.__members__.values()
        name = RequestCode(request.code).name if known else request.code
        if count == 1:
            log.error("%s failed for %s from %s", place, name, conn.peer, exc_info=error)
        elif count <= _TOLD or str(count).strip("0") == "1":
            log.error("%s failed for %s from %s (%d times by now): %r", place, name, conn.peer, count, error)
        return system_error(request, f"internal error while handling request code {request.code}")

"""Requests about accounts and permissions (50 to 54 of 4.9, 3001 to 3010 of 5.3): access control is off."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["AccessAdmin"]

_REMARK = "access control is off (aclEnable is false): there are no accounts, everybody may do everything"
_C = RequestCode

#: Codes of 4.9 for a change that failed. Java without access control answers the changes with them, and the text of an
#: internal exception, and does not answer 52 and 54 at all; 5.3.3 answers its own requests with SYSTEM_ERROR.
_CODES: Mapping[int, int] = {
    **dict.fromkeys((code for code in RequestCode if 3001 <= code <= 3010), ResponseCode.SYSTEM_ERROR),
    _C.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    _C.GET_BROKER_CLUSTER_ACL_CONFIG: ResponseCode.SYSTEM_ERROR,
    _C.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    _C.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


class AccessAdmin:
    """Refuses them all, in words that mqadmin shows."""

    @handles(*_CODES)
    def refuse(self, conn: Conn, request: Command) -> Command:
        """There is nothing to change and nothing to show."""
        raise ResponseError(_CODES[request.code], _REMARK)

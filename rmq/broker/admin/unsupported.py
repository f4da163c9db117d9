"""Requests that are answered with code 3, each with the reason.

The walk over every request code in the tests reads this table: broker, name server or client serves a code, or it
stands here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmq.protocol.codes import RequestCode

__all__ = ["UNSUPPORTED"]

_UNUSED = "4.9 has the number, and nothing in it that sends or serves it"
_UNUSED_5 = "5.3 has the number, and nothing in it that sends or serves it"
_FILTER_SERVER = "filter servers ended with 4.9.4"
_CONTROLLER = "5.x controller, and slaves acting as masters"
_SINGLE_TOPIC = "5.x brokers with enableSingleTopicRegister, which is off unless set"
_CONTAINER = "5.x broker container"
_COLD = "5.x cold data control"
_ROCKSDB = "5.x RocksDB storage"
_STATIC = "5.x static topics"

_C = RequestCode
#: Of the controller's, what members of a group answer (``election.py``).
_OF_GROUPS = (_C.CONTROLLER_ELECT_MASTER, _C.CONTROLLER_GET_METADATA_INFO)

UNSUPPORTED: Mapping[int, str] = {
    **dict.fromkeys(
        (
            _C.QUERY_BROKER_OFFSET,
            _C.GET_TOPIC_CONFIG_LIST,
            _C.GET_TOPIC_NAME_LIST,
            _C.TRIGGER_DELETE_FILES,
            _C.SUSPEND_CONSUMER,
            _C.RESUME_CONSUMER,
            _C.RESET_CONSUMER_OFFSET_IN_CONSUMER,
            _C.RESET_CONSUMER_OFFSET_IN_BROKER,
            _C.ADJUST_CONSUMER_THREAD_POOL,
            _C.WHO_CONSUME_THE_MESSAGE,
        ),
        _UNUSED,
    ),
    **dict.fromkeys((_C.REGISTER_FILTER_SERVER, _C.REGISTER_MESSAGE_FILTER_CLASS), _FILTER_SERVER),
    _C.GET_CLIENT_CONFIG: _UNUSED_5,
    _C.REGISTER_TOPIC_IN_NAMESRV: _SINGLE_TOPIC,
    **dict.fromkeys(
        (
            _C.GET_BROKER_MEMBER_GROUP,
            _C.BROKER_HEARTBEAT,
            _C.NOTIFY_MIN_BROKER_ID_CHANGE,
            *(code for code in RequestCode if 1001 <= code <= 1018 and code not in _OF_GROUPS),
        ),
        _CONTROLLER,
    ),
    **dict.fromkeys((_C.ADD_BROKER, _C.REMOVE_BROKER), _CONTAINER),
    **dict.fromkeys((code for code in RequestCode if 2001 <= code <= 2004), _COLD),
    **dict.fromkeys((_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.EXPORT_ROCKSDB_CONFIG_TO_JSON, _C.POP_ROLLBACK), _ROCKSDB),
    _C.UPDATE_AND_CREATE_STATIC_TOPIC: _STATIC,
}

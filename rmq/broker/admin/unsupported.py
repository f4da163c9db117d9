"""Requests that a broker could be asked and that this one answers with code 3, each with the reason.

The walk over every request code in the tests reads this table: a code is handled, or it stands here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmq.protocol.codes import RequestCode

__all__ = ["UNSUPPORTED"]

_ACL = "access control is not available yet"
_NAMESRV = "a name server's request"
_CLIENT = "goes from the broker to clients"
_NEVER = "defined by Java and served by nobody"
_POP = "5.x pop consumption"
_TIMER = "5.x timer messages"
_CONTROLLER = "5.x controller mode"
_CONTAINER = "5.x broker container"
_AUTH = "5.3 users and access lists"
_COLD = "5.x cold data control"
_ROCKSDB = "5.x RocksDB storage"
_STATIC = "5.x static topics"

_C = RequestCode

UNSUPPORTED: Mapping[int, str] = {
    **dict.fromkeys(
        (
            _C.UPDATE_AND_CREATE_ACL_CONFIG,
            _C.DELETE_ACL_CONFIG,
            _C.GET_BROKER_CLUSTER_ACL_INFO,
            _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        ),
        _ACL,
    ),
    **dict.fromkeys(
        (
            _C.PUT_KV_CONFIG,
            _C.GET_KV_CONFIG,
            _C.DELETE_KV_CONFIG,
            _C.REGISTER_BROKER,
            _C.UNREGISTER_BROKER,
            _C.GET_ROUTEINFO_BY_TOPIC,
            _C.GET_BROKER_CLUSTER_INFO,
            _C.WIPE_WRITE_PERM_OF_BROKER,
            _C.ADD_WRITE_PERM_OF_BROKER,
            _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _C.DELETE_TOPIC_IN_NAMESRV,
            _C.GET_KVLIST_BY_NAMESPACE,
            _C.GET_TOPICS_BY_CLUSTER,
            _C.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            _C.GET_UNIT_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            _C.UPDATE_NAMESRV_CONFIG,
            _C.GET_NAMESRV_CONFIG,
            _C.QUERY_DATA_VERSION,
            _C.REGISTER_TOPIC_IN_NAMESRV,
            _C.GET_BROKER_MEMBER_GROUP,
            _C.BROKER_HEARTBEAT,
        ),
        _NAMESRV,
    ),
    **dict.fromkeys(
        (
            _C.CHECK_TRANSACTION_STATE,
            _C.NOTIFY_CONSUMER_IDS_CHANGED,
            _C.RESET_CONSUMER_CLIENT_OFFSET,
            _C.GET_CONSUMER_STATUS_FROM_CLIENT,
            _C.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ),
        _CLIENT,
    ),
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
            _C.REGISTER_FILTER_SERVER,
            _C.REGISTER_MESSAGE_FILTER_CLASS,
            _C.GET_CLIENT_CONFIG,
        ),
        _NEVER,
    ),
    **dict.fromkeys((_C.GET_TIMER_CHECK_POINT, _C.GET_TIMER_METRICS), _TIMER),
    **dict.fromkeys((_C.POP_ROLLBACK, _C.UPDATE_AND_GET_GROUP_FORBIDDEN), _POP),
    **dict.fromkeys((_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.EXPORT_ROCKSDB_CONFIG_TO_JSON), _ROCKSDB),
    _C.UPDATE_AND_CREATE_STATIC_TOPIC: _STATIC,
    **dict.fromkeys((_C.ADD_BROKER, _C.REMOVE_BROKER), _CONTAINER),
    **dict.fromkeys(
        (
            _C.NOTIFY_MIN_BROKER_ID_CHANGE,
            _C.EXCHANGE_BROKER_HA_INFO,
            _C.GET_BROKER_HA_STATUS,
            _C.RESET_MASTER_FLUSH_OFFSET,
            *(code for code in RequestCode if 1001 <= code <= 1018),
        ),
        _CONTROLLER,
    ),
    **dict.fromkeys((code for code in RequestCode if 2001 <= code <= 2004), _COLD),
    **dict.fromkeys((code for code in RequestCode if 3001 <= code <= 3010), _AUTH),
}

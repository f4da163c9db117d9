"""What every request code of a nameserver needs of who sends it; as :mod:`rmq.broker.access`."""

from __future__ import annotations

from rmq.auth.access import ADMIN, BROKER, AccessTable, signed
from rmq.protocol.codes import RequestCode

__all__ = ["NAMESRV_ACCESS"]

_C = RequestCode

NAMESRV_ACCESS: AccessTable = {
    **dict.fromkeys(
        (
            _C.GET_ROUTEINFO_BY_TOPIC, _C.GET_BROKER_CLUSTER_INFO, _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _C.GET_TOPICS_BY_CLUSTER, _C.GET_SYSTEM_TOPIC_LIST_FROM_NS, _C.GET_UNIT_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_TOPIC_LIST, _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        ),
        signed("every client has to find brokers, and the brokers say what it may do there"),
    ),
    **dict.fromkeys((_C.REGISTER_BROKER, _C.UNREGISTER_BROKER, _C.QUERY_DATA_VERSION), BROKER),
    **dict.fromkeys(
        (
            _C.PUT_KV_CONFIG, _C.GET_KV_CONFIG, _C.DELETE_KV_CONFIG, _C.GET_KVLIST_BY_NAMESPACE,
            _C.WIPE_WRITE_PERM_OF_BROKER, _C.ADD_WRITE_PERM_OF_BROKER, _C.DELETE_TOPIC_IN_NAMESRV,
            _C.UPDATE_NAMESRV_CONFIG, _C.GET_NAMESRV_CONFIG,
        ),
        ADMIN,
    ),
}  # fmt: skip

"""What every request code of a broker needs of who sends it (docs/acl.md is written from the same words).

Permissions are asked of what the handler is about to touch: the typed header that it gets, or, where it is only known
from a body or a stored message (``inside``), what the handler itself has read. A handler without an entry fails a test,
and is for administrators until then.
"""

from __future__ import annotations

from rmq.auth.access import ADMIN, BROKER, AccessTable, inside, member, publisher
from rmq.protocol.codes import RequestCode

__all__ = ["BROKER_ACCESS"]

_C = RequestCode

_QUEUE = member(topic="topic")
_MEMBER = member(group="consumer_group", topic="topic")

BROKER_ACCESS: AccessTable = {
    # sending
    **dict.fromkeys(
        (_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE),
        inside("PUB on the topic, and on queues that a message names besides; SUB on the group of a retry topic"),
    ),
    **dict.fromkeys(
        (_C.SEND_REPLY_MESSAGE, _C.SEND_REPLY_MESSAGE_V2), inside("PUB on the topic of replies, <cluster>_REPLY_TOPIC")
    ),
    _C.CONSUMER_SEND_MSG_BACK: inside("SUB on the group, and on the topic of the message that is sent back"),
    _C.END_TRANSACTION: inside("PUB on the topic that the half message is for"),
    _C.RECALL_MESSAGE: publisher("topic"),
    # consuming
    **dict.fromkeys((_C.PULL_MESSAGE, _C.LITE_PULL_MESSAGE), inside("SUB on the topic and on the group")),
    **dict.fromkeys(
        (
            _C.POP_MESSAGE, _C.ACK_MESSAGE, _C.PEEK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME, _C.NOTIFICATION,
            _C.POLLING_INFO,
        ),
        _MEMBER,
    ),
    # a member of a group that follows asks and tells its leader what clients ask and tell it
    **dict.fromkeys(
        (_C.QUERY_CONSUMER_OFFSET, _C.UPDATE_CONSUMER_OFFSET),
        member(group="consumer_group", topic="topic", passed_on=True),
    ),
    _C.BATCH_ACK_MESSAGE: inside("SUB on each topic and on each group of the batch"),
    **dict.fromkeys(
        (_C.SEARCH_OFFSET_BY_TIMESTAMP, _C.GET_MAX_OFFSET, _C.GET_MIN_OFFSET, _C.GET_EARLIEST_MSG_STORETIME), _QUEUE
    ),
    _C.QUERY_MESSAGE: _QUEUE,
    _C.VIEW_MESSAGE_BY_ID: inside("SUB on the topic of the message"),
    **dict.fromkeys((_C.LOCK_BATCH_MQ, _C.UNLOCK_BATCH_MQ), inside("SUB on the group")),
    _C.QUERY_ASSIGNMENT: inside("SUB on the topic and on the group"),
    # clients
    _C.HEART_BEAT: inside("of each group that consumes SUB on it and on its topics; nothing of groups that send"),
    _C.UNREGISTER_CLIENT: member(group="consumer_group"),
    _C.CHECK_CLIENT_CONFIG: inside("SUB on the group and on the topic"),
    _C.GET_CONSUMER_LIST_BY_GROUP: member(group="consumer_group"),
    _C.GET_CONSUMER_CONNECTION_LIST: member(group="consumer_group"),
    # what its users may know of a topic or a group
    _C.GET_TOPIC_STATS_INFO: _QUEUE,
    _C.GET_TOPIC_CONFIG: _QUEUE,
    _C.GET_CONSUME_STATS: _MEMBER,
    _C.QUERY_CONSUME_TIME_SPAN: member(group="group", topic="topic"),
    _C.GET_SUBSCRIPTIONGROUP_CONFIG: member(group="group"),
    # between brokers
    **dict.fromkeys(
        (
            _C.GET_ALL_TOPIC_CONFIG, _C.GET_ALL_CONSUMER_OFFSET, _C.GET_ALL_DELAY_OFFSET,
            _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _C.GET_ALL_MESSAGE_REQUEST_MODE, _C.GET_TIMER_CHECK_POINT,
            _C.GET_TIMER_METRICS, _C.GET_BROKER_HA_STATUS, _C.EXCHANGE_BROKER_HA_INFO, _C.RESET_MASTER_FLUSH_OFFSET,
            _C.CONTROLLER_GET_METADATA_INFO,
            # a slave asks where its master's log ends, before it takes the groups' offsets
            _C.GET_BROKER_RUNTIME_INFO,
        ),
        BROKER,
    ),
    # administration: everything that changes a broker for others, or shows what others do
    **dict.fromkeys(
        (
            _C.UPDATE_AND_CREATE_TOPIC, _C.UPDATE_AND_CREATE_TOPIC_LIST, _C.DELETE_TOPIC_IN_BROKER,
            _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            _C.DELETE_SUBSCRIPTIONGROUP, _C.UPDATE_AND_GET_GROUP_FORBIDDEN, _C.SET_MESSAGE_REQUEST_MODE,
            _C.UPDATE_BROKER_CONFIG, _C.GET_BROKER_CONFIG, _C.VIEW_BROKER_STATS_DATA,
            _C.GET_BROKER_CONSUME_STATS, _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _C.CLEAN_EXPIRED_CONSUMEQUEUE,
            _C.CLEAN_UNUSED_TOPIC, _C.DELETE_EXPIRED_COMMITLOG, _C.RESUME_CHECK_HALF_MESSAGE,
            _C.INVOKE_BROKER_TO_RESET_OFFSET, _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, _C.CLONE_GROUP_OFFSET,
            _C.QUERY_CORRECTION_OFFSET, _C.GET_CONSUMER_RUNNING_INFO, _C.CONSUME_MESSAGE_DIRECTLY,
            _C.QUERY_CONSUME_QUEUE, _C.QUERY_TOPIC_CONSUME_BY_WHO, _C.QUERY_TOPICS_BY_CONSUMER,
            _C.QUERY_SUBSCRIPTION_BY_CONSUMER, _C.GET_PRODUCER_CONNECTION_LIST, _C.GET_ALL_PRODUCER_INFO,
            _C.UPDATE_AND_CREATE_ACL_CONFIG, _C.DELETE_ACL_CONFIG, _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            _C.GET_BROKER_CLUSTER_ACL_INFO, _C.GET_BROKER_CLUSTER_ACL_CONFIG, _C.CONTROLLER_ELECT_MASTER,
            *(code for code in RequestCode if 3001 <= code <= 3010),
        ),
        ADMIN,
    ),
}  # fmt: skip

"""Which header a request and its successful answer have (protocol.md section 2): for tools, and for what checks us.

``None`` = no header of its own. A code that is missing here is one that nothing in this project reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.header import Header
from rmq.protocol.headers import (
    admin,
    client,
    group,
    message,
    namesrv,
    offset,
    pop,
    pull,
    reply,
    send,
    topic,
    transaction,
)

__all__ = ["REQUEST_HEADERS", "RESPONSE_HEADERS"]

_WITHOUT = (
    # name server
    Code.GET_BROKER_CLUSTER_INFO,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    Code.GET_UNIT_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    Code.UPDATE_NAMESRV_CONFIG,
    Code.GET_NAMESRV_CONFIG,
    # clients
    Code.HEART_BEAT,
    Code.CHECK_CLIENT_CONFIG,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
    # broker
    Code.GET_ALL_TOPIC_CONFIG,
    Code.UPDATE_BROKER_CONFIG,
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.GET_ALL_PRODUCER_INFO,
    Code.DELETE_EXPIRED_COMMITLOG,
    # numbers that 4.9.8 defines and neither sends nor serves (protocol.md 2.12)
    Code.QUERY_BROKER_OFFSET,
    Code.GET_TOPIC_CONFIG_LIST,
    Code.GET_TOPIC_NAME_LIST,
    Code.TRIGGER_DELETE_FILES,
    Code.SUSPEND_CONSUMER,
    Code.RESUME_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_BROKER,
    Code.ADJUST_CONSUMER_THREAD_POOL,
    Code.WHO_CONSUME_THE_MESSAGE,
    # 5.x, with what they say in the body
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
    Code.QUERY_ASSIGNMENT,
    Code.SET_MESSAGE_REQUEST_MODE,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
    Code.BATCH_ACK_MESSAGE,
    Code.GET_BROKER_HA_STATUS,
    Code.CONTROLLER_GET_METADATA_INFO,
)

REQUEST_HEADERS: Mapping[int, type[Header] | None] = MappingProxyType(
    {
        **dict.fromkeys(_WITHOUT),
        # sending
        Code.SEND_MESSAGE: send.SendMessageRequest,
        Code.SEND_MESSAGE_V2: send.SendMessageV2Request,
        Code.SEND_BATCH_MESSAGE: send.SendMessageV2Request,
        Code.SEND_REPLY_MESSAGE: send.SendMessageRequest,
        Code.SEND_REPLY_MESSAGE_V2: send.SendMessageV2Request,
        Code.CONSUMER_SEND_MSG_BACK: send.ConsumerSendMsgBackRequest,
        Code.PUSH_REPLY_MESSAGE_TO_CLIENT: reply.ReplyMessageRequest,
        Code.RECALL_MESSAGE: message.RecallMessageRequest,
        # pulling and offsets
        Code.PULL_MESSAGE: pull.PullMessageRequest,
        Code.LITE_PULL_MESSAGE: pull.PullMessageRequest,
        Code.QUERY_CONSUMER_OFFSET: offset.QueryConsumerOffsetRequest,
        Code.UPDATE_CONSUMER_OFFSET: offset.UpdateConsumerOffsetRequest,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: offset.SearchOffsetRequest,
        Code.GET_MAX_OFFSET: offset.GetMaxOffsetRequest,
        Code.GET_MIN_OFFSET: offset.GetMinOffsetRequest,
        Code.GET_EARLIEST_MSG_STORETIME: offset.GetEarliestMsgStoretimeRequest,
        Code.RESET_CONSUMER_CLIENT_OFFSET: offset.ResetOffsetRequest,
        Code.INVOKE_BROKER_TO_RESET_OFFSET: offset.ResetOffsetRequest,
        Code.QUERY_CORRECTION_OFFSET: offset.QueryCorrectionOffsetRequest,
        Code.CLONE_GROUP_OFFSET: offset.CloneGroupOffsetRequest,
        # messages and transactions
        Code.QUERY_MESSAGE: message.QueryMessageRequest,
        Code.VIEW_MESSAGE_BY_ID: message.ViewMessageRequest,
        Code.QUERY_CONSUME_QUEUE: message.QueryConsumeQueueRequest,
        Code.END_TRANSACTION: transaction.EndTransactionRequest,
        Code.CHECK_TRANSACTION_STATE: transaction.CheckTransactionStateRequest,
        Code.RESUME_CHECK_HALF_MESSAGE: transaction.ResumeCheckHalfMessageRequest,
        # clients
        Code.UNREGISTER_CLIENT: client.UnregisterClientRequest,
        Code.GET_CONSUMER_LIST_BY_GROUP: client.GetConsumerListByGroupRequest,
        Code.NOTIFY_CONSUMER_IDS_CHANGED: client.NotifyConsumerIdsChangedRequest,
        Code.GET_CONSUMER_CONNECTION_LIST: client.GetConsumerConnectionListRequest,
        Code.GET_PRODUCER_CONNECTION_LIST: client.GetProducerConnectionListRequest,
        Code.GET_CONSUMER_STATUS_FROM_CLIENT: client.GetConsumerStatusRequest,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client.GetConsumerStatusRequest,
        Code.GET_CONSUMER_RUNNING_INFO: client.GetConsumerRunningInfoRequest,
        Code.CONSUME_MESSAGE_DIRECTLY: client.ConsumeMessageDirectlyRequest,
        # topics and groups
        Code.UPDATE_AND_CREATE_TOPIC: topic.CreateTopicRequest,
        Code.DELETE_TOPIC_IN_BROKER: topic.DeleteTopicRequest,
        Code.GET_TOPIC_STATS_INFO: topic.GetTopicStatsInfoRequest,
        Code.QUERY_TOPIC_CONSUME_BY_WHO: topic.QueryTopicConsumeByWhoRequest,
        Code.GET_TOPIC_CONFIG: topic.GetTopicConfigRequest,
        Code.DELETE_SUBSCRIPTIONGROUP: group.DeleteSubscriptionGroupRequest,
        Code.GET_CONSUME_STATS: group.GetConsumeStatsRequest,
        Code.GET_BROKER_CONSUME_STATS: group.GetConsumeStatsInBrokerRequest,
        Code.QUERY_CONSUME_TIME_SPAN: group.QueryConsumeTimeSpanRequest,
        Code.QUERY_TOPICS_BY_CONSUMER: group.QueryTopicsByConsumerRequest,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group.QuerySubscriptionByConsumerRequest,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: group.GetSubscriptionGroupConfigRequest,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: group.UpdateGroupForbiddenRequest,
        # administration
        Code.VIEW_BROKER_STATS_DATA: admin.ViewBrokerStatsDataRequest,
        Code.UPDATE_AND_CREATE_ACL_CONFIG: admin.CreateAccessConfigRequest,
        Code.DELETE_ACL_CONFIG: admin.DeleteAccessConfigRequest,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: admin.UpdateGlobalWhiteAddrsConfigRequest,
        Code.REGISTER_FILTER_SERVER: admin.RegisterFilterServerRequest,
        Code.REGISTER_MESSAGE_FILTER_CLASS: admin.RegisterMessageFilterClassRequest,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: admin.CheckRocksdbCqWriteProgressRequest,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: admin.ExportRocksDBConfigToJsonRequest,
        Code.ADD_BROKER: admin.AddBrokerRequest,
        Code.REMOVE_BROKER: admin.RemoveBrokerRequest,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE: admin.NotifyMinBrokerIdChangeRequest,
        Code.EXCHANGE_BROKER_HA_INFO: admin.ExchangeHAInfoRequest,
        Code.CONTROLLER_ELECT_MASTER: admin.ElectMasterRequest,
        Code.RESET_MASTER_FLUSH_OFFSET: admin.ResetMasterFlushOffsetRequest,
        # name server
        Code.PUT_KV_CONFIG: namesrv.PutKVConfigRequest,
        Code.GET_KV_CONFIG: namesrv.GetKVConfigRequest,
        Code.DELETE_KV_CONFIG: namesrv.DeleteKVConfigRequest,
        Code.REGISTER_BROKER: namesrv.RegisterBrokerRequest,
        Code.UNREGISTER_BROKER: namesrv.UnRegisterBrokerRequest,
        Code.GET_ROUTEINFO_BY_TOPIC: namesrv.GetRouteInfoRequest,
        Code.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequest,
        Code.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerRequest,
        Code.DELETE_TOPIC_IN_NAMESRV: namesrv.DeleteTopicInNamesrvRequest,
        Code.GET_KVLIST_BY_NAMESPACE: namesrv.GetKVListByNamespaceRequest,
        Code.GET_TOPICS_BY_CLUSTER: namesrv.GetTopicsByClusterRequest,
        Code.QUERY_DATA_VERSION: namesrv.QueryDataVersionRequest,
        Code.REGISTER_TOPIC_IN_NAMESRV: namesrv.RegisterTopicRequest,
        Code.GET_BROKER_MEMBER_GROUP: namesrv.GetBrokerMemberGroupRequest,
        Code.BROKER_HEARTBEAT: namesrv.BrokerHeartbeatRequest,
        # pop
        Code.POP_MESSAGE: pop.PopMessageRequest,
        Code.ACK_MESSAGE: pop.AckMessageRequest,
        Code.PEEK_MESSAGE: pop.PeekMessageRequest,
        Code.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleTimeRequest,
        Code.NOTIFICATION: pop.NotificationRequest,
        Code.POLLING_INFO: pop.PollingInfoRequest,
    }
)

#: Answers that have a header; every other answer has none.
RESPONSE_HEADERS: Mapping[int, type[Header]] = MappingProxyType(
    {
        Code.SEND_MESSAGE: send.SendMessageResponse,
        Code.SEND_MESSAGE_V2: send.SendMessageResponse,
        Code.SEND_BATCH_MESSAGE: send.SendMessageResponse,
        Code.SEND_REPLY_MESSAGE: send.SendMessageResponse,
        Code.SEND_REPLY_MESSAGE_V2: send.SendMessageResponse,
        Code.RECALL_MESSAGE: message.RecallMessageResponse,
        Code.PULL_MESSAGE: pull.PullMessageResponse,
        Code.LITE_PULL_MESSAGE: pull.PullMessageResponse,
        Code.QUERY_CONSUMER_OFFSET: offset.QueryConsumerOffsetResponse,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: offset.SearchOffsetResponse,
        Code.GET_MAX_OFFSET: offset.GetMaxOffsetResponse,
        Code.GET_MIN_OFFSET: offset.GetMinOffsetResponse,
        Code.GET_EARLIEST_MSG_STORETIME: offset.GetEarliestMsgStoretimeResponse,
        Code.QUERY_MESSAGE: message.QueryMessageResponse,
        Code.GET_BROKER_CONFIG: admin.GetBrokerConfigResponse,
        Code.GET_BROKER_CLUSTER_ACL_INFO: admin.GetBrokerAclConfigResponse,
        Code.REGISTER_FILTER_SERVER: admin.RegisterFilterServerResponse,
        Code.EXCHANGE_BROKER_HA_INFO: admin.ExchangeHAInfoResponse,
        Code.CONTROLLER_ELECT_MASTER: admin.ElectMasterResponse,
        Code.CONTROLLER_GET_METADATA_INFO: admin.ControllerMetaDataResponse,
        Code.GET_KV_CONFIG: namesrv.GetKVConfigResponse,
        Code.REGISTER_BROKER: namesrv.RegisterBrokerResponse,
        Code.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerResponse,
        Code.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerResponse,
        Code.QUERY_DATA_VERSION: namesrv.QueryDataVersionResponse,
        Code.POP_MESSAGE: pop.PopMessageResponse,
        Code.PEEK_MESSAGE: pop.PopMessageResponse,
        Code.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleTimeResponse,
        Code.NOTIFICATION: pop.NotificationResponse,
        Code.POLLING_INFO: pop.PollingInfoResponse,
    }
)

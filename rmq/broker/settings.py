"""Every setting of the broker: Java's key, type and default, and what it does here.

Keys are spelt as in Java's BrokerConfig, MessageStoreConfig and NettyServerConfig (store-and-broker.md 10.2 to
10.4), so Java's .properties files are read as they are. Keys that Java knows and that have no effect here are in
``inert.py`` with the reason: they are accepted, shown by ``-p`` when given, and named in one warning.
"""

from __future__ import annotations

import contextlib
import os
from typing import ClassVar

from rmq.auth.settings import AclSettings
from rmq.broker.delays import DelayLevels
from rmq.broker.inert import WITHOUT_EFFECT
from rmq.broker.store.settings import StoreSettings
from rmq.broker.topics.names import topic_name_fault
from rmq.config.settings import INT_MAX, LONG_MAX, Outside, setting
from rmq.protocol import addresses
from rmq.protocol.bodies.topic import MOST_TOPICS
from rmq.protocol.errors import ConfigError
from rmq.protocol.frame import MAX_FRAME, MAX_HEADER
from rmq.protocol.names import BROKER_TOPICS, MASTER_ID
from rmq.runtime.identity import Advertised, choose_address
from rmq.runtime.world import Identity

__all__ = ["BLACK_LIST", "BrokerSettings"]

#: Keys that request 25 never changes, whatever ``configBlackList`` says (store-and-broker.md 10.1).
BLACK_LIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})

_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_FLUSH_TYPES = ("ASYNC_FLUSH", "SYNC_FLUSH")
#: Of a master and its slaves, and of no group that elects its master.
_OF_PAIRS = ("brokerRole", "brokerId", "haAckSlaves", "haMasterAddress")


#: Bytes of records in one answer: it has to fit into a frame with its header.
_LARGEST_ANSWER = MAX_FRAME - MAX_HEADER
#: Messages of one query: all of them are in memory at a time.
_MOST_FOUND = 1_024
#: Bytes of a name that goes into headers, routes and metric labels; a host's name has at most 253.
_LONGEST_NAME = 255


def _hours(text: str) -> Outside | None:
    """Hours of the day, as ``deleteWhen`` has them. Java deletes at those among them that a day has."""
    given = [hour for part in text.split(";") if (hour := part.strip())]
    hours = [hour for hour in given if hour.isascii() and hour.isdecimal() and int(hour) < 24]
    if given and hours == given:
        return None
    return Outside(
        ";".join(hours),
        ";".join(hours) or "no hour, so that files stay until the disk is full,",
        "hours of the day, 0 to 23, separated by ';' are expected",
    )


class BrokerSettings(AclSettings):
    """Settings of one broker; attributes are the keys in snake_case."""

    inert = WITHOUT_EFFECT
    inert_secrets = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
    black_list = BLACK_LIST

    # -- who and where
    namesrv_addr: str = setting(
        "",
        key="namesrvAddr",
        env=("NAMESRV_ADDR",),
        live=True,
        important=True,
        doc="Name servers, host:port separated by ';'. Default: NAMESRV_ADDR.",
    )
    broker_ip1: str = setting(
        "",
        key="brokerIP1",
        important=True,
        doc="Address told to clients. Default: the first address of this machine that others reach.",
    )
    broker_ip2: str = setting("", key="brokerIP2", doc="Address told to slaves. Default: the same choice as brokerIP1.")
    bind_address: str = setting(
        "", key="bindAddress", important=True, doc="Address listened on. Default: every interface."
    )
    listen_port: int = setting(
        10911, key="listenPort", important=True, minimum=0, maximum=65_534, doc="Main port; port - 2 is the VIP port."
    )
    broker_name: str = setting(
        "",
        key="brokerName",
        important=True,
        longest=_LONGEST_NAME,
        doc="Name of the broker set. Default: the host's name.",
    )
    broker_cluster_name: str = setting(
        "DefaultCluster",
        key="brokerClusterName",
        important=True,
        longest=_LONGEST_NAME,
        doc="Cluster the broker belongs to.",
    )
    broker_id: int = setting(
        0, key="brokerId", important=True, doc="0 is the master of its set; each of its slaves has another one."
    )
    broker_role: str = setting(
        "ASYNC_MASTER",
        key="brokerRole",
        important=True,
        doc="ASYNC_MASTER, or SYNC_MASTER: a send waits until a slave has it, and without one is answered with 11; "
        "SLAVE has what the master of its brokerName has.",
    )
    slave_read_enable: bool = setting(
        False,
        key="slaveReadEnable",
        live=True,
        doc="A slave serves pulls; a master sends groups to a slave that are further behind than its memory reaches.",
    )
    offset_check_in_slave: bool = setting(
        False,
        key="offsetCheckInSlave",
        live=True,
        doc="A slave corrects offsets outside of what it has; else who pulls there waits: its master may have it.",
    )
    broker_permission: int = setting(
        6,
        key="brokerPermission",
        live=True,
        minimum=0,
        maximum=7,
        doc="4 read, 2 write; registered topics are masked with it.",
    )
    ha_listen_port: int = setting(
        0,
        key="haListenPort",
        lowest=0,
        highest=65_535,
        doc="Where slaves connect: always listenPort + 1.",
    )
    ha_master_address: str = setting(
        "", key="haMasterAddress", doc="host:port where the master of a slave listens. Default: as name servers tell."
    )
    ha_allowed_addresses: str = setting(
        "",
        key="haAllowedAddresses",
        doc="Addresses, and networks like 10.0.0.0/8, that get the commit log, separated by ';'. Default: every one; "
        "with aclEnable this machine alone.",
    )
    ha_send_heartbeat_interval: int = setting(
        5_000,
        key="haSendHeartbeatInterval",
        unit="ms",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="What has not been written to between master and slave for so long gets a sign of life.",
    )
    ha_housekeeping_interval: int = setting(
        20_000,
        key="haHousekeepingInterval",
        unit="ms",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Master and slave give a connection up on which the other has been silent for so long.",
    )
    ha_transfer_batch_size: int = setting(
        32_768,
        key="haTransferBatchSize",
        unit="bytes",
        lowest=1,
        highest=(4 << 20) - 12,
        live=True,
        doc="A master sends at most so much of the commit log as one piece.",
    )
    ha_slave_fallbehind_max: int = setting(
        256 << 20,
        key="haSlaveFallbehindMax",
        unit="bytes",
        lowest=0,
        highest=LONG_MAX,
        live=True,
        doc="A SYNC_MASTER does not wait for slaves that are further behind: SLAVE_NOT_AVAILABLE (11).",
    )
    slave_timeout: int = setting(
        3_000,
        key="slaveTimeout",
        unit="ms",
        lowest=0,
        highest=INT_MAX,
        live=True,
        doc="A SYNC_MASTER waits so long for its slave: then FLUSH_SLAVE_TIMEOUT (12).",
    )
    ha_ack_slaves: int = setting(
        1,
        key="haAckSlaves",
        minimum=1,
        maximum=8,
        doc="Slaves at different addresses that must have a message before a SYNC_MASTER acknowledges it.",
    )
    ha_ack_after_flush: bool = setting(
        False, key="haAckAfterFlush", doc="A slave reports what it has forced to disk, not what it has written."
    )
    ha_copy_from_first_file: bool = setting(
        False,
        key="haCopyFromFirstFile",
        doc="A master sends an empty slave its whole commit log. Default, as Java: from the start of its last file on.",
    )
    ha_check_crc: bool = setting(
        False, key="haCheckCRC", doc="A slave compares the checksum of each message before it stores it."
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        unit="s",
        lowest=0,
        highest=INT_MAX,
        doc="Connections silent both ways for so long are closed; 0 = never.",
    )
    unread_answers_max_bytes: int = setting(
        256 << 20,
        key="unreadAnswersMaxBytes",
        unit="bytes",
        lowest=16 << 20,
        highest=LONG_MAX,
        doc="Answers that peers have not read, of all connections together: beyond it requests wait. One connection "
        "owes at most a 32nd of what is left of it, 4 MiB and an answer at most.",
    )
    server_socket_backlog: int = setting(
        1024, key="serverSocketBacklog", lowest=1, highest=65_535, doc="Connections waiting to be accepted."
    )

    # -- name servers
    fetch_namesrv_addr_by_address_server: bool = setting(
        False,
        key="fetchNamesrvAddrByAddressServer",
        important=True,
        doc="Ask an address server for the name servers every 2 minutes.",
    )
    rmq_address_server_domain: str = setting(
        "jmenv.tbsite.net",
        key="rmqAddressServerDomain",
        doc="Host, with port, of the address server (Java: the system property rocketmq.namesrv.domain).",
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr",
        key="rmqAddressServerSubGroup",
        doc="Last part of the address server's path (Java: rocketmq.namesrv.domain.subgroup).",
    )
    register_name_server_period: int = setting(
        30_000,
        key="registerNameServerPeriod",
        unit="ms",
        live=True,
        lowest=10_000,
        highest=60_000,
        doc="Registration rhythm, 10 s to 60 s.",
    )
    register_broker_timeout_mills: int = setting(
        6_000,
        key="registerBrokerTimeoutMills",
        unit="ms",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="Time for one registration.",
    )
    force_register: bool = setting(
        True, key="forceRegister", live=True, doc="Register every time; else only when a name server is behind."
    )
    compressed_register: bool = setting(
        False,
        key="compressedRegister",
        live=True,
        doc="Send the topics compressed. Order and sys flags get lost, as in Java.",
    )

    # -- topics and groups
    default_topic_queue_nums: int = setting(
        8,
        key="defaultTopicQueueNums",
        important=True,
        lowest=1,
        highest=65_535,
        doc="Queues of TBW102: the most an auto-created topic gets.",
    )
    auto_create_topic_enable: bool = setting(
        True, key="autoCreateTopicEnable", important=True, live=True, doc="Make topics on the first send to them."
    )
    cluster_topic_enable: bool = setting(
        True, key="clusterTopicEnable", doc="The topic named after the cluster is readable."
    )
    broker_topic_enable: bool = setting(
        True, key="brokerTopicEnable", doc="The topic named after the broker is readable."
    )
    auto_create_subscription_group: bool = setting(
        True, key="autoCreateSubscriptionGroup", important=True, live=True, doc="Make groups when they first show up."
    )
    trace_topic_enable: bool = setting(
        False, key="traceTopicEnable", important=True, doc="Make the topic of message traces."
    )
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", key="msgTraceTopicName", important=True, doc="Name of that topic."
    )
    flush_consumer_offset_interval: int = setting(
        5_000,
        key="flushConsumerOffsetInterval",
        unit="ms",
        minimum=1,
        highest=INT_MAX,
        doc="How often consumerOffset.json is written.",
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        key="notifyConsumerIdsChangedEnable",
        live=True,
        doc="Tell a group's members at once when one comes or goes.",
    )

    # -- sending and pulling
    region_id: str = setting(
        "DefaultRegion", key="regionId", live=True, longest=_LONGEST_NAME, doc="MSG_REGION of answers to sends."
    )
    trace_on: bool = setting(True, key="traceOn", live=True, doc="TRACE_ON of answers to sends.")
    start_accept_send_request_time_stamp: int = setting(
        0,
        key="startAcceptSendRequestTimeStamp",
        unit="ms",
        live=True,
        lowest=0,
        highest=LONG_MAX,
        doc="Sends are refused before this time.",
    )
    max_message_size: int = setting(
        4_194_304,
        key="maxMessageSize",
        important=True,
        unit="bytes",
        live=True,
        minimum=1,
        highest=MAX_FRAME,
        doc="Largest body.",
    )
    max_topics: int = setting(
        60_000,
        key="maxTopics",
        lowest=1,
        highest=MOST_TOPICS,
        live=True,
        doc="Topics that sends and tools may make, those of the system and of retries counted; there may be more "
        "already. A nameserver takes no more than 65,536 of a broker.",
    )
    max_groups: int = setting(
        60_000,
        key="maxGroups",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Subscription groups that clients and tools may make; there may be more already.",
    )
    max_held_pulls: int = setting(
        100_000,
        key="maxHeldPulls",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Pulls that wait for messages, and as many pops; one more is answered with SYSTEM_BUSY (2). One with a "
        "long expression of its own counts for many, one more for each 512 characters.",
    )
    max_held_pulls_per_connection: int = setting(
        4_096,
        key="maxHeldPullsPerConnection",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="The same of one connection: a consumer has one for each queue.",
    )
    max_new_topics_per_hour: int = setting(
        0,
        key="maxNewTopicsPerHour",
        lowest=0,
        highest=INT_MAX,
        live=True,
        doc="Topics that the sends of one account may make within an hour; without access control those of one "
        "address. 0 = no limit.",
    )
    reject_transaction_message: bool = setting(
        False, key="rejectTransactionMessage", important=True, live=True, doc="Refuse transactional messages."
    )
    enable_property_filter: bool = setting(
        False, key="enablePropertyFilter", important=True, live=True, doc="Let consumers filter with SQL92."
    )
    filter_support_retry: bool = setting(
        False,
        key="filterSupportRetry",
        live=True,
        doc="Filter retried messages, too, by the group's SQL92 of the topic they came from.",
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        key="enableCalcFilterBitMap",
        live=True,
        doc="Note with each message which SQL92 filters want it; needs enableConsumeQueueExt.",
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        key="expectConsumerNumUseFilter",
        minimum=1,
        maximum=65_535,
        doc="SQL92 groups expected on a topic: sizes the notes.",
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        key="maxErrorRateOfBloomFilter",
        unit="%",
        minimum=1,
        maximum=99,
        doc="Messages that may be noted for a group in vain.",
    )
    filter_data_clean_time_span: int = setting(
        86_400_000,
        key="filterDataCleanTimeSpan",
        unit="ms",
        live=True,
        lowest=0,
        highest=LONG_MAX,
        doc="How long the SQL92 filter of a group that is gone is kept.",
    )
    transaction_time_out: int = setting(
        6_000,
        key="transactionTimeOut",
        unit="ms",
        live=True,
        lowest=0,
        highest=LONG_MAX,
        doc="Age of a half message when its producer is first asked.",
    )
    transaction_check_max: int = setting(
        15,
        key="transactionCheckMax",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="How often a producer is asked before the message is given up.",
    )
    transaction_check_interval: int = setting(
        60_000,
        key="transactionCheckInterval",
        unit="ms",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="How often half messages are looked at.",
    )
    store_reply_message_enable: bool = setting(
        True, key="storeReplyMessageEnable", live=True, doc="Keep replies in their topic."
    )
    long_polling_enable: bool = setting(True, key="longPollingEnable", live=True, doc="Hold pulls that find nothing.")
    short_polling_time_mills: int = setting(
        1_000,
        key="shortPollingTimeMills",
        unit="ms",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="How long they are held when long polling is off.",
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144,
        key="maxTransferBytesOnMessageInMemory",
        unit="bytes",
        live=True,
        lowest=1,
        highest=_LARGEST_ANSWER,
        doc="Most bytes of a pull from memory.",
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32,
        key="maxTransferCountOnMessageInMemory",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="Most messages of a pull from memory.",
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536,
        key="maxTransferBytesOnMessageInDisk",
        unit="bytes",
        live=True,
        lowest=1,
        highest=_LARGEST_ANSWER,
        doc="Most bytes of a pull from disk.",
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        key="maxTransferCountOnMessageInDisk",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="Most messages of a pull from disk.",
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        key="accessMessageInMemoryMaxRatio",
        unit="%",
        live=True,
        lowest=0,
        highest=100,
        doc="Share of memory that counts as 'in memory'.",
    )
    default_query_max_num: int = setting(
        32,
        key="defaultQueryMaxNum",
        live=True,
        lowest=1,
        highest=_MOST_FOUND,
        doc="Most messages of a unique-key query.",
    )
    max_msgs_num_batch: int = setting(
        64, key="maxMsgsNumBatch", live=True, lowest=1, highest=_MOST_FOUND, doc="Most messages of a key query."
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        key="messageDelayLevel",
        doc="Delays of level 1, 2, ...",
    )
    flush_delay_offset_interval: int = setting(
        10_000,
        key="flushDelayOffsetInterval",
        unit="ms",
        minimum=1,
        highest=INT_MAX,
        doc="How often delayOffset.json is written.",
    )
    timer_wheel_enable: bool = setting(
        True, key="timerWheelEnable", live=True, doc="Take messages with a delivery time of their own (TIMER_*)."
    )
    timer_max_delay_sec: int = setting(
        259_200,
        key="timerMaxDelaySec",
        unit="s",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="How far ahead such a time may be.",
    )
    timer_precision_ms: int = setting(
        1,
        key="timerPrecisionMs",
        unit="ms",
        live=True,
        lowest=1,
        highest=86_400_000,
        doc="Such times are rounded up to a multiple of it.",
    )
    recall_message_enable: bool = setting(
        True, key="recallMessageEnable", live=True, doc="Let producers recall such messages while they wait."
    )
    send_thread_pool_queue_capacity: int = setting(
        10_000,
        key="sendThreadPoolQueueCapacity",
        live=True,
        minimum=0,
        highest=INT_MAX,
        doc="Sends under way before others are refused as busy; 0 refuses all.",
    )
    broker_fast_failure_enable: bool = setting(
        True, key="brokerFastFailureEnable", live=True, doc="Refuse sends that have waited too long, too."
    )
    wait_time_mills_in_send_queue: int = setting(
        200,
        key="waitTimeMillsInSendQueue",
        unit="ms",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="Sends that were read so long ago and are not stored yet are refused as busy.",
    )
    os_page_cache_busy_time_out_mills: int = setting(
        1_000,
        key="osPageCacheBusyTimeOutMills",
        unit="ms",
        live=True,
        lowest=-1,
        highest=INT_MAX,
        doc="A write or flush of the commit log that lasts longer makes sends refused as busy; -1 refuses all.",
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False,
        key="disableConsumeIfConsumerReadSlowly",
        live=True,
        doc="Switch groups off that read from too far back; looked at every 3 minutes.",
    )
    consumer_fallbehind_threshold: int = setting(
        17_179_869_184,
        key="consumerFallbehindThreshold",
        unit="bytes",
        live=True,
        lowest=0,
        highest=LONG_MAX,
        doc="How far back in the commit log that is.",
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000,
        key="pullThreadPoolQueueCapacity",
        live=True,
        minimum=1,
        highest=INT_MAX,
        doc="Shown in the runtime information.",
    )
    query_thread_pool_queue_capacity: int = setting(
        20_000,
        key="queryThreadPoolQueueCapacity",
        live=True,
        minimum=1,
        highest=INT_MAX,
        doc="Shown in the runtime information.",
    )
    end_transaction_pool_queue_capacity: int = setting(
        100_000,
        key="endTransactionPoolQueueCapacity",
        live=True,
        minimum=1,
        highest=INT_MAX,
        doc="Shown in the runtime information.",
    )

    # -- the store
    store_path_root_dir: str = setting(
        "", key="storePathRootDir", important=True, doc="Root of the store. Default: ~/store."
    )
    store_path_commit_log: str = setting(
        "",
        key="storePathCommitLog",
        important=True,
        doc="Commit-log directories, separated by ','. Default: commitlog under the root.",
    )
    read_only_commit_log_store_paths: str = setting(
        "", key="readOnlyCommitLogStorePaths", doc="Commit-log directories that are read and get no new files."
    )
    mapped_file_size_commit_log: int = setting(
        1_073_741_824,
        key="mappedFileSizeCommitLog",
        important=True,
        unit="bytes",
        minimum=4096,
        maximum=INT_MAX,
        doc="Size of a commit-log file.",
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000,
        key="mappedFileSizeConsumeQueue",
        unit="bytes",
        minimum=20,
        maximum=INT_MAX,
        doc="Size of a consume-queue file.",
    )
    enable_consume_queue_ext: bool = setting(
        False,
        key="enableConsumeQueueExt",
        doc="Keep store time and bit map of each message in consumequeue_ext; what is there is read in any case.",
    )
    mapped_file_size_consume_queue_ext: int = setting(
        50_331_648,
        key="mappedFileSizeConsumeQueueExt",
        unit="bytes",
        minimum=4096,
        maximum=INT_MAX,
        doc="Size of a file in consumequeue_ext.",
    )
    flush_disk_type: str = setting(
        "ASYNC_FLUSH", key="flushDiskType", important=True, doc="ASYNC_FLUSH, or SYNC_FLUSH: a send waits for the disk."
    )
    sync_flush_timeout: int = setting(
        5_000, key="syncFlushTimeout", unit="ms", live=True, lowest=1, highest=INT_MAX, doc="How long it waits."
    )
    flush_interval_commit_log: int = setting(
        500,
        key="flushIntervalCommitLog",
        unit="ms",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="Pause between flushes of the commit log.",
    )
    flush_commit_log_least_pages: int = setting(
        4,
        key="flushCommitLogLeastPages",
        unit="4 KiB",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="What makes a flush worth while.",
    )
    flush_commit_log_timed: bool = setting(True, key="flushCommitLogTimed", live=True, doc="Flush by time alone.")
    flush_interval_consume_queue: int = setting(
        1_000,
        key="flushIntervalConsumeQueue",
        unit="ms",
        live=True,
        lowest=1,
        highest=INT_MAX,
        doc="Pause between writes of the queues.",
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        key="flushConsumeQueueThoroughInterval",
        unit="ms",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="How often queues are forced to disk.",
    )
    message_index_enable: bool = setting(True, key="messageIndexEnable", doc="Keep the key index.")
    max_hash_slot_num: int = setting(
        5_000_000, key="maxHashSlotNum", minimum=1, maximum=100_000_000, doc="Slots of an index file."
    )
    max_index_num: int = setting(
        20_000_000, key="maxIndexNum", minimum=2, maximum=100_000_000, doc="Entries of an index file."
    )
    check_crc_on_recover: bool = setting(True, key="checkCRCOnRecover", doc="Check bodies when recovering.")
    check_crc_in_memory: bool = setting(
        False,
        key="checkCRCInMemory",
        live=True,
        doc="Compare bodies' checksums also of messages that this process wrote and that the page cache still has. "
        "Those from the disk, and from before the start, are always compared.",
    )
    commit_log_checksum_enable: bool = setting(
        True,
        key="commitLogChecksumEnable",
        live=True,
        doc="Keep checksums of what stands beside the bodies in the commit log (topic, queue, flags, times, hosts, "
        "properties), in storePathRootDir/checksums, about 4 bytes a message; a record of RocketMQ has one of its body "
        "only. The check of the log makes them (commitLogScrubInterval).",
    )
    commit_log_checksum_on_append: bool = setting(
        False,
        key="commitLogChecksumOnAppend",
        live=True,
        doc="Have messages' checksums of what stands beside the bodies made as they are stored, and not by the check "
        "that comes by later: what changes in between is noticed then. Storing costs the processor 5 to 10 % more.",
    )
    commit_log_scrub_rate: int = setting(
        4,
        key="commitLogScrubRate",
        unit="MiB/s",
        live=True,
        minimum=0,
        maximum=100_000,
        doc="How fast the commit log's checksums are compared behind the running broker; 0 = never.",
    )
    commit_log_scrub_max_rate: int = setting(
        16,
        key="commitLogScrubMaxRate",
        unit="MiB/s",
        live=True,
        minimum=0,
        maximum=100_000,
        doc="How fast that may get where a pass would not be done before the next is due.",
    )
    commit_log_scrub_interval: int = setting(
        24,
        key="commitLogScrubInterval",
        unit="h",
        live=True,
        minimum=0,
        maximum=87_600,
        doc="From the beginning of one such pass to the next.",
    )
    file_reserved_time: int = setting(
        72,
        key="fileReservedTime",
        important=True,
        unit="h",
        live=True,
        minimum=0,
        highest=INT_MAX,
        doc="How long files are kept.",
    )
    delete_when: str = setting(
        "04", key="deleteWhen", live=True, shape=_hours, doc="Local hours of deletion, separated by ';'."
    )
    disk_max_used_space_ratio: int = setting(
        75,
        key="diskMaxUsedSpaceRatio",
        unit="%",
        live=True,
        lowest=10,
        highest=95,
        doc="Expired files go at any hour beyond it; 10 to 95.",
    )
    clean_file_forcibly_enable: bool = setting(
        True, key="cleanFileForciblyEnable", live=True, doc="Delete files of any age when the disk is nearly full."
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        key="diskSpaceCleanForciblyRatio",
        unit="%",
        lowest=10,
        highest=100,
        live=True,
        doc="What 'nearly full' is. Java 4.9: the system property rocketmq.broker.diskSpaceCleanForciblyRatio=0.85.",
    )
    disk_space_warning_level_ratio: int = setting(
        90,
        key="diskSpaceWarningLevelRatio",
        unit="%",
        lowest=10,
        highest=100,
        live=True,
        doc="Messages are refused beyond it. Java 4.9: the system property of this name behind rocketmq.broker., 0.90.",
    )
    clean_resource_interval: int = setting(
        10_000, key="cleanResourceInterval", unit="ms", minimum=1, highest=INT_MAX, doc="How often files are looked at."
    )
    delete_commit_log_files_interval: int = setting(
        100,
        key="deleteCommitLogFilesInterval",
        unit="ms",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="Pause between deleted commit-log files.",
    )
    delete_consume_queue_files_interval: int = setting(
        100,
        key="deleteConsumeQueueFilesInterval",
        unit="ms",
        live=True,
        lowest=0,
        highest=INT_MAX,
        doc="Pause between deleted queue files.",
    )

    enable_lmq: bool = setting(
        False, key="enableLmq", doc="Light message queues: every %LMQ% name is a topic of one queue, without config."
    )
    enable_multi_dispatch: bool = setting(
        False, key="enableMultiDispatch", doc="Put a message into every queue its INNER_MULTI_DISPATCH names, too."
    )
    max_lmq_consume_queue_num: int = setting(
        20_000,
        key="maxLmqConsumeQueueNum",
        lowest=0,
        highest=INT_MAX,
        doc="Light queues; new ones beyond it are refused.",
    )

    # -- statistics and administration
    enable_detail_stat: bool = setting(
        True, key="enableDetailStat", important=True, live=True, doc="Keep latencies per queue."
    )
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath", key="configBlackList", doc="Keys that request 25 refuses, separated by ';'."
    )
    acl_config_shows_secrets: bool = setting(
        False, key="aclConfigShowsSecrets", doc="As Java up to 4.9.7: request 54 answers with the secrets of accounts."
    )
    authentication_enabled: bool = setting(
        False, key="authenticationEnabled", doc="Access control of 5.x: not available, true is refused; see aclEnable."
    )
    authorization_enabled: bool = setting(
        False, key="authorizationEnabled", doc="Access control of 5.x: not available, true is refused; see aclEnable."
    )
    enable_dleger_commit_log: bool = setting(
        False,
        key="enableDLegerCommitLog",
        important=True,
        doc="The broker is one of a group of three, five or seven, which elects its master by itself.",
    )
    d_leger_group: str = setting(
        "", key="dLegerGroup", longest=_LONGEST_NAME, doc="Name of that group. Default: the brokerName."
    )
    d_leger_peers: str = setting(
        "", key="dLegerPeers", doc="Its members, the same for all: n0-host:port;n1-host:port;n2-host:port."
    )
    d_leger_self_id: str = setting("", key="dLegerSelfId", doc="Which of them this broker is: n0, n1 ...")
    preferred_leader_id: str = setting(
        "",
        key="preferredLeaderId",
        doc="The member that is to be the master whenever it can; of several, separated by ';', the one that has most. "
        "Default: whoever is.",
    )
    raft_election_timeout: int = setting(
        1000,
        key="raftElectionTimeout",
        unit="ms",
        minimum=200,
        maximum=60_000,
        doc="Time without a word of the master after which others of the group want to be it, and up to twice that.",
    )
    broker_config_path: str = setting("", key="brokerConfigPath", doc="The file given with -c; request 25 rewrites it.")

    def validate(self) -> None:
        """Refuse what this broker cannot be.

        :raises ConfigError: names the key and what to do.
        """
        for key, wanted in (
            ("authenticationEnabled", self.authentication_enabled),
            ("authorizationEnabled", self.authorization_enabled),
        ):
            if wanted:
                raise self.refused(
                    key, "that of 5.x is not available, aclEnable is (docs/acl.md): without, the broker would be open"
                )
        self.check_acl()
        self._one_of("brokerRole", _ROLES)
        self._one_of("flushDiskType", _FLUSH_TYPES)
        if not self.enable_dleger_commit_log:
            self._check_role()
        for key in ("brokerName", "brokerClusterName"):
            if any(c.isspace() or c in ",;" for c in self.get(key)):
                raise self.refused(key, "must have no blanks, commas or semicolons")
        try:
            DelayLevels(self.message_delay_level)
        except ConfigError as error:
            raise self.refused("messageDelayLevel", str(error)) from None
        try:
            addresses.parse_list(self.namesrv_addr)
        except ConfigError as error:
            raise self.refused("namesrvAddr", str(error)) from None
        try:
            addresses.parse_networks(self.ha_allowed_addresses)
        except ConfigError as error:
            raise self.refused("haAllowedAddresses", str(error)) from None
        if self.ha_master_address:
            try:
                addresses.parse(self.ha_master_address)
            except ConfigError as error:
                raise self.refused("haMasterAddress", str(error)) from None
        for key in ("brokerIP1", "brokerIP2"):
            host = self.get(key)
            if host.count(":") == 1 or any(c.isspace() or c in ",;/[]" for c in host):
                raise self.refused(key, "one address or name, without a port, is expected")
        fault = topic_name_fault(self.msg_trace_topic_name) if self.trace_topic_enable else None
        if fault is None and self.msg_trace_topic_name in BROKER_TOPICS:
            fault = "this topic is the broker's own: name another one"
        if fault is not None:
            raise self.refused("msgTraceTopicName", fault)

    def _check_role(self) -> None:
        if self.broker_role == "SLAVE":
            if self.broker_id <= MASTER_ID:
                raise self.refused("brokerId", "a SLAVE has an id above 0 that no other slave of its brokerName has")
        elif self.broker_id != MASTER_ID:
            raise self.refused("brokerId", f"a {self.broker_role} has brokerId {MASTER_ID}")

    def left_to_group(self) -> list[str]:
        """What is set, as ``key=value``, and means nothing where a group says who is what.

        It is accepted: request 25 has a member of Java's write what it is at that time, SLAVE and 2, into its file.
        """
        return [f"{key}={self.get(key)}" for key in _OF_PAIRS if self.get(key) != self._by_key[key].default]

    def _one_of(self, key: str, allowed: tuple[str, ...]) -> None:
        if self.get(key) not in allowed:
            raise self.refused(key, f"must be one of {', '.join(allowed)}")

    def ha_networks(self) -> list[addresses.Network]:
        """Who gets the commit log; nobody named: everybody does.

        The stream has no accounts: where requests need one, the log is not everybody's either. A certificate does not
        stand for one: applications have them, too.
        """
        named = addresses.parse_networks(self.ha_allowed_addresses)
        if named or not self.acl_enable:
            return named
        own = ["127.0.0.0/8", "::1"]
        for host in (self.broker_ip1, self.broker_ip2):
            with contextlib.suppress(ConfigError):  # a name
                addresses.parse_networks(host)
                own.append(host)
        return addresses.parse_networks(";".join(own))

    def settle(self, identity: Identity) -> Advertised | None:
        """Fill in what depends on the machine, then check everything.

        :returns: the address that was chosen, when brokerIP1 was not given.
        :raises ConfigError: names the key and what to do.
        """
        chosen = None
        if not self.broker_ip1:
            chosen = choose_address(identity.addresses())
            self.broker_ip1 = chosen.address
        if not self.broker_ip2:
            self.broker_ip2 = self.broker_ip1
        # IPv6 addresses are written with and without brackets.
        self.broker_ip1, self.broker_ip2 = addresses.bare(self.broker_ip1), addresses.bare(self.broker_ip2)
        if not self.broker_name:
            self.broker_name = identity.hostname
        self.complete_paths()
        self.ha_listen_port = self.listen_port + 1
        self.validate()
        return chosen

    def complete_paths(self) -> None:
        """Say where the store is when nobody did."""
        if not self.store_path_root_dir:
            self.store_path_root_dir = os.path.join(os.path.expanduser("~"), "store")
        if not self.store_path_commit_log:
            self.store_path_commit_log = os.path.join(self.store_path_root_dir, "commitlog")

    def config_path(self, name: str) -> str:
        """Path of a metadata file under the store's root."""
        return f"{self.store_path_root_dir}/config/{name}"

    def store_settings(self) -> StoreSettings:
        """The store's part."""
        store = StoreSettings(
            root=self.store_path_root_dir,
            commit_log_paths=_paths(self.store_path_commit_log),
            read_only_paths=_paths(self.read_only_commit_log_store_paths),
            commit_log_file_size=self.mapped_file_size_commit_log,
            queue_file_size=self.mapped_file_size_consume_queue,
            ext_enable=self.enable_consume_queue_ext,
            ext_file_size=self.mapped_file_size_consume_queue_ext,
            sync_flush=self.flush_disk_type == "SYNC_FLUSH",
            sync_master=self.broker_role == "SYNC_MASTER" or self.enable_dleger_commit_log,
            group=self.enable_dleger_commit_log,
            ack_slaves=self.ha_ack_slaves,
            index_enable=self.message_index_enable,
            index_slots=self.max_hash_slot_num,
            index_entries=self.max_index_num,
            check_crc_on_recover=self.check_crc_on_recover,
            clean_interval_ms=self.clean_resource_interval,
            delays_ms=DelayLevels(self.message_delay_level).delays,
            multi_dispatch=self.enable_multi_dispatch,
            lmq=self.enable_lmq,
            most_lmq=self.max_lmq_consume_queue_num,
        )
        self.apply_to(store)
        return store

    def apply_to(self, store: StoreSettings) -> None:
        """Hand the keys that may change while running to the store."""
        for target, source in self._LIVE_STORE.items():
            setattr(store, target, getattr(self, source))

    _LIVE_STORE: ClassVar[dict[str, str]] = {
        "flush_interval_ms": "flush_interval_commit_log",
        "flush_least_pages": "flush_commit_log_least_pages",
        "flush_timed": "flush_commit_log_timed",
        "sync_flush_timeout_ms": "sync_flush_timeout",
        "slave_timeout_ms": "slave_timeout",
        "queue_flush_interval_ms": "flush_interval_consume_queue",
        "queue_thorough_interval_ms": "flush_consume_queue_thorough_interval",
        "check_crc_in_memory": "check_crc_in_memory",
        "checksums": "commit_log_checksum_enable",
        "checksums_on_append": "commit_log_checksum_on_append",
        "scrub_rate_mib": "commit_log_scrub_rate",
        "scrub_most_mib": "commit_log_scrub_max_rate",
        "scrub_interval_hours": "commit_log_scrub_interval",
        "delete_log_pause_ms": "delete_commit_log_files_interval",
        "delete_queue_pause_ms": "delete_consume_queue_files_interval",
        "file_reserved_hours": "file_reserved_time",
        "delete_when": "delete_when",
        "disk_max_used_percent": "disk_max_used_space_ratio",
        "clean_forcibly": "clean_file_forcibly_enable",
        "disk_clean_forcibly_percent": "disk_space_clean_forcibly_ratio",
        "disk_warning_percent": "disk_space_warning_level_ratio",
    }


def _paths(text: str) -> tuple[str, ...]:
    return tuple(path.strip() for path in text.split(",") if path.strip())

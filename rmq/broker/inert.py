"""Java's broker settings that have no effect here, each with the reason: those of 4.9, and behind them those of 5.3."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.broker.inert_5 import of_5

__all__ = ["WITHOUT_EFFECT"]

_NO_POOLS = "requests are served on one event loop, there are no thread pools"
_NO_QUEUES = "requests do not wait in queues"
_BY_COMMITS = "records are written to the page cache at once, there is no buffer pool in between"
_NO_NETTY = "the transport is not Netty"
_NO_DLEDGER = "a group's log is the plain commit log, and goes to its members in spans"
_NO_HA = "slaves are those of 4.9, and a group elects its master with enableDLegerCommitLog, without a controller"
_UNUSED = "Java does not use it either"

#: Java's keys that are accepted and do nothing here, with the reason.
WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "sendMessageThreadPoolNums", "putMessageFutureThreadPoolNums", "pullMessageThreadPoolNums",
            "processReplyMessageThreadPoolNums", "queryMessageThreadPoolNums", "adminBrokerThreadPoolNums",
            "clientManageThreadPoolNums", "consumerManageThreadPoolNums", "heartbeatThreadPoolNums",
            "endTransactionThreadPoolNums", "serverWorkerThreads", "serverCallbackExecutorThreads",
            "serverSelectorThreads", "clientWorkerThreads", "clientCallbackExecutorThreads",
            "useReentrantLockWhenPutMessage", "debugLockEnable",
        ),
        _NO_POOLS,
    ),
    **dict.fromkeys(
        (
            "putThreadPoolQueueCapacity", "replyThreadPoolQueueCapacity", "clientManagerThreadPoolQueueCapacity",
            "consumerManagerThreadPoolQueueCapacity", "heartbeatThreadPoolQueueCapacity", "waitTimeMillsInPullQueue",
            "waitTimeMillsInHeartbeatQueue",
            "waitTimeMillsInTransactionQueue", "serverOnewaySemaphoreValue", "serverAsyncSemaphoreValue",
            "clientOnewaySemaphoreValue", "clientAsyncSemaphoreValue",
        ),
        _NO_QUEUES,
    ),
    **dict.fromkeys(
        (
            "transientStorePoolEnable", "transientStorePoolSize", "fastFailIfNoBufferInStorePool",
            "commitIntervalCommitLog", "commitCommitLogLeastPages", "commitCommitLogThoroughInterval",
        ),
        _BY_COMMITS,
    ),
    **dict.fromkeys(
        (
            "serverSocketSndBufSize", "serverSocketRcvBufSize", "writeBufferHighWaterMark", "writeBufferLowWaterMark",
            "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector", "connectTimeoutMillis",
            "channelNotActiveInterval", "clientChannelMaxIdleTimeSeconds", "clientSocketSndBufSize",
            "clientSocketRcvBufSize", "clientPooledByteBufAllocatorEnable", "clientCloseSocketIfTimeout", "useTLS",
        ),
        _NO_NETTY,
    ),
    **dict.fromkeys(
        (
            "enableBatchPush", "isEnableBatchPush", "storePathDLedgerCommitLog",
        ),
        _NO_DLEDGER,
    ),
    **dict.fromkeys(
        (
            "flushConsumerOffsetHistoryInterval", "filterServerNums", "highSpeedMode", "maxDelayTime",
            "putMsgIndexHightWater", "commercialEnable", "commercialTimerCount", "commercialTransCount",
            "commercialBigCount", "commercialBaseCount",
        ),
        _UNUSED,
    ),
    **dict(of_5(_NO_POOLS, _NO_QUEUES, _NO_HA, _NO_NETTY)),
    "autoDeleteUnusedStats": "what was counted for deleted topics and groups is forgotten in any case",
    "transferMsgByHeap": "messages are handed out one way only",
    "messageStorePlugIn": "Java classes cannot be loaded",
    "isolateLogEnable": "logs go where conf/logging.yaml says",
    "destroyMapedFileIntervalForcibly": "files in use do not keep their names from being removed",
    "redeleteHangedFileInterval": "files in use do not keep their names from being removed",
    "flushLeastPagesWhenWarmMapedFile": "files are not mapped",
    "bitMapLengthConsumeQueueExt": "a bit map is as long as the filters make it, as in Java",
    "warmMapedFileEnable": "files are written, not mapped: there are no pages to touch and lock beforehand",
    "duplicationEnable": "consumers see what is as durable as configured, there is no confirm offset",
    "flushConsumeQueueLeastPages": "queues are written at 4 KiB",
    "flushCommitLogThoroughInterval": "every flush is thorough",
    "messageIndexSafe": "recovery rebuilds the index from the commit log",
    "diskFallRecorded": "how far a group is behind is computed when asked for",
    "enableScheduleMessageStats": "deliveries of delayed messages are counted like every append",
    "enableScheduleAsyncDeliver": "delayed messages are delivered in batches",
    "scheduleAsyncDeliverMaxPendingLimit": "delayed messages are delivered in batches",
    "scheduleAsyncDeliverMaxResendNum2Blocked": "delayed messages are delivered in batches",
}  # fmt: skip

"""What a Java 5.3.3 broker reads beyond 4.9, and what has no effect here, with the reason.

The keys are those of its classes BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig and AuthConfig:
the names of their setters and fields, as a reflecting program printed them of the published jars. A broker.conf of that
version, and what its getBrokerConfig prints, starts a broker here.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["of_5"]

_ROCKS = "queues and metadata are files, as in 4.9"
_COMPACTION = "topics are not compacted"
_BATCH_QUEUES = "a queue has an entry a message, as in 4.9"
_ACCESS = "access control is that of 4.9 (aclEnable)"
_POP = "POP keeps its books another way"
_ASSIGNMENT = "queues are assigned as the group asks"
_TIMERS = "timers keep their books another way (docs/delays.md)"
_COLD = "files are not mapped, and cold reads are off the loop"
_EXPORTERS = "metrics are served to Prometheus alone"
_REGISTRATION = "a registration has all topics or, to a name server of ours, the changes"
_STATISTICS = "what is counted is in docs/metrics.md"
_RECOVERY = "a start checks what may have been lost (docs/durability.md)"
_RETENTION = "files are deleted as deleteWhen and the disk ratios say"
_LIMITS = "sizes have bounds of their own"
_TRANSACTIONS = "ends of transactions are stored one by one"
_CLIENTS = "nothing here depends on it"


def of_5(no_pools: str, no_queues: str, no_ha: str, no_netty: str) -> Iterator[tuple[str, str]]:
    """(key, why it has no effect).

    The reasons are those of the keys of 4.9.
    """
    for keys, why in (
        (
            "ackMessageThreadPoolNums asyncSendEnable batchDispatchRequestThreadPoolNums compactionThreadNum "
            "disableCallbackExecutor disableNettyWorkerGroup dispatchCqThreads dispatchFromSenderThread "
            "enableAsyncReput enableBuildConsumeQueueConcurrently enableFastChannelEventProcess "
            "litePullMessageThreadPoolNums loadBalanceProcessorThreadPoolNums recoverConcurrently "
            "recoverThreadPoolNums serverNettyWorkerGroupEnable spinLockCollisionRetreatOptimalDegree "
            "timerEnableDisruptor timerGetMessageThreadNum timerPutMessageThreadNum topicQueueLockNum useABSLock",
            no_pools,
        ),
        (
            "ackThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity dispatchCqCacheNum "
            "litePullThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests "
            "putMessageTimeout waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue",
            no_queues,
        ),
        (
            "bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin configManagerVersion "
            "enableRocksDBLog maxOffsetMapSize memTableFlushIntervalMs popConsumerFSServiceInit "
            "popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog realTimePersistRocksDBConfig "
            "rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency "
            "rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storeType",
            _ROCKS,
        ),
        (
            "compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal enableCompaction",
            _COMPACTION,
        ),
        (
            "mapperFileSizeBatchConsumeQueue maxConsumeQueueScan pullBatchMaxMessageCount sampleCountThreshold "
            "sampleSteps searchBcqByCacheEnable travelCqFileNumWhenGetMessage",
            _BATCH_QUEUES,
        ),
        (
            "aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath authenticationMetadataProvider "
            "authenticationProvider authenticationStrategy authenticationWhitelist authorizationMetadataProvider "
            "authorizationProvider authorizationStrategy authorizationWhitelist clusterName configName "
            "initAuthenticationUser innerClientAuthenticationCredentials migrateAuthFromV1Enabled "
            "statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum "
            "statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond "
            "userCacheMaxNum userCacheRefreshSecond",
            _ACCESS,
        ),
        (
            "appendAckAsync appendCkAsync defaultMessageRequestMode defaultPopShareQueueNum "
            "enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck "
            "enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2 enableSkipLongAwaitingAck "
            "initPopOffsetByCheckMsgInMem maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize "
            "popCkStayBufferTime popCkStayBufferTimeOut popFromRetryProbability popInflightMessageThreshold "
            "popLongPollingForceNotifyInterval popPollingMapSize popPollingSize popResponseReturnActualRetryTopic "
            "popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead retrieveMessageFromPopRetryTopicV1 "
            "reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime skipWhenCKRePutReachMaxTimes",
            _POP,
        ),
        (
            "loadBalancePollNameServerInterval serverLoadBalancerEnable",
            _ASSIGNMENT,
        ),
        (
            "mappedFileSizeTimerLog timerCheckMetricsWhen timerColdDataCheckIntervalMs timerCongestNumEachSlot "
            "timerEnableCheckMetrics timerEnableRetryUntilSuccess timerFlushIntervalMs timerInterceptDelayLevel "
            "timerMetricSmallThreshold timerProgressLogIntervalMs timerRollWindowSlot timerSkipUnknownError "
            "timerStopDequeue timerStopEnqueue timerWarmEnable",
            _TIMERS,
        ),
        (
            "accessMessageInMemoryHotRatio cgColdReadThreshold cleanSwapedMapInterval coldCtrStrategyEnable "
            "coldDataFlowControlEnable coldDataScanEnable commitLogForceSwapMapInterval commitLogSwapMapInterval "
            "commitLogSwapMapReserveFileNum dataReadAheadEnable globalColdReadThreshold "
            "logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum "
            "mappedFileSwapEnable putConsumeQueueDataByFileChannel usePIDColdCtrStrategy wakeCommitWhenPutMessage "
            "wakeFlushWhenPutMessage",
            _COLD,
        ),
        (
            "allAckInSyncStateSet asyncLearner brokerElectionPriority brokerHeartbeatInterval "
            "brokerNotActiveTimeoutMillis checkSyncStateSetPeriod compatibleWithOldNameSrv controllerAddr "
            "controllerHeartBeatTimeoutMills disappearTimeAfterStart enableAutoInSyncReplicas enableControllerMode "
            "enableRemoteEscape enableSlaveActingMaster fetchControllerAddrByDnsLookup haFlowControlEnable "
            "haMaxGapNotInSync haMaxTimeSlaveNotCatchup inBrokerContainer inSyncReplicas isBrokerContainer "
            "isInBrokerContainer lockInStrictMode maxHaTransferByteInSecond maxSlaveResendLength minInSyncReplicas "
            "readUnCommitted replicasPerDiskPartition sendHeartbeatTimeoutMillis skipPreOnline "
            "storePathBrokerIdentity storePathEpochFile syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod "
            "syncControllerMetadataPeriod syncFromLastFile syncMasterFlushOffsetWhenStartup totalReplicas",
            no_ha,
        ),
        (
            "metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills "
            "metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel "
            "metricsOtelCardinalityLimit",
            _EXPORTERS,
        ),
        (
            "enableSingleTopicRegister enableSplitRegistration fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval "
            "splitRegistrationSize updateNameServerAddrPeriod",
            _REGISTRATION,
        ),
        (
            "accountStatsEnable accountStatsPrintZeroValues commercialSizePerMsg enableLmqStats estimateAccumulation "
            "maxStatsIdleTimeInMinutes printChannelGroups printChannelGroupsMinNum",
            _STATISTICS,
        ),
        (
            "enableReconnectForGoAway enableShutdownGracefully isScanAvailableNameSrv maxReconnectIntervalTimeSeconds "
            "scanAvailableNameSrv shutdownWaitTimeSeconds socksProxyConfig",
            no_netty,
        ),
        (
            "autoMessageVersionOnTopicLen correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval "
            "enabledAppendPropCRC forceVerifyPropCRC maxChecksumRange maxRecoveryCommitlogFiles "
            "recheckReputOffsetFromCq",
            _RECOVERY,
        ),
        (
            "cleanOfflineBrokerInterval deleteFileBatchMax enableCleanExpiredOffset "
            "logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum",
            _RETENTION,
        ),
        (
            "enableNetWorkFlowControl maxFilterMessageSize maxTopicLength",
            _LIMITS,
        ),
        (
            "transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize",
            _TRANSACTIONS,
        ),
        (
            "allowRecallWhenBrokerNotWriteable broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond "
            "channelExpiredTimeout clearRetryTopicWhenDeleteTopic consumerOffsetUpdateVersionStep "
            "delayOffsetUpdateVersionStep enableBroadcastOffsetStore enableCreateSysGroup enableMixedMessageType "
            "enableRegisterProducer forwardTimeout litePullMessageEnable realTimeNotifyConsumerChange "
            "rejectPullConsumerEnable subscriptionExpiredTimeout useServerSideResetOffset useStaticSubscription "
            "validateSystemTopicWhenUpdateTopic",
            _CLIENTS,
        ),
    ):
        for key in keys.split():
            yield key, why

"""Settings of the nameserver, a line a key (store-and-broker.md 10.4); docs/settings.md is made from this table."""

from __future__ import annotations

import os

from rmq.auth.settings import AclSettings
from rmq.config.settings import INT_MAX, LONG_MAX, setting
from rmq.protocol.bodies.topic import MOST_TOPICS

__all__ = ["JAVA_DEFAULTS", "NamesrvSettings", "expand"]

_NETTY = "it tunes Java's network library"
_POOLS = "requests are served on one event loop"
_CONTROLLER = "there is no controller here"
_ALWAYS = "it is always so here"
_TEST = "it serves a test environment inside Alibaba"
#: Keys of Java's nameserver without effect here, and why.
_INERT = {
    "productEnvName": _TEST,
    "clusterTest": _TEST,
    "serverWorkerThreads": _NETTY,
    "serverCallbackExecutorThreads": _NETTY,
    "serverSelectorThreads": _NETTY,
    "serverOnewaySemaphoreValue": _NETTY,
    "serverAsyncSemaphoreValue": _NETTY,
    "serverSocketSndBufSize": _NETTY,
    "serverSocketRcvBufSize": _NETTY,
    "writeBufferHighWaterMark": _NETTY,
    "writeBufferLowWaterMark": _NETTY,
    "serverPooledByteBufAllocatorEnable": _NETTY,
    "useEpollNativeSelector": _NETTY,
    # 5.3.3 reads these besides: NamesrvConfig, the two of Netty, and ControllerConfig; the names are of its jars.
    **dict.fromkeys(
        (
            "channelNotActiveInterval", "clientAsyncSemaphoreValue", "clientCallbackExecutorThreads",
            "clientChannelMaxIdleTimeSeconds", "clientCloseSocketIfTimeout", "clientOnewaySemaphoreValue",
            "clientPooledByteBufAllocatorEnable", "clientSocketRcvBufSize", "clientSocketSndBufSize",
            "clientWorkerThreads", "connectTimeoutMillis", "disableCallbackExecutor", "disableNettyWorkerGroup",
            "enableReconnectForGoAway", "enableShutdownGracefully", "isScanAvailableNameSrv",
            "maxReconnectIntervalTimeSeconds", "scanAvailableNameSrv", "serverNettyWorkerGroupEnable",
            "shutdownWaitTimeSeconds", "socksProxyConfig", "useTLS",
        ),
        _NETTY,
    ),
    **dict.fromkeys(
        (
            "clientRequestThreadPoolNums", "clientRequestThreadPoolQueueCapacity", "defaultThreadPoolNums",
            "defaultThreadPoolQueueCapacity", "unRegisterBrokerQueueCapacity",
        ),
        _POOLS,
    ),
    **dict.fromkeys(
        (
            "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId",
            "controllerRequestThreadPoolQueueCapacity", "controllerStorePath", "controllerThreadPoolNums",
            "controllerType", "electMasterMaxRetryCount", "enableControllerInNamesrv", "enableElectUncleanMaster",
            "isProcessReadEvent", "jraftConfig", "mappedFileSize", "metricGrpcExporterIntervalInMills",
            "metricGrpcExporterTimeOutInMills", "metricLoggingExporterIntervalInMills", "metricsGrpcExporterHeader",
            "metricsGrpcExporterTarget", "metricsInDelta", "metricsLabel", "notifyBrokerRoleChanged",
            "processReadEvent", "scanInactiveMasterInterval",
        ),
        _CONTROLLER,
    ),
    "enableTopicList": _ALWAYS,
    "enableAllTopicList": _ALWAYS,
    "returnOrderTopicConfigToBroker": _ALWAYS,
    "deleteTopicWithBrokerRegistration": "a registration removes no topic; deleting it at the name server does",
    "needWaitForService": "a client that asks too early asks another nameserver",
    "waitSecondsForService": "a client that asks too early asks another nameserver",
    "notifyMinBrokerIdChanged": "slaves do not act as masters",
    "supportActingMaster": "slaves do not act as masters",
    "scanNotActiveBrokerInterval": "silent brokers are looked for every 10 s",
}  # fmt: skip
#: Java's values of those keys: tools that read a nameserver's settings expect every one of them.
JAVA_DEFAULTS = {
    "productEnvName": "center",
    "clusterTest": "false",
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverAsyncSemaphoreValue": "64",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    "serverPooledByteBufAllocatorEnable": "true",
    "useEpollNativeSelector": "false",
}


class NamesrvSettings(AclSettings):
    """Java: NamesrvConfig and the server half of the Netty configuration."""

    inert = _INERT
    #: Refused with 16 by request 318, besides what ``configBlackList`` says.
    black_list = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

    listen_port: int = setting(
        9876, key="listenPort", minimum=0, maximum=65535, doc="Where brokers and clients connect."
    )
    bind_address: str = setting(
        "", key="bindAddress", doc="The address to listen on; empty is every interface, IPv4 and IPv6."
    )
    kv_config_path: str = setting(
        "~/namesrv/kvConfig.json", key="kvConfigPath", unit="path", doc="Where key-value settings are kept."
    )
    config_store_path: str = setting(
        "~/namesrv/namesrv.properties",
        key="configStorePath",
        unit="path",
        doc="Where updateNamesrvConfig writes changed keys; the -c file when one is given.",
    )
    order_message_enable: bool = setting(
        False,
        key="orderMessageEnable",
        live=True,
        doc="Add a topic's queue map (namespace ORDER_TOPIC_CONFIG) to its route.",
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        key="configBlackList",
        doc="Keys, by ';', that updateNamesrvConfig refuses with code 16, besides those always refused.",
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        lowest=0,
        highest=INT_MAX,
        unit="s",
        doc="A connection without traffic for this time is closed; 0 = never.",
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
    max_brokers: int = setting(
        10_000,
        key="maxBrokers",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Brokers, masters and slaves, that may be registered; one more is refused.",
    )
    max_clusters: int = setting(
        1_000, key="maxClusters", lowest=1, highest=INT_MAX, live=True, doc="The same of the clusters that they name."
    )
    max_topics: int = setting(
        1_000_000,
        key="maxTopics",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Topics of all brokers together: a registration that would make more is refused.",
    )
    max_topics_per_broker: int = setting(
        MOST_TOPICS,
        key="maxTopicsPerBroker",
        lowest=1,
        highest=MOST_TOPICS,
        live=True,
        doc="Topics of one registration; one with more is refused.",
    )
    max_kv_bytes: int = setting(
        4 << 20,
        key="maxKvBytes",
        unit="bytes",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Key-value settings together: all of them are in one file, which each change writes.",
    )
    server_socket_backlog: int = setting(
        1024, key="serverSocketBacklog", lowest=1, highest=65_535, doc="Connections that may wait to be accepted."
    )
    metrics_prom_exporter_port: int = setting(
        5558, key="metricsPromExporterPort", minimum=0, maximum=65535, doc="Port of /metrics and /health."
    )


def expand(path: str) -> str:
    """``~/`` at the beginning of a path is the home folder, as Java's defaults are."""
    return os.path.expanduser(path) if path.startswith("~/") else path

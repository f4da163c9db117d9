"""The settings of producers and consumers, with Java's defaults (client.md 1 to 4).

Each ``...Options`` class lists the keyword arguments of a constructor; the settings class of the same name holds their
values. Durations are seconds (int or float) or a ``datetime.timedelta``.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Self, TypedDict, TypeVar

from rmq.client.allocate import AllocateMessageQueueStrategy, allocation_strategy
from rmq.client.checks import check_flag, check_topic, check_word, seconds
from rmq.client.foreign import looks_like_milliseconds, no_setting
from rmq.client.hooks import Hook
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace, namespace_of
from rmq.client.offset_storage import OffsetStorage
from rmq.client.shown import shown
from rmq.client.tls import check_tls
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.frame import MAX_FRAME
from rmq.protocol.plain import plain
from rmq.runtime.aside import logger

__all__ = [
    "AccessChannel",
    "AdminOptions",
    "AdminSettings",
    "ClientOptions",
    "ClientSettings",
    "ConsumeFromWhere",
    "Duration",
    "LitePullConsumerOptions",
    "LitePullConsumerSettings",
    "MessageModel",
    "ProducerOptions",
    "ProducerSettings",
    "PullConsumerOptions",
    "PullConsumerSettings",
    "PushConsumerOptions",
    "PushConsumerSettings",
    "ScheduledPullConsumerOptions",
    "ScheduledPullConsumerSettings",
    "TracedSettings",
    "TransactionProducerOptions",
    "TransactionProducerSettings",
    "check_names",
    "lists_options",
]

log = logger(__name__)

Duration = float | timedelta
#: Of these 0 is a loop without a pause, or a call that cannot end well; the least is Java's, a millisecond.
_PAUSES = frozenset({
    "poll_name_server_interval", "heartbeat_broker_interval", "persist_consumer_offset_interval",
    "pull_time_delay_when_exception", "mq_client_api_timeout", "send_msg_timeout", "consume_timeout",
    "rebalance_interval", "consumer_pull_timeout", "send_msg_max_timeout_per_request",
    "auto_commit_interval", "topic_metadata_check_interval",
})  # fmt: skip
#: What no error shows.
_SECRET = frozenset({"secret_key", "security_token", "tls_key_password"})
_INT_MAX = (1 << 31) - 1
#: Bytes of a pull, about.
_PULL_BYTES = 256 << 10
#: Threads for the listeners of one consumer (Java: consumeThreadMin and consumeThreadMax).
_THREADS = 20
E = TypeVar("E", bound=Enum)
T = TypeVar("T")


class MessageModel(Enum):
    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class AccessChannel(Enum):
    """Whose brokers they are: one's own, or those of a provider."""

    LOCAL = "LOCAL"
    CLOUD = "CLOUD"


class ConsumeFromWhere(Enum):
    """Where a group starts in a queue for which it has no offset yet; it never moves a group that has one."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of every client; docs/sdk.md has each setting with its default.

    ``namesrv``: ``host:port`` list separated by ``;`` (default: the environment's NAMESRV_ADDR, then the HTTP address
    server). ``namespace``: what brokers have in front of the names of topics and groups (default: the instance that the
    name server's address is of, ``MQ_INST_...``, if any). ``client_ip``: our address in the client id.
    ``instance_name``: clients of one process with the same one, if it is not DEFAULT, share connections and heartbeats.
    ``tls``: True, or an ``ssl.SSLContext``; servers are verified: by ``tls_ca_file`` or what this machine trusts,
    and by the name called or ``tls_server_name`` (``tls_check_hostname``); ``tls_verify=False`` takes any certificate.
    ``tls_cert_file`` and ``tls_key_file``: what they are shown; ``tls_key_password`` or ``tls_key_password_file`` opens
    the key. Without any of these: what ``credentials_file`` says, else ROCKETMQ_TLS, ROCKETMQ_TLS_CA_FILE and so on.
    ``vip_channel``: send to port - 2. ``hooks``: what an application hangs in.
    ``access_key``, ``secret_key`` and ``security_token``: the account that requests are signed with; else what the YAML
    ``credentials_file`` says, else the environment's ROCKETMQ_ACCESS_KEY, _SECRET_KEY and _SECURITY_TOKEN, or the file
    that its ROCKETMQ_CREDENTIALS_FILE names.
    """

    namesrv: str | None
    namespace: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    poll_name_server_interval: Duration
    heartbeat_broker_interval: Duration
    persist_consumer_offset_interval: Duration
    pull_time_delay_when_exception: Duration
    mq_client_api_timeout: Duration
    vip_channel: bool
    tls: bool | ssl.SSLContext | None
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_key_password: str | None
    tls_key_password_file: str | None
    tls_server_name: str | None
    tls_verify: bool | None
    tls_check_hostname: bool | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    credentials_file: str | None
    hooks: Sequence[Hook]


class AdminOptions(ClientOptions, total=False):
    """Keyword arguments of an AdminClient."""


class TracedOptions(ClientOptions, total=False):
    """Keyword arguments of what sends or consumes.

    ``enable_msg_trace``: write records of its messages to the trace topic: RMQ_SYS_TRACE_TOPIC, or
    ``customized_trace_topic``; with ``access_channel`` CLOUD one that brokers of a provider have for their region.
    """

    enable_msg_trace: bool
    customized_trace_topic: str | None
    access_channel: AccessChannel | str


class ProducerOptions(TracedOptions, total=False):
    """Keyword arguments of a Producer.

    ``send_msg_timeout`` bounds a whole call, retries included. ``compress_type``: ZLIB (every client reads it), LZ4 or
    ZSTD (4.9.4 and later, needs the extra of that name). ``compress_msg_body_over``: bytes from which bodies are
    compressed. ``retry_response_codes``: answers that lead to another broker. ``back_pressure_for_async_send_num`` and
    ``back_pressure_for_async_send_size`` (bytes): sends under way at once; more wait for their turn, unless
    ``enable_backpressure_for_async_mode`` is False. ``send_msg_max_timeout_per_request``: for one try.
    ``topics``: their routes are asked for at the start. ``auto_batch``: single sends of one topic are joined, up to
    ``batch_max_bytes`` and for ``batch_max_delay`` at most; ``total_batch_max_bytes`` of all topics wait so.
    """

    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: Duration
    compress_msg_body_over: int
    compress_type: str
    compress_level: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: Set[int] | list[int] | tuple[int, ...]
    max_message_size: int
    send_latency_fault_enable: bool
    enable_backpressure_for_async_mode: bool
    back_pressure_for_async_send_num: int
    back_pressure_for_async_send_size: int
    send_msg_max_timeout_per_request: Duration | None
    auto_batch: bool
    batch_max_delay: Duration
    batch_max_bytes: int
    total_batch_max_bytes: int
    topics: list[str] | tuple[str, ...]


class TransactionProducerOptions(ProducerOptions, total=False):
    """Keyword arguments of a TransactionProducer.

    ``check_thread_pool_max_size``: checks by a plain function at a time; threads beyond ``check_thread_pool_min_size``
    end when nothing is to do for a minute. ``check_request_hold_max``: checks that wait; brokers ask again about those
    beyond it.
    """

    check_thread_pool_min_size: int
    check_thread_pool_max_size: int
    check_request_hold_max: int


class ConsumerOptions(TracedOptions, total=False):
    """Keyword arguments of every consumer.

    ``allow_mixed_subscriptions``: members of one group in this process may subscribe differently; brokers keep one
    subscription a group, so that messages are lost unless you know better. ``offset_store``: keeps the group's offsets
    instead of its brokers. ``offset_store_dir``: where a broadcasting group keeps its offsets (default:
    ``~/.rocketmq_offsets``). ``allocate_message_queue_strategy``: how members share queues, a name or an object; CONFIG
    gives this member ``allocate_queues``, MACHINE_ROOM is for the queues in ``machine_rooms``, MACHINE_ROOM_NEARBY asks
    ``broker_machine_room`` and ``client_machine_room``.
    """

    message_model: MessageModel | str
    allow_mixed_subscriptions: bool
    message_queue_listener: Callable[[str, list[MessageQueue], list[MessageQueue]], object] | None
    allocate_message_queue_strategy: str | AllocateMessageQueueStrategy
    allocate_queues: list[MessageQueue] | tuple[MessageQueue, ...]
    machine_rooms: list[str] | tuple[str, ...]
    broker_machine_room: Callable[[MessageQueue], str] | None
    client_machine_room: Callable[[str], str] | None
    offset_store: OffsetStorage | None
    offset_store_dir: str | None
    ignore_damaged_offset_file: bool
    max_reconsume_times: int


class PushConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a PushConsumer.

    ``client_rebalance``: False = the broker divides the queues, and has the group pull or pop as its request mode says;
    then ``pop_batch_nums`` messages a pop are ours alone for ``pop_invisible_time`` (5 s to 300 s), and nothing is
    popped while more than ``pop_threshold_for_queue`` of a queue are open.
    ``orderly``: messages of a queue one after the other. ``consume_timestamp``: a datetime, or ``yyyyMMddHHmmss`` in
    local time. ``await_termination_when_shutdown``: how long a stop waits for running listeners.
    ``ignore_damaged_offset_file``: a broadcasting group whose offset file and its backup are both damaged starts as
    ``consume_from_where`` says instead of refusing to start.
    """

    orderly: bool
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp: datetime | str | None
    consume_thread_min: int
    consume_thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval: Duration
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    consume_message_batch_max_size: int
    post_subscription_when_pull: bool
    suspend_current_queue_time: Duration
    consume_timeout: Duration
    await_termination_when_shutdown: Duration
    broker_suspend_max_time: Duration
    consumer_timeout_when_suspend: Duration
    rebalance_interval: Duration
    client_rebalance: bool
    pop_invisible_time: Duration
    pop_batch_nums: int
    pop_threshold_for_queue: int


class PullConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a PullConsumer."""

    broker_suspend_max_time: Duration
    consumer_timeout_when_suspend: Duration
    consumer_pull_timeout: Duration
    register_topics: list[str] | tuple[str, ...]


class ScheduledPullConsumerOptions(PullConsumerOptions, total=False):
    """Keyword arguments of a ScheduledPullConsumer.

    ``pull_thread_nums``: plain callbacks at a time. ``await_termination_when_shutdown``: how long a stop waits for
    running ones.
    """

    pull_thread_nums: int
    await_termination_when_shutdown: Duration


class LitePullConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a LitePullConsumer.

    ``auto_commit``: what was handed out counts as consumed with the next poll, and is committed every
    ``auto_commit_interval``; without it, ``commit()`` commits. ``pull_batch_size``: messages a pull, and a poll.
    ``pull_threshold_for_all`` and ``..._for_queue``: messages held here, beyond which nothing is pulled.
    ``consume_max_span``: offsets from the first to the last message held of a queue.
    """

    auto_commit: bool
    auto_commit_interval: Duration
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp: datetime | str | None
    poll_timeout: Duration
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    broker_suspend_max_time: Duration
    consumer_timeout_when_suspend: Duration
    topic_metadata_check_interval: Duration
    rebalance_interval: Duration


@dataclass(slots=True, kw_only=True)
class ClientSettings:
    namesrv: str | None = None
    namespace: str | None = None
    client_ip: str | None = None
    instance_name: str = "DEFAULT"
    unit_name: str | None = None
    unit_mode: bool = False
    poll_name_server_interval: float = 30.0
    heartbeat_broker_interval: float = 30.0
    persist_consumer_offset_interval: float = 5.0
    pull_time_delay_when_exception: float = 1.0
    mq_client_api_timeout: float = 3.0
    vip_channel: bool = False
    tls: bool | ssl.SSLContext | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_key_password_file: str | None = None
    tls_server_name: str | None = None
    tls_verify: bool | None = None
    tls_check_hostname: bool | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    credentials_file: str | None = None
    hooks: tuple[Hook, ...] = ()

    @classmethod
    def of(cls, options: Any) -> Self:
        """Settings from a constructor's keyword arguments.

        :raises UnknownOption: names the keyword that does not exist, and the nearest one.
        :raises ClientError: names the keyword whose value cannot be used.
        """
        known = {field.name: field for field in fields(cls)}
        check_names(options, known)
        made = cls(**options)
        for name, one in known.items():
            if name in options and looks_like_milliseconds(options[name], one.default):
                text = "%s is %g s: durations are seconds here, and not Java's milliseconds"
                log.warning(text, name, options[name])
            setattr(made, name, _value(str(one.type), getattr(made, name), name))
        made.check()
        return made

    def check(self) -> None:
        """Refuse values that cannot work; called once when the client is made."""
        if self.namesrv is None:
            self.namesrv = os.environ.get("NAMESRV_ADDR") or None
        self.namespace = namespace_of(self.namespace, self.namesrv)
        self._check_account()
        check_tls(self)

    def _check_account(self) -> None:
        if self.access_key is None and self.secret_key is None and self.credentials_file is None:
            self.access_key = os.environ.get("ROCKETMQ_ACCESS_KEY") or None
            self.secret_key = os.environ.get("ROCKETMQ_SECRET_KEY") or None
            self.security_token = self.security_token or os.environ.get("ROCKETMQ_SECURITY_TOKEN") or None
            if self.access_key is None and self.secret_key is None:
                self.credentials_file = os.environ.get("ROCKETMQ_CREDENTIALS_FILE") or None
        if (self.access_key is None) != (self.secret_key is None):
            missing = "access_key" if self.access_key is None else "secret_key"
            raise ClientError(
                f"{missing} is missing: an account has both (ROCKETMQ_{missing.upper()} in the environment)"
            )
        if self.access_key is not None and self.credentials_file is not None:
            raise ClientError("give access_key and secret_key, or credentials_file, not both")


@dataclass(slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    pass


@dataclass(slots=True, kw_only=True)
class TracedSettings(ClientSettings):
    enable_msg_trace: bool = False
    customized_trace_topic: str | None = None
    access_channel: AccessChannel = AccessChannel.LOCAL

    def check(self) -> None:
        ClientSettings.check(self)
        self.access_channel = _member(AccessChannel, self.access_channel, "access_channel")
        if self.customized_trace_topic is not None:
            check_topic(self.customized_trace_topic)


@dataclass(slots=True, kw_only=True)
class ProducerSettings(TracedSettings):
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = 4
    send_msg_timeout: float = 3.0
    compress_msg_body_over: int = 4096
    compress_type: str = "ZLIB"
    compress_level: int = 5
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    retry_response_codes: frozenset[int] = frozenset({1, 2, 14, 16, 17, 204, 205})
    max_message_size: int = 4_194_304
    send_latency_fault_enable: bool = False
    enable_backpressure_for_async_mode: bool = True
    back_pressure_for_async_send_num: int = 2_000
    back_pressure_for_async_send_size: int = 16 << 20
    send_msg_max_timeout_per_request: float | None = None
    auto_batch: bool = False
    batch_max_delay: float = 0.01
    batch_max_bytes: int = 32 << 10
    total_batch_max_bytes: int = 32 << 20
    topics: tuple[str, ...] = ()

    def check(self) -> None:
        TracedSettings.check(self)
        self.compress_type = self.compress_type.upper()
        if self.compress_type not in ("ZLIB", "LZ4", "ZSTD"):
            raise ClientError(f"compress_type is {self.compress_type!r}: use ZLIB, LZ4 or ZSTD")
        _within(self, "default_topic_queue_nums", 1, 65_535)
        _within(self, "batch_max_bytes", 1, MAX_FRAME)
        _within(self, "total_batch_max_bytes", 1, _INT_MAX)
        _within(self, "max_message_size", 1, MAX_FRAME)
        _within(self, "compress_msg_body_over", 0, _INT_MAX)
        _within(self, "compress_level", 0, 9 if self.compress_type == "ZLIB" else 22)
        _within(self, "retry_times_when_send_failed", 0, 1_000)
        _within(self, "retry_times_when_send_async_failed", 0, 1_000)
        _within(self, "back_pressure_for_async_send_num", 10, _INT_MAX)
        _within(self, "back_pressure_for_async_send_size", 1 << 20, _INT_MAX)


@dataclass(slots=True, kw_only=True)
class TransactionProducerSettings(ProducerSettings):
    check_thread_pool_min_size: int = 1
    check_thread_pool_max_size: int = 1
    check_request_hold_max: int = 2000

    def check(self) -> None:
        ProducerSettings.check(self)
        _within(self, "check_thread_pool_min_size", 1, 1000)
        _within(self, "check_thread_pool_max_size", 1, 1000)
        _within(self, "check_request_hold_max", 1, 1_000_000)
        if self.check_thread_pool_min_size > self.check_thread_pool_max_size:
            raise ClientError(
                f"check_thread_pool_min_size {self.check_thread_pool_min_size} is over check_thread_pool_max_size "
                f"{self.check_thread_pool_max_size}"
            )


@dataclass(slots=True, kw_only=True)
class ConsumerSettings(TracedSettings):
    message_model: MessageModel = MessageModel.CLUSTERING
    allow_mixed_subscriptions: bool = False
    message_queue_listener: Callable[[str, list[MessageQueue], list[MessageQueue]], object] | None = None
    allocate_message_queue_strategy: str | AllocateMessageQueueStrategy = "AVG"
    allocate_queues: tuple[MessageQueue, ...] = ()
    machine_rooms: tuple[str, ...] = ()
    broker_machine_room: Callable[[MessageQueue], str] | None = None
    client_machine_room: Callable[[str], str] | None = None
    offset_store: OffsetStorage | None = None
    offset_store_dir: str | None = None
    ignore_damaged_offset_file: bool = False
    max_reconsume_times: int = -1

    @property
    def broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def strategy(self) -> AllocateMessageQueueStrategy:
        """How the members of the group share queues. :raises ClientError: no such strategy, or it lacks something."""
        return allocation_strategy(
            self.allocate_message_queue_strategy,
            queues=[Namespace(self.namespace).wrap_queue(queue) for queue in self.allocate_queues],
            rooms=self.machine_rooms,
            broker_room=self.broker_machine_room,
            client_room=self.client_machine_room,
        )

    def check(self) -> None:
        TracedSettings.check(self)
        self.message_model = _member(MessageModel, self.message_model, "message_model")
        _within(self, "max_reconsume_times", -1, _INT_MAX)


@dataclass(slots=True, kw_only=True)
class PushConsumerSettings(ConsumerSettings):
    orderly: bool = False
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: datetime | str | None = None
    consume_thread_min: int = _THREADS
    consume_thread_max: int = _THREADS
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100 << 20
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    pull_interval: float = 0.0
    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = _PULL_BYTES
    consume_message_batch_max_size: int = 1
    post_subscription_when_pull: bool = False
    suspend_current_queue_time: float = 1.0
    consume_timeout: float = 900.0
    await_termination_when_shutdown: float = 20.0
    broker_suspend_max_time: float = 15.0
    consumer_timeout_when_suspend: float = 30.0
    rebalance_interval: float = 20.0
    client_rebalance: bool = True
    pop_invisible_time: float = 60.0
    pop_batch_nums: int = 32
    pop_threshold_for_queue: int = 96

    @property
    def asks_broker(self) -> bool:
        """The broker divides the queues. A broadcasting group has nothing to divide."""
        return not self.client_rebalance and not self.broadcasting

    def check(self) -> None:
        ConsumerSettings.check(self)
        self.consume_from_where = _member(ConsumeFromWhere, self.consume_from_where, "consume_from_where")
        for name, low, high in (
            ("pop_invisible_time", 5, 300),
            ("pop_batch_nums", 1, 32),
            ("pop_threshold_for_queue", 1, 65535),
            ("consume_thread_min", 1, 1000),
            ("consume_thread_max", 1, 1000),
            ("consume_concurrently_max_span", 1, 65535),
            ("pull_threshold_for_queue", 1, 65535),
            ("pull_threshold_size_for_queue", 1 << 20, 1 << 30),
            ("pull_batch_size", 1, 1024),
            ("pull_batch_size_in_bytes", 1, 1 << 30),
            ("consume_message_batch_max_size", 1, 1024),
        ):
            _within(self, name, low, high)
        # -1 is no limit of a topic; those of its queues hold.
        if self.pull_threshold_for_topic != -1:
            _within(self, "pull_threshold_for_topic", 1, 6_553_500)
        if self.pull_threshold_size_for_topic != -1:
            _within(self, "pull_threshold_size_for_topic", 1 << 20, 100 << 30)
        if self.consume_thread_min > self.consume_thread_max:
            raise ClientError(
                f"consume_thread_min {self.consume_thread_min} is over consume_thread_max {self.consume_thread_max}"
            )
        _suspend_below_timeout(self.broker_suspend_max_time, self.consumer_timeout_when_suspend)

    @classmethod
    def of(cls, options: Any) -> Self:
        """As everywhere; of the two numbers of threads, one that is not given follows the other."""
        least, most = options.get("consume_thread_min"), options.get("consume_thread_max")
        if least is None and isinstance(most, int):
            options = {**options, "consume_thread_min": min(most, _THREADS)}
        elif most is None and isinstance(least, int):
            options = {**options, "consume_thread_max": max(least, _THREADS)}
        return super(PushConsumerSettings, cls).of(options)


@dataclass(slots=True, kw_only=True)
class PullConsumerSettings(ConsumerSettings):
    broker_suspend_max_time: float = 20.0
    consumer_timeout_when_suspend: float = 30.0
    consumer_pull_timeout: float = 10.0
    register_topics: tuple[str, ...] = ()

    def check(self) -> None:
        ConsumerSettings.check(self)
        _suspend_below_timeout(self.broker_suspend_max_time, self.consumer_timeout_when_suspend)


@dataclass(slots=True, kw_only=True)
class ScheduledPullConsumerSettings(PullConsumerSettings):
    pull_thread_nums: int = 20
    await_termination_when_shutdown: float = 20.0

    def check(self) -> None:
        PullConsumerSettings.check(self)
        _within(self, "pull_thread_nums", 1, 1000)


@dataclass(slots=True, kw_only=True)
class LitePullConsumerSettings(ConsumerSettings):
    auto_commit: bool = True
    auto_commit_interval: float = 5.0
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: datetime | str | None = None
    poll_timeout: float = 5.0
    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100 << 20
    consume_max_span: int = 2000
    broker_suspend_max_time: float = 20.0
    consumer_timeout_when_suspend: float = 30.0
    topic_metadata_check_interval: float = 30.0
    rebalance_interval: float = 20.0

    @property
    def pull_batch_size_in_bytes(self) -> int:
        return _PULL_BYTES

    @property
    def pull_interval(self) -> float:
        return 0.0

    @property
    def post_subscription_when_pull(self) -> bool:
        """Its pulls say what they want: queues that were assigned are in no subscription."""
        return True

    def check(self) -> None:
        ConsumerSettings.check(self)
        self.consume_from_where = _member(ConsumeFromWhere, self.consume_from_where, "consume_from_where")
        for name, low, high in (
            ("pull_batch_size", 1, 1024),
            ("pull_threshold_for_all", 1, _INT_MAX),
            ("pull_threshold_for_queue", 1, 65535),
            ("pull_threshold_size_for_queue", 1 << 20, 1 << 30),
            ("consume_max_span", 1, 65535),
        ):
            _within(self, name, low, high)
        _suspend_below_timeout(self.broker_suspend_max_time, self.consumer_timeout_when_suspend)


def lists_options(settings: type[ClientSettings]) -> Callable[[type[T]], type[T]]:
    """Have ``help()`` of a client list its keyword arguments with their types and defaults."""

    def listed(client: type[T]) -> type[T]:
        rows = (f"{field.name}: {field.type} = {_shown(field.default)}" for field in fields(settings))
        head = f"{client.__doc__ or ''}\n    Options, and their defaults::\n"
        client.__doc__ = "\n        ".join((head, *rows))
        return client

    return listed


def check_names(options: Iterable[str], known: Collection[str]) -> None:
    """:raises UnknownOption: names the option that does not exist, and the nearest one."""
    for name in options:
        if name not in known:
            raise no_setting(name, known)


def _shown(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _value(kind: str, value: object, name: str) -> object:
    """A setting's value as its field has it. :raises ClientError: it is of another type than the field."""
    if value is None and kind.endswith("| None"):
        return None
    value = plain(value, name)
    kind = kind.removesuffix(" | None")
    if kind == "float":
        period = seconds(value, name)
        if name in _PAUSES and period < 0.001:
            raise ClientError(f"{name} is {period:g}: give at least a millisecond (0.001)")
        return period
    if kind == "bool":
        check_flag(value, name)
    elif kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise WrongType(f"{name} is {shown(value)}: give a whole number")
    elif kind == "str" and name in _SECRET:
        if not isinstance(value, str) or not value:
            raise WrongType(f"{name} is no text: give one")  # whatever it is, nobody is told
    elif kind == "str":
        check_word(value, name)
    elif kind.startswith("Callable") and not callable(value):
        raise WrongType(f"{name} is {shown(value)}: give a function")
    elif kind == "bool | ssl.SSLContext" and not isinstance(value, (bool, ssl.SSLContext)):
        raise WrongType(f"{name} is {shown(value)}: give True, False or an ssl.SSLContext")
    elif kind == "datetime | str" and not isinstance(value, (datetime, str)):
        raise WrongType(f"{name} is {shown(value)}: give a datetime, or yyyyMMddHHmmss in local time")
    elif kind == "frozenset[int]":
        return frozenset(_several(int, value, f"{name} is {shown(value)}: give whole numbers, as a set"))
    elif kind == "tuple[str, ...]":
        return tuple(_several(str, value, f"{name} is {shown(value)}: give texts, as a tuple"))
    elif kind == "OffsetStorage" and not isinstance(value, OffsetStorage):
        raise WrongType(f"{name} is {shown(value)}: give an object with read and write, as rmq.OffsetStorage has them")
    elif kind == "tuple[Hook, ...]":
        return tuple(_several(Hook, value, f"{name} is {shown(value)}: give objects of rmq.Hook, as a tuple"))
    elif kind == "tuple[MessageQueue, ...]":
        return tuple(_several(MessageQueue, value, f"{name} is {shown(value)}: give MessageQueues, as a tuple"))
    return value


def _several(kind: type[T], value: object, why: str) -> list[T]:
    """Several of a kind. A text is one, not its letters. :raises ClientError: with the text ``why``."""
    if not isinstance(value, (tuple, list, set, frozenset)) or any(
        not isinstance(one, kind) or isinstance(one, bool) for one in value
    ):
        raise WrongType(why)
    return [plain(one, "one of them") for one in value]


def _within(settings: ClientSettings, name: str, low: int, high: int) -> None:
    value = getattr(settings, name)
    if not low <= value <= high:
        raise ClientError(f"{name} is {value}: it must be {low} to {high}")


def _suspend_below_timeout(suspend: float, timeout: float) -> None:
    # A client that waits less than the broker holds its pull drops the connection again and again (field case B046).
    if suspend >= timeout:
        raise ClientError(
            f"broker_suspend_max_time ({suspend} s) must be less than consumer_timeout_when_suspend ({timeout} s): "
            "the broker would hold a pull longer than the client waits for it"
        )


def _member(kind: type[E], value: object, name: str) -> E:
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value.upper() in kind.__members__:
        return kind[value.upper()]
    kind_of_error = ClientError if isinstance(value, str) else WrongType
    raise kind_of_error(f"{name} is {shown(value)}: use one of {', '.join(kind.__members__)}")

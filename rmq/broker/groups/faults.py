"""What is wrong with the settings of a group, whoever brings them: an administrator, or a master to its slave."""

from __future__ import annotations

from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.numbers import INT_MAX, is_whole

__all__ = ["group_config_fault", "mode_fault"]

#: Characters of a group's name: with %RETRY% before it, it is the name of a file (store-and-broker.md 7.5).
_LONGEST = 255


def group_config_fault(config: SubscriptionGroupConfig) -> str | None:
    """What is wrong with a subscription group, or None.

    How many retry queues it may have is not judged here: who asks for more is refused, and of a file or a master the
    first of them are served.
    """
    if not config.group_name.strip():
        return "the group has no groupName"
    if len(config.group_name) > _LONGEST:
        return f"groupName has {len(config.group_name)} characters, more than {_LONGEST}"
    for key, broker in (
        ("brokerId", config.broker_id),
        ("whichBrokerWhenConsumeSlowly", config.which_broker_when_consume_slowly),
    ):
        if broker < 0:
            return f"{key}={broker}: brokers have ids from 0 on"
    for key, number in (
        ("retryQueueNums", config.retry_queue_nums),
        ("retryMaxTimes", config.retry_max_times),
        ("consumeTimeoutMinute", config.consume_timeout_minute),
        ("groupSysFlag", config.group_sys_flag),
    ):
        if number is not None and not is_whole(number, INT_MAX, -INT_MAX - 1):
            return f"{key}={number}: no 32-bit number"
    return None


def mode_fault(mode: SetMessageRequestModeRequestBody) -> str | None:
    """What is wrong with a group's mode of consumption on a topic, or None."""
    if not mode.topic or not mode.consumer_group or mode.mode is None:
        return "topic, consumerGroup and mode are expected"
    if mode.topic.startswith(RETRY_PREFIX):
        return "retry topic is not allowed to set mode"
    return None

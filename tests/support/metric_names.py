"""Metrics that have no series before there is something to tell of."""

from __future__ import annotations

__all__ = ["WHEN_SOMETHING_WAITS"]

WHEN_SOMETHING_WAITS = frozenset(
    {
        "rmq_delayed_messages",
        "rocketmq_commit_messages_total",
        "rocketmq_consumer_inflight_messages",
        "rocketmq_finish_message_latency_milliseconds",
        "rocketmq_pop_revive_in_message_total",
        "rocketmq_pop_revive_retry_messages_total",
        "rocketmq_rollback_messages_total",
        "rocketmq_timer_dequeue_total",
        "rocketmq_timer_enqueue_total",
    }
)

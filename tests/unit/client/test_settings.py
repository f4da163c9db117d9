"""Settings: Java's defaults, clear refusals."""

from __future__ import annotations

import typing
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from rmq.client.checks import seconds
from rmq.client.settings import (
    AdminOptions,
    AdminSettings,
    ConsumeFromWhere,
    MessageModel,
    ProducerOptions,
    ProducerSettings,
    PullConsumerOptions,
    PullConsumerSettings,
    PushConsumerOptions,
    PushConsumerSettings,
)
from rmq.protocol.errors import ClientError


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (AdminOptions, AdminSettings),
        (ProducerOptions, ProducerSettings),
        (PushConsumerOptions, PushConsumerSettings),
        (PullConsumerOptions, PullConsumerSettings),
    ],
)
def test_options_and_settings_have_the_same_names(options: Any, settings: Any) -> None:
    assert set(typing.get_type_hints(options)) == {field.name for field in fields(settings)}


def test_durations_are_seconds_or_timedeltas() -> None:
    assert ProducerSettings.of({"send_msg_timeout": timedelta(milliseconds=1500)}).send_msg_timeout == 1.5
    assert seconds(2) == 2.0
    for bad in (-1, "3", True, float("nan"), None):
        with pytest.raises(ClientError, match="give seconds"):
            seconds(bad)  # type: ignore[arg-type]


def test_enums_may_be_named() -> None:
    made = PushConsumerSettings.of({"message_model": "broadcasting", "consume_from_where": "CONSUME_FROM_TIMESTAMP"})
    assert made.message_model is MessageModel.BROADCASTING
    assert made.broadcasting
    assert made.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (ProducerSettings, {"send_timeout": 1}, "did you mean send_msg_timeout"),
        (ProducerSettings, {"compress_type": "GZIP"}, "ZLIB, LZ4 or ZSTD"),
        (ProducerSettings, {"max_message_size": "4MB"}, "whole number"),
        (ProducerSettings, {"retry_times_when_send_failed": -1}, "retry_times_when_send_failed is -1: it must be 0 to"),
        (ProducerSettings, {"compress_level": 10}, "compress_level is 10: it must be 0 to 9"),
        (ProducerSettings, {"compress_msg_body_over": -1}, "compress_msg_body_over"),
        (ProducerSettings, {"max_message_size": 1 << 30}, "max_message_size"),
        (ProducerSettings, {"send_msg_timeout": 0}, "send_msg_timeout is 0: give at least a millisecond"),
        (PushConsumerSettings, {"heartbeat_broker_interval": 0}, "heartbeat_broker_interval"),
        (PushConsumerSettings, {"rebalance_interval": 0.0001}, "rebalance_interval"),
        (PushConsumerSettings, {"pull_threshold_for_topic": 0}, "pull_threshold_for_topic is 0: it must be 1 to"),
        (PushConsumerSettings, {"max_reconsume_times": -2}, "max_reconsume_times is -2: it must be -1 to"),
        (ProducerSettings, {"default_topic_queue_nums": 0}, "it must be 1 to 65535"),
        (ProducerSettings, {"max_message_size": 0}, "it must be 1 to 16777216"),
        (PushConsumerSettings, {"orderly": "false"}, "orderly is 'false': give True or False"),
        (PushConsumerSettings, {"post_subscription_when_pull": 1}, "post_subscription_when_pull is 1: give True or"),
        (ProducerSettings, {"vip_channel": None}, "vip_channel is None: give True or False"),
        (ProducerSettings, {"unit_mode": "no"}, "unit_mode is 'no': give True or False"),
        (
            ProducerSettings,
            {"send_latency_fault_enable": "false"},
            "send_latency_fault_enable is 'false': give True or",
        ),
        (ProducerSettings, {"tls": "false"}, "tls is 'false': give True, False or an ssl.SSLContext"),
        (ProducerSettings, {"max_message_size": True}, "max_message_size is True: give a whole number"),
        (ProducerSettings, {"instance_name": "\ud800"}, "instance_name is .*, which is not valid Unicode"),
        (ProducerSettings, {"retry_response_codes": "1,2"}, "retry_response_codes is '1,2': give whole numbers"),
        (ProducerSettings, {"retry_response_codes": {"1"}}, "retry_response_codes is {'1'}: give whole numbers"),
        (PullConsumerSettings, {"register_topics": "T"}, "register_topics is 'T': give texts, as a tuple"),
        (PullConsumerSettings, {"register_topics": (1,)}, "register_topics is .1,.: give texts, as a tuple"),
        (PushConsumerSettings, {"message_queue_listener": "print"}, "message_queue_listener is 'print': give a func"),
        (PushConsumerSettings, {"consume_timestamp": 20260101}, "consume_timestamp is 20260101: give a datetime, or"),
        (PushConsumerSettings, {"message_model": True}, "message_model is True: use one of CLUSTERING"),
        (ProducerSettings, {"namesrv": ["127.0.0.1:9876"]}, "namesrv is .*: give a text"),
        (ProducerSettings, {"instance_name": None}, "instance_name is None: give a text"),
        (ProducerSettings, {"send_msg_timeout": float("inf")}, "at most 1e9"),
        (PushConsumerSettings, {"message_model": "FANOUT"}, "CLUSTERING"),
        (PushConsumerSettings, {"consume_thread_min": 30, "consume_thread_max": 20}, "over consume_thread_max"),
        (PushConsumerSettings, {"pull_batch_size": 0}, "1 to 1024"),
        (
            PushConsumerSettings,
            {"broker_suspend_max_time": 20, "consumer_timeout_when_suspend": 10},
            "broker_suspend_max_time .* consumer_timeout_when_suspend",
        ),
        (
            PullConsumerSettings,
            {"broker_suspend_max_time": 30},
            "broker_suspend_max_time .* consumer_timeout_when_suspend",
        ),
    ],
)
def test_what_cannot_work_is_refused(kind: Any, options: dict[str, object], why: str) -> None:
    """Field case B046."""
    with pytest.raises(ClientError, match=why):
        kind.of(options)


def test_the_name_server_comes_from_the_environment_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    assert AdminSettings.of({}).namesrv == "env:9876"
    assert AdminSettings.of({"namesrv": "code:9876"}).namesrv == "code:9876"

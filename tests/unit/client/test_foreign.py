"""What users bring along from other clients: names, and milliseconds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rmq.client.foreign import meant
from rmq.client.settings import (
    LitePullConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
    PushConsumerSettings,
    ScheduledPullConsumerSettings,
)
from rmq.protocol.errors import UnknownOption


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("consumeThreadMax", "consume_thread_max"), ("suspendCurrentQueueTimeMillis", "suspend_current_queue_time"),
        ("namesrvAddr", "namesrv"), ("auto_offset_reset", "consume_from_where"), ("bootstrap_servers", "namesrv"),
        ("thread_count", "consume_thread_max"), ("instance_nam", "instance_name"),
        ("max_poll_records", "pull_batch_size"), ("vipChannelEnabled", "vip_channel"),
        ("useTLS", "tls"), ("clientIP", "client_ip"),
    ],
)  # fmt: skip
def test_an_unknown_keyword_names_what_is_meant(name: str, here: str) -> None:
    with pytest.raises(UnknownOption, match=f"^no setting '{name}': did you mean {here}\\?$"):
        PushConsumerSettings.of({name: 1})


def test_what_means_nothing_here_is_not_guessed() -> None:
    with pytest.raises(UnknownOption, match=r"^no setting 'zzz'$"):
        ProducerSettings.of({"zzz": 1})
    assert meant("linger_ms", {"namesrv"}) is None, "it is a producer's"


def test_a_duration_in_javas_unit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    settings = ProducerSettings.of({"send_msg_timeout": 3000})
    assert settings.send_msg_timeout == 3000
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "send_msg_timeout is 3000 s: durations are seconds here, and not Java's milliseconds"
    caplog.clear()
    PushConsumerSettings.of({"consume_timeout": 3600, "rebalance_interval": 600, "pop_invisible_time": 60})
    ProducerSettings.of({"send_msg_timeout": timedelta(hours=1), "max_message_size": 5000})
    for kind in (LitePullConsumerSettings, PullConsumerSettings, ScheduledPullConsumerSettings):
        kind.of({})
    assert not caplog.records

"""Fault avoidance: the table of protocol.md 7.3."""

from __future__ import annotations

import pytest

from rmq.client.fault import LatencyFault


@pytest.mark.parametrize(
    ("latency", "rest"),
    [(0.049, 0), (0.549, 0), (0.55, 30), (1.0, 60), (2.0, 120), (3.0, 180), (14.9, 180), (15.0, 600)],
)
def test_slow_answers_cost_time_out(latency: float, rest: float) -> None:
    faults = LatencyFault(enabled=True)
    faults.on_answer("a", latency, 100.0)
    assert (faults.avoided == {"a"}) == (rest > 0)
    if rest:
        faults.expire(100.0 + rest - 0.1)
        assert faults.avoided == {"a"}
        faults.expire(100.0 + rest)
        assert not faults.avoided


def test_a_failure_counts_as_thirty_seconds() -> None:
    faults = LatencyFault(enabled=True)
    faults.on_failure("a", 0.0)
    faults.expire(599.9)
    assert faults.avoided == {"a"}


def test_a_good_answer_brings_a_broker_back() -> None:
    faults = LatencyFault(enabled=True)
    faults.on_answer("a", 2.5, 0.0)
    faults.on_answer("a", 0.01, 1.0)
    assert not faults.avoided


def test_switched_off_only_unreachable_brokers_are_left_alone_shortly() -> None:
    faults = LatencyFault()
    faults.on_answer("a", 20.0, 0.0)
    assert not faults.avoided
    faults.on_failure("a", 0.0)
    assert faults.avoided == {"a"}
    faults.expire(10.0)
    assert not faults.avoided

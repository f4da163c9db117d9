"""Which sends a tick refuses, with every clock and figure given."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rmq.broker.lane.pressure import Pressure, UnansweredSends
from rmq.broker.settings import BrokerSettings
from rmq.protocol import frame
from rmq.protocol.command import Command, SerializeType
from tests.support.raw_peer import pull, send


class Scene:
    """One connection, read at second 100."""

    def __init__(self, **settings: str) -> None:
        self.now = 100.0
        self.settings = BrokerSettings.from_sources(overrides=settings)
        self.flusher = SimpleNamespace(since=None)
        self.durability = SimpleNamespace(oldest=None)
        self.refused: list[int] = []
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        store: Any = SimpleNamespace(flusher=self.flusher, durability=self.durability)
        stats: Any = SimpleNamespace(put_refused=lambda: self.refused.append(1))
        self.pressure = Pressure(clock, self.settings, store, stats)
        self.sent: list[bytes] = []
        self.written: list[bytes] = []
        self.settled: list[int] = []
        self.conn: Any = SimpleNamespace(
            read_at=100.0, owed_bytes=0, send=self.sent.append, send_at_once=self.written.append,
            settle=self.settled.append, frames=[],
        )  # fmt: skip

    def shed(self, *commands: Command) -> int:
        """How many of the frames are left for the step."""
        late, room = self.pressure.look()
        frames = [framed(command) for command in commands]
        if self.conn.read_at < late or len(frames) > room:
            return len(self.pressure.shed(self.conn, frames, room))
        return len(frames)

    def remarks(self) -> list[str | None]:
        return [frame.decode(data[4:]).remark for data in self.sent]


def framed(command: Command) -> tuple[bytes, int, int]:
    data = frame.encode(command)
    return data, 4, len(data)


def binary(command: Command) -> Command:
    command.serialize = SerializeType.ROCKETMQ
    return command


def test_nothing_is_shed_in_time() -> None:
    scene = Scene()
    scene.now = 100.2
    assert scene.shed(send(), pull(), send()) == 3
    assert not scene.sent


@pytest.mark.parametrize(
    "form", [send, lambda: binary(send()), lambda: Command(10, ext={}), lambda: Command(36, ext={})]
)
def test_late_sends_of_every_form_are_refused(form: Any) -> None:
    scene = Scene(waitTimeMillsInSendQueue="150")
    scene.now = 100.2
    assert scene.shed(form(), pull(), Command(34, ext={})) == 2
    assert scene.remarks() == [
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 200ms, size of queue: 0"
    ]
    assert len(scene.refused) == scene.pressure.refused == 1


def test_a_late_oneway_send_is_dropped_in_silence() -> None:
    scene = Scene()
    scene.now = 101.0
    assert scene.shed(send(oneway=True)) == 0
    assert not scene.sent


def test_without_fast_failure_age_does_not_count() -> None:
    scene = Scene(brokerFastFailureEnable="false")
    scene.now = 900.0
    assert scene.shed(send()) == 1


def test_only_as_many_as_may_wait() -> None:
    scene = Scene(sendThreadPoolQueueCapacity="5")
    UnansweredSends(scene.pressure, scene.conn, 3, 100, 310)
    assert scene.shed(send(), pull(), send(), send(), pull()) == 4
    assert scene.remarks() == ["[OVERLOAD]system busy, start flow control for a while"]


def test_a_flush_that_lasts_refuses_new_sends_and_clears_old_ones() -> None:
    scene = Scene()
    scene.flusher.since = 100.0
    scene.now = 100.9
    scene.conn.read_at = 100.9
    assert scene.shed(send()) == 1
    scene.now = 101.125
    scene.conn.read_at = 101.0625
    assert scene.shed(send(), pull()) == 1
    scene.conn.read_at = 100.875
    assert scene.shed(send(), pull()) == 1
    assert scene.remarks() == [
        "[REJECTREQUEST]system busy, start flow control for a while",
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, size of queue: 0",
    ]
    assert scene.pressure.flush_ms() == 1125
    scene.flusher.since = None
    scene.conn.read_at = scene.now
    assert scene.shed(send()) == 1


def test_without_fast_failure_a_lasting_flush_refuses_new_sends_only() -> None:
    scene = Scene(brokerFastFailureEnable="false")
    scene.flusher.since, scene.now = 100.0, 101.1
    scene.conn.read_at = 100.95
    assert scene.shed(send()) == 1
    scene.conn.read_at = 101.05
    assert scene.shed(send()) == 0


def test_the_refusal_is_what_the_encoder_would_write() -> None:
    scene = Scene(sendThreadPoolQueueCapacity="0")
    request = send()
    request.opaque = 77
    assert scene.shed(request) == 0
    expected = Command(2, remark="[OVERLOAD]system busy, start flow control for a while", opaque=77, flag=1, ext=None)
    assert scene.sent == [frame.encode(expected)]
    assert json.loads(scene.sent[0][8:])["opaque"] == 77


def test_what_waits_counts_as_owed_until_it_is_answered() -> None:
    scene = Scene()
    scene.durability.oldest = SimpleNamespace(flush_by=105.0)
    owed = UnansweredSends(scene.pressure, scene.conn, 3, 5000, 310)
    assert scene.conn.owed_bytes >= 5000
    assert scene.pressure.waiting() == 3
    scene.now = 100.4
    assert scene.pressure.head_wait_ms() == 400
    owed.send(b"answers")
    assert scene.settled == [scene.conn.owed_bytes]
    assert (scene.written, scene.pressure.held) == ([b"answers"], 0)


def test_what_is_read_and_not_served_waits_too() -> None:
    scene = Scene()
    scene.conn.frames = [framed(send()), framed(pull()), framed(binary(send()))]
    scene.pressure.ready = lambda: [scene.conn]
    scene.now = 100.05
    assert scene.pressure.waiting() == 2
    assert scene.pressure.head_wait_ms() == pytest.approx(50, abs=1)

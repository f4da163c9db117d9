"""Which sends wait for a time of their own, and what a recall handle holds."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest

from rmq.broker.schedule.timing import (
    RecallHandle,
    TimerSends,
    Wait,
    decode_code,
    encode_code,
)
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_TOPIC
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

DAY = 86_400_000


class Desk:
    """What decides about sends, at one moment."""

    def __init__(self, settings: BrokerSettings) -> None:
        node = Simulation(1).node("a")
        self.settings = settings
        self.now = node.clock.now_ms()
        self.topics = TopicTable(node.world, settings, "/store/config/topics.json")
        self.sends = TimerSends(
            node.world.clock, settings, self.topics, Store(node.world, StoreSettings(root="/store"))
        )

    def wait(self, **table: str) -> int | None:
        """Milliseconds a message with these properties waits; None: it does not."""
        self.table = {"UNIQ_KEY": "U", **table}
        diverted = self.sends.divert(self.table, Queue("T", 3))
        if diverted is None:
            return None
        queue, code = diverted
        assert (queue.topic, queue.id) == (TIMER_TOPIC, 0)
        known = decode_code(code)
        assert known is not None
        assert self.table["TIMER_OUT_MS"] == str(known[0])
        assert (self.table["REAL_TOPIC"], self.table["REAL_QID"]) == ("T", "3")
        return known[0] - self.now


def at_the_desk(test: Callable[[Desk], None], **settings: object) -> None:
    async def main() -> None:
        test(Desk(BrokerSettings(broker_name="b", broker_ip1="10.0.0.1", **settings)))
        await asyncio.sleep(0)

    run(main())


def test_the_first_property_that_is_there_wins() -> None:
    def check(desk: Desk) -> None:
        assert desk.wait() is None
        assert desk.wait(TIMER_DELAY_MS="1500") == 1500
        assert desk.wait(TIMER_DELAY_SEC="61", TIMER_DELAY_MS="5", TIMER_DELIVER_MS="1") == 61_000
        assert desk.wait(TIMER_DELAY_MS="7", TIMER_DELIVER_MS=str(desk.now + 9999)) == 7
        assert desk.wait(TIMER_DELIVER_MS=str(desk.now + 5001)) == 5001

    at_the_desk(check)


@pytest.mark.parametrize("asked", [{"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "-5"}, {"TIMER_DELIVER_MS": "1000"}])
def test_a_time_that_is_over_means_at_once(asked: dict[str, str]) -> None:
    def check(desk: Desk) -> None:
        assert desk.wait(**asked) is None
        assert desk.table == {"UNIQ_KEY": "U", **asked}
        assert TIMER_TOPIC not in desk.topics

    at_the_desk(check)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, "259200000ms"),
        ({"TIMER_DELAY_MS": str(3 * DAY + 1)}, "259200000ms"),
        ({"TIMER_DELIVER_MS": "9" * 18}, "259200000ms"),
        ({"TIMER_DELAY_SEC": "x"}, "TIMER_DELAY_SEC='x' is not a number"),
        ({"TIMER_DELAY_MS": "1.5"}, "TIMER_DELAY_MS"),
        ({"TIMER_DELAY_MS": "9" * 40}, "is not a number"),
        ({"TIMER_DELAY_SEC": ""}, "is not a number"),
        ({"TIMER_DELIVER_MS": "1000", "TIMER_DEL_UNIQKEY": "T+U"}, "if set del msg"),
        ({"TIMER_DELAY_MS": "5", "KEYS": "k" * 32_600}, "properties"),
    ],
)
def test_what_cannot_be_is_refused_as_by_java_5(asked: dict[str, str], words: str) -> None:
    def check(desk: Desk) -> None:
        with pytest.raises(ResponseError, match=words) as refused:
            desk.wait(**asked)
        assert refused.value.code == 13

    at_the_desk(check)


def test_the_limit_itself_is_allowed_and_may_be_set() -> None:
    at_the_desk(lambda desk: _equal(desk.wait(TIMER_DELAY_SEC="259200"), 3 * DAY))
    at_the_desk(lambda desk: _equal(desk.wait(TIMER_DELAY_SEC="60"), 60_000), timer_max_delay_sec=60)

    def check(desk: Desk) -> None:
        with pytest.raises(ResponseError, match="60000ms"):
            desk.wait(TIMER_DELAY_SEC="61")

    at_the_desk(check, timer_max_delay_sec=60)


def _equal(one: object, other: object) -> None:
    assert one == other


def test_precision_rounds_up() -> None:
    def check(desk: Desk) -> None:
        wait = desk.wait(TIMER_DELAY_MS="1")
        assert wait is not None
        assert 1 <= wait <= 1000
        assert (desk.now + wait) % 1000 == 0

    at_the_desk(check, timer_precision_ms=1000)


def test_the_switch_is_named_in_the_refusal() -> None:
    def check(desk: Desk) -> None:
        with pytest.raises(ResponseError, match="timerWheelEnable") as refused:
            desk.wait(TIMER_DELAY_MS="5")
        assert refused.value.code == 1
        assert desk.wait(TIMER_DELAY_MS="0") is None

    at_the_desk(check, timer_wheel_enable=False)


def test_the_broker_s_own_properties_are_not_taken_from_a_client() -> None:
    def check(desk: Desk) -> None:
        desk.wait(TIMER_DELAY_MS="5", TIMER_OUT_MS="1", TIMER_ROLL_TIMES="9", REAL_TOPIC="other", REAL_QID="77")
        assert "TIMER_ROLL_TIMES" not in desk.table

    at_the_desk(check)


def test_the_topics_can_be_read_and_not_be_sent_to() -> None:
    def check(desk: Desk) -> None:
        desk.wait(TIMER_DELAY_MS="5")
        for topic in (TIMER_TOPIC, TIMER_DONE_TOPIC):
            config = desk.topics.get(topic)
            assert config is not None
            assert (config.perm, config.read_queue_nums) == (4, 1)
            assert topic in desk.topics.system

    at_the_desk(check)


def test_handles() -> None:
    handle = RecallHandle("T", "broker-a", 1795828633001, "0A0000010000000000000000000000BB")
    # As 5.3.3 wrote it.
    text = "djEgVCBicm9rZXItYSAxNzk1ODI4NjMzMDAxIDBBMDAwMDAxMDAwMDAwMDAwMDAwMDAwMDAwMDAwMEJC"
    assert handle.encode() == text
    assert RecallHandle.decode(text) == handle
    for bad in ("", "xx", "djEgVCBicm9rZXItYSAx*", text[:-8] + "!!!!", _text("v2 T b 1 u"), _text("v1 T b 1"), "é"):
        with pytest.raises(ValueError, match="it "):
            RecallHandle.decode(bad)
    assert RecallHandle.decode(_text("v1 T b abc u")).deliver_at == -1


def _text(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_codes_of_entries() -> None:
    for relative in (False, True):
        for deletes in (False, True):
            code = encode_code(Wait(1_795_828_633_001, relative, deletes))
            assert code < 1 << 63
            assert decode_code(code) == (1_795_828_633_001, relative, deletes)
    for tag_hash in (0, -(1 << 31), (1 << 31) - 1):
        assert decode_code(tag_hash) is None

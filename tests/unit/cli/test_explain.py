"""What `rmq explain` says of a message in a group, state by state."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.cli.explain.facts import due_of, real_topic
from rmq.cli.explain.story import GroupFacts, ago, of_group
from rmq.client.message import MessageExt
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.running import ConsumerRunningInfo, PopProcessQueueInfo, ProcessQueueInfo
from rmq.protocol.queue import MessageQueue

NOW = 1_795_946_400_000
QUEUE = MessageQueue("T", "b", 1)
RETRY = MessageQueue("%RETRY%g", "b", 0)


def message(topic: str = "T", *, offset: int = 10, tries: int = 0, stored: int = NOW, **properties: str) -> MessageExt:
    made = MessageExt()
    made.topic, made.broker_name, made.queue_id = topic, "b", 1 if topic == "T" else 0
    made.queue_offset, made.reconsume_times, made.store_timestamp = offset, tries, stored
    made.properties = {"UNIQ_KEY": "id", "TAGS": "A", **properties}
    return made


def member(**held: Any) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(mq_table={QUEUE: ProcessQueueInfo(**held), RETRY: ProcessQueueInfo()})


WANTS_A = SubscriptionData(topic="T", sub_string="A || C", tags_set=["A", "C"])
WANTS_B = SubscriptionData(topic="T", sub_string="B", tags_set=["B"])
SQL = SubscriptionData(topic="T", sub_string="shop = 'berlin'", expression_type="SQL92")
IDLE = {"m": member()}


@pytest.mark.parametrize(
    ("facts", "state", "what", "then"),
    [
        ({"broadcasting": True}, "broadcast", "each keeps for itself", "consumerStatus"),
        ({"offsets": {QUEUE: 11}}, "consumed", "nothing of it waits; whether a filter", "nothing"),
        ({"offsets": {QUEUE: 11}, "online": IDLE, "subscription": WANTS_A}, "consumed", "'A || C' matches;", "nothing"),
        ({"offsets": {QUEUE: 11}, "online": IDLE, "subscription": WANTS_B},
         "filtered", "its filter 'B' does not match its tag A", "nothing: it was passed over"),
        ({"offsets": {QUEUE: 5}, "online": IDLE, "subscription": SQL},
         "filtered", "'shop = 'berlin'' does not match its properties", "it is passed over"),
        ({"offsets": {QUEUE: 5}}, "waits", "nobody is online; it stands at 5, 5 messages before", "member is online"),
        ({}, "no offset", "nobody is online, and it has no offset", "consume_from_where"),
        ({"offsets": {QUEUE: 5}, "closed": True}, "closed", "(consumeEnable=false); it stands", "-s true opens it"),
        ({"offsets": {QUEUE: 5}, "online": IDLE}, "not subscribed", "none wants this topic", "subscribe it"),
        ({"offsets": {QUEUE: 10}, "online": {"m": ConsumerRunningInfo()}, "subscription": WANTS_A},
         "waits", "no member has the queue; this one is its next", "a rebalance"),
        ({"offsets": {QUEUE: 10}, "online": {"m": "no answer"}, "subscription": WANTS_A},
         "waits", "no member tells that it has the queue, and m says nothing", "does that member hang"),
        ({"offsets": {QUEUE: 5}, "online": {"m": member(cached_msg_count=3, cached_msg_min_offset=5,
                                                        cached_msg_max_offset=7)}, "subscription": WANTS_A},
         "fetched soon", "m has the queue; it stands at 5, 5 messages", "behind those 5"),
        ({"offsets": {QUEUE: 8}, "online": {"m": member(cached_msg_count=3, cached_msg_min_offset=8,
                                                        cached_msg_max_offset=12)}, "subscription": WANTS_A},
         "in hand", "m has fetched it, behind 2 at most of 3", "its listener gets it"),
        ({"offsets": {QUEUE: 10}, "online": {"m": member(cached_msg_count=1, cached_msg_min_offset=10,
                                                         cached_msg_max_offset=10,
                                                         last_consume_timestamp=NOW - 90_000)},
          "subscription": WANTS_A},
         "in hand", "the first of 1; its listener has finished nothing for 1m30s", "consumerStatus -g g -i m -s"),
        ({"offsets": {QUEUE: 10}, "online": {"m": member(last_pull_timestamp=NOW - 300_000)}, "subscription": WANTS_A},
         "fetched soon", "it has pulled nothing for 5m00s", "with the next pull"),
        ({"online": IDLE, "subscription": WANTS_A}, "fetched soon", "has the queue, and has told no offset", "begins"),
        ({"offsets": {QUEUE: 9}, "subscription": WANTS_A,
          "online": {"m": ConsumerRunningInfo(mq_pop_table={QUEUE: PopProcessQueueInfo()})}},
         "in hand", "m pops from the queue", "comes again"),
        ({"offsets": {QUEUE: 11}, "waiting": [(message("SCHEDULE_TOPIC_XXXX", tries=1, stored=NOW - 4_000),
                                               NOW + 6_000)]},
         "tries again", "gave it back 1 times, the last time 4.0s ago", "try 2 of 17 is due at 2"),
        ({"offsets": {QUEUE: 11}, "most": 3,
          "waiting": [(message("SCHEDULE_TOPIC_XXXX", tries=2, stored=NOW - 40_000), NOW - 2_000)]},
         "tries again", "2 times", "try 3 of 4 was due 2.0s ago"),
        ({"offsets": {QUEUE: 11, RETRY: 0}, "retried": [message("%RETRY%g", offset=4, tries=1)]},
         "tries again", "a copy is in %RETRY%g (b/0 at 4)", "try 2 of 17: nobody is online"),
        ({"offsets": {QUEUE: 11, RETRY: 4}, "online": IDLE, "subscription": WANTS_B,
          "retried": [message("%RETRY%g", offset=4, tries=1)]},
         "tries again", "a copy is in", "m has the queue; this one is its next there"),
        ({"offsets": {QUEUE: 11}, "online": IDLE, "subscription": WANTS_A,
          "retried": [message("%RETRY%g", offset=0, tries=1)]},
         "tries again", "a copy is in", "m has the queue; it has read nothing there yet, and 0 messages"),
        ({"offsets": {QUEUE: 11, RETRY: 5}, "retried": [message("%RETRY%g", offset=4, tries=2)],
          "waiting": [(message("SCHEDULE_TOPIC_XXXX", tries=1), NOW), (message("SCHEDULE_TOPIC_XXXX", tries=2), NOW)]},
         "consumed", "gave it back 2 times, and finished it then, at try 3", "nothing"),
        ({"offsets": {QUEUE: 11}, "retried": [message("%RETRY%g", tries=2)],
          "dead": message("%DLQ%g", offset=7, stored=NOW - 3_600_000)},
         "dead", "it was tried 3 times and given up, 1h00m ago: it is in %DLQ%g (b/0 at 7)", "rmq tap '%DLQ%g'"),
    ],
)  # fmt: skip
def test_what_a_group_does_with_a_message(facts: dict[str, Any], state: str, what: str, then: str) -> None:
    told = of_group(message(), GroupFacts("g", **facts), NOW)
    assert told.state == state
    assert what in told.what, told.what
    assert then in told.next, told.next


def test_when_a_message_that_waits_is_due() -> None:
    levels = [1_000, 5_000]
    assert due_of(message(stored=5, DELAY="2"), levels) == 5_005
    assert due_of(message(stored=5, DELAY="9"), levels) == 5_005
    assert due_of(message(stored=5, DELAY="2"), []) is None
    assert due_of(message(stored=5, DELAY="x"), levels) is None
    assert due_of(message(TIMER_OUT_MS="77", DELAY="1"), levels) == 77
    assert real_topic(message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="T")) == "T"


def test_how_long() -> None:
    assert [ago(ms) for ms in (-5, 7, 1_200, 61_000, 3_720_000, 90_000_000)] == [
        "0ms", "7ms", "1.2s", "1m01s", "1h02m", "1d01h",
    ]  # fmt: skip

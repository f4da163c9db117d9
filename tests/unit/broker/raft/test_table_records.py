"""The records of changed topics, groups and modes: what goes in comes out, and nothing else does."""

from __future__ import annotations

import orjson
import pytest

from rmq.broker.raft.table_records import LONGEST, config_of, decode, encode
from rmq.broker.topics.changes import FORBIDDEN, GROUP, MODE, TOPIC, Change
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.errors import BodyError

VERSION = DataVersion(counter=7, timestamp=9)
TOPIC_CONFIG = TopicConfig("T", 3, 2, 4, "MULTI_TAG", 1, True, {"+a": "b"})
GROUP_CONFIG = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
MODE_CONFIG = SetMessageRequestModeRequestBody(consumer_group="g", mode="POP", pop_share_queue_num=2, topic="T")


@pytest.mark.parametrize(
    ("change", "config"),
    [
        (Change(TOPIC, "T", TOPIC_CONFIG.encode(), VERSION), TOPIC_CONFIG),
        (Change(TOPIC, "T", None, VERSION), None),
        (Change(GROUP, "g", GROUP_CONFIG.encode(), VERSION), GROUP_CONFIG),
        (Change(GROUP, "g", None, VERSION, offsets=True), None),
        (Change(FORBIDDEN, "g", b"4", VERSION, "T"), 4),
        (Change(FORBIDDEN, "g", None, VERSION, "T"), None),
        (Change(MODE, "T", MODE_CONFIG.encode(), None, "g"), MODE_CONFIG),
    ],
)
def test_a_change_comes_out_as_it_went_in(change: Change, config: object) -> None:
    body = encode(change)
    found = decode(body)
    assert found._replace(value=None) == change._replace(value=None)
    assert config_of(found) == config_of(change) == config
    assert encode(found) == body


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no object"),
        (b'{"kind":"offsets","name":"T"}', "another release"),
        (b'{"kind":"topic"}', "another release"),
        (b'{"kind":"topic","name":1}', "another release"),
        (b'{"kind":"topic","name":"a\\nb","value":null}', "no name"),
        (b'{"kind":"forbidden","name":"g","beside":"a\\nb","value":4}', "no name"),
        (b'{"kind":"topic","name":"T","value":null,"version":[]}', "DataVersion"),
        (b'{"kind":"topic\\nFATAL","name":"T"}', r"kind='topic\\nFATAL', name='T'"),
        (b'{"kind":"topic","name":"T","value":%s}' % (b"[" * 300 + b"]" * 300), "cannot be kept"),
        (b'{"kind":"topic","name":"T","value":null}'.ljust(LONGEST + 1), "65537 bytes"),
    ],
)
def test_what_is_no_change_is_refused(record: bytes, why: str) -> None:
    with pytest.raises(BodyError, match=why):
        decode(record)


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (TOPIC, {"topicName": "U"}, "two names"),
        (TOPIC, {"topicName": "T", "perm": 99}, "perm=99"),
        (TOPIC, {"topicName": "T", "readQueueNums": -1}, "readQueueNums=-1"),
        (GROUP, {"groupName": "U"}, "two names"),
        (GROUP, {"groupName": "T", "brokerId": -1}, "brokerId=-1"),
        (MODE, {"topic": "T", "consumerGroup": "h", "mode": "POP"}, "two names"),
        (FORBIDDEN, "4", "no bits"),
    ],
)
def test_a_configuration_that_nobody_would_have_is_refused(kind: str, value: object, why: str) -> None:
    change = decode(orjson.dumps({"kind": kind, "name": "T", "beside": "g", "value": value}))
    with pytest.raises(BodyError, match=why):
        config_of(change)

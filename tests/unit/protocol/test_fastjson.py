"""fastjson's dialect (protocol.md 4.1): what it emits is read and written equal, what it accepts is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.protocol import fastjson
from rmq.protocol.bodies.group import SubscriptionGroupTable
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.lock import LockBatchRequestBody
from rmq.protocol.bodies.offset import ConsumerOffsetTable, DelayOffsetTable
from rmq.protocol.bodies.reset import ResetOffsetBody
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import BrokerStatsData, TopicStatsTable
from rmq.protocol.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigTable
from rmq.protocol.errors import BodyError, ProtocolError
from rmq.protocol.fastjson import ObjectKey
from rmq.protocol.queue import MessageQueue

QUEUE = b'{"brokerName":"b1","queueId":0,"topic":"T1"}'
STORE = Path(__file__).parents[2] / "golden" / "protocol" / "store-config-4.9.4"


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{"T1@CG":{0:10,1:11}}}',
        b'{"offsetTable":{' + QUEUE + b":5}}",
        b'{"brokerAddrTable":{null:{"a":1}}}',
        '{"a":"中\\u0001\\u001F\\u007F😀\\u2028"}'.encode(),
        b"[]",
        b"{}",
        b'{"a":[1,null,"x",true,1.5,0.0]}',
        b'{{"a":1}:{{"b":2}:3}}',
    ],
)
def test_what_java_emits_is_read_and_written_equal(text: bytes) -> None:
    assert fastjson.dumps(fastjson.loads(text)) == text


def test_keys_that_are_objects_are_equal_whatever_their_order() -> None:
    one = fastjson.loads(b"{" + QUEUE + b":1}")
    other = fastjson.loads(b'{ { "topic" : "T1" , "brokerName":"b1","queueId":0 } : 1}')
    assert one == other == {ObjectKey.queue("T1", "b1", 0): 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a':'b\"c'}", {"a": 'b"c'}),
        ("{a:1,}", {"a": 1}),
        ("[1,2,]", [1, 2]),
        ('{,"a":1,,"b":2}', {"a": 1, "b": 2}),
        ('{"a":/* why */1 // and\n}', {"a": 1}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{"a":1}\x1a', {"a": 1}),
        ('{"a":NaN,"b":undefined}', {"a": None, "b": None}),
        ('{"a":+5,"b":05,"c":5.,"d":5L}', {"a": 5, "b": 5, "c": 5, "d": 5}),
        ('{"a":"\\x41\\v\\0\\/"}', {"a": "A\v\0/"}),
        ('{"a":"\n\t\x01"}', {"a": "\n\t\x01"}),
        ('{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a":"\\ud83d"}', {"a": "�"}),
        ("", None),
        ("null", None),
        ("  ", None),
    ],
)
def test_what_java_accepts_is_accepted(text: str, value: object) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    ["{", "[", "{]", '{"a"}', '{"a":}', "{} x", "[1 2]", '{"a":1 "b":2}', '"abc', "{'a", "/* {}", "tru", "-", "1.2.3",
     "[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{1.5:2}', "{[1]:2}", '{{"a":[1]}:2}', '"\\q"', '"\\u00g0"', "0x10"],
)  # fmt: skip
def test_damage_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(text)


def test_lenient_reading_can_be_limited() -> None:
    strict = b'{"a":"' + b"x" * 1000 + b'"}'
    assert fastjson.loads(strict, limit=10) == {"a": "x" * 1000}
    with pytest.raises(ProtocolError, match="strict"):
        fastjson.loads(strict.replace(b'"a"', b"'a'"), limit=10)


def test_references_are_followed() -> None:
    stats = (
        b'{"statsDay":{"avgpt":1.5,"sum":3,"tps":0.5},"statsHour":{"$ref":"$.statsDay"},'
        b'"statsMinute":{"$ref":"$.statsHour"}}'
    )
    data = BrokerStatsData.decode(stats)
    assert data.stats_day == data.stats_hour == data.stats_minute
    assert data.stats_day.sum == 3


def test_references_into_arrays_and_through_object_keys() -> None:
    assert fastjson.loads('{"a":[{"x":1},{"$ref":"$.a[0]"}]}') == {"a": [{"x": 1}, {"x": 1}]}
    path = "$.offsetTable.MessageQueue\\\\ \\\\[topic\\\\=T1\\\\,\\\\ brokerName\\\\=b1\\\\,\\\\ queueId\\\\=0\\\\]"
    text = (
        b'{"offsetTable":{'
        + QUEUE
        + b':{"maxOffset":9},'
        + QUEUE.replace(b"0", b"1")
        + b':{"$ref":"%s"}}}' % path.encode()
    )
    table = TopicStatsTable.decode(text).offset_table
    assert table[MessageQueue("T1", "b1", 1)].max_offset == 9


def test_references_as_keys() -> None:
    text = (
        b'{"mqPopTable":{'
        + QUEUE
        + b':{"waitAckCount":1}},"mqTable":{{"$ref":"$.mqPopTable.null"}:{"commitOffset":7}}}'
    )
    info = ConsumerRunningInfo.decode(text)
    assert list(info.mq_table) == [MessageQueue("T1", "b1", 0)]


def test_references_to_nowhere_and_in_circles_are_none() -> None:
    assert fastjson.loads('{"a":{"$ref":"$.nope"},"b":{"$ref":"$.c"},"c":{"$ref":"$.b"},"d":{"$ref":"x["}}') == {
        "a": None, "b": None, "c": None, "d": None,
    }  # fmt: skip
    assert fastjson.loads('{"a":{"b":{"$ref":"$.a"}}}') == {"a": {"b": None}}
    assert fastjson.loads('{"a":{"$ref":"$"}}') == {"a": None}


def test_a_5_x_registration_shares_its_versions() -> None:
    text = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},'
        b'"mappingDataVersion":{"$ref":"$.topicConfigSerializeWrapper.dataVersion"},"topicConfigTable":{}}}'
    )
    table = RegisterBrokerBody.decode(text).topic_config_serialize_wrapper
    assert table.mapping_data_version == table.data_version
    assert table.data_version is not None
    assert table.data_version.counter == 3


def test_quoted_keys_are_read_everywhere() -> None:
    assert ConsumerOffsetTable.decode(b'{"offsetTable":{"T1@CG":{"0":10,"1":"11"}}}').offset_table == {
        "T1@CG": {0: 10, 1: 11}
    }
    quoted = b'{"offsetTable":{"{\\"brokerName\\":\\"b1\\",\\"queueId\\":0,\\"topic\\":\\"T1\\"}":5}}'
    assert ResetOffsetBody.decode(quoted).offset_table == {MessageQueue("T1", "b1", 0): 5}


def test_values_are_converted_as_java_does() -> None:
    config = TopicConfig.decode(
        b'{"topicName":"T","readQueueNums":"8","perm":6.0,"order":1,"topicFilterType":1,"topicSysFlag":true,"new":[]}'
    )
    assert config == TopicConfig("T", 8, 16, 6, "MULTI_TAG", 1, True)
    assert TopicConfig.decode(b'{"topicFilterType":"NO_SUCH"}').topic_filter_type is None
    lenient = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":0,"subscriptionDataSet":'
        b'[{"topic":"T","tagsSet":null,"codeSet":null}]}],"producerDataSet":null}'
    )
    [consumer] = lenient.consumer_data_set
    assert consumer.consume_type == "CONSUME_ACTIVELY"
    assert (consumer.subscription_data_set[0].tags_set, lenient.producer_data_set) == ([], [])


@pytest.mark.parametrize(
    "text",
    [b"", b"null", b"[]", b"5", b'{"mqSet":{}}', b'{"mqSet":[5]}', b'{"mqSet":[{"queueId":"x"}]}', b'{"clientId":{}}',
     b'{"mqSet":[{"queueId":99999999999999999999}]}', b'{"mqSet":["{"]}', b'{"mqSet":[{"queueId":1e300}]}'],
)  # fmt: skip
def test_a_body_that_is_wrong_names_its_class(text: bytes) -> None:
    with pytest.raises(BodyError, match="LockBatchRequestBody"):
        LockBatchRequestBody.decode(text)


def test_metadata_files_of_a_java_store_are_written_equal() -> None:
    kinds = {
        "topics.json": TopicConfigTable,
        "subscriptionGroup.json": SubscriptionGroupTable,
        "consumerOffset.json": ConsumerOffsetTable,
        "delayOffset.json": DelayOffsetTable,
    }
    for name, kind in kinds.items():
        data = (STORE / name).read_bytes()
        assert fastjson.pretty(kind.decode(data).to_object()) == data
    for file in STORE.iterdir():
        assert fastjson.pretty(fastjson.loads(file.read_bytes())) == file.read_bytes()


def test_the_standard_form_is_strict_json() -> None:
    value = {"b": {1: "é/"}, "a": [None, True, 1.5, "\x7f"], "c": None}
    assert fastjson.standard(value) == b'{"a":[null,true,1.5,"\\u007F"],"b":{"1":"\\u00E9\\/"}}'


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError):
        fastjson.dumps({"a": object()})
    with pytest.raises(TypeError):
        fastjson.dumps({1.5: "a"})

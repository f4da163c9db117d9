"""Bytes that the published Java classes of 4.9.8 and 5.3.3 wrote (see README.md) are read, and written again equal."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import os
import pkgutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol import batch, bodies, fastjson, frame, headers, ids, message, properties, subscription, tags
from rmq.protocol.bodies.body import Body
from rmq.protocol.bodies.offset import LocalOffsetTable
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.topic import RegisterBrokerBody, TopicConfigTable
from rmq.protocol.codes import Language, version_name
from rmq.protocol.errors import FrameError
from rmq.protocol.fastjson.writer import java_double, quote_ascii
from rmq.protocol.header import Header

HERE = Path(__file__).parent
RELEASES = ("4.9.8", "5.3.3")


def _lines(release: str) -> list[dict[str, Any]]:
    with open(HERE / f"golden-{release}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


LINES = [(release, one) for release in RELEASES for one in _lines(release)]


def _golden(*kinds: str) -> list[Any]:
    """Golden objects of some kinds, one test for each release and class (the part of the name before a slash)."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for release, one in LINES:
        if one["kind"] in kinds:
            group = one["name"].split("/")[0] if one["kind"] in ("header", "body") else one["kind"]
            groups.setdefault((release, group), []).append(one)
    assert groups, kinds
    return [pytest.param(release, ones, id=f"{release}-{group}") for (release, group), ones in groups.items()]


def each(*kinds: str) -> Callable[[Callable[[str, dict[str, Any]], None]], Any]:
    """A test run for every golden object of some kinds."""

    def decorate(check: Callable[[str, dict[str, Any]], None]) -> Any:
        @pytest.mark.parametrize(("release", "ones"), _golden(*kinds))
        def test(release: str, ones: list[dict[str, Any]]) -> None:
            for one in ones:
                try:
                    check(release, one)
                except Exception as error:
                    error.add_note(f"golden object {one['name']!r} of {release}")
                    raise

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        return test

    return decorate


def _classes(package: Any, base: type) -> dict[str, Any]:
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        found.update({n: c for n, c in names.items() if isinstance(c, type) and issubclass(c, base)})
    return found


HEADERS: dict[str, type[Header]] = _classes(headers, Header)
BODIES: dict[str, type[Body]] = _classes(bodies, Body)
#: Java's names that are not simply ours with "Header".
RENAMED_HEADERS = {
    "SendMessageRequestHeaderV2": "SendMessageV2Request",
    "QueryCorrectionOffsetHeader": "QueryCorrectionOffsetRequest",
    "GetConsumeStatsInBrokerHeader": "GetConsumeStatsInBrokerRequest",
    "ConsumeMessageDirectlyResultRequestHeader": "ConsumeMessageDirectlyRequest",
    "DeleteTopicFromNamesrvRequestHeader": "DeleteTopicInNamesrvRequest",
    "ResetMasterFlushOffsetHeader": "ResetMasterFlushOffsetRequest",
}
RENAMED_BODIES = {
    "TopicConfigSerializeWrapper": "TopicConfigTable",
    "SubscriptionGroupWrapper": "SubscriptionGroupTable",
    "ConsumerOffsetSerializeWrapper": "ConsumerOffsetTable",
    "OffsetSerializeWrapper": "LocalOffsetTable",
    "MessageRequestModeSerializeWrapper": "MessageRequestModeTable",
}
#: Inherited by many 5.x headers; meaningless to a broker (protocol.md 1.8).
INHERITED = {"ns", "nsd", "oway", "lo", "bname"}


def _raw(one: dict[str, Any], name: str = "bytes") -> bytes:
    return bytes.fromhex(one[name])


@each("frame", "header")
def test_frames_are_read_and_written_again_equal(release: str, one: dict[str, Any]) -> None:
    data = _raw(one)
    command = frame.decode(data[4:])
    if one["name"] == "null and empty ext/ROCKETMQ":  # a value without bytes reads as null and is then left out
        assert command.ext == {"a": "1", "b": None}
        return
    assert frame.encode(command) == data


@each("header")
def test_every_field_of_a_java_header_has_its_place(release: str, one: dict[str, Any]) -> None:
    java, shape, _ = one["name"].split("/")
    kind = HEADERS[RENAMED_HEADERS.get(java) or java.removesuffix("Header")]
    ext = frame.decode(_raw(one)[4:]).ext or {}
    if shape == "least":
        assert kind.required <= set(ext), "we ask for a field that Java does not have to send"
    header = kind.decode(ext)
    written = header.encode()
    unknown = {name for name in ext if name not in written} - INHERITED
    # 5.x's cleanOffset is read into removeOffset, under which it is written.
    assert not unknown - {"cleanOffset"}
    assert {name: written[name] for name in ext if name in written} == {n: ext[n] for n in ext if n in written}


@each("tolerance")
def test_odd_headers_are_taken_or_refused_as_java_does(release: str, one: dict[str, Any]) -> None:
    text = one["name"].encode()
    data = b"\0" + len(text).to_bytes(3, "big") + text
    # Not followed: what no peer sends and what our answer to is no worse.
    differs = {
        '{"language":99}': "an ordinal beyond the list reads as an unknown language, as 13 must",
        '{"language":-1}': "the same",
        '{"code":"1,000"}': "refused",
        '{"a":new Date(1)}': "refused",
        '{"a":Set[1]}': "refused",
        '{"code":5;"flag":1}': "refused",
        '{"extFields":{"a":{"$ref":"$"}}}': "the text of the reference, not of the command",
        '{"extFields":{"a":1,"b":true,"c":1.50,"d":{"x":1,"y":"z"},"e":[1,"q"],"f":null,"g":-0,"h":1E5,'
        '"i":99999999999999999999}}': "-0 reads as 0",
        '{"remark":"\\ud800"}': "a lone surrogate becomes a replacement character",
    }
    if one["name"] in differs or ("@type" in one["name"] and release == "5.3.3"):  # @type is refused, as 4.9.8 does
        return
    if not one["accepted"]:
        with pytest.raises(FrameError):
            frame.decode(data)
        return
    command = frame.decode(data)
    language = None if command.language is None else Language(command.language).name
    seen = {"code": command.code, "version": command.version, "flag": command.flag, "remark": command.remark}
    assert seen == {name: one[name] for name in seen}
    assert language == one["language"] or language == "NODE_JS"  # a language of 5.x
    assert command.ext == one["ext"]
    if one["opaque"] is not None:
        assert command.opaque == one["opaque"]


@each("body")
def test_bodies_are_read_and_written_again_equal(release: str, one: dict[str, Any]) -> None:
    java, filled = one["name"].split("/")
    kind = BODIES[RENAMED_BODIES.get(java) or java]
    data = _raw(one)
    written = kind.decode(data).encode()
    if filled == "0":  # a bean as it was made: what is null there has a default here
        ours, theirs = fastjson.loads(written), fastjson.loads(data)
        assert isinstance(ours, dict)
        assert isinstance(theirs, dict)
        assert {name: ours.get(name) for name in theirs} == theirs
    else:
        assert written == data, f"\n{written.decode()}\n{data.decode()}"


@each("route")
def test_routes_have_both_forms(release: str, one: dict[str, Any]) -> None:
    route = TopicRouteData.decode(_raw(one, "default"))
    assert TopicRouteData.decode(_raw(one, "standard")) == route
    assert route.encode() == _raw(one, "default")
    assert route.encode(standard=True) == _raw(one, "standard")


@each("registration")
def test_a_compressed_registration_says_the_same(release: str, one: dict[str, Any]) -> None:
    plain = RegisterBrokerBody.decode(_raw(one, "plain"))
    packed = RegisterBrokerBody.decode(_raw(one), compressed=True)
    assert packed.filter_server_list == plain.filter_server_list
    ours, theirs = packed.topic_config_serialize_wrapper, plain.topic_config_serialize_wrapper
    assert ours.data_version == theirs.data_version
    # Two members are lost in this form, and the key beside the topic's own name.
    assert sorted(map(repr, ours.topic_config_table.values())) == sorted(
        repr(dataclasses.replace(config, topic_sys_flag=0, order=False))
        for config in theirs.topic_config_table.values()
    )
    assert RegisterBrokerBody.decode(packed.encode(compressed=True), compressed=True).encode() == (
        dataclasses.replace(packed, topic_config_serialize_wrapper=_without_attributes(ours)).encode()
    )


def _without_attributes(table: TopicConfigTable) -> TopicConfigTable:
    configs = {n: dataclasses.replace(c, attributes=None) for n, c in table.topic_config_table.items()}
    return TopicConfigTable(table.data_version, configs)


@each("record")
def test_records(release: str, one: dict[str, Any]) -> None:
    data = _raw(one)
    record = message.decode_record(data)
    assert message.encode_record(record) == data
    body = record.content()
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.flag) == (
        one["topic"], one["queueId"], one["queueOffset"], one["physicalOffset"], one["flag"]
    )  # fmt: skip
    assert (record.sys_flag, record.born_timestamp, record.store_timestamp) == (
        one["sysFlag"], one["born"], one["store"]
    )  # fmt: skip
    assert ids.pack_host(record.born_host[0], 0) == ids.pack_host(one["bornHost"], 0)
    assert ids.pack_host(record.store_host[0], 0) == ids.pack_host(one["storeHost"], 0)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (one["reconsume"], one["prepared"])
    assert (len(body), message.body_crc(body)) == (one["bodySize"], one["bodyCrc"])
    # Java's client prefers its own id; ours does the same, and the offset id names the place.
    assert one["msgId"] in (record.msg_id, record.offset_msg_id)
    assert len(record.offset_msg_id) == (56 if ":" in one["storeHost"] else 32)
    assert record.properties["TAGS"] == one["tags"]
    assert record.properties["KEYS"] == one["keys"]


def test_records_one_after_the_other() -> None:
    data = b"".join(_raw(one) for _, one in LINES if one["kind"] == "record")
    records = message.decode_records(data)
    assert len(records) == 80
    assert b"".join(map(message.encode_record, records)) == data


@each("record2")
def test_a_record_of_the_second_version(release: str, one: dict[str, Any]) -> None:
    record = message.decode_record(_raw(one))
    assert (record.topic, record.body, record.properties["KEYS"]) == (one["topic"], _raw(one, "body"), one["keys"])
    assert message.encode_record(record) == _raw(one)


@each("batch item")
def test_batch_items(release: str, one: dict[str, Any]) -> None:
    [(flag, body, props)] = batch.decode(_raw(one))
    assert (flag, body, props) == (one["flag"], _raw(one, "body"), properties.decode(one["properties"]))
    if not one["properties"].endswith("\x02"):  # 5.x ends with a separator
        assert batch.encode([(flag, body, props)]) == _raw(one)


@each("batch")
def test_batches(release: str, one: dict[str, Any]) -> None:
    items = batch.decode(_raw(one))
    assert len(items) == one["count"]
    if release == "4.9.8":
        assert batch.encode(items) == _raw(one)


@each("properties")
def test_property_strings_are_read_as_java_does(release: str, one: dict[str, Any]) -> None:
    assert properties.decode(one["name"]) == one["read"]
    for name in one["read"]:
        assert properties.get(one["name"], name) == one["read"][name]


@each("properties written")
def test_property_strings_are_written_as_java_does(release: str, one: dict[str, Any]) -> None:
    table: Any = {"KEYS": "k1 k2", "中": "文", "empty": "", "null": None, "last": "x\x01y"}
    assert properties.encode(table) == one["text"].removesuffix("\x02")


@each("offset id")
def test_offset_ids(release: str, one: dict[str, Any]) -> None:
    assert ids.offset_msg_id(one["host"], one["port"], one["offset"]) == one["id"]
    host, port, offset = ids.decode_offset_msg_id(one["id"])
    assert (host, port, offset) == (one["host"], one["port"], one["offset"])


@each("unique ids")
def test_unique_ids_count_up(release: str, one: dict[str, Any]) -> None:
    assert int(one["next"][-4:], 16) == int(one["name"][-4:], 16) + 1
    assert one["next"][:-12] == one["name"][:-12]


@each("unique id")
def test_unique_ids_tell_their_time(release: str, one: dict[str, Any]) -> None:
    before = os.environ.get("TZ")
    os.environ["TZ"] = one["zone"]
    time.tzset()
    try:
        made = ids.unique_id_time(one["name"], one["made"] + 5)
        assert made is not None
        assert one["made"] - 1000 < made <= one["made"]
        raw = bytes.fromhex(one["name"])
        generator = ids.UniqueIds(raw[:-12], one["pid"], int.from_bytes(raw[-10:-6], "big"), made)
        assert generator.next(made)[:-4] == one["name"][:-4]
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@each("hash")
def test_hashes(release: str, one: dict[str, Any]) -> None:
    assert tags.string_hash(one["name"]) == one["hash"]


@each("crc")
def test_body_crcs(release: str, one: dict[str, Any]) -> None:
    assert message.body_crc(one["name"].encode()) == one["crc"]


@each("subscription")
def test_subscriptions(release: str, one: dict[str, Any]) -> None:
    built = subscription.build(one["topic"], one["expression"], sub_version=1700000000000)
    java = json.loads(_raw(one))
    ours = json.loads(built.encode())
    for name in ("tagsSet", "codeSet"):  # sets: their order is a hash order
        assert sorted(ours.pop(name)) == sorted(java.pop(name))
    assert ours == java


@each("compressed")
def test_compressed_bodies(release: str, one: dict[str, Any]) -> None:
    assert message.decompress(_raw(one), one["flag"]) == "RocketMQ 中文 ".encode() * 1000


@each("versions")
def test_version_names(release: str, one: dict[str, Any]) -> None:
    for name, number in one["table"].items():
        if name.startswith(("V4", "V5")):
            assert version_name(number) == name
    assert version_name(one["table"]["HIGHER_VERSION"]) == "HIGHER_VERSION"


@each("text")
def test_texts_are_escaped_as_fastjson_does(release: str, one: dict[str, Any]) -> None:
    assert fastjson.dumps(one["text"]) == _raw(one)
    assert quote_ascii(one["text"]).encode() == _raw(one, "ascii")
    assert fastjson.loads(_raw(one)) == fastjson.loads(_raw(one, "ascii")) == one["text"]


@each("double")
def test_doubles_have_javas_text(release: str, one: dict[str, Any]) -> None:
    (value,) = struct.unpack(">d", struct.pack(">q", one["bits"]))
    assert java_double(value) == one["name"]
    assert fastjson.dumps(value).decode() == one["json"]


def test_the_local_offset_file_of_a_broadcasting_client() -> None:
    data = b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b1",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T1"\n\t\t}:5\n\t}\n}'
    table = LocalOffsetTable.decode(data).offset_table
    assert {(q.topic, q.broker_name, q.queue_id): offset for q, offset in table.items()} == {("T1", "b1", 0): 5}


def test_the_bit_set_of_a_batch_ack_is_java_text() -> None:
    from rmq.protocol.bodies.pop import bit_set, bits_of

    assert bit_set([0, 9]) == "AQI=" == base64.b64encode(b"\x01\x02").decode()
    assert bits_of("AQI=") == [0, 9]

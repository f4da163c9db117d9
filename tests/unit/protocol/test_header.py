"""Typed headers: what a definition may hold, what is read, what is refused."""

from __future__ import annotations

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError
from rmq.protocol.header import Header, wire, wire_header
from rmq.protocol.headers.group import DeleteSubscriptionGroupRequest
from rmq.protocol.headers.pull import PullMessageRequest
from rmq.protocol.headers.send import SendMessageRequest, SendMessageResponse, SendMessageV2Request
from rmq.protocol.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from rmq.protocol.headers.topic import CreateTopicRequest
from rmq.protocol.headers.transaction import EndTransactionRequest

#: Codes of 5.x that nothing here reads or writes: the controller's, cold data, authorisation, containers' caches.
NOT_SPOKEN = {
    1001, 1003, 1004, *range(1006, 1014), *range(2001, 2005), *range(3001, 3011),
    RequestCode.GET_CLIENT_CONFIG, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.POP_ROLLBACK,
}  # fmt: skip


@pytest.mark.parametrize("code", list(RequestCode))
def test_every_request_has_its_header_or_none(code: RequestCode) -> None:
    assert (code in REQUEST_HEADERS) != (code in NOT_SPOKEN)
    if code in RESPONSE_HEADERS:
        assert code in REQUEST_HEADERS


def test_every_code_of_4_9_8_is_spoken() -> None:
    source = list(RequestCode)
    last = source.index(RequestCode.DELETE_EXPIRED_COMMITLOG)  # codes.py lists 4.9.8's first
    assert not NOT_SPOKEN & set(source[: last + 1])


def test_a_field_without_a_wire_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Nameless\.topic has no wire name"):

        @wire_header
        class Nameless(Header):
            topic: str = "x"


def test_a_field_without_a_text_form_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.topics"):

        @wire_header
        class Wrong(Header):
            topics: list[str] = wire("topics")


def _send(**changed: str) -> dict[str, str | None]:
    ext: dict[str, str | None] = {
        "a": "PG", "b": "T1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "KEYS\x01k", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return ext | changed


def test_both_send_forms_say_the_same() -> None:
    short = SendMessageV2Request.decode(_send(k="TRUE", l="16"))
    assert (short.topic, short.born_timestamp, short.unit_mode, short.max_reconsume_times) == (
        "T1", 1700000000000, True, 16,
    )  # fmt: skip
    long = SendMessageRequest(**{name: getattr(short, name) for name in SendMessageRequest.wire_names})
    assert set(long.encode()) - {"maxReconsumeTimes"} == {
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
        "flag", "properties", "reconsumeTimes", "unitMode", "batch",
    }  # fmt: skip


def test_the_batch_flag_and_reconsume_times_may_be_missing() -> None:
    ext = _send()
    del ext["m"], ext["j"], ext["k"], ext["i"]
    header = SendMessageV2Request.decode(ext)
    assert (header.batch, header.reconsume_times, header.unit_mode, header.properties) == (False, None, False, None)


def test_a_missing_field_is_named() -> None:
    ext = _send()
    del ext["b"]
    with pytest.raises(HeaderError, match="SendMessageV2Request: the field b is missing"):
        SendMessageV2Request.decode(ext)
    with pytest.raises(HeaderError, match="queueId"):
        PullMessageRequest.decode({"consumerGroup": "g", "topic": "t"})
    with pytest.raises(HeaderError, match="consumerGroup"):
        Command(11).header(PullMessageRequest)


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", " 1", "1_000", "0x10", "2147483648", "-2147483649", "9" * 30, "--1", "+"]
)
def test_a_number_that_does_not_parse_is_named(text: str) -> None:
    with pytest.raises(HeaderError, match="e="):
        SendMessageV2Request.decode(_send(e=text))


@pytest.mark.parametrize(("text", "number"), [("-1", -1), ("+7", 7), ("007", 7), ("2147483647", 2**31 - 1)])
def test_numbers_are_read_as_java_does(text: str, number: int) -> None:
    assert SendMessageV2Request.decode(_send(e=text)).queue_id == number


def test_an_optional_number_that_does_not_parse_counts_as_absent() -> None:
    assert SendMessageV2Request.decode(_send(j="undefined")).reconsume_times is None
    pull = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2"}
    assert PullMessageRequest.decode(pull | {"subVersion": "x"}).sub_version == 0


def test_longs_have_64_bits() -> None:
    assert SendMessageV2Request.decode(_send(g=str(2**63 - 1))).born_timestamp == 2**63 - 1
    with pytest.raises(HeaderError):
        SendMessageV2Request.decode(_send(g=str(2**63)))


def test_unknown_fields_are_ignored() -> None:
    extra = {"AccessKey": "k", "Signature": "s", "ReqT": "0", "ns": "n", "nsd": "true", "oway": "false", "lo": "true"}
    assert SendMessageV2Request.decode(_send(**extra)) == SendMessageV2Request.decode(_send())


def test_the_name_that_5_x_gave_a_field_is_read() -> None:
    for name in ("removeOffset", "cleanOffset"):
        assert DeleteSubscriptionGroupRequest.decode({"groupName": "g", name: "true"}).remove_offset
    assert DeleteSubscriptionGroupRequest(group_name="g").encode() == {"groupName": "g", "removeOffset": "false"}


def test_a_transaction_ends_in_one_of_three_ways() -> None:
    ext: dict[str, str | None] = {"producerGroup": "g", "tranStateTableOffset": "1", "commitLogOffset": "2"}
    assert EndTransactionRequest.decode(ext | {"commitOrRollback": "8"}).commit_or_rollback == 8
    with pytest.raises(HeaderError, match="commitOrRollback"):
        EndTransactionRequest.decode(ext | {"commitOrRollback": "4"})


def test_topics_are_made_with_what_a_live_broker_needs() -> None:
    header = CreateTopicRequest.decode({"topic": "T", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"})
    assert (header.order, header.topic_sys_flag, header.topic_filter_type) == (False, None, "SINGLE_TAG")


def test_a_send_is_answered_with_what_the_client_unboxes() -> None:
    header = SendMessageResponse(msg_id="ID", queue_id=3, queue_offset=9, msg_region="DefaultRegion", trace_on="true")
    assert header.encode() == {
        "msgId": "ID", "queueId": "3", "queueOffset": "9", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip

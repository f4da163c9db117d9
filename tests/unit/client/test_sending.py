"""From message to frame: what is sent is what the typed headers and codecs read back."""

from __future__ import annotations

import itertools
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import datetime

import pytest

from rmq.client.frames import SendFrames
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.results import SendStatus
from rmq.client.sending import SendEncoder, next_opaque, send_result
from rmq.client.settings import ProducerSettings
from rmq.protocol import batch, frame
from rmq.protocol import properties as property_string
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import VERSION, Command
from rmq.protocol.compression import decompress
from rmq.protocol.errors import ClientError, ResponseError
from rmq.protocol.headers.send import SendMessageV2Request

QUEUE = MessageQueue("T", "broker-a", 3)


def encoder(**options: object) -> SendEncoder:
    numbers = itertools.count()
    return SendEncoder("pg", ProducerSettings.of(options), lambda _: f"ID{next(numbers)}", lambda: 1_700_000_000_000)


def sent(made: SendEncoder, message: Message | list[Message], **how: bool) -> tuple[Command, SendMessageV2Request]:
    send = made.prepare_batch(message) if isinstance(message, list) else made.prepare(message)
    command = frame.decode(SendFrames("pg", made._settings).frame(send, QUEUE, -7, None, **how)[4:])
    return command, command.header(SendMessageV2Request)


def test_a_frame_is_the_v2_header_and_the_body() -> None:
    message = Message("T", b"body", tags="TagA", keys=["k1", "k2"], flag=-5, properties={"a": 'ä"\\', "b": "2"})
    command, header = sent(encoder(), message)
    assert (command.code, command.opaque, command.flag, command.version) == (310, -7, 0, VERSION)
    assert command.body == b"body"
    assert header == SendMessageV2Request(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=-5,
        properties=header.properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        bname="broker-a",
    )
    assert property_string.decode(header.properties) == {
        "TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "ID0", "a": "ä\"\\", "b": "2",
    }  # fmt: skip


def test_delay_wait_and_oneway() -> None:
    command, header = sent(encoder(), Message("T", b"x", delay_level=3, wait_store_ok=False), oneway=True)
    assert command.is_oneway
    assert property_string.decode(header.properties) == {"UNIQ_KEY": "ID0", "DELAY": "3", "WAIT": "false"}


def test_the_message_is_not_changed() -> None:
    """Field case B080."""
    properties = {"a": "1"}
    message = Message("T", b"x" * 10_000, properties=properties)
    made = encoder()
    made.prepare(message)
    made.prepare_batch([message])
    assert (message.body, message.properties, message.keys) == (b"x" * 10_000, {"a": "1"}, None)
    assert properties == {"a": "1"}


@pytest.mark.parametrize(("kind", "flag"), [("ZLIB", 0x301), ("LZ4", 0x101), ("ZSTD", 0x201)])
def test_large_bodies_are_compressed(kind: str, flag: int) -> None:
    body = b"abc" * 2_000
    command, header = sent(encoder(compress_type=kind), Message("T", body))
    assert header.sys_flag == flag
    assert len(command.body) < len(body)
    assert decompress(command.body, header.sys_flag) == body


def test_the_limit_of_compression_is_4096_bytes() -> None:
    command, header = sent(encoder(), Message("T", b"a" * 4_095))
    assert (len(command.body), header.sys_flag) == (4_095, 0)
    command, header = sent(encoder(), Message("T", b"a" * 4_096))
    assert zlib.decompress(command.body) == b"a" * 4_096


def test_a_batch_holds_every_message_with_its_own_properties_and_is_never_compressed() -> None:
    """Field case B079."""
    messages = [Message("T", b"x" * 3_000, tags=f"t{i}", keys=f"k{i}", flag=i) for i in range(4)]
    command, header = sent(encoder(), messages)
    assert (command.code, header.batch, header.sys_flag) == (320, True, 0)
    assert encoder().prepare_batch(messages).msg_id == "ID0,ID1,ID2,ID3"
    items = batch.decode(command.body)
    assert [(flag, body) for flag, body, _ in items] == [(i, b"x" * 3_000) for i in range(4)]
    assert [properties["KEYS"] for _, _, properties in items] == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "empty"),
        ([Message("T", b"1"), Message("U", b"1")], "one topic"),
        ([Message("T", b"1", delay_level=1)], "that waits"),
        ([Message("T", b"1", delay=1)], "that waits"),
        ([Message("%RETRY%g", b"1")], "retry topic"),
        ([Message("T", b"1"), Message("T", b"1", wait_store_ok=False)], "wait_store_ok"),
        ([Message("T", b"1" * 3_000_000), Message("T", b"1" * 3_000_000)], "producer.split"),
    ],
)
def test_bad_batches_are_refused(messages: list[Message], why: str) -> None:
    with pytest.raises(ClientError, match=why):
        encoder().prepare_batch(messages)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Message("T", b""), "empty body"),
        (lambda: Message("T", b"x" * 4_194_305), "max_message_size"),
        (lambda: Message("a.b", b"x"), "illegal characters"),
        (lambda: Message("订单", b"x"), "illegal characters"),
        (lambda: Message("", b"x"), "blank"),
        (lambda: Message("t" * 128, b"x"), "127"),
        (lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"), "broker's own"),
        (lambda: Message("T", b"x", properties={"UNIQ_KEY": "1"}), "RocketMQ's own"),
        (lambda: Message("T", b"x", properties={"a": ""}), "not empty"),
        (lambda: Message("T", b"x", properties={"a": 1}), "texts"),  # type: ignore[dict-item]
        (lambda: Message("T", b"x", tags="a\x01b"), "control character"),
        (lambda: Message("T", b"x", properties={"a": "1\x022"}), "control character"),
        (lambda: Message("T", b"x", properties={"a": "ä" * 17_000}), "32767"),
        (lambda: Message("T", b"x", properties={"a": "\ud800"}), "Unicode"),
        (lambda: Message("T", b"x", flag=1 << 31), "32 bits"),
        (lambda: Message("T", b"x", delay_level=-1), "delay_level"),
        (lambda: Message("T", 5), "bytes or text"),  # type: ignore[arg-type]
        (lambda: Message("T", "\ud800"), "send bytes"),
        (lambda: Message("T", b"x", tags=["a"]), "give one tag"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", tags="A || B"), "a message has one tag"),
        (lambda: Message("T", b"x", keys=5), "several texts"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", keys=["a", None]), "several texts"),  # type: ignore[list-item]
        (lambda: Message("T", b"x", properties=5), "a mapping"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", flag=None), "flag is None"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", delay_level="3"), "delay_level is '3'"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", delay=float("inf")), "delay is inf"),
        (lambda: Message("T", b"x", delay=10**400), "delay is 1000"),
        (lambda: Message("T", b"x", deliver_at=datetime.min), "out of range"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_reason(make: Callable[[], Message], why: str) -> None:
    with pytest.raises(ClientError, match=why):
        encoder().prepare(make())


def test_the_longest_names_and_bodies_go_through() -> None:
    encoder().prepare(Message("t" * 127, b"x" * 4_194_304))


def test_a_received_message_passes_on_without_the_brokers_properties() -> None:
    message = MessageExt()
    message.topic, message.body, message.flag = "T", b"x", 1
    message.properties = {"TAGS": "A", "UNIQ_KEY": "OLD", "CLUSTER": "c", "MIN_OFFSET": "0", "own": "1"}
    _, header = sent(encoder(), message)  # type: ignore[arg-type]
    assert property_string.decode(header.properties) == {"TAGS": "A", "UNIQ_KEY": "ID0", "own": "1"}


def test_split_fills_batches_up_to_the_byte() -> None:
    """Field case B079."""
    made = encoder(max_message_size=20_000)
    messages = [Message("T", b"x" * (1 + 37 * i % 5_000), properties={"名": "值" * (i % 50 + 1)}) for i in range(300)]
    big = Message("T", b"x" * 20_001)
    oversize: list[Message | MessageExt] = []
    parts = list(made.split([*messages[:100], big, *messages[100:]], oversize=oversize))
    assert [message for part in parts for message in part] == messages
    assert oversize == [big]
    for part, following in itertools.pairwise(parts):
        # As the encoder counts: ids here are shorter than real ones, so sizes are taken from the splitter itself.
        size = sum(made.item_size(message) for message in part)
        assert size <= 20_000 < size + made.item_size(following[0])
    real = SendEncoder("pg", ProducerSettings.of({"max_message_size": 20_000}), lambda _: "0" * 32, lambda: 0)
    assert all(len(real.prepare_batch(part).body) <= 20_000 for part in parts)
    with pytest.raises(ClientError, match="alone takes"):
        list(made.split([big]))


def test_split_separates_topics_and_delayed_messages() -> None:
    messages = [Message("T", b"1"), Message("T", b"2", delay_level=1), Message("T", b"3"), Message("U", b"4")]
    assert [len(part) for part in encoder().split(messages)] == [1, 1, 1, 1]


def test_opaques_of_sends_are_negative_and_differ() -> None:
    seen = {next_opaque() for _ in range(1_000)}
    assert len(seen) == 1_000
    assert all(-(1 << 31) <= opaque < 0 for opaque in seen)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.SEND_OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_is_told_with_how(code: int, status: SendStatus) -> None:
    send = encoder().prepare(Message("T", b"x"))
    reply = Command(
        code, ext={"msgId": "OFF", "queueId": "1", "queueOffset": "9", "TRACE_ON": "false", "MSG_REGION": "r"}
    )
    result = send_result(reply, send, QUEUE)
    assert (result.send_status, result.msg_id, result.offset_msg_id, result.queue_offset) == (status, "ID0", "OFF", 9)
    assert result.message_queue == MessageQueue("T", "broker-a", 1)
    assert (result.trace_on, result.region_id, result.ok) == (False, "r", code == 0)


def test_a_refusal_keeps_code_and_remark() -> None:
    send = encoder().prepare(Message("T", b"x"))
    with pytest.raises(ResponseError, match="code 14 from a:1: disk full") as caught:
        send_result(Command(14, remark="disk full"), send, QUEUE, "a:1")
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_what_is_under_way_holds_no_more_than_it_says() -> None:
    """orjson gives texts in the kilobytes that it wrote them in: two thousand of them are eight megabytes."""
    made = encoder()
    made.prepare(Message("T", b"x"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [made.prepare(Message("T", b"x")) for _ in range(100)]
        each = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    finally:
        tracemalloc.stop()
    assert each < 1_000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda message: setattr(message, "body", b""),
        lambda message: setattr(message, "body", b"x" * (5 << 20)),
        lambda message: setattr(message, "tags", "a || b"),
        lambda message: setattr(message, "properties", {"a": "x" * 40_000}),
        lambda message: setattr(message, "properties", {"UNIQ_KEY": "x"}),
        lambda message: setattr(message, "delay_level", "3"),
        lambda message: setattr(message, "topic", "SCHEDULE_TOPIC_XXXX"),
    ],
)
def test_what_cannot_be_sent_says_of_which_topic_it_is(spoil: Callable[[Message], None]) -> None:
    message = Message("T", b"x")
    spoil(message)
    made = encoder()
    for prepare in (made.prepare, made.prepare_item, made.prepare_half):
        with pytest.raises(ClientError) as refused:
            prepare(message)
        assert refused.value.topic == message.topic
    with pytest.raises(ClientError) as refused:
        made.prepare_batch([message, Message("U", b"x")])
    assert refused.value.topic == message.topic

"""OpenMessaging's interface on a cluster in virtual time: what is sent comes, and again unless it is acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rmq import AdminClient, ClientError
from rmq.integrations.openmessaging import (
    BytesMessage,
    MessageContext,
    MessagingAccessPoint,
    messaging_access_point,
)
from rmq.testing.simcluster import BlockingSimCluster
from tests.support.daemons import PATIENCE


@pytest.fixture
def place(rmq_cluster: BlockingSimCluster) -> MessagingAccessPoint:
    return messaging_access_point(
        f"oms:rocketmq://alice@{rmq_cluster.namesrv_addr}/us-east", {"OPERATION_TIMEOUT": 2000}
    )


#: With a minute for acknowledgements.
GROUP = {"rmq.consumer.group": "g", "rmq.message.consume.timeout": 1}


def test_a_message_comes_with_its_headers(rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint) -> None:
    with place.create_producer() as producer:
        message = producer.create_bytes_message("T", "h\u00e9llo")
        message.put_sys_headers("SEARCH_KEYS", "k1").put_user_headers("number", 7).put_user_headers("share", 0.5)
        sent = producer.send(message)
        assert message.sys_headers["MESSAGE_ID"] == sent.message_id
        later = producer.send_async(producer.create_bytes_message("T", b"two")).result(PATIENCE)
        producer.send_oneway(producer.create_bytes_message("T", b"three"))
        with place.create_pull_consumer(GROUP) as consumer:
            consumer.attach_queue("T")
            got = [consumer.receive({"OPERATION_TIMEOUT": 30_000}) for _ in range(3)]
            assert consumer.receive() is None
    by_body = {message.body: message for message in got if message is not None}
    assert set(by_body) == {"h\u00e9llo".encode(), b"two", b"three"}
    assert by_body[b"two"].sys_headers["MESSAGE_ID"] == later.message_id
    one = by_body["h\u00e9llo".encode()]
    assert one.user_headers["number"] == "7"
    assert one.user_headers["share"] == "0.5"
    names = ("DESTINATION", "MESSAGE_ID", "SEARCH_KEYS", "REDELIVERED_NUMBER")
    assert [one.sys_headers[name] for name in names] == ["T", sent.message_id, "k1", 0]
    with AdminClient(namesrv=rmq_cluster.namesrv_addr) as admin:
        (found,) = admin.query_message("T", "k1").messages
    assert found.msg_id == sent.message_id
    assert not {"DESTINATION", "SEARCH_KEYS"} & one.user_headers.keys()


def test_what_is_acknowledged_is_done_and_what_is_not_comes_again(
    rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint
) -> None:
    with place.create_producer() as producer, place.create_pull_consumer(GROUP) as consumer:
        consumer.attach_queue("T")
        for body in (b"done", b"left"):
            producer.send(producer.create_bytes_message("T", body))
        got: dict[bytes, BytesMessage] = {}
        for _ in range(2):
            message = consumer.receive({"OPERATION_TIMEOUT": 60_000})
            assert message is not None
            got[message.body] = message
        consumer.ack(str(got[b"done"].sys_headers["MESSAGE_ID"]))
        consumer.ack("of nobody")
        rmq_cluster.advance(minutes=1.2)
        again = consumer.receive({"OPERATION_TIMEOUT": 60_000})
        assert again is not None
        assert again.body == b"left"
        assert again.sys_headers["REDELIVERED_NUMBER"] == 1
        assert again.sys_headers["MESSAGE_ID"] == got[b"left"].sys_headers["MESSAGE_ID"]
        consumer.ack(str(again.sys_headers["MESSAGE_ID"]))
        rmq_cluster.advance(minutes=2)
        assert consumer.receive() is None
    with place.create_pull_consumer(GROUP) as consumer:
        consumer.attach_queue("T")
        assert consumer.receive({"OPERATION_TIMEOUT": 60_000}) is None


def test_what_nobody_received_in_time_comes_once(rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint) -> None:
    with place.create_producer() as producer, place.create_pull_consumer(GROUP) as consumer:
        consumer.attach_queue("T")
        sent = producer.send(producer.create_bytes_message("T", b"x"))
        rmq_cluster.advance(30)
        consumer.ack(sent.message_id)  # nobody has it yet
        rmq_cluster.advance(33)
        assert consumer.receive() is None, "its time is over"
        got = consumer.receive({"OPERATION_TIMEOUT": 30_000})
        assert got is not None
        assert got.sys_headers["REDELIVERED_NUMBER"] == 1
        assert consumer.receive() is None


def test_what_was_received_and_not_acknowledged_is_the_next_one_s(
    rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint
) -> None:
    with place.create_producer() as producer:
        producer.send(producer.create_bytes_message("T", b"x"))
    for _ in range(2):
        with place.create_pull_consumer(GROUP) as consumer:
            consumer.attach_queue("T")
            message = consumer.receive({"OPERATION_TIMEOUT": 60_000})
            assert message is not None
            assert message.body == b"x"


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_listener_acknowledges_or_gets_it_again(
    kind: str, rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint
) -> None:
    seen: list[tuple[bytes, Any]] = []
    late: list[MessageContext] = []

    def plain(message: BytesMessage, context: MessageContext) -> None:
        times = message.sys_headers["REDELIVERED_NUMBER"]
        seen.append((message.body, times))
        if message.body == b"later":
            late.append(context)
        elif message.body == b"raises" and not times:
            raise ValueError("no")
        elif message.body != b"silent" or times:
            context.ack()

    async def coroutine(message: BytesMessage, context: MessageContext) -> None:
        plain(message, context)

    listener: Callable[..., object] = plain if kind == "plain" else coroutine
    with place.create_producer() as producer, place.create_push_consumer(GROUP).attach_queue("T", listener) as consumer:
        for body in (b"good", b"later", b"raises", b"silent"):
            producer.send(producer.create_bytes_message("T", body))
        rmq_cluster.advance(30)
        assert sorted(seen) == [(b"good", 0), (b"later", 0), (b"raises", 0), (b"raises", 1), (b"silent", 0)]
        late[0].ack()
        late[0].ack()
        rmq_cluster.advance(minutes=2)
        assert sorted(seen)[-1:] == [(b"silent", 1)]
        assert len(seen) == 6
        consumer.suspend()
        rmq_cluster.advance(20)  # a pull under way still brings what comes
        producer.send(producer.create_bytes_message("T", b"new"))
        rmq_cluster.advance(2)
        assert (consumer.is_suspended(), len(seen)) == (True, 6)
        consumer.resume()
        rmq_cluster.advance(2)
        assert (consumer.is_suspended(), seen[-1]) == (False, (b"new", 0))
        consumer.detach_queue("T")
        producer.send(producer.create_bytes_message("T", b"for others"))
        rmq_cluster.advance(2)
        assert len(seen) == 7


def test_a_start_time_is_when_it_is_delivered(rmq_cluster: BlockingSimCluster, place: MessagingAccessPoint) -> None:
    with place.create_producer() as producer, place.create_pull_consumer(GROUP) as consumer:
        consumer.attach_queue("T")
        start = int((rmq_cluster.now() + timedelta(minutes=1)).timestamp() * 1000)
        message = producer.create_bytes_message("T", b"x").put_sys_headers("START_TIME", start)
        producer.send(message)
        rmq_cluster.advance(50)
        assert consumer.receive() is None
        rmq_cluster.advance(20)
        assert consumer.receive() is not None


@pytest.mark.parametrize(
    ("url", "hosts", "account", "region"),
    [
        ("oms:rocketmq://alice@a:1,b:2/us-east", "a:1,b:2", "alice", "us-east"),
        ("oms:rocketmq://a:1/us-east:space", "a:1", "", "us-east:space"),
    ],
)
def test_urls_as_java_reads_them(url: str, hosts: str, account: str, region: str) -> None:
    attributes = messaging_access_point(url).attributes
    assert [attributes[name] for name in ("ACCESS_POINTS", "ACCOUNT_ID", "REGION")] == [hosts, account, region]


@pytest.mark.parametrize("url", ["", "a:9876", "oms:rocketmq://a:9876", "oms:kafka://a:1/x", "oms:rocketmq:///x", None])
def test_what_is_no_access_point_is_refused(url: Any) -> None:
    with pytest.raises(ClientError):
        messaging_access_point(url)


def test_mistakes_are_told_at_once(place: MessagingAccessPoint) -> None:
    with pytest.raises(ClientError, match="did you mean OPERATION_TIMEOUT"):
        place.create_producer({"OPERATION_TIMEOUTS": 1})
    with pytest.raises(ClientError, match="give a whole number"):
        place.create_producer({"OPERATION_TIMEOUT": "soon"})
    with pytest.raises(ClientError, match=r"give the attribute rmq\.consumer\.group"):
        place.create_pull_consumer()
    with pytest.raises(ClientError, match="not started"):
        place.create_pull_consumer(GROUP).receive()
    with pytest.raises(ClientError, match="did you mean START_TIME"):
        BytesMessage(b"x").put_sys_headers("START_TIMES", 1)
    with place.create_producer() as producer:
        with pytest.raises(ClientError):
            producer.create_bytes_message("a.b", b"x")
        with pytest.raises(ClientError):
            producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="START_TIME is"):
            producer.send(BytesMessage(b"x", {"DESTINATION": "T", "START_TIME": "soon"}))

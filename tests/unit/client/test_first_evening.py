"""What costs a new user an evening: said at once, in one line, with the way out."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import pickle
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

import rmq
from rmq import Message, MessageExt, MessageQueue, Producer, PushConsumer, RMQError, SendResult, SendStatus, aio
from rmq.client.admin import Answers
from rmq.client.admin.reset import OffsetReset
from rmq.client.checks import milliseconds
from rmq.client.instance import ClientInstance, connect_instance, instances_of
from rmq.client.outages import Outages, outages_of
from rmq.client.results import PullResult, PullStatus, TopicStats
from rmq.client.settings import ClientSettings, PushConsumerSettings
from rmq.protocol.bodies.body import Body
from rmq.protocol.bodies.stats import TopicOffset
from rmq.protocol.errors import ClientError, ConnectFailed, ConnectionLost, RequestTimeout, ResponseError, UnknownOption
from rmq.runtime.world import World

QUEUE = MessageQueue("T", "a", 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Message("a.b", b"x"), "illegal characters"),
        (lambda: Message(["T"], b"x"), "a topic is a text"),  # type: ignore[arg-type]
        (lambda: Message("T", b"x", delay_level=99), "delay_level is 99: give 0 (none) or 1 to 18"),
        (lambda: Message("T", b"x", delay_level=True), "delay_level is True"),
    ],
)
def test_a_message_that_can_never_be_sent_is_refused_where_it_is_made(make: Callable[[], Message], why: str) -> None:
    with pytest.raises(ClientError) as refused:
        make()
    assert why in str(refused.value)


@pytest.mark.parametrize("kind", [PushConsumer, aio.PushConsumer])
def test_a_decorator_without_its_topic_is_refused(kind: Any) -> None:
    with pytest.raises(ClientError, match=r"@consumer\.on\('TopicTest'\)"):
        kind("g", namesrv="n:1").on(lambda message: None)


@pytest.mark.parametrize("kind", [PushConsumer, aio.PushConsumer])
def test_a_topic_has_one_listener(kind: Any) -> None:
    consumer = kind("g", namesrv="n:1")
    consumer.on("T")(print)
    with pytest.raises(ClientError, match="the topic T has a listener in this consumer already"):
        consumer.on("T", "TagB")(repr)
    consumer.on("U")(print)
    consumer.unsubscribe("T")
    consumer.on("T")(repr)


@pytest.mark.parametrize("make", [PushConsumer, rmq.Producer, rmq.PullConsumer, aio.PushConsumer, aio.Producer])
def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest(make: Any) -> None:
    with pytest.raises(TypeError, match="no setting 'namesrv_adr': did you mean namesrv") as unknown:
        make("g", namesrv_adr="n:1")
    assert isinstance(unknown.value, (UnknownOption, ClientError))


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({"consume_thread_max": 4}, (4, 4)),
        ({"consume_thread_min": 64}, (64, 64)),
        ({"consume_thread_max": 64}, (20, 64)),
        ({"consume_thread_min": 4}, (4, 20)),
        ({}, (20, 20)),
    ],
)
def test_a_number_of_threads_that_nobody_set_follows_the_other(
    options: dict[str, int], threads: tuple[int, int]
) -> None:
    made = PushConsumerSettings.of(options)
    assert (made.consume_thread_min, made.consume_thread_max) == threads


def test_help_lists_the_options_with_their_defaults() -> None:
    for client in (PushConsumer, aio.PushConsumer):
        assert "pull_batch_size: int = 32" in (client.__doc__ or "")
    for producer in (rmq.Producer, aio.Producer, rmq.TransactionProducer):
        assert "send_msg_timeout: float = 3.0" in (producer.__doc__ or "")


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConnectFailed, ConnectionError), (ConnectionLost, ConnectionError), (RequestTimeout, TimeoutError)],
)
def test_errors_are_pythons_own_where_they_are_that(error: type[rmq.TransportError], kind: type[OSError]) -> None:
    made = error("a:1: gone").about(queue=QUEUE, address="a:1")
    assert isinstance(made, kind)
    assert str(made) == "a:1: gone"
    assert (made.topic, made.queue, made.address, made.code, made.retriable) == ("T", QUEUE, "a:1", None, True)
    again = pickle.loads(pickle.dumps(made))
    assert (type(again), str(again), again.queue) == (error, "a:1: gone", QUEUE)


def test_what_an_error_says_of_itself_stays() -> None:
    error = ResponseError(17, "no topic", "a:1").about(topic="T").about(topic="U", queue=QUEUE, address="b:1")
    assert (error.topic, error.address, error.code) == ("T", "a:1", 17)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectFailed("x").about(queue=QUEUE, address="a:1"), "mqadmin brokerStatus -b a:1"),
        (ResponseError(2, "busy", "a:1").about(queue=QUEUE), "mqadmin brokerStatus -b a:1"),
        (ResponseError(17, "no topic", "a:1").about(queue=QUEUE), "mqadmin topicRoute -t T"),
        (ClientError("x").about(topic="a b;c"), "mqadmin topicRoute -t 'a b;c'"),
        (ClientError("x"), None),
    ],
)
def test_the_hint_is_a_command_that_tells_more(error: rmq.RMQError, hint: str | None) -> None:
    assert error.hint == hint


def test_errors_of_calls_say_what_they_are_about() -> None:
    consumer = aio.PushConsumer("g", namesrv="n:1")
    with pytest.raises(ClientError) as refused:
        consumer.subscribe("a.b")
    assert refused.value.topic == "a.b"
    with pytest.raises(ClientError) as wrong:
        consumer.subscribe(topic="T", expression=5)  # type: ignore[arg-type]
    assert wrong.value.topic == "T"


def test_a_broker_that_is_away_is_warned_of_once() -> None:
    outages = Outages()
    gone = ConnectionLost("x").about(address="a:1")
    assert [outages.level(gone) for _ in range(3)] == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert outages.level(ConnectFailed("x").about(address="b:1")) == logging.WARNING
    assert outages.level(ResponseError(1, "no", "a:1")) == logging.WARNING, "it answered"
    outages.answered("a:1")
    assert outages.level(gone) == logging.WARNING


def test_it_is_warned_of_once_a_process_by_clients_that_come_as_the_same() -> None:
    """Each with a loop of its own. Who comes as somebody else may be the only one whom a broker does not answer."""

    async def made(**options: str) -> ClientInstance:
        return connect_instance(World.real(), ClientSettings.of({"namesrv": "127.0.0.1:1", **options}))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        one, other = first.run(made()), second.run(made())
        stranger = second.run(made(access_key="a", secret_key="12345678"))
        assert one is not other
        # Members of one group are to subscribe the same, on whichever loop they are.
        assert {one, other, stranger} <= set(instances_of("127.0.0.1:1", World.real()))
    assert not {one, other, stranger} & set(instances_of("127.0.0.1:1", World.real())), "their loops are at an end"
    assert one.outages is other.outages
    assert one.outages is not stranger.outages


def test_what_is_noticed_ends_with_its_clients_and_is_no_other_process() -> None:
    mine = outages_of(1, None)
    assert outages_of(1, None) is mine
    assert outages_of(2, None) is not mine
    mine.level(ConnectionLost("x").about(address="a:1"))
    del mine
    gc.collect()
    assert not outages_of(1, None).away("a:1")


def test_no_more_brokers_are_remembered_than_a_cluster_has() -> None:
    outages = Outages()
    for number in range(5_000):
        outages.level(ConnectionLost("x").about(address=f"a:{number}"))
    assert len(outages._away) <= 1_000


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "ms"),
    [(5, 5), (-1, -1), (datetime(2026, 11, 29, tzinfo=UTC), 1_795_910_400_000), (datetime.fromtimestamp(1.5), 1500)],
)
def test_a_time_is_a_datetime_or_milliseconds(value: int | datetime, ms: int) -> None:
    assert milliseconds(value, "timestamp") == ms


@pytest.mark.parametrize("value", [True, 1.5, "now", 1 << 63, datetime.min])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ClientError, match="begin is "):
        milliseconds(value, "begin")


def received(**other: object) -> MessageExt:
    message = MessageExt()
    message.topic, message.body, message.broker_name, message.queue_id = "T", b"x", "a", 1
    message.queue_offset, message.commit_log_offset, message.store_host = 5, 700, ("127.0.0.1", 10911)
    message.properties = {"UNIQ_KEY": "ID", "TAGS": "TagA"}
    for name, value in other.items():
        setattr(message, name, value)
    return message


def test_messages_are_equal_by_what_they_say() -> None:
    assert Message("T", b"x", keys=["a", "b"]) == Message("T", "x", keys="a b")
    assert Message("T", b"x") != Message("T", b"x", tags="TagA")
    assert received() == received()
    assert len({received(), received()}) == 1
    assert received() != received(body=b"y")
    assert received() != received(properties={})
    assert received() != Message("T", b"x")


def test_dict_forms() -> None:
    message = Message("T", b"x", tags="TagA", properties={"a": "1"})
    assert Message(**message.as_dict()) == message
    message.as_dict()["properties"]["a"] = "2"
    assert message.properties == {"a": "1"}
    told = received().as_dict()
    assert (told["msg_id"], told["tags"], told["keys"], told["queue_offset"]) == ("ID", "TagA", None, 5)
    assert QUEUE.as_dict() == {"topic": "T", "broker_name": "a", "queue_id": 1}
    sent = SendResult(SendStatus.SEND_OK, "ID", "OFF", QUEUE, 7).as_dict()
    assert (sent["send_status"], sent["message_queue"], sent["queue_offset"]) == ("SEND_OK", QUEUE.as_dict(), 7)
    pulled = PullResult(PullStatus.FOUND, 6, 0, 6, [received()]).as_dict()
    assert (pulled["status"], pulled["messages"]) == ("FOUND", [told])


def test_a_client_that_was_never_shut_down_is_warned_of() -> None:
    producer = aio.Producer("g", namesrv="n:1")
    world = producer._world
    producer._instance = cast(Any, SimpleNamespace(world=world, pid=world.identity.pid))
    with pytest.warns(ResourceWarning, match="<Producer g, started> was not shut down: use it with 'async with'"):
        producer.__del__()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer._instance = cast(Any, SimpleNamespace(world=world, pid=world.identity.pid - 1))
        producer.__del__()  # a copy in a forked child, whose parent has it
        producer._instance = None
        quiet = aio.Producer("g", namesrv="n:1")
        del quiet
        gc.collect()


@pytest.mark.parametrize("name", ["T\n", "a\x1b[31mb", "\ud800", "a\u2028b"])
def test_an_error_about_a_name_is_one_line_that_can_be_printed(name: str) -> None:
    for made in (lambda: Message(name, "x"), lambda: Producer(name)):
        with pytest.raises(ClientError) as raised:
            made()
        assert str(raised.value).isprintable()
        assert repr(name)[1:-1] in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        ResponseError(17, "no such topic", "a:1").about(topic="T"),
        ResponseError(1),
        ResponseError(1, "AclException: no", "a:1"),
        RequestTimeout("no answer").about(topic="T", address="a:1"),
    ],
)
def test_errors_come_through_a_pool_of_processes(error: RMQError) -> None:
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(made), str(made), vars(made)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("kind", [Producer, aio.Producer, PushConsumer, aio.PushConsumer, aio.LitePullConsumer])
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_client_that_is_pickled_or_copied_says_that_it_cannot(kind: Any, how: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=r"^<\w+ shop, not started> cannot be copied or pickled: make a client where"):
        how(kind("shop"))


def test_what_the_admin_client_returns_has_a_dict_form_that_json_takes() -> None:
    stats = TopicStats({QUEUE: TopicOffset(1, 2, 3)}, missing={"b": "away"})
    told = stats.as_dict()
    assert told["missing"] == {"b": "away"}
    assert told["offset_table"] == {str(QUEUE): {"last_update_timestamp": 1, "max_offset": 2, "min_offset": 3}}
    stats.missing["c"] = "away"
    assert told["missing"] == {"b": "away"}
    answers = Answers({"a:1": stats}, {"b:1": RequestTimeout("no answer")})
    assert json.loads(json.dumps(answers.as_dict()))["failed"] == {"b:1": "no answer"}
    assert OffsetReset(QUEUE, None, 5, 0).as_dict()["queue"] == QUEUE.as_dict()
    for name in rmq.__all__:
        made = getattr(rmq, name)
        if isinstance(made, type) and issubclass(made, Body):
            assert callable(made.as_dict)


def test_a_message_that_is_made_by_hand_is_whole() -> None:
    made = MessageExt("T", "text", tags="TagA", keys=["a", "b"], properties={"mine": "1"}, reconsume_times=2)
    assert (made.topic, made.body, made.tags, made.keys, made.reconsume_times) == ("T", b"text", "TagA", "a b", 2)
    assert made.as_dict()["properties"] == {"mine": "1", "TAGS": "TagA", "KEYS": "a b"}
    assert "tags='TagA'" in repr(made)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert hash(copy.copy(made)) == hash(made)
    assert repr(MessageExt()).startswith("MessageExt('', id=")

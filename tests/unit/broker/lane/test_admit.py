"""The slow branch of the send lane: what is refused and why, and where messages are diverted to."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.broker.lane.admit import SENT_PROPERTIES, Ticket
from rmq.broker.store.log.gate import Gate
from rmq.protocol import batch, properties
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.errors import AuthError, ResponseError
from rmq.protocol.headers.send import SendMessageV2Request
from rmq.protocol.permissions import publish_topic
from tests.support.raw_peer import send
from tests.support.scenes.front import Allowing, FrontScene, Line, as_conn, in_front
from tests.support.scenes.store import HOST

HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
#: A client from whose version on retry limits in requests count, and one before.
NEW, OLD = 409, 120


def admitted(
    scene: FrontScene, body: bytes = b"x", *, version: int = NEW, line: Line | None = None, **members: str
) -> Ticket:
    command = send(body=body)
    assert command.ext is not None
    command.ext |= members
    conn = as_conn(line or scene.line())
    return scene.front.admission.admit(conn, command.header(SendMessageV2Request), body, version)


def refusal(scene: FrontScene, body: bytes = b"x", **members: str) -> tuple[int, str]:
    with pytest.raises(ResponseError) as refused:
        admitted(scene, body, **members)
    return refused.value.code, refused.value.remark or ""


def texts(*pairs: tuple[str, str]) -> str:
    return properties.encode(dict(pairs))


def table(ticket: Ticket, number: int = 0) -> dict[str, str]:
    return properties.decode(ticket.puts[number].properties.decode())


def where(ticket: Ticket) -> tuple[str, int]:
    (put,) = ticket.puts
    return put.queue.topic, put.queue.id


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "code", "remark"),
    [
        ({"e": "2"}, 1, "request queueId[2] is illegal, TopicConfig [topicName=T, readQueueNums=2"),
        ({"b": " "}, 1, "The specified topic is blank."),
        ({"b": "a b"}, 1, "The specified topic contains illegal characters"),
        ({"b": "t" * 128}, 1, "The specified topic is longer"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "New", "c": "None"}, 17, "topic[New] not exist, apply first please!"),
        ({"b": "New", "c": "T"}, 17, "topic[New] not exist, apply first please!"),
        ({"b": "%RETRY%None"}, 26, "subscription group not exist, None"),
        ({"i": texts(("DELAY", "x"))}, 1, "the property DELAY is 'x': a delay level is a number"),
        ({"i": "x\x01" + "y" * (SENT_PROPERTIES - 1)}, 13, "the message is illegal: its properties take 32018 bytes"),
        ({"i": "x\x01" + "y" * properties.MAX_BYTES}, 13, "the message is illegal, maybe msg body or properties"),
    ],
)
def test_a_send_is_refused_with_its_reason(members: dict[str, str], code: int, remark: str) -> None:
    @in_front(mappedFileSizeCommitLog="1048576", autoCreateSubscriptionGroup="false")
    async def refuse(scene: FrontScene) -> None:
        end = scene.store.log.end
        found = refusal(scene, **members)
        assert (found[0], found[1][: len(remark)]) == (code, remark)
        assert scene.store.log.end == end

    refuse()


@in_front()
async def test_numbers_wider_than_a_record_has_them_are_not_stored(scene: FrontScene) -> None:
    for name, value in (("f", "2147483648"), ("h", "-2147483649"), ("e", "2147483648")):
        command = send()
        assert command.ext is not None
        command.ext |= {name: value}
        assert [answer.code for answer in scene.ask(command)] == [1]
    assert scene.store.log.end == 0


@in_front(mappedFileSizeCommitLog="1048576")
async def test_properties_up_to_the_limit_are_taken(scene: FrontScene) -> None:
    assert len(admitted(scene, i="x\x01" + "y" * (SENT_PROPERTIES - 2)).puts) == 1


@in_front()
async def test_bodies_are_bounded_by_the_limit_and_by_a_file(scene: FrontScene) -> None:
    assert len(admitted(scene, bytes(4096)).puts[0].body) == 4096
    assert refusal(scene, bytes(4097))[0] == 13
    scene.settings.max_message_size = 65536
    put = admitted(scene, bytes(100)).puts[0]
    most = 16384 - 8 - (91 + len(put.properties) + len(put.queue.topic_field))
    assert len(admitted(scene, bytes(most)).puts) == 1
    assert refusal(scene, bytes(most + 1))[0] == 13


@in_front()
async def test_nothing_is_admitted_while_the_broker_takes_nothing(scene: FrontScene) -> None:
    scene.store.log.gate = Gate.DISK_FULL
    code, remark = refusal(scene)
    assert (code, remark[:27]) == (14, "service not available now. ")
    scene.store.log.gate = 0
    queue = scene.store.queues.get_or_create("T", 0)
    scene.store.queues.full[queue] = "too much waits"
    assert refusal(scene) == (14, "queue 0 of topic[T] takes no messages now: too much waits; other queues do")
    assert where(admitted(scene, e="1")) == ("T", 1)


@in_front()
async def test_a_queue_of_which_too_much_waits_takes_nothing_and_others_do(scene: FrontScene) -> None:
    queue = scene.store.queues.get_or_create("T", 0)
    scene.store.queues.full[queue] = "its disk is slow"
    assert refusal(scene) == (14, "queue 0 of topic[T] takes no messages now: its disk is slow; other queues do")
    assert where(admitted(scene, e="1")) == ("T", 1)
    waits = scene.store.queues.get_or_create("SCHEDULE_TOPIC_XXXX", 2)
    scene.store.queues.full[waits] = "its disk is slow"
    code, remark = refusal(scene, e="1", i=texts(("DELAY", "3")))
    assert (code, remark[:41]) == (14, "queue 2 of topic[SCHEDULE_TOPIC_XXXX] tak")


@in_front(brokerPermission="4")
async def test_a_broker_without_write_permission_refuses_topics_in_order_only(scene: FrontScene) -> None:
    assert where(admitted(scene)) == ("T", 0)
    scene.tables.topics.set_order_topics(["T"])
    assert refusal(scene)[0] == 16


@in_front(maxNewTopicsPerHour="2")
async def test_who_has_topics_made_without_end_is_refused(scene: FrontScene) -> None:
    for name in ("New1", "New2"):
        assert where(admitted(scene, b=name, c="TBW102"))[0] == name
    code, remark = refusal(scene, b="New3", c="TBW102")
    assert (code, "has made 2 topics within an hour" in remark) == (2, True)
    assert where(admitted(scene, b="New1", c="TBW102"))[0] == "New1"
    scene.settings.max_new_topics_per_hour = 0
    assert where(admitted(scene, b="New3", c="TBW102"))[0] == "New3"


@in_front(enableMultiDispatch="true", enableLmq="true", maxLmqConsumeQueueNum="1")
async def test_queues_that_a_message_names_are_its_senders_and_not_too_many(scene: FrontScene) -> None:
    grant = Allowing()
    header = send(props="INNER_MULTI_DISPATCH\x01%LMQ%a,T").header(SendMessageV2Request)
    scene.front.admission.admit(as_conn(scene.line()), header, b"x", NEW, grant)
    assert {need for asked in grant.asked for need in asked} >= {publish_topic("%LMQ%a"), publish_topic("T")}
    grant.refuses = True
    with pytest.raises(AuthError):
        scene.front.admission.admit(as_conn(scene.line()), header, b"x", NEW, grant)
    one, two = (texts(("INNER_MULTI_DISPATCH", f"%LMQ%{name}")) for name in "ab")
    assert scene.ask(send(props=one))[0].code == 0
    assert scene.ask(send(props=one))[0].code == 0
    code, remark = refusal(scene, i=two)
    assert (code, "exceed maxLmqConsumeQueueNum" in remark) == (1, True)


@in_front(rejectTransactionMessage="true")
async def test_a_broker_may_refuse_transactions(scene: FrontScene) -> None:
    assert refusal(scene, i=texts(("TRAN_MSG", "true")))[0] == 16
    assert where(admitted(scene, i=texts(("TRAN_MSG", "false")))) == ("T", 0)


# -- stored as it was sent ---------------------------------------------------------------------------------------------


@in_front()
async def test_a_message_is_stored_with_the_cluster_and_without_what_was_for_the_broker(scene: FrontScene) -> None:
    sent = texts(("TAGS", "Red"), ("WAIT", "false"), ("KEYS", "a  b"), ("UNIQ_KEY", "u"), ("CLUSTER", "mine"))
    ticket = admitted(scene, b"body", i=sent, h="7", g="9", e="1")
    (put,) = ticket.puts
    assert (where(ticket), ticket.queue_id, ticket.wait, ticket.together) == (("T", 1), 1, False, False)
    assert (put.body, put.flag, put.born_timestamp, put.born_host, put.store_host) == (b"body", 7, 9, HOST, HOST)
    assert put.keys == (b"u", b"a", b"b")
    assert put.tags_code == 82033  # Java's hash of the tag
    assert table(ticket) == {"TAGS": "Red", "KEYS": "a  b", "UNIQ_KEY": "u", "CLUSTER": "DefaultCluster"}
    assert admitted(scene).wait


@in_front()
async def test_a_queue_below_zero_is_any_of_those_that_are_written(scene: FrontScene) -> None:
    scene.tables.topics.put(TopicConfig("T", 4, 2))
    assert {where(admitted(scene, e="-1"))[1] for _ in range(50)} == {0, 1}
    assert where(admitted(scene, e="3"))[1] == 3


@in_front()
async def test_flags_say_what_kind_of_hosts_a_record_has(scene: FrontScene) -> None:
    line = scene.line()
    line.born_host, line.born_v6 = HOST_V6, True
    flags = [admitted(scene, line=line).puts[0].sys_flag, admitted(scene, f="48").puts[0].sys_flag]
    scene.front.admission._store_host = HOST_V6
    flags += [admitted(scene, f="1").puts[0].sys_flag]
    assert flags == [0x10, 0, 0x21]


@in_front()
async def test_flags_of_transactions_and_of_topics_with_many_tags(scene: FrontScene) -> None:
    # A record that says it is prepared is in no queue, says every recovery.
    assert [admitted(scene, f=flag).puts[0].sys_flag for flag in ("4", "8", "12")] == [0, 8, 0]
    scene.tables.topics.put(TopicConfig("T", 2, 2, 6, "MULTI_TAG"))
    assert admitted(scene).puts[0].sys_flag == 2


@in_front()
async def test_properties_never_end_in_zeros_and_bring_no_note_of_the_brokers_own(scene: FrontScene) -> None:
    scene.settings.broker_cluster_name = "c\0"
    put = admitted(scene, i=texts(("INNER_MULTI_QUEUE_OFFSET", "5"))).puts[0]
    assert put.properties == b"CLUSTER\x01c\0\x02"


# -- diverted ----------------------------------------------------------------------------------------------------------


@in_front()
async def test_a_delayed_message_waits_in_the_queue_of_its_level(scene: FrontScene) -> None:
    ticket = admitted(scene, i=texts(("DELAY", "3"), ("TAGS", "Red")), e="1")
    assert (where(ticket), ticket.queue_id) == (("SCHEDULE_TOPIC_XXXX", 2), 1)
    assert ticket.puts[0].tags_code == scene.world.clock.now_ms() + 10_000
    assert table(ticket) == {
        "DELAY": "3", "TAGS": "Red", "REAL_TOPIC": "T", "REAL_QID": "1", "CLUSTER": "DefaultCluster"
    }  # fmt: skip
    last = admitted(scene, i=texts(("DELAY", "99")))
    assert (where(last), table(last)["DELAY"]) == (("SCHEDULE_TOPIC_XXXX", 17), "18")
    assert where(admitted(scene, i=texts(("DELAY", "-1")))) == ("T", 0)


@in_front()
async def test_a_message_with_a_delivery_time_waits_and_can_be_recalled(scene: FrontScene) -> None:
    ticket = admitted(scene, i=texts(("TIMER_DELAY_SEC", "60"), ("UNIQ_KEY", "u" * 32)))
    assert where(ticket)[0] == "rmq_sys_wheel_timer"
    assert ticket.recall_handle
    both = admitted(scene, i=texts(("TIMER_DELAY_SEC", "60"), ("DELAY", "1")))
    assert (where(both)[0], both.recall_handle) == ("SCHEDULE_TOPIC_XXXX", None)
    assert "TIMER_DELAY_SEC" not in table(both), "it does not wait once more"


@in_front()
async def test_the_half_of_a_transaction_is_kept_from_consumers(scene: FrontScene) -> None:
    notes = (("TRANSACTION_CHECK_TIMES", "9"), ("TRAN_PREPARED_QUEUE_OFFSET", "9"))
    ticket = admitted(scene, i=texts(("TRAN_MSG", "true"), ("DELAY", "2"), *notes), f="5", e="1")
    assert (where(ticket), ticket.queue_id) == (("RMQ_SYS_TRANS_HALF_TOPIC", 0), 1)
    assert ticket.puts[0].sys_flag == 1
    stored = table(ticket)
    assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["DELAY"]) == ("T", "1", "2")
    assert not {name for name, _ in notes} & stored.keys()


@pytest.mark.parametrize(
    ("times", "limit", "version", "dead"),
    [(1, None, NEW, False), (2, None, NEW, True), (2, "5", NEW, False), (2, "5", OLD, True), (0, "0", NEW, True)],
)
def test_a_retry_that_has_used_up_its_tries_is_a_dead_letter(
    times: int, limit: str | None, version: int, dead: bool
) -> None:
    @in_front()
    async def retry(scene: FrontScene) -> None:
        scene.tables.groups.put(SubscriptionGroupConfig("G", retry_max_times=2))
        members = {"b": "%RETRY%G", "j": str(times), "i": texts(("DELAY", "3"))}
        if limit is not None:
            members["l"] = limit
        ticket = admitted(scene, version=version, **members)
        stored = table(ticket)
        if dead:
            assert (where(ticket), stored["DELAY"]) == (("%DLQ%G", 0), "0")
        else:
            assert (where(ticket), stored["REAL_TOPIC"]) == (("SCHEDULE_TOPIC_XXXX", 2), "%RETRY%G")
        assert ticket.puts[0].reconsume_times == times

    retry()


@in_front()
async def test_a_dead_letter_waits_for_no_time_of_its_own(scene: FrontScene) -> None:
    scene.tables.groups.put(SubscriptionGroupConfig("G", retry_max_times=0))
    asked = texts(("TIMER_DELAY_SEC", "60"), ("TIMER_ROLL_TIMES", "1"), ("a", "b"))
    ticket = admitted(scene, b="%RETRY%G", j="1", i=asked)
    assert where(ticket) == ("%DLQ%G", 0)
    assert table(ticket) == {"a": "b", "CLUSTER": "DefaultCluster"}


# -- batches -----------------------------------------------------------------------------------------------------------


def batched(*bodies: bytes, member: dict[str, str] | None = None) -> bytes:
    return batch.encode((3, body, member or {}) for body in bodies)


@in_front()
async def test_a_batch_is_a_record_a_message_with_what_they_share(scene: FrontScene) -> None:
    data = batched(b"a", b"b", member={"TAGS": "Red", "own": "1"})
    ticket = admitted(scene, data, m="true", i=texts(("shared", "2"), ("WAIT", "false")), e="1")
    assert ([put.body for put in ticket.puts], ticket.together, ticket.wait) == ([b"a", b"b"], True, False)
    assert {(put.queue.id, put.flag, put.tags_code) for put in ticket.puts} == {(1, 3, 82033)}
    stored = table(ticket, 1)
    assert (stored["own"], stored["shared"], stored["CLUSTER"]) == ("1", "2", "DefaultCluster")


@in_front()
async def test_a_batch_may_be_as_long_as_a_message(scene: FrontScene) -> None:
    room = 4096 - len(batched(b""))
    assert len(admitted(scene, batched(bytes(room)), m="true").puts) == 1
    assert refusal(scene, batched(bytes(room + 1)), m="true")[0] == 13


@pytest.mark.parametrize(
    ("data", "members", "code"),
    [
        (batched(b"a"), {"f": "4"}, 13),
        (batched(b"a"), {"i": texts(("DELAY", "1"))}, 13),
        (batched(b"a", member={"DELAY": "1"}), {}, 13),
        (batched(b"a", member={"TIMER_DELAY_SEC": "1"}), {}, 13),
        (batched(b"a", member={"DELAY": "x"}), {}, 1),
        (batched(b"a"), {"i": "x\x01" + "y" * (SENT_PROPERTIES - 1)}, 13),
        (batched(*[b"a"] * 100), {"i": "x\x01" + "y" * 1000}, 13),
        (batched(b"a")[:-1], {}, 1),
        (b"", {}, 1),
        (batched(b"a"), {"e": "9"}, 1),
    ],
)
def test_a_batch_is_refused_whole(data: bytes, members: dict[str, Any], code: int) -> None:
    @in_front(mappedFileSizeCommitLog="1048576")
    async def refuse(scene: FrontScene) -> None:
        assert refusal(scene, data, m="true", **members)[0] == code

    refuse()


# -- what the broker stores again --------------------------------------------------------------------------------------


@in_front(mappedFileSizeCommitLog="1048576")
async def test_a_copy_is_not_judged_by_todays_limits_and_loses_what_matters_least(scene: FrontScene) -> None:
    queue = scene.store.queues.get_or_create("T", 0)
    kept = {"KEYS": "k" * 9000, "UNIQ_KEY": "u" * 9000, "REAL_TOPIC": "r" * 9000}

    def copy(own: dict[str, str], **more: Any) -> Any:
        return scene.front.admission.put(queue, bytes(5000), own, 0, 0, 1, HOST, HOST, 0, 0, 0, **more)

    with pytest.raises(ResponseError):
        copy({"a": "b"}, sent=True)
    put = copy({**kept, "long": "l" * 6000, "short": "s"})
    assert properties.decode(put.properties.decode()).keys() == {"UNIQ_KEY", "REAL_TOPIC", "long", "short"}
    with pytest.raises(ResponseError):
        copy({"UNIQ_KEY": "u" * 40_000})

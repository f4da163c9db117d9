"""Pulls without sockets: what is refused, answered, parked and woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import AuthError
from rmq.protocol.permissions import use_group, use_topic
from tests.support.raw_peer import pull, send
from tests.support.scenes.front import Allowing, FrontScene, Line, as_conn, in_front

HOLD = 15_000


def asked(scene: FrontScene, offset: int = 0, *, hold_ms: int = 0, group: str = "G", **members: str) -> Command | None:
    """The answer to a pull, when it has one at once."""
    line = scene.line()
    take(scene, line, offset, hold_ms=hold_ms, group=group, **members)
    answers = line.answers()
    assert len(answers) < 2
    return answers[0] if answers else None


def take(
    scene: FrontScene, line: Line, offset: int = 0, *, hold_ms: int = 0, group: str = "G", opaque: int = 7, **more: str
) -> None:
    command = pull(group, offset=offset, hold_ms=hold_ms)
    assert command.ext is not None
    command.ext |= more
    command.opaque = opaque
    line.came(command)
    scene.tick(line)


def filled(scene: FrontScene, *bodies: bytes, tag: str = "") -> None:
    for body in bodies:
        assert scene.ask(send(body=body, props=f"TAGS\x01{tag}"))[0].code == 0


def offsets(answer: Command | None) -> tuple[int, int, int, int]:
    """Code, and where the client goes on, the first and the last offset there is."""
    assert answer is not None
    ext = answer.ext or {}
    next_offset, least, most = (int(ext[name] or "") for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    return answer.code, next_offset, least, most


# -- refused -----------------------------------------------------------------------------------------------------------


def _prepared(what: str, scene: FrontScene) -> None:
    groups, topics = scene.tables.groups, scene.tables.topics
    if what == "broker":
        scene.settings.broker_permission = 2
    elif what == "consuming":
        groups.put(SubscriptionGroupConfig("G", consume_enable=False))
    elif what == "permission":
        topics.put(TopicConfig("T", 2, 2, 2))
    elif what == "groups":
        scene.settings.auto_create_subscription_group = False


@pytest.mark.parametrize(
    ("what", "members", "code", "remark"),
    [
        ("broker", {}, 16, "pulling message is forbidden"),
        ("", {"consumerGroup": "CID_RMQ_SYS_TRANS"}, 16, "subscription group no permission"),
        ("groups", {"consumerGroup": "New"}, 26, "subscription group [New] does not exist"),
        ("consuming", {}, 16, "subscription group no permission, G"),
        ("", {"topic": "Missing"}, 17, "topic[Missing] not exist"),
        ("permission", {}, 16, "the topic[T] pulling message is forbidden"),
        ("", {"queueId": "2"}, 1, "queueId[2] is illegal"),
        ("", {"queueId": "-1"}, 1, "queueId[-1] is illegal"),
        ("", {"maxMsgNums": "-1"}, 1, "maxMsgNums[-1] is illegal"),
        ("", {"subscription": "a &&", "expressionType": "SQL92"}, 1, "does not support"),
        ("", {"sysFlag": "0"}, 24, "group info not exist"),
    ],
)
def test_a_pull_is_refused_with_its_reason_and_commits_and_parks_nothing(
    what: str, members: dict[str, str], code: int, remark: str
) -> None:
    @in_front()
    async def refuse(scene: FrontScene) -> None:
        _prepared(what, scene)
        flags = str(int(members.get("sysFlag", "4")) | 3)
        answer = asked(scene, **{"commitOffset": "5", "suspendTimeoutMillis": "9", **members, "sysFlag": flags})
        assert answer is not None
        assert (answer.code, answer.opaque, answer.ext) == (code, 7, {})
        assert remark in (answer.remark or "")
        assert scene.tables.offsets.query("G", "T", 0) == -1
        assert scene.delivery.holds.count == 0

    refuse()


@in_front()
async def test_the_first_of_several_reasons_is_told(scene: FrontScene) -> None:
    wrong = {"queueId": "9", "maxMsgNums": "-1"}
    for change, code in (
        (lambda: None, 1),
        (lambda: scene.tables.topics.put(TopicConfig("T", 2, 2, 2)), 16),
        (lambda: scene.tables.topics.delete("T"), 17),
    ):
        change()
        answer = asked(scene, **wrong)
        assert answer is not None
        assert answer.code == code


@in_front()
async def test_who_has_no_subscription_here_or_an_older_one_is_told(scene: FrontScene) -> None:
    from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData

    conn = as_conn(scene.line())
    data = ConsumerData("G", subscription_data_set=[SubscriptionData("T", "*", sub_version=5)])
    scene.members.consumers.register(conn, "c", "JAVA", 409, data, notify=False)
    codes = []
    for members in ({"subVersion": "5"}, {"subVersion": "6"}, {"subVersion": "5", "topic": "TBW102"}):
        answer = asked(scene, **{"sysFlag": "0", **members})
        assert answer is not None
        codes.append(answer.code)
    assert codes == [19, 25, 24]
    scene.tables.groups.let_read("G", "T", False)
    forbidden = asked(scene, sysFlag="0", subVersion="5")
    assert forbidden is not None
    assert forbidden.code == 16


@in_front()
async def test_a_pull_that_comes_by_the_vip_port_or_oneway_is_not_served(scene: FrontScene) -> None:
    line = scene.line()
    line.fast = True
    scene.router.add(scene.delivery)
    take(scene, line)
    assert [answer.code for answer in line.answers()] == [3]
    line.fast = False
    line.came(pull().mark_oneway())
    scene.tick(line)
    assert line.answers() == []


# -- found -------------------------------------------------------------------------------------------------------------


@in_front()
async def test_a_pull_brings_what_is_there_and_says_where_to_go_on(scene: FrontScene) -> None:
    filled(scene, b"<a>", b"<b>", b"<c>")
    answer = asked(scene, 1)
    assert offsets(answer) == (0, 3, 0, 3)
    assert answer is not None
    assert (b"<a>" in answer.body, b"<b>" in answer.body, b"<c>" in answer.body) == (False, True, True)
    assert offsets(asked(scene, 0, maxMsgNums="2")) == (0, 2, 0, 3)
    assert offsets(asked(scene, 3)) == (19, 3, 0, 3)
    assert offsets(asked(scene, 9)) == (21, 3, 0, 3)
    assert offsets(asked(scene, 0, queueId="1")) == (19, 0, 0, 0)


@in_front()
async def test_a_filter_passes_over_what_it_refuses(scene: FrontScene) -> None:
    filled(scene, b"<a>", b"<b>", tag="Red")
    filled(scene, b"<c>", tag="Blue")
    blue = asked(scene, subscription="Blue")
    assert offsets(blue) == (0, 3, 0, 3)
    assert blue is not None
    assert (b"<a>" in blue.body, b"<c>" in blue.body) == (False, True)
    assert offsets(asked(scene, subscription="Green")) == (20, 3, 0, 3)
    assert scene.delivery.missed == 1


@in_front()
async def test_a_pull_commits_what_its_group_has_done_only_where_it_says_so(scene: FrontScene) -> None:
    asked(scene, commitOffset="2", sysFlag="4")
    assert scene.tables.offsets.query("G", "T", 0) == -1
    asked(scene, commitOffset="2", sysFlag="5")
    assert scene.tables.offsets.query("G", "T", 0) == 2
    scene.delivery.serve_as(leads=False)
    asked(scene, commitOffset="3", sysFlag="5")
    assert scene.tables.offsets.query("G", "T", 0) == 2


@in_front()
async def test_the_binary_form_of_a_pull_is_answered_in_its_form(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    scene.router.add(scene.delivery)
    command = pull()
    command.serialize = SerializeType.ROCKETMQ
    (answer,) = scene.ask(command)
    assert (answer.code, answer.serialize) == (0, SerializeType.ROCKETMQ)
    command = pull()
    command.serialize = SerializeType.ROCKETMQ
    assert command.ext is not None
    command.ext["queueId"] = "x"
    assert [answer.code for answer in scene.ask(command)] == [1]


@in_front(enablePropertyFilter="true")
async def test_a_pull_whose_expression_waits_for_its_turn_is_served_then_if_it_still_may_be(scene: FrontScene) -> None:
    filled(scene, b"a", b"b")
    grant, line = Allowing(), scene.line()
    expressions = scene.tables.filters.expressions
    for may in (True, False):
        command = pull("G")
        command.ext = (command.ext or {}) | {"subscription": f"a is null and {may}", "expressionType": "SQL92"}
        command.grant = grant
        grant.refuses, grant.asked = False, []
        expressions._share.count(1 << 30)  # others have had this turn
        assert scene.delivery.pull(as_conn(line), command) is None
        assert (line.codes(), line.promised) == ({}, len(command.ext["subscription"] or ""))
        grant.refuses = not may
        await asyncio.sleep(1)
        assert ([answer.code for answer in line.answers()], line.promised) == ([0 if may else 1], 0)
        assert set(grant.asked) == {(use_topic("T"), use_group("G"))}
    assert grant.charged > len(b"ab"), "what was answered, once"
    grant.refuses = True
    refused = pull("G")
    refused.grant = grant
    with pytest.raises(AuthError):
        scene.delivery.pull(as_conn(line), refused)
    assert line.answers() == []


# -- parked ------------------------------------------------------------------------------------------------------------


@in_front()
async def test_a_parked_pull_is_woken_by_what_comes_into_its_queue(scene: FrontScene) -> None:
    line = scene.line()
    take(scene, line, hold_ms=HOLD)
    assert (line.sent, scene.delivery.holds.count) == ([], 1)
    other = send(body=b"<b>")
    assert other.ext is not None
    other.ext["e"] = "1"
    scene.ask(other)
    await asyncio.sleep(0)
    assert line.sent == []
    filled(scene, b"<a>")
    assert line.sent == []  # after the answers of the tick
    await asyncio.sleep(0)
    (answer,) = line.answers()
    assert (offsets(answer), answer.opaque) == ((0, 1, 0, 1), 7)
    assert scene.delivery.holds.count == 0


@in_front()
async def test_a_parked_pull_that_nothing_wakes_is_answered_when_its_time_is_up(scene: FrontScene) -> None:
    for offset, expected in ((0, (19, 0, 0, 0)), (1, (19, 1, 0, 1))):
        line = scene.line()
        take(scene, line, offset, hold_ms=HOLD)
        await asyncio.sleep(HOLD / 1000 - 0.1)
        assert line.sent == []
        await asyncio.sleep(0.2)
        (answer,) = line.answers()
        assert offsets(answer) == expected
        filled(scene, b"<a>")


@in_front()
async def test_what_its_filter_refuses_leaves_a_pull_parked_and_moves_it_on(scene: FrontScene) -> None:
    line = scene.line()
    take(scene, line, hold_ms=HOLD, subscription="Blue")
    filled(scene, b"<a>", b"<b>", tag="Red")
    await asyncio.sleep(1)
    assert (line.sent, scene.delivery.holds.count) == ([], 1)
    filled(scene, b"<c>", tag="Blue")
    await asyncio.sleep(1)
    (answer,) = line.answers()
    assert (offsets(answer), b"<a>" in answer.body) == ((0, 3, 0, 3), False)
    take(scene, line, 3, hold_ms=HOLD, subscription="Blue")
    filled(scene, b"<d>", tag="Red")
    await asyncio.sleep(16)
    assert [offsets(answer) for answer in line.answers()] == [(20, 4, 0, 4)]


@in_front(longPollingEnable="false", shortPollingTimeMills="1000")
async def test_without_long_polling_a_pull_waits_a_short_time(scene: FrontScene) -> None:
    line = scene.line()
    take(scene, line, hold_ms=HOLD)
    await asyncio.sleep(0.9)
    assert line.sent == []
    await asyncio.sleep(0.2)
    assert line.codes() == {7: 19}


@in_front()
async def test_pulls_beyond_those_that_may_be_parked_are_refused(scene: FrontScene) -> None:
    scene.delivery.holds.weight = 100_000
    answer = asked(scene, hold_ms=HOLD)
    assert answer is not None
    assert answer.code == 2
    scene.delivery.holds.weight = 0


@in_front()
async def test_pulls_parked_on_a_topic_that_is_deleted_are_told(scene: FrontScene) -> None:
    line = scene.line()
    take(scene, line, hold_ms=HOLD)
    scene.tables.topics.put(TopicConfig("Other", 1, 1))
    scene.tables.topics.delete("Other")
    scene.tables.topics.put(TopicConfig("T", 3, 3))
    assert line.sent == []
    scene.tables.topics.delete("T")
    assert line.codes() == {7: 17}
    assert scene.delivery.holds.count == 0


@in_front()
async def test_one_pull_that_fails_is_answered_and_those_of_its_tick_are_served(scene: FrontScene) -> None:
    filled(scene, b"a")
    real, line = scene.delivery._reader.at_once, scene.line()

    def at_once(*args: Any) -> Any:
        if args[1] == 5:
            raise ZeroDivisionError
        return real(*args)

    scene.delivery._reader.at_once = at_once  # type: ignore[method-assign]
    line.came(pull(offset=0), pull(offset=5), pull(offset=0))
    scene.tick(line)
    assert line.codes() == {1: 0, 2: 1, 3: 0}


@in_front()
async def test_one_parked_pull_that_fails_is_answered_and_the_others_are_served(scene: FrontScene) -> None:
    lines = [scene.line() for _ in range(3)]
    for number, line in enumerate(lines):
        take(scene, line, hold_ms=HOLD, opaque=number + 1)
    real, seen = scene.delivery._reader.scan, []

    def scan(*args: Any) -> Any:
        seen.append(1)
        if len(seen) == 2:
            raise ZeroDivisionError
        return real(*args)

    scene.delivery._reader.scan = scan  # type: ignore[method-assign]
    filled(scene, b"<a>")
    await asyncio.sleep(0)
    assert [line.codes() for line in lines] == [{1: 0}, {2: 1}, {3: 0}]
    assert scene.delivery.holds.count == 0


@in_front()
async def test_a_slave_that_keeps_its_messages_lets_who_asks_wait(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    scene.delivery.serve_as(leads=False)
    line = scene.line()
    take(scene, line, hold_ms=HOLD)
    filled(scene, b"<b>")
    await asyncio.sleep(0.5)
    assert line.sent == []
    await asyncio.sleep(1)
    assert set(line.codes()) == {7}
    answer = asked(scene)
    assert answer is not None
    assert (answer.code, answer.body) == (20, b"")


@in_front(slaveReadEnable="true")
async def test_a_slave_does_not_call_an_offset_wrong_that_its_master_may_have(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    scene.delivery.serve_as(leads=False)
    answer = asked(scene, 9)
    assert (offsets(answer)[:2], scene.front.delivery.holds.count) == ((20, 9), 0)
    line = scene.line()
    take(scene, line, 9, hold_ms=HOLD)
    assert (line.sent, scene.delivery.holds.count) == ([], 1)


@in_front()
async def test_an_offset_that_was_corrected_is_noted_by_who_leads(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    noted: list[tuple[Any, ...]] = []
    scene.delivery._moved.add = lambda *what: noted.append(what)  # type: ignore[method-assign]
    asked(scene, 0, subscription="Blue")
    assert noted == []
    asked(scene, 9)
    assert noted == [("G", "T", 0, 9, 1)]


@in_front(metricsExporterType="PROM")
async def test_every_pull_is_timed_once_by_how_it_ended(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    line = scene.line()
    asked(scene)
    asked(scene, subscription="Blue")
    asked(scene, topic="Missing")
    take(scene, line, 1, hold_ms=HOLD)
    await asyncio.sleep(16)
    take(scene, line, 1, hold_ms=HOLD)
    scene.tables.topics.delete("T")
    latency = scene.counted.latency
    assert latency is not None
    counted = {key: histogram.count for key, histogram in latency._of.items() if key[0] == 11}
    assert counted == {
        (11, 0, "success", False): 1,
        (11, 20, "success", False): 1,
        (11, 17, "success", False): 1,
        (11, 19, "success", True): 1,
        (11, 17, "success", True): 1,
    }


# -- peers that do not read, and what fails ----------------------------------------------------------------------------


@in_front()
async def test_who_does_not_take_his_answers_is_served_when_he_does(scene: FrontScene) -> None:
    filled(scene, b"<a>")
    line = scene.line()
    line.waiting = []
    take(scene, line, opaque=1)
    take(scene, line, opaque=2)
    assert line.sent == []
    line.makes_room()
    assert line.codes() == {1: 0, 2: 0}
    line.waiting = []
    take(scene, line, opaque=3)
    line.closed = True
    line.makes_room()
    assert line.sent == []


@in_front()
async def test_a_woken_pull_whose_peer_does_not_read_is_answered_once_when_he_does(scene: FrontScene) -> None:
    line = scene.line()
    take(scene, line, hold_ms=HOLD)
    line.waiting = []
    filled(scene, b"<a>")
    await asyncio.sleep(1)
    filled(scene, b"<b>")
    await asyncio.sleep(1)
    assert (line.sent, len(line.waiting)) == ([], 1)
    line.makes_room()
    assert [offsets(answer) for answer in line.answers()] == [(0, 2, 0, 2)]
    assert scene.delivery.holds.count == 0


@in_front()
async def test_a_woken_pull_that_has_to_read_the_disk_is_answered_when_it_has(scene: FrontScene) -> None:
    reader, line = scene.delivery._reader, scene.line()
    real = reader.scan

    def scan(*args: Any) -> Any:
        yield asyncio.sleep(1)
        return (yield from real(*args))

    take(scene, line, hold_ms=HOLD)
    reader.scan = scan  # type: ignore[method-assign, assignment]
    filled(scene, b"<a>")
    await asyncio.sleep(0.5)
    assert (line.sent, scene.delivery.holds.count) == ([], 0)
    await asyncio.sleep(1)
    assert [offsets(answer) for answer in line.answers()] == [(0, 1, 0, 1)]


@in_front()
async def test_pulls_beyond_those_that_may_wait_for_room_are_refused(scene: FrontScene) -> None:
    line = scene.line()
    line.waiting, line.most_waiting = [], 1
    take(scene, line, opaque=1)
    take(scene, line, opaque=2)
    assert line.codes() == {2: 2}


@pytest.mark.parametrize(("error", "code"), [(OSError(5, "I/O error"), 1), (ZeroDivisionError(), 1), (None, 0)])
def test_a_read_from_the_disk_is_promised_and_answered_whatever_comes_of_it(error: Exception | None, code: int) -> None:
    @in_front()
    async def read(scene: FrontScene) -> None:
        filled(scene, b"<a>", tag="Red")
        reader = scene.delivery._reader
        (batch,) = [end.value async for end in _ends(reader.scan(*_args(scene)))]

        def scan(*_: Any) -> Any:
            yield cold()
            return batch

        async def cold() -> None:
            await asyncio.sleep(1)
            if error is not None:
                raise error

        reader.scan = scan  # type: ignore[method-assign, assignment]
        line = scene.line()
        take(scene, line, subscription="Red")
        assert (line.sent, line.promised > 0) == ([], True)
        await asyncio.sleep(2)
        assert (line.codes(), line.promised) == ({7: code}, 0)

    read()


def _args(scene: FrontScene) -> Any:
    from rmq.broker.delivery.filtering import filter_of
    from rmq.protocol import subscription

    return scene.store.queues.get_or_create("T", 0), 0, 32, filter_of(subscription.build("T", "Red", "TAG"))


async def _ends(scan: Any) -> Any:
    try:
        next(scan)
    except StopIteration as end:
        yield end

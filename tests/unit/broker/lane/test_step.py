"""One tick of the lane, without sockets: what is stored, who is answered what, and what is left for the next tick."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.kinds import FIFO
from rmq.broker.lane import step
from rmq.broker.store.log.append import PartlyAppended
from rmq.broker.store.log.gate import Gate
from rmq.protocol import frame, properties
from rmq.protocol.command import FLAG_RESPONSE, Command
from tests.support.raw_peer import pull, send
from tests.support.scenes.front import FrontScene, as_conn, in_front

#: Is left to the router, which says that it does not know it.
OTHER = 9999


def other() -> Command:
    return Command(OTHER, ext={})


def to_queue(queue: int, body: bytes) -> Command:
    command = send(body=body)
    assert command.ext is not None
    command.ext["e"] = str(queue)
    return command


def slow(body: bytes, **members: str) -> Command:
    """A send that is not plain: it was sent before, says its producer."""
    command = send(body=body)
    assert command.ext is not None
    command.ext |= {"j": "1", **members}
    return command


def place(answer: Command) -> tuple[str | None, str | None]:
    """Queue and index that an answer names."""
    ext = answer.ext or {}
    return ext.get("queueId"), ext.get("queueOffset")


def _full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


# -- what is stored, and the answers -----------------------------------------------------------------------------------


@in_front()
async def test_sends_of_a_tick_are_stored_in_the_order_they_came_whatever_their_kind(scene: FrontScene) -> None:
    answers = scene.ask(send(body=b"a"), slow(b"b"), to_queue(1, b"c"), send(body=b"d"), slow(b"e"))
    assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(1, 6)]
    assert [place(answer) for answer in answers] == [("0", "0"), ("0", "1"), ("1", "0"), ("0", "2"), ("0", "3")]
    assert await scene.stored() == [b"a", b"b", b"d", b"e"]
    assert await scene.stored(queue=1) == [b"c"]


@in_front()
async def test_a_send_with_a_header_of_the_first_form_is_one_like_others(scene: FrontScene) -> None:
    long = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": "7", "flag": "0", "properties": "TAGS\x01Red", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false",
    }  # fmt: skip
    first, second = scene.ask(Command(10, ext=dict(long), body=b"a"), to_queue(1, b"b"))
    assert (first.code, place(first), place(second)) == (0, ("1", "0"), ("1", "1"))
    assert await scene.stored(queue=1) == [b"a", b"b"]


@in_front()
async def test_a_single_send_is_answered_with_its_place(scene: FrontScene) -> None:
    for number, command in enumerate([send(), send(), slow(b"y"), send()]):
        (answer,) = scene.ask(command)
        assert (answer.code, place(answer)) == (0, ("0", str(number)))


@in_front()
async def test_messages_with_a_sharding_key_are_counted_once_they_are_stored(scene: FrontScene) -> None:
    props = "__SHARDINGKEY\x01k"
    scene.ask(send(), send(props=props), slow(b"y"))
    scene.ask(send(props=props), slow(b"y", i=props), send())
    real = scene.store.append
    scene.store.append = _full_disk  # type: ignore[method-assign]
    scene.ask(send(props=props))
    scene.store.append = real  # type: ignore[method-assign]
    scene.ask(send())
    assert {kind: histogram.count for kind, histogram in scene.counted.kinds._of["T"].items()} == {FIFO: 3}


@in_front()
async def test_each_connection_gets_its_answers_in_one_piece(scene: FrontScene) -> None:
    one, two = scene.line(), scene.line()
    one.came(send(), send())
    two.came(send(), send())
    scene.tick(one, two)
    assert [len(line.sent) for line in (one, two)] == [1, 1]
    assert [list(map(place, line.answers())) for line in (one, two)] == [
        [("0", "0"), ("0", "1")],
        [("0", "2"), ("0", "3")],
    ]


@in_front(recallMessageEnable="true")
async def test_the_answer_to_a_message_that_waits_for_its_time_says_how_it_is_recalled(scene: FrontScene) -> None:
    waits = slow(b"a", i="TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01" + "u" * 32)
    line = scene.line()
    line.came(waits, slow(b"b"), send(body=b"c"))
    scene.tick(line)
    await asyncio.sleep(1)  # the topic of those that wait is in its file
    told = {answer.opaque: (answer.code, "recallHandle" in (answer.ext or {})) for answer in line.answers()}
    assert told == {1: (0, True), 2: (0, False), 3: (0, False)}


@in_front()
async def test_oneway_sends_are_stored_and_not_answered(scene: FrontScene) -> None:
    assert scene.ask(send(oneway=True)) == []
    assert [answer.opaque for answer in scene.ask(send(oneway=True), send(), slow(b"y").mark_oneway())] == [2]
    assert len(await scene.stored()) == 4


@in_front()
async def test_keys_are_in_the_index_at_the_end_of_the_tick(scene: FrontScene) -> None:
    index, line = scene.store.index, scene.line()
    assert index is not None
    line.came(send(props="KEYS\x01k"))
    ready: Any = [line]
    scene.lane.step(ready)
    assert line.codes() == {1: 0}
    assert index.end == (0, 0)
    scene.lane.after()
    assert index.end[1] == scene.store.log.start


@in_front(flushDiskType="SYNC_FLUSH")
async def test_answers_wait_for_the_flush_unless_they_need_not(scene: FrontScene) -> None:
    line = scene.line()
    line.came(send(body=b"a"), send(body=b"b", props="WAIT\x01false"), send(oneway=True), send(body=b"c"))
    scene.tick(line)
    assert line.codes() == {2: 0}
    assert line.owed_bytes > 2
    assert await scene.stored() == []
    await asyncio.sleep(1)
    assert line.codes() == {1: 0, 4: 0}
    assert line.owed_bytes == scene.front.pressure.held == 0
    assert len(await scene.stored()) == 4


@in_front(flushDiskType="SYNC_FLUSH")
async def test_each_connection_gets_its_held_answers_with_their_places(scene: FrontScene) -> None:
    one, two, three = scene.line(), scene.line(), scene.line()
    one.came(send(), slow(b"y"), to_queue(1, b"z"))
    two.came(send(oneway=True), send())
    three.came(send())
    scene.tick(one, two, three)
    assert [line.sent for line in (one, two, three)] == [[], [], []]
    await asyncio.sleep(1)
    assert [len(line.sent) for line in (one, two, three)] == [1, 1, 1]
    assert [[(answer.opaque, *place(answer)) for answer in line.answers()] for line in (one, two, three)] == [
        [(1, "0", "0"), (2, "0", "1"), (3, "1", "0")],
        [(2, "0", "3")],
        [(1, "0", "4")],
    ]
    assert scene.front.pressure.held == one.owed_bytes == two.owed_bytes == three.owed_bytes == 0


# -- one that fails ----------------------------------------------------------------------------------------------------


@in_front(maxMessageSize="65536")
async def test_a_message_that_fits_in_no_file_costs_itself_alone(scene: FrontScene) -> None:
    answers = scene.ask(send(body=b"a"), send(body=bytes(20_000)), slow(b"b"), send(body=b"c"))
    assert {answer.opaque: answer.code for answer in answers} == {1: 0, 2: 13, 3: 0, 4: 0}
    assert await scene.stored() == [b"a", b"b", b"c"]


@in_front()
async def test_an_error_that_nobody_expected_costs_its_message_alone(scene: FrontScene) -> None:
    real = scene.store.append

    def append(puts: Any, *args: Any, **options: Any) -> Any:
        if any(put[1] == b"bad" for put in puts):
            raise ZeroDivisionError
        return real(puts, *args, **options)

    scene.store.append = append  # type: ignore[method-assign]
    line = scene.line()
    line.came(send(body=b"a"), send(body=b"bad"), send(body=b"b"))
    scene.tick(line)
    assert line.codes() == {1: 0, 2: 1, 3: 0}
    assert await scene.stored() == [b"a", b"b"]
    assert (scene.counted.stats.put_failures, scene.counted.stats.put_refusals) == (1, 0)


@pytest.mark.parametrize(("reason", "code"), [(OSError(28, "No space left on device"), 1), (ZeroDivisionError(), 0)])
def test_what_of_a_tick_is_stored_already_is_answered_so(reason: Exception, code: int) -> None:
    @in_front()
    async def partly(scene: FrontScene) -> None:
        real = scene.store.append

        def append(puts: Any, *args: Any, **options: Any) -> Any:
            span = real(puts[:2], *args, **options)
            if len(puts) > 2:
                raise PartlyAppended(span, reason)
            return span

        scene.store.append = append  # type: ignore[method-assign]
        line = scene.line()
        line.came(send(body=b"a"), slow(b"b", i="__SHARDINGKEY\x01k"), send(body=b"c"), slow(b"d"))
        scene.tick(line)
        assert line.codes() == {1: 0, 2: 0, 3: code, 4: code}
        assert await scene.stored() == ([b"a", b"b"] if code else [b"a", b"b", b"c", b"d"])
        assert {kind: histogram.count for kind, histogram in scene.counted.kinds._of["T"].items()} == {FIFO: 1}

    partly()


@in_front()
async def test_a_frame_that_fails_where_it_is_read_costs_itself_alone(
    scene: FrontScene,
) -> None:
    scene.lane._lanes.get = lambda topic: 1 // (topic != "Odd") and None  # type: ignore[assignment,func-returns-value]
    line = scene.line()
    line.came(slow(b"a"), send("Odd"), slow(b"b"))
    scene.tick(line)
    assert line.codes() == {2: 1, 1: 0, 3: 0}
    assert await scene.stored() == [b"a", b"b"]


@in_front()
async def test_a_frame_that_cannot_be_read_ends_its_connection_after_what_came_before(scene: FrontScene) -> None:
    broken, good = scene.line(), scene.line()
    garbage = (12).to_bytes(4, "big") + (8).to_bytes(4, "big") + b"{nothing"
    broken.came(send(body=b"a"), garbage, send(body=b"never"))
    good.came(send(body=b"b"))
    scene.tick(broken, good)
    assert broken.malformed_by is not None
    assert (broken.codes(), good.codes()) == ({1: 0}, {1: 0})
    assert await scene.stored() == [b"a", b"b"]


@in_front()
async def test_a_frame_that_breaks_the_decoder_ends_its_connection_alone(scene: FrontScene) -> None:
    def decoded(data: bytes) -> Command:
        if b"breaks" in data:
            raise ZeroDivisionError
        return frame.decode(data)

    broken, good = scene.line(), scene.line()
    broken.came(slow(b"a"), slow(b"breaks"), slow(b"never"))
    good.came(slow(b"b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "decode", decoded)
        scene.tick(broken, good)
    assert broken.malformed_by == "a frame that cannot be decoded"
    assert (broken.codes(), good.codes()) == ({1: 0}, {1: 0})
    assert await scene.stored() == [b"a", b"b"]


@in_front()
async def test_sends_that_come_through_the_router_are_stored_and_answered(scene: FrontScene) -> None:
    scene.router.add(scene.lane)
    line = scene.line()
    for number, body in enumerate((b"a", b"b"), 1):
        command = send(body=body)
        command.opaque = number
        scene.router.route(as_conn(line), command)
    bad = send("a b")
    bad.opaque = 3
    scene.router.route(as_conn(line), bad)
    assert line.codes() == {1: 0, 2: 0, 3: 1}
    assert await scene.stored() == [b"a", b"b"]


@pytest.mark.parametrize(("gate", "code"), [(Gate.SHUT_DOWN, 14), (Gate.DISK_FULL, 14), (Gate.NOT_WRITABLE, 14)])
def test_nothing_is_stored_while_the_log_takes_nothing(gate: int, code: int) -> None:
    @in_front()
    async def refuse(scene: FrontScene) -> None:
        scene.store.log.gate |= gate
        assert [answer.code for answer in scene.ask(send(), slow(b"y"), send())] == [code] * 3
        stats = scene.counted.stats
        assert (stats.put_failures, stats.put_refusals) == (3, 3)
        scene.store.log.gate = 0
        assert scene.ask(send())[0].code == 0
        assert await scene.stored() == [b"x"]

    refuse()


@pytest.mark.parametrize(("closed", "code"), [(Gate.DISK_FULL, 14), (0, 1)])
def test_a_disk_that_refuses_is_told_to_every_sender_of_the_tick(closed: int, code: int) -> None:
    @in_front()
    async def refuse(scene: FrontScene) -> None:
        def append(*_: Any, **__: Any) -> Any:
            tries.append(1)
            scene.store.log.gate |= closed
            raise OSError(28, "No space left on device")

        tries: list[int] = []
        scene.store.append = append  # type: ignore[method-assign]
        answers = scene.ask(send(), slow(b"y"), send(oneway=True), send())
        assert [(answer.opaque, answer.code) for answer in answers] == [(1, code), (2, code), (4, code)]
        assert (len(tries), scene.counted.stats.put_failures) == (1, 4)

    refuse()


def test_a_disk_that_refuses_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @in_front()
    async def refuse(scene: FrontScene) -> None:
        scene.store.append = _full_disk  # type: ignore[method-assign]
        scene.ask(send(), send())

    refuse()
    told = [record.getMessage() for record in caplog.records if "appending to the commit log" in record.getMessage()]
    assert len(told) == 1


@in_front(startAcceptSendRequestTimeStamp="4102444800000")
async def test_sends_before_the_time_from_which_on_they_are_taken_are_refused(scene: FrontScene) -> None:
    (answer,) = scene.ask(send())
    assert (answer.code, (answer.remark or "")[:31]) == (1, "broker unable to service, until")


# -- what takes the fast branch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"j": "1"}, {"m": "true"}, {"f": "4"}, {"e": "7"}, {"e": "-1"}, {"b": "New"}, {"i": "DELAY\x011"},
        {"i": "x\x01" + "y" * properties.MAX_BYTES}, {"g": "x"},
    ],
)  # fmt: skip
def test_whatever_is_not_plain_is_admitted_with_every_check(change: dict[str, str]) -> None:
    @in_front()
    async def admit(scene: FrontScene) -> None:
        admitted: list[str | None] = []
        real = scene.front.admission.admit

        def admit(conn: Any, header: Any, *others: Any) -> Any:
            admitted.append(header.topic)
            return real(conn, header, *others)

        scene.front.admission.admit = admit  # type: ignore[method-assign]
        scene.ask(send())
        scene.ask(send())
        before = len(admitted)  # the first one makes the topic's lane
        command = send()
        assert command.ext is not None
        command.ext |= change
        scene.ask(command)
        assert (before, len(admitted)) == (1, 1 if change == {"g": "x"} else 2)

    admit()


@in_front()
async def test_a_body_beyond_the_limit_is_refused(scene: FrontScene) -> None:
    scene.ask(send())
    answers = scene.ask(send(body=bytes(4096)), send(body=bytes(4097)))
    assert {answer.opaque: answer.code for answer in answers} == {1: 0, 2: 13}


# -- the budget of a tick ----------------------------------------------------------------------------------------------


@in_front()
async def test_pulls_beyond_those_of_one_tick_wait_for_the_next_with_what_is_behind_them(scene: FrontScene) -> None:
    line, beside = scene.line(), scene.line()
    line.came(*[pull(offset=0) for _ in range(17)], send(body=b"late"))
    beside.came(send(body=b"a"))
    scene.tick(line, beside)
    assert sorted(line.codes()) == list(range(1, 17))
    assert (len(line.frames), beside.codes()) == (2, {1: 0})
    scene.tick(line)
    assert sorted(line.codes()) == [17, 18]


@in_front()
async def test_other_requests_beyond_those_of_one_tick_wait_and_keep_their_order(scene: FrontScene) -> None:
    first, second = scene.line(), scene.line()
    first.came(*[other() for _ in range(40)])
    second.came(*[other() for _ in range(40)], send(body=b"behind"))
    scene.tick(first, second)
    assert (len(first.codes()), list(second.codes())) == (40, list(range(1, 25)))
    assert await scene.stored() == []
    scene.tick(second)
    assert sorted(second.codes()) == list(range(25, 42))


@in_front()
async def test_other_requests_are_bounded_by_their_bytes_too(scene: FrontScene) -> None:
    line = scene.line()
    line.came(*[Command(OTHER, ext={}, body=bytes(50 << 10)) for _ in range(5)])
    scene.tick(line)
    assert (list(line.codes()), len(line.frames)) == ([1, 2, 3], 2)


@in_front(mappedFileSizeCommitLog="1048576")
async def test_hard_sends_are_bounded_by_their_properties_and_plain_ones_are_not(scene: FrontScene) -> None:
    line, plain = scene.line(), scene.line()
    scene.ask(send())
    props = "x\x01" + "y" * 32_000
    line.came(*[slow(b"h", i=props) for _ in range(6)])
    plain.came(*[send() for _ in range(50)])
    scene.tick(line, plain)
    assert (len(line.codes()), len(line.frames)) == (5, 1)
    assert set(plain.codes().values()) == {0}
    scene.tick(line)
    assert line.codes() == {6: 0}


# -- what comes after the append ---------------------------------------------------------------------------------------


@in_front()
async def test_a_pull_finds_what_was_sent_behind_it_in_the_same_tick(scene: FrontScene) -> None:
    sent, pulled = scene.ask(pull(), send(body=b"new"))
    assert (sent.opaque, pulled.opaque, pulled.code) == (2, 1, 0)
    assert b"new" in pulled.body


@in_front()
async def test_an_answer_goes_to_who_asked_and_a_send_that_says_it_is_one_is_none(scene: FrontScene) -> None:
    line, heard = scene.line(), []
    line.answered = lambda command: heard.append(command.opaque)  # type: ignore[attr-defined]
    answers = [send(), pull(), other()]
    for number, answer in enumerate(answers, 7):
        answer.flag, answer.opaque = FLAG_RESPONSE, number
    line.came(*answers)
    scene.tick(line)
    assert (heard, line.answers()) == ([7, 8, 9], [])
    assert await scene.stored() == []


@in_front()
async def test_sends_to_a_new_topic_are_answered_in_order_once_it_is_in_its_file(scene: FrontScene) -> None:
    line = scene.line()
    line.came(send("New", b"a"), send("New", b"b"), send(body=b"c"))
    scene.tick(line)
    assert line.codes() == {3: 0}
    assert scene.front.pressure.held == 2
    assert line.owed_bytes > 0
    await asyncio.sleep(1)
    assert line.codes() == {1: 0, 2: 0}
    assert line.owed_bytes == scene.front.pressure.held == 0
    assert await scene.stored("New") == [b"a", b"b"]


@in_front()
async def test_a_send_is_admitted_anew_when_its_new_topic_is_deleted_before_it_is_in_its_file(
    scene: FrontScene,
) -> None:
    line = scene.line()
    line.came(send("New", b"a"))
    scene.tick(line)
    scene.store.delete_topic("New")
    scene.tables.topics.delete("New")
    await asyncio.sleep(1)
    assert line.codes() == {1: 0}
    assert (await scene.stored("New"), scene.front.pressure.held) == ([b"a"], 0)


@in_front(metricsExporterType="PROM")
async def test_every_send_is_timed_once_by_how_it_ended(scene: FrontScene) -> None:
    scene.ask(send())
    scene.ask(send(), send(oneway=True), slow(b"y"), to_queue(9, b"z"), send())
    scene.ask(send("T", props="DELAY\x01x"))
    scene.store.append = lambda *_, **__: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    scene.ask(send())
    scene.store.append = _full_disk  # type: ignore[method-assign]
    scene.ask(send(), send())
    latency = scene.counted.latency
    assert latency is not None
    counted = {key: histogram.count for key, histogram in latency._of.items()}
    assert counted == {
        (310, 0, "success", False): 4,
        (310, 0, "oneway", False): 1,
        (310, 1, "success", False): 5,
    }

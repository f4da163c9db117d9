"""All attempts of one send, step by step: no loop, no clock, no network."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rmq.client.attempts import AskRoute, AskWhy, Attempts, Call, Done, Outcome, Pause, Send, Step
from rmq.client.cluster.route import PublishInfo
from rmq.client.cluster.routes import Routes
from rmq.client.fault import LatencyFault
from rmq.client.message import Message, MessageQueue
from rmq.client.results import SendResult, SendStatus
from rmq.client.selectors import by_hash
from rmq.client.sending import SendEncoder
from rmq.client.settings import ProducerSettings
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    HeaderError,
    RequestTimeout,
    ResponseError,
    TooManyRequests,
)

ONE = (Message("T", b"x"),)
BATCH = (Message("T", b"x"), Message("T", b"y"))


class Known(Routes):
    """Routes as a test has them: every broker has one queue of T."""

    def __init__(self, *brokers: str, own: bool = True) -> None:
        super().__init__(Random())
        if brokers:
            self.learn(*brokers, own=own)

    def learn(self, *brokers: str, own: bool = True) -> None:
        self.publish = {"T": PublishInfo("T", [MessageQueue("T", broker, 0) for broker in brokers])}
        self.broker_addrs = {broker: {0: f"{broker}:10911"} for broker in brokers}
        if own:
            self.own["T"] = TopicRouteData()


class Sends:
    """One send, driven by hand; what it wants is asserted step by step."""

    def __init__(self, known: Known, *, messages: tuple[Message, ...] = ONE, timeout: float = 3.0, **more: Any) -> None:
        self.known = known
        given = {name: more.pop(name) for name in ("queue", "selector", "arg", "retries") if name in more}
        settings = ProducerSettings.of(more)  # type: ignore[arg-type]
        encoder = SendEncoder("pg", settings, lambda _: "ID", lambda: 0)
        send = encoder.prepare(messages[0]) if len(messages) == 1 else encoder.prepare_batch(messages)
        self.faults = LatencyFault(settings.send_latency_fault_enable)
        self.attempts = Attempts(send, known, self.faults, settings, timeout, **given)
        self.now = 100.0
        self.step: Step = self._called(self.attempts.first(self.now))

    def on(self, outcome: Outcome, after: float = 0.0) -> Step:
        self.now += after
        self.step = self._called(self.attempts.on(outcome, self.now))
        return self.step

    def _called(self, step: Step) -> Step:
        while isinstance(step, Call):
            step = self.attempts.on(step.in_place(), self.now)
        return step

    @property
    def broker(self) -> str:
        """Where it leaves for now."""
        assert isinstance(self.step, Send), self.step
        assert self.step.address == f"{self.step.queue.broker_name}:10911"
        return self.step.queue.broker_name

    def fails(self) -> Exception:
        assert isinstance(self.step, Done), self.step
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever it is, the caller looks
            self.step.result()
        return caught.value


def answer(code: int = 0, remark: str | None = None) -> Command:
    reply = Command(code=code, ext={"queueId": "0", "queueOffset": "7", "msgId": "M"})
    reply.remark = remark
    return reply


@pytest.mark.parametrize("messages", [ONE, BATCH])
def test_a_message_or_a_batch_that_is_stored_is_done(messages: tuple[Message, ...]) -> None:
    s = Sends(Known("a"), messages=messages)
    assert s.step == Send(MessageQueue("T", "a", 0), "a:10911", 3.0)
    s.on(answer())
    assert isinstance(s.step, Done)
    result = s.step.result()
    assert (result.ok, result.queue_offset, result.msg_id) == (True, 7, ",".join("ID" for _ in messages))


def test_the_vip_port_is_two_below() -> None:
    s = Sends(Known("a"), vip_channel=True)
    assert isinstance(s.step, Send)
    assert s.step.address == "a:10909"


@pytest.mark.parametrize(
    ("outcome", "asks"),
    [
        (answer(2, "busy"), False),
        (answer(14), True),
        (answer(17), True),
        (ConnectFailed("no"), True),
        (ConnectionLost("gone"), True),
        (RequestTimeout("late"), True),
    ],
)
def test_what_another_broker_may_mend_goes_to_another_one(outcome: Outcome, asks: bool) -> None:
    """Field case B081. The route is asked for first where it may be to blame; an error of that changes nothing."""
    s = Sends(Known("a", "b", "c"))
    tried = [s.broker]
    for _ in range(2):
        if asks:
            assert isinstance(s.on(outcome), AskRoute)
            s.on(ConnectFailed("no name server"))
        else:
            s.on(outcome)
        assert s.broker != tried[-1]
        tried.append(s.broker)
    s.on(outcome)
    if asks:
        s.on(None)
    assert f"(tried 3 times: {', '.join(tried)})" in str(s.fails())


@pytest.mark.parametrize(
    "outcome", [answer(13, "illegal"), ClientError("shut down"), TooManyRequests("full"), answer(208)]
)
def test_what_no_broker_mends_is_final(outcome: Outcome) -> None:
    s = Sends(Known("a", "b"))
    s.on(outcome)
    assert str(s.fails()).endswith("(tried 1 time: a)")


def test_an_error_of_the_program_is_told_as_it_is() -> None:
    s = Sends(Known("a", "b"))
    wrong = KeyError("a hook")
    s.on(wrong)
    assert s.fails() is wrong


def test_an_answer_that_makes_no_sense_ends_its_send_alone() -> None:
    s = Sends(Known("a", "b"))
    nonsense = answer()
    nonsense.ext = {"queueId": "first"}
    s.on(nonsense)
    error = s.fails()
    assert isinstance(error, HeaderError)
    assert str(error) == (
        "a:10911: the answer to a send names no place: queueId 'first', queueOffset None (tried 1 time: a)"
    )


def test_the_last_error_keeps_what_callers_branch_on() -> None:
    s = Sends(Known("a"), retries=0)
    s.on(answer(2, "busy"))
    error = s.fails()
    assert isinstance(error, ResponseError)
    assert (error.code, error.remark, error.address) == (2, "busy (tried 1 time: a)", "a:10911")
    s = Sends(Known("a"), retries=0)
    refused = ConnectFailed("no")
    refused.__cause__ = OSError(111, "Connection refused")
    s.on(refused)
    s.on(None)
    assert s.fails().__cause__ is refused.__cause__


@pytest.mark.parametrize(("options", "tries"), [({}, 3), ({"retry_times_when_send_failed": 4}, 5), ({"retries": 1}, 2)])
def test_it_is_tried_as_often_as_set(options: dict[str, int], tries: int) -> None:
    s = Sends(Known("a"), **options)
    for _ in range(tries):
        assert s.broker == "a"
        s.on(answer(2))
    assert f"tried {tries} times" in str(s.fails())


def test_the_codes_that_are_tried_again_are_a_setting() -> None:
    s = Sends(Known("a", "b"), retry_response_codes={13})
    s.on(answer(13))
    assert s.broker == "b"
    s.on(answer(2))
    assert "code 2" in str(s.fails())


def test_no_broker_takes_the_time_of_the_others() -> None:
    """Field case B082."""
    s = Sends(Known("a", "b"))
    shares = []
    while isinstance(s.step, Send):
        shares.append(round(s.step.seconds, 3))
        s.on(RequestTimeout("late"), after=s.step.seconds)
        if isinstance(s.step, AskRoute):
            assert s.step.seconds <= (s.attempts.rest(s.now)) / 2
            s.on(None)
    assert shares == [1.0, 1.0, 1.0]
    assert "tried 3 times: a, b, a" in str(s.fails())


def test_a_broker_alone_gets_all_the_time_and_then_it_is_over() -> None:
    s = Sends(Known("a"))
    assert isinstance(s.step, Send)
    assert s.step.seconds == 3.0
    s.on(RequestTimeout("late"), after=3.0)
    assert str(s.fails()) == "late (tried 1 time: a)"


def test_an_attempt_that_ends_with_the_time_is_the_last_one() -> None:
    s = Sends(Known("a", "b"), timeout=1.0)
    s.on(answer(2, "busy"), after=1.0)
    assert "busy (tried 1 time: a)" in str(s.fails())


def test_the_queue_is_chosen_when_the_message_leaves() -> None:
    """What others learnt while it waited counts: a broker that fails, and a route that changed."""
    s = Sends(Known())
    assert isinstance(s.step, AskRoute)
    s.known.learn("a", "b")
    s.faults.on_failure("a", s.now)
    s.on(None)
    assert s.broker == "b"
    s.on(ConnectFailed("no"))
    s.known.learn("c")
    s.on(None)
    assert s.broker == "c"


@pytest.mark.parametrize(
    ("enabled", "outcome", "after", "avoided"),
    [
        (False, answer(), 0.9, False),
        (False, ConnectFailed("no"), 0.1, True),
        (False, answer(2), 0.1, False),
        (True, answer(), 0.1, False),
        (True, answer(), 0.6, True),
        (True, RequestTimeout("late"), 0.1, True),
        (False, ClientError("not sent"), 0.1, False),
    ],
)
def test_brokers_that_fail_or_are_slow_are_noted(enabled: bool, outcome: Outcome, after: float, avoided: bool) -> None:
    s = Sends(Known("a", "b"), send_latency_fault_enable=enabled)
    s.on(outcome, after)
    assert s.faults.avoided == ({"a"} if avoided else frozenset())


def test_an_answer_clears_its_broker() -> None:
    s = Sends(Known("a"))
    s.faults.on_failure("a", s.now)
    s.on(answer())
    assert not s.faults.avoided


def not_replicated() -> Command:
    return answer(int(ResponseCode.SLAVE_NOT_AVAILABLE))


@pytest.mark.parametrize(
    ("brokers", "asked_for", "again"), [(("a", "b"), False, False), (("a", "b"), True, True), (("a",), True, False)]
)
def test_a_status_other_than_ok_is_tried_elsewhere_only_when_asked_for(
    brokers: tuple[str, ...], asked_for: bool, again: bool
) -> None:
    s = Sends(Known(*brokers), retry_another_broker_when_not_store_ok=asked_for)
    s.on(not_replicated())
    if again:
        assert s.broker == "b"
        s.on(not_replicated())
        s.on(not_replicated())
    assert isinstance(s.step, Done)
    assert s.step.result().send_status is SendStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("outcome", [ConnectFailed("no"), answer(13, "illegal"), answer(2, "busy"), KeyError("a hook")])
def test_what_is_stored_is_the_result_when_no_other_broker_does_better(outcome: Outcome) -> None:
    """As Java: the message is there, so a caller who is told of an error would send it a second time for nothing."""
    s = Sends(Known("a", "b"), retry_another_broker_when_not_store_ok=True, retries=1)
    s.on(not_replicated())
    s.on(outcome)
    if isinstance(s.step, AskRoute):
        s.on(None)
    assert isinstance(s.step, Done)
    assert s.step.result().send_status is SendStatus.SLAVE_NOT_AVAILABLE
    assert s.step.result().message_queue.broker_name == "a"


@pytest.mark.parametrize(
    ("outcome", "kind", "moved"),
    [
        (answer(2), ResponseError, False), (ConnectFailed("no"), ConnectFailed, True),
        (answer(13), ResponseError, False), (answer(14), ResponseError, True),
        (ConnectionLost("no"), ConnectionLost, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", [{"queue": MessageQueue("T", "b", 0)}, {"selector": by_hash, "arg": "1"}])
def test_a_queue_given_or_selected_is_not_left(
    how: dict[str, Any], outcome: Outcome, kind: type[Exception], moved: bool
) -> None:
    """The next message is to find whoever leads by now: its route is asked for, with what is left of the time."""
    s = Sends(Known("a", "b"), **how)
    assert s.broker == "b"
    assert isinstance(s.step, Send)
    assert s.step.seconds == 3.0
    s.on(outcome, after=1.0)
    if moved:
        assert s.step == AskRoute(1.0)
        s.on(RequestTimeout("no name server"))
    error = s.fails()
    assert isinstance(error, kind)
    assert "tried" not in str(error)
    assert not s.known.doubted


@pytest.mark.parametrize("how", [{"queue": MessageQueue("T", "b", 0)}, {"retries": 0}])
def test_what_a_send_has_no_time_to_ask_the_next_one_asks_first(how: dict[str, Any]) -> None:
    """A leader that stands still: nothing is left of the time, and its group is led by another one."""
    known = Known("b")
    s = Sends(known, **how)
    s.on(RequestTimeout("no answer"), after=3.0)
    s.fails()
    s = Sends(known, **how)
    assert s.step == AskRoute(1.5)
    known.broker_addrs["b"] = {0: "c:10911"}
    s.on(None)
    assert isinstance(s.step, Send)
    assert s.step.address == "c:10911"
    assert isinstance(Sends(known, **how).step, Send)


def test_a_queue_given_needs_no_route_but_its_master() -> None:
    s = Sends(Known(), queue=MessageQueue("T", "a", 0))
    assert s.step == AskRoute(3.0)
    s.known.broker_addrs["a"] = {0: "a:10911"}
    s.on(None)
    assert s.broker == "a"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [(None, "the broker a of T has no master now"), (ConnectFailed("no name server"), "no name server")],
)
def test_a_queue_whose_broker_has_no_master(outcome: Outcome, why: str) -> None:
    s = Sends(Known("b"), queue=MessageQueue("T", "a", 0))
    s.on(outcome)
    assert str(s.fails()) == why


def test_a_queue_of_a_topic_that_does_not_exist() -> None:
    s = Sends(Known(), queue=MessageQueue("T", "a", 0))
    s.on(None)
    assert str(s.fails()) == "the topic T does not exist: no broker has registered it"


def test_a_broker_without_a_master_counts_as_an_attempt() -> None:
    s = Sends(Known("a", "b"))
    s.on(answer(2))
    del s.known.broker_addrs["a"]
    s.on(answer(2))
    assert isinstance(s.step, AskRoute), "the master of a"
    assert isinstance(s.on(None), AskRoute), "another attempt would need another route"
    s.on(None)
    assert str(s.fails()) == "the broker a of T has no master now (tried 3 times: a, b, a)"


def test_no_time_is_left_when_the_master_is_known_at_last() -> None:
    s = Sends(Known(), queue=MessageQueue("T", "a", 0))
    s.known.broker_addrs["a"] = {0: "a:10911"}
    s.on(None, after=3.0)
    assert "no time was left to send to" in str(s.fails())


def sells_out(*_: object) -> MessageQueue:
    raise KeyError("whose order?")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"queue": 5}, "the queue is 5: give a MessageQueue"),
        ({"queue": MessageQueue("U", "a", 0)}, "one of U, and the message is for T"),
        ({"selector": lambda *_: 1}, "must return one of the queues"),
        ({"selector": sells_out}, "whose order"),
    ],
)
def test_a_queue_or_selector_that_is_none_fails_its_send(how: dict[str, Any], why: str) -> None:
    s = Sends(Known("a"), **how)
    assert why in str(s.fails())


def test_a_selector_is_asked_once_when_the_queues_are_known() -> None:
    asked = []

    def select(queues: Any, message: Message, arg: object) -> MessageQueue:
        asked.append((tuple(queues), message, arg))
        return MessageQueue("T", "away", 0)

    s = Sends(Known(), selector=select, arg=7)
    assert not asked
    s.known.learn("a")
    assert isinstance(s.on(None), AskRoute), "for the master of the one selected"
    s.known.broker_addrs["away"] = {0: "away:10911"}
    s.on(None)
    assert s.broker == "away"
    assert asked == [((MessageQueue("T", "a", 0),), ONE[0], 7)]


def test_an_unknown_topic_is_asked_for_with_its_template() -> None:
    s = Sends(Known(), create_topic_key="Mould", default_topic_queue_nums=6)
    assert s.step == AskRoute(3.0, ("Mould", 6))
    s.on(ConnectFailed("no name server"), after=1.0)
    assert str(s.fails()) == "no name server"


def test_a_topic_that_may_come_is_looked_for_until_the_time_is_over() -> None:
    s = Sends(Known(), timeout=1.2)
    steps = [s.step]
    away = ConnectFailed("no master now")
    outcomes: dict[type, Callable[[], Step]] = {
        AskRoute: lambda: s.on(None),
        AskWhy: lambda: s.on(away),
        Pause: lambda: s.on(None, after=0.5),
    }
    while not isinstance(s.step, Done):
        steps.append(outcomes[type(s.step)]())
    assert [type(step) for step in steps] == [AskRoute, AskWhy, Pause, AskRoute, AskWhy, Pause, AskRoute, AskWhy, Done]
    assert s.fails() is away


def test_a_topic_that_comes_while_it_is_looked_for() -> None:
    s = Sends(Known())
    s.on(None)
    s.on(ConnectFailed("no master now"))
    assert s.step == Pause(0.5)
    assert isinstance(s.on(None, after=0.5), AskRoute)
    s.known.learn("a")
    s.on(None)
    assert s.broker == "a"


def test_a_topic_that_does_not_come_by_itself() -> None:
    s = Sends(Known())
    s.on(None)
    nobody = ClientError("none creates it")
    s.on(nobody)
    assert s.fails() is nobody


def test_no_time_is_left_to_look_the_route_up() -> None:
    s = Sends(Known(), timeout=1.0)
    s.on(None)
    s.on(ConnectFailed("no master now"))
    s.on(None, after=1.0)
    assert str(s.fails()) == "no time was left to look up the route of T"


def test_no_time_at_all_is_none_to_send_in() -> None:
    s = Sends(Known("a"), timeout=0.0)
    assert str(s.fails()) == "the message for T was not sent in 0 s (tried 0 times)"


def test_a_topic_just_created_from_its_template_is_waited_for_a_moment() -> None:
    s = Sends(Known("a", own=False))
    assert isinstance(s.on(answer(1, "queueId[3] is illegal")), AskRoute)
    assert s.on(None) == Pause(0.1)
    s.known.learn("b")
    s.on(None, after=0.1)
    assert s.broker == "b"


def test_a_topic_with_a_route_of_its_own_by_now_is_not_waited_for() -> None:
    s = Sends(Known("a", own=False))
    s.on(answer(1))
    s.known.learn("b")
    s.on(None)
    assert s.broker == "b"


def test_a_topic_that_is_used_is_marked() -> None:
    known = Known("a")
    known.publish["T"].used = False
    Sends(known)
    assert known.publish["T"].used


def test_queues_that_are_gone_after_a_failure_are_looked_up_again() -> None:
    s = Sends(Known("a", "b"))
    s.on(answer(17))
    s.known.publish = {}
    assert s.on(None) == AskRoute(3.0, ("TBW102", 4))


def test_a_result_is_what_done_gives() -> None:
    s = Sends(Known("a"))
    s.on(answer())
    assert isinstance(s.step, Done)
    assert isinstance(s.step.outcome, SendResult)


def test_one_try_has_the_time_of_a_request_and_the_rest_is_for_others() -> None:
    sends = Sends(Known("a", "b"), send_msg_max_timeout_per_request=0.5)
    assert isinstance(sends.step, Send)
    assert sends.step.seconds == 0.5
    sends.on(RequestTimeout("late"), after=0.5)
    step = sends.on(None)
    assert isinstance(step, Send)
    assert (step.seconds, sends.attempts.rest(sends.now)) == (0.5, 2.5)


@pytest.mark.parametrize(
    ("took", "stood", "left"), [(0.5, 0.0, 2.5), (2.9, 0.0, 0.1), (2.9, 2.5, 2.6), (30.0, 29.5, 2.5)]
)
def test_the_time_in_which_the_loop_stood_still_is_nobodys(took: float, stood: float, left: float) -> None:
    s = Sends(Known())
    assert isinstance(s.step, AskRoute)
    s.known.learn("a")
    s.attempts.stood(stood)
    step = s.on(None, after=took)
    assert isinstance(step, Send)
    assert step.seconds == pytest.approx(left)


def test_a_send_whose_time_is_over_when_the_route_is_known_is_not_made() -> None:
    s = Sends(Known())
    s.known.learn("a")
    step = s.on(None, after=3.5)
    assert isinstance(step, Done)
    assert isinstance(step.outcome, RequestTimeout)
    assert "was not sent in 3 s" in str(step.outcome)


def test_a_broker_alone_that_takes_nothing_may_be_handing_its_lead_over() -> None:
    """It is named as the master for a moment yet: three tries at once would all be over by then."""
    known = Known("a")
    s = Sends(known)
    for _ in range(2):
        assert isinstance(s.on(answer(14)), AskRoute)
        assert s.on(None) == Pause(0.1)
        s.on(None, after=0.1)
        assert s.broker == "a"
    s.on(answer(14))
    s.on(None)
    assert "tried 3 times" in str(s.fails())


def test_a_broker_that_takes_nothing_is_not_waited_for_where_another_is_named() -> None:
    moved, two = Known("a"), Known("a", "b")
    s = Sends(moved)
    s.on(answer(14))
    moved.broker_addrs = {"a": {0: "next:10911"}}
    step = s.on(None)
    assert isinstance(step, Send)
    assert step.address == "next:10911"
    s = Sends(two)
    s.on(answer(14))
    assert isinstance(s.on(None), Send)

"""Whom to ask: turns over servers, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rmq.client.cluster.turns import Turns, knows_no_topic
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def asked(
    turns: Turns, says: dict[str, int | None], *, doubted: bool = True, silence: float = 0.0
) -> tuple[list[str], int | None]:
    """Who is asked when each server answers with this code, None not at all; and the code that is believed.

    :param silence: seconds until it is known that a server does not answer.
    """
    question = turns.ask(knows_no_topic if doubted else None)
    order = []
    while (server := question.server) is not None:
        order.append(server)
        code = says[server]
        if code is None:
            assert isinstance(turns.clock, Clock)
            turns.clock.now += silence
            question.failed(RequestTimeout(server))
        else:
            question.answered(Command(code=code))
    return order, None if question.reply is None else question.reply.code


OK, UNKNOWN = int(ResponseCode.SUCCESS), int(ResponseCode.TOPIC_NOT_EXIST)


@pytest.mark.parametrize(
    ("says", "order", "code", "turn"),
    [
        ((OK, OK, OK), "a", OK, "a"),
        ((None, OK, OK), "ab", OK, "b"),
        ((None, None, OK), "abc", OK, "c"),
        ((None, None, None), "abc", None, "a"),
        # One that knows nothing is believed when all who answer say the same; who knows more has the turn from then on.
        ((UNKNOWN, UNKNOWN, UNKNOWN), "abc", UNKNOWN, "a"),
        ((UNKNOWN, None, None), "abc", UNKNOWN, "a"),
        ((None, UNKNOWN, None), "abc", UNKNOWN, "b"),
        ((UNKNOWN, OK, OK), "ab", OK, "b"),
        ((UNKNOWN, None, OK), "abc", OK, "c"),
        ((None, UNKNOWN, OK), "abc", OK, "c"),
    ],
)
def test_until_an_answer_can_be_believed(says: Sequence[int | None], order: str, code: int | None, turn: str) -> None:
    turns = Turns("abc", Clock())
    assert asked(turns, dict(zip("abc", says, strict=True))) == (list(order), code)
    assert turns.turn == turn


def test_an_answer_that_is_not_doubted_is_the_end() -> None:
    assert asked(Turns("ab", Clock()), {"a": UNKNOWN, "b": OK}, doubted=False) == (["a"], UNKNOWN)


def test_the_time_left_is_shared_by_those_who_may_still_be_asked() -> None:
    question = Turns("abc", Clock()).ask()
    shares = []
    while question.server is not None:
        shares.append(question.shares)
        question.failed(RequestTimeout("x"))
    assert shares == [3, 2, 1]


def test_what_only_confirms_leaves_time_for_what_comes_after() -> None:
    question = Turns("ab", Clock()).ask(knows_no_topic)
    question.answered(Command(code=UNKNOWN))
    assert (question.left, question.shares) == (1, 2)


def test_questions_side_by_side_move_the_turn_once() -> None:
    turns = Turns("abc", Clock())
    first, second = turns.ask(), turns.ask()
    first.failed(RequestTimeout("a"))
    second.failed(RequestTimeout("a"))
    assert (turns.turn, first.server, second.server) == ("b", "b", "b")


def test_a_new_list_leaves_the_turn_where_it_is_and_old_questions_move_it_no_more() -> None:
    turns = Turns("abc", Clock())
    old = turns.ask()
    turns.at = 1
    turns.replace("cb")
    assert turns.turn == "b"
    old.failed(RequestTimeout("a"))
    assert turns.turn == "b"
    turns.replace("xyz")
    assert turns.turn == "x"


def test_who_has_just_been_silent_is_not_waited_for_again_to_confirm_what_others_say() -> None:
    turns = Turns("abc", Clock())
    says: dict[str, int | None] = {"a": None, "b": UNKNOWN, "c": UNKNOWN}
    assert asked(turns, says, silence=1.5) == (["a", "b", "c"], UNKNOWN)
    assert asked(turns, says, silence=1.5) == (["b", "c"], UNKNOWN)
    assert isinstance(turns.clock, Clock)
    turns.clock.now += 5
    assert asked(turns, says, silence=1.5) == (["b", "c", "a"], UNKNOWN), "it may be back"
    assert asked(turns, says | {"b": None}, silence=1.5) == (["b", "c"], UNKNOWN)
    assert asked(turns, {"a": OK, "b": None, "c": None}) == (["c", "a"], OK), "nobody else has answered"
    assert asked(turns, {"a": UNKNOWN, "b": OK, "c": OK}) == (["a", "c"], OK), "b has been silent"


def test_who_refuses_at_once_costs_nothing_and_is_asked_again() -> None:
    turns = Turns("ab", Clock())
    for _ in range(2):
        assert asked(turns, {"a": UNKNOWN, "b": None}) == (["a", "b"], UNKNOWN)


def test_nobody_to_ask() -> None:
    assert asked(Turns("", Clock()), {}) == ([], None)

"""Whom to ask: turns over servers, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rmq.client.cluster.turns import Turns, knows_no_topic
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout


def asked(turns: Turns, says: dict[str, int | None], *, doubted: bool = True) -> tuple[list[str], int | None]:
    """Who is asked when each server answers with this code, None not at all; and the code that is believed."""
    question = turns.ask(knows_no_topic if doubted else None)
    order = []
    while (server := question.server) is not None:
        order.append(server)
        code = says[server]
        if code is None:
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
    turns = Turns("abc")
    assert asked(turns, dict(zip("abc", says, strict=True))) == (list(order), code)
    assert turns.turn == turn


def test_an_answer_that_is_not_doubted_is_the_end() -> None:
    assert asked(Turns("ab"), {"a": UNKNOWN, "b": OK}, doubted=False) == (["a"], UNKNOWN)


def test_the_time_left_is_shared_by_those_who_may_still_be_asked() -> None:
    question = Turns("abc").ask()
    shares = []
    while question.server is not None:
        shares.append(question.left)
        question.failed(RequestTimeout("x"))
    assert shares == [3, 2, 1]


def test_questions_side_by_side_move_the_turn_once() -> None:
    turns = Turns("abc")
    first, second = turns.ask(), turns.ask()
    first.failed(RequestTimeout("a"))
    second.failed(RequestTimeout("a"))
    assert (turns.turn, first.server, second.server) == ("b", "b", "b")


def test_a_new_list_leaves_the_turn_where_it_is_and_old_questions_move_it_no_more() -> None:
    turns = Turns("abc")
    old = turns.ask()
    turns.at = 1
    turns.replace("cb")
    assert turns.turn == "b"
    old.failed(RequestTimeout("a"))
    assert turns.turn == "b"
    turns.replace("xyz")
    assert turns.turn == "x"


def test_nobody_to_ask() -> None:
    assert asked(Turns(""), {}) == ([], None)

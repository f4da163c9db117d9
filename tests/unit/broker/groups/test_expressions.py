"""SQL92 is compiled some at a time, however many ask; what is remembered of it has a bound."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.groups.expressions import Expressions
from rmq.filter import sql
from rmq.filter.sql import ExpressionError, compile_sql, is_compiled
from rmq.testing.simloop import run
from tests.support.turns import Turns


def expression(number: int, size: int = 1_500) -> str:
    """One that nobody else asks for."""
    terms = size // 12
    return " or ".join([f"a{number}={term:05d}1" for term in range(terms)]).replace("=0", "=1")


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> None:
    sql._compiled.cache_clear()


def test_those_who_ask_together_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        expressions = Expressions()
        texts = [expression(number) for number in range(40)]
        made = Turns(monkeypatch, sql._Parser, "parse", lambda parser: len(parser._text))
        await asyncio.gather(*(expressions.compile(text) for text in texts))
        assert all(map(is_compiled, texts))
        assert made.whole == sum(map(len, texts))
        assert made.longest < 4096 + max(map(len, texts))
        # What is remembered takes nothing.
        made.again()
        await asyncio.gather(*(expressions.compile(text) for text in texts))
        assert made.whole == 0
        assert all(map(expressions.may_compile, texts))

    run(main())


def test_one_that_does_not_compile_is_for_who_uses_it_to_tell() -> None:
    async def main() -> None:
        expressions = Expressions()
        await expressions.compile("a =")
        await expressions.compile("x" * 20_000)
        with pytest.raises(ExpressionError):
            compile_sql("a =")

    run(main())


def test_what_is_remembered_is_bounded_by_its_text() -> None:
    remembered = sql._Remembered(most=5, characters=100)
    for number in range(9):
        remembered(f"a={number}")
    assert [f"a={number}" in remembered for number in range(9)] == [False] * 4 + [True] * 5
    remembered("a=4")
    long = f"a='{'x' * 88}'"
    remembered(long)
    assert [text in remembered for text in ("a=7", "a=8", "a=4", long)] == [False, True, True, True]
    huge = f"a='{'x' * 888}'"
    assert remembered(huge) is remembered(huge)
    assert long not in remembered

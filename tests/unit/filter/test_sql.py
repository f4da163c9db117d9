"""SQL92 filters: the reference's rules, one by one (store-and-broker.md 7.9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.filter.sql import ExpressionError, compile_sql

MATCHES = [
    ("a = 'x'", {"a": "x"}),
    ("a <> 'x'", {"a": "y"}),
    ("a = 'it''s'", {"a": "it's"}),
    ("a > 5", {"a": "6"}),
    ("a >= 5 AND a <= 6", {"a": "5"}),
    ("5 < a", {"a": "6"}),
    ("a > 5.0", {"a": "5.5"}),
    ("a > 5.", {"a": "5.5"}),
    ("a > .5", {"a": "1"}),
    ("a < 5E10", {"a": "4"}),
    ("a = 3000000000", {"a": "3000000000"}),
    ("a > -1", {"a": "0"}),
    ("a > b", {"a": "10", "b": "9.5"}),
    ("a BETWEEN 1 AND 3", {"a": "3"}),
    ("a NOT BETWEEN 1 AND 3", {"a": "4"}),
    ("a IN ('x', 'y')", {"a": "y"}),
    ("a NOT IN ('x', 'y')", {"a": "z"}),
    ("a IS NULL", {}),
    ("a IS NOT NULL", {"a": "x"}),
    ("a = TRUE", {"a": "TRUE"}),
    ("a = FALSE", {"a": "no"}),
    ("a = b", {}),
    ("a = 'x' OR b = 'y'", {"b": "y"}),
    ("(a = 'x' OR a = 'y') AND b = 1", {"a": "y", "b": "1"}),
    ("NOT (a = 'x')", {"a": "y"}),
    ("not (a is null) and b in ('1')", {"a": "y", "b": "1"}),
    ("a -- a comment\n = 'x'", {"a": "x"}),
    ("a /* of\nanother kind */ = 'x'", {"a": "x"}),
    ("$a_1 = 'x'", {"$a_1": "x"}),
    ("a CONTAINS 'bc'", {"a": "abcd"}),
    ("a NOT CONTAINS 'x'", {"a": "abcd"}),
    ("a STARTSWITH 'ab'", {"a": "abcd"}),
    ("a ENDSWITH 'cd'", {"a": "abcd"}),
    ("TRUE", {}),
    ("a + 0 = 1 OR TRUE".replace(" + 0", ""), {}),
    ("a <> 'x' IS NULL", {}),
    ("a = 0.0", {"a": "0"}),
    ("a = 0.0", {"a": "-0.0"}),
    ("a = -0.0", {"a": "0.0"}),
    ("a >= -0.0", {"a": "0"}),
    ("a <= 0.", {"a": "-3"}),
    ("a < .0", {"a": "-1e-300"}),
    ("a BETWEEN -1.0 AND 0.0", {"a": "-0.5"}),
    ("a BETWEEN 0.0 AND 1.0", {"a": "0.25"}),
    ("a NOT BETWEEN -1.0 AND 0.0", {"a": "0.1"}),
    ("a = 1e-400", {"a": "0.0"}),
    ("a > 0e5", {"a": "1e-320"}),
    ("a > 4.9e-324 OR a = 4.9e-324", {"a": "4.9e-324"}),
    ("a < 1.7976931348623157e308", {"a": "1.7976931348623155e308"}),
    ("a = -9223372036854775808", {"a": "-9223372036854775808"}),
    ("a >= -9223372036854775808L", {"a": "0"}),
    ("a BETWEEN -9223372036854775808 AND 9223372036854775807", {"a": "7"}),
]

REFUSES = [
    ("a = 'x'", {}),
    ("a <> 'x'", {}),
    ("NOT (a = 'x')", {}),
    ("a = b", {"a": "1"}),
    ("a > 5", {"a": "5.5"}),
    ("a > 5", {"a": "x"}),
    ("a = 5", {"a": "5.0"}),
    ("a > 5", {"a": "3000000000"}),
    ("a > 5", {}),
    ("a > b", {"a": "x", "b": "1"}),
    ("a", {"a": "true"}),
    ("a AND TRUE", {"a": "true"}),
    ("NOT a = 'x'", {"a": "x"}),
    ("a IN ('x')", {}),
    ("a NOT IN ('x')", {}),
    ("a NOT CONTAINS 'x'", {}),
    ("a CONTAINS ''", {"a": "abc"}),
    ("a NOT CONTAINS ''", {"a": "abc"}),
    ("FALSE", {}),
    ("NULL", {}),
    ("a BETWEEN 1 AND 3", {"a": "x"}),
    ("-a = 1", {"a": "-1"}),
    ("a = 1_0".replace("1_0", "10"), {"a": "1_0"}),
    ("a > 0.0", {"a": "-0.0"}),
    ("a < 0.0", {"a": "0"}),
    ("a <> -0.0", {"a": "0.0"}),
    ("a BETWEEN -1.0 AND 0.0", {"a": "0.01"}),
    ("a > -9223372036854775808", {"a": "-9223372036854775808"}),
]

ERRORS = [
    ("", "ends too soon", 1),
    ("a =", "ends too soon", 4),
    ("a = 'x", "closing quote", 5),
    ("a != 'x'", "write <>", 3),
    ("a > 'x'", "string cannot be ordered", 5),
    ("a > TRUE", "cannot be ordered", 5),
    ("a = NULL", "IS NULL", 5),
    ("TRUE = 'x'", "boolean constant", 8),
    ("a BETWEEN 3 AND 1", "lower bound", 11),
    ("a BETWEEN 'a' AND 'b'", "cannot be ordered", 11),
    ("a IN (1)", "expected a string", 7),
    ("'a' IN ('x')", "needs a property", 1),
    ("a IN ()", "expected a string", 7),
    ("5", "condition is needed", 1),
    ("'x' AND TRUE", "condition is needed", 1),
    ("a = -1e999", "outside the range", 6),
    ("a = 9223372036854775808", "does not fit into 64 bits", 5),
    ("a = -9223372036854775809", "does not fit into 64 bits", 6),
    ("a = 1e999", "outside the range", 5),
    ("a = 99999999999999999999", "64 bits", 5),
    ("a = 007", "after a complete expression", 6),
    ("a = 1 b = 2", "after a complete expression", 7),
    ("(a = 1", "expected ')'", 7),
    ("a -- open", "no line end", 3),
    ("a /* open", "without its */", 3),
    ("a.b = 1", "unexpected '.'", 2),
    ("a # 1", "unexpected '#'", 3),
    ("(" * 300 + "a = 1" + ")" * 300, "nested parentheses", 0),
    ("a" + " = a" * 300, "more than 200 comparisons of comparisons", 0),
    ("(" * 90 + "a = 1" + " = a = a = a = a)" * 90, "more than 200 comparisons of comparisons", 0),
    ("a" + " IS NULL" * 300, "more than 200 comparisons of comparisons", 0),
    ("a=1 OR " * 1000 + "a=1", "more than 4000 words, values and signs", 1),
    ("a = " + "-" * 3 + "1" + " OR " * 30000 + "x", "at most 16384", 1),
]


@pytest.mark.parametrize(("text", "properties"), MATCHES)
def test_it_matches(text: str, properties: dict[str, str]) -> None:
    assert compile_sql(text).matches(properties)


@pytest.mark.parametrize(("text", "properties"), REFUSES)
def test_it_does_not_match(text: str, properties: dict[str, str]) -> None:
    assert not compile_sql(text).matches(properties)


@pytest.mark.parametrize(("text", "what", "position"), ERRORS)
def test_it_does_not_compile(text: str, what: str, position: int) -> None:
    with pytest.raises(
        ExpressionError, match=what.replace("*", r"\*").replace("(", r"\(").replace(")", r"\)")
    ) as error:
        compile_sql(text)
    assert not position or error.value.position == position


def test_what_does_not_compile_is_told_again_without_another_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats it in every heartbeat."""
    text = "told = 'again' AND"
    with pytest.raises(ExpressionError) as first:
        compile_sql(text)
    monkeypatch.setattr("rmq.filter.sql.tokens", None)
    with pytest.raises(ExpressionError) as again:
        compile_sql(text)
    assert str(again.value) == str(first.value)
    assert again.value.position == first.value.position


def delivered(text: str, *values: str | None) -> list[str | None]:
    """Which values of the property ``a`` an expression lets through; None is a message without it."""
    compiled = compile_sql(text)
    return [value for value in values if compiled.matches({} if value is None else {"a": value})]


def test_b064_a_boolean_constant_on_either_side() -> None:
    for text in ("a = TRUE", "TRUE = a"):
        assert delivered(text, "true", "TRUE", "false", "1", None) == ["true", "TRUE"]
    for text in ("a <> TRUE", "TRUE <> a", "a = FALSE", "FALSE = a"):
        assert delivered(text, "true", "TRUE", "false", "1", None) == ["false", "1"]
    assert delivered("a IS NULL", "true", "1", None) == [None]


def test_b066_a_missing_property_is_neither_equal_nor_different() -> None:
    for text in ("a <> 'x'", "NOT (a = 'x')", "a NOT IN ('x')"):
        assert delivered(text, None, "5", "x") == ["5"]
    assert delivered("a = 'x' OR b IS NULL", None, "5", "x") == [None, "5", "x"]
    assert delivered("a BETWEEN 3 AND 9", None, "5") == ["5"]
    for text in ("a BETWEEN 9 AND 3", "a > 'q'", "a IN (5)", "a = NULL"):
        with pytest.raises(ExpressionError):
            compile_sql(text)


def test_b067_parts_of_a_text() -> None:
    values = ("订单-北京", "北京-订单", "100%", "it's")
    for text, wanted in (
        ("a STARTSWITH '订单'", "订单-北京"),
        ("a CONTAINS '%'", "100%"),
        ("a ENDSWITH 's'", "it's"),
        ("a CONTAINS ''''", "it's"),
    ):
        assert delivered(text, *values) == [wanted]
    for text in ("a LIKE '%x'", "a NOT LIKE '%x'"):
        with pytest.raises(ExpressionError, match="write STARTSWITH, ENDSWITH or CONTAINS"):
            compile_sql(text)


@given(st.text("ab=<>'()1.,-+ ANDORNOTINISNULLBETWEEN", max_size=40), st.dictionaries(st.sampled_from("ab"), st.text()))
def test_no_text_breaks_it(text: str, properties: dict[str, str]) -> None:
    try:
        compiled = compile_sql(text)
    except ExpressionError:
        return
    assert compiled.matches(properties) in (True, False)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        (" OR ".join(f"a={n}" for n in range(999)), {"a": "998"}, {"a": "999"}),
        (" AND ".join(f"a<>{n}" for n in range(999)), {"a": "999"}, {"a": "998"}),
        ("OR ".join(["b "] * 1990) + "OR a=1", {"a": "1"}, {"a": "2"}),
        ("(" * 95 + "a=1" + " OR a=2 AND b=1)" * 95, {"a": "2", "b": "1"}, {"a": "2"}),
        ("a = 1" + " = TRUE" * 150, {"a": "1"}, {"a": "2"}),
    ],
)
def test_the_longest_expressions_are_evaluated_deep_in_a_broker(
    text: str, matching: dict[str, str], other: dict[str, str]
) -> None:
    compiled = compile_sql(text)

    def deep(frames: int) -> tuple[bool, bool]:
        return deep(frames - 1) if frames else (compiled.matches(matching), compiled.matches(other))

    assert deep(300) == (True, False)

"""YAML that would become more than fits into any memory is refused before anything is built."""

from __future__ import annotations

import pytest

from rmq.config.bounded_yaml import bound_yaml
from rmq.protocol.errors import ConfigError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "f line 5: more than 100,000 values, with aliases put in"),
        ("a: &a " + "x" * 100_000 + "\n" + "".join(f"b{n}: *a\n" for n in range(200)), "f line 1"),
        ("[" * 500, "f line 1: lists and mappings 65 deep: at most 64 are read"),
        ("- " * 500 + "x", "65 deep"),
        ("{a: " * 100, "65 deep"),
    ],
)
def test_too_much_and_too_deep(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        bound_yaml("f", text)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    "text", ["", "a: 1", "x: &x {a: 1}\ny: {<<: *x, b: 2}", "a: *unknown", "a: &a [*a]", "\ufeffa: 1"]
)
def test_what_people_write_passes(text: str) -> None:
    bound_yaml("f", text)

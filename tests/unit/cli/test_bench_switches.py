"""The words of Java's benchmark scripts start ours."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.cli.bench import command
from rmq.cli.command import invoke


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-n a:1 -w 8 -s 10 -k true -m false", {"width": 8, "size": 10, "keys": True, "trace": False}),
        ("-n a:1 -threadCount 8 --messageSize=10 -keyEnable true -l 3 -q 5",
         {"width": 8, "size": 10, "keys": True, "tags": 3, "quantity": 5}),
        ("-n a:1 -k -m -d true -y true", {"keys": True, "trace": True, "level": 1}),
        ("-n a:1 -delayEnable true -delayLevel 3 -asyncEnable false", {"level": 3}),
        ("-n a:1 -d false", {"level": 0}),
        ("-n a:1 -a true -ak operator -sk 12345678 -ri 500",
         {"interval": 0.5, "client": {"namesrv": "a:1", "access_key": "operator", "secret_key": "12345678"}}),
        ("-n a:1 -accessKey operator -secretKey 1234", {"client": {"namesrv": "a:1", "access_key": "operator",
                                                                   "secret_key": "1234"}}),
    ],
)  # fmt: skip
def test_the_words_of_javas_scripts(monkeypatch: pytest.MonkeyPatch, words: str, wanted: dict[str, Any]) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(command, "_run", lambda work: found.update(_closed(work)) or 0)
    assert invoke(command.bench, "bench", ["producer", *words.split()]) == 0
    assert {name: found[name] for name in wanted} == wanted


def _closed(work: Any) -> dict[str, Any]:
    """What the benchmark would run with."""
    cells = dict(zip(work.__code__.co_freevars, (cell.cell_contents for cell in work.__closure__), strict=True))
    make = cells["make"]
    options = cells["options"]
    return {
        **cells, "keys": make._keys, "tags": make._tags, "level": make._level, "trace": options["enable_msg_trace"],
        "client": {name: value for name, value in options.items() if name not in ("enable_msg_trace", "auto_batch")},
    }  # fmt: skip


def test_half_an_account_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(command.bench, "bench", ["consumer", "-n", "a:1", "-ak", "operator"]) == 2
    assert "-ak and -sk are an account together" in capsys.readouterr().err

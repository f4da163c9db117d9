"""Asking whether to go on, while an event loop waits below."""

from __future__ import annotations

import asyncio
import signal

import click
import pytest

from rmq.cli.command import INTERRUPTED, agrees, invoke


def command(done: list[str]) -> click.Command:
    async def work() -> None:
        if agrees():
            done.append("changed")

    return click.Command("change", callback=lambda: asyncio.run(work()))


def test_ctrl_c_ends_the_question(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """asyncio's own handler marks the task as cancelled, and the reading goes on."""

    def typed(prompt: str) -> str:
        signal.raise_signal(signal.SIGINT)
        return "y"

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("click.termui.visible_prompt_func", typed)
    done: list[str] = []
    assert invoke(command(done), "change", []) == INTERRUPTED
    assert not done
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().err == "\nchange: nothing was changed\n"


@pytest.mark.parametrize(("answer", "then"), [("y", ["changed"]), ("n", []), ("", [])])
def test_what_is_typed_is_the_answer(monkeypatch: pytest.MonkeyPatch, answer: str, then: list[str]) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: answer)
    done: list[str] = []
    invoke(command(done), "change", [])
    assert done == then


def test_the_end_of_what_is_typed_is_no(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("click.termui.visible_prompt_func", typed)
    done: list[str] = []
    assert invoke(command(done), "change", []) == 0
    assert not done
    assert capsys.readouterr().err == "\n"

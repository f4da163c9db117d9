"""What a shell is answered, and which options take which names."""

from __future__ import annotations

import sys

import click
import pytest

from rmq.cli.command import invoke
from rmq.cli.completion import names
from rmq.cli.completion.shells import SHELLS
from rmq.cli.mqadmin.commands import COMMANDS, root
from rmq.cli.rmq import command


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(kind: str, ctx: click.Context) -> list[str]:
        return [f"{kind}-{ctx.params.get('namesrv')}", f"{kind}-b", f"%{kind}"]

    monkeypatch.setattr(names, "_ask", ask)


def completed(line: str) -> list[str]:
    program, *words = line.split(" ")
    made = SHELLS["zsh"](command if program == "rmq" else root, {}, program, "X")
    return [item.value for item in made.get_completions(words[:-1], words[-1])]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rmq cons", ["consume"]),
        ("rmq context ", ["list", "remove", "set", "use"]),
        ("rmq consume ", ["topic-None", "topic-b"]),
        ("rmq consume % -n a:1", []),
        ("rmq consume %", ["%topic"]),
        ("rmq consume --namesrv a:1 ", ["topic-a:1", "topic-b"]),
        ("rmq doctor -n a:1 -g group-", ["group-a:1", "group-b"]),
        ("rmq consume T -o n", ["ndjson"]),
        ("mqadmin TOPICRO", ["topicRoute"]),
        ("mqadmin topicRoute -topic topic-b", ["topic-b"]),
        ("mqadmin topicRoute --topic=topic-b", ["topic-b"]),
        ("mqadmin brokerStatus -b ", ["address-None", "address-b"]),
        ("mqadmin wipeWritePerm -b ", ["broker-None", "broker-b"]),
        ("mqadmin queryCq -b ", ["address-None", "address-b"]),
        ("mqadmin brokerStatus -c cluster-b", ["cluster-b"]),
        ("mqadmin brokerStatus --clus", ["--clusterName"]),
        ("mqadmin topicList -c ", []),
        ("mqadmin nonsense -t ", []),
        ("mqadmin topicRoute --nonsense -t ", []),
    ],
)  # fmt: skip
def test_what_could_stand_there(line: str, found: list[str]) -> None:
    assert completed(line) == found


ODD = [
    "a|reboot",
    "a$(touch x)",
    "a b",
    "a;b",
    "a'b",
    'a"b',
    "a`b`",
    "a!b",
    "a漢",
    "a\nb",
    "a\x1b[m",
    "-rf",
    "a\ud800",
    "a\\b",
]


@pytest.mark.parametrize(
    ("begun", "found"),
    [
        ("", ["a\\ b", "a\\!b", 'a\\"b', "a\\$\\(touch\\ x\\)", "a\\'b",
              "a\\;b", "a\\\\b", "a\\`b\\`", "a\\|reboot", "a漢"]),
        ("a\\|", ["a\\|reboot"]),
        ("'a", ["a b", "a!b", 'a"b', "a$(touch x)", "a;b", "a\\b", "a`b`", "a|reboot", "a漢"]),
        ('"a', ["a b", "a'b", "a;b", "a|reboot", "a漢"]),
    ],
)  # fmt: skip
def test_a_name_that_bash_would_run_is_quoted(
    begun: str, found: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(kind: str, ctx: click.Context) -> list[str]:
        return ODD

    monkeypatch.setattr(names, "_ask", ask)
    monkeypatch.setenv("RMQ_COMP_LINE", f"rmq consume {begun}")
    made = SHELLS["bash"](command, {}, "rmq", "X")
    answers = [line.split(",", 1) for line in made.complete().split("\n")]
    assert [word for kind, word in answers if kind == "plain"] == found


def test_every_option_called_broker_is_known_for_a_name_or_an_address() -> None:
    """``-b`` is an address in some of Java's commands and a name in others."""
    for name in COMMANDS:
        made = root.get_command(click.Context(root), name)
        assert made is not None
        for one in made.params:
            if "-b" in one.opts and isinstance(one, click.Option) and not one.is_flag and one.metavar:
                kinds = {"ADDR": "address", "NAME": "broker"}
                assert names.kind_of(one) == kinds.get(one.metavar), (name, one.opts)


def test_commands_are_listed_without_loading_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rmq.cli.mqadmin.replicas", raising=False)
    assert "haStatus" in completed("mqadmin ")
    assert "rmq.cli.mqadmin.replicas" not in sys.modules


def test_a_cluster_that_does_not_answer_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(kind: str, ctx: click.Context) -> list[str]:
        raise TimeoutError

    monkeypatch.setattr(names, "_ask", ask)
    assert completed("rmq consume ") == []


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert invoke(command, "rmq", ["completion"]) == 2
    assert "which shell? Give bash, zsh, fish" in capsys.readouterr().err

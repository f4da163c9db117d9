"""Named clusters: which one a command means, and what a file of them must look like."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rmq.cli.command import invoke
from rmq.cli.contexts.file import read_contexts
from rmq.cli.reach import reach
from rmq.cli.rmq import command
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import World


class Contexts:
    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        """What `rmq context` prints, errors with it."""
        self._capsys.readouterr()
        assert invoke(command, "rmq", ["context", *words]) == code
        out, err = self._capsys.readouterr()
        return out + err


@pytest.fixture
def contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Contexts:
    path = tmp_path / "config" / "contexts.yml"
    monkeypatch.setenv("RMQ_CONTEXTS", str(path))
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "RMQ_CONTEXT", "ROCKETMQ_HOME", "ROCKETMQ_ACCESS_KEY",
                 "ROCKETMQ_CREDENTIALS_FILE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    return Contexts(path, capsys)


def test_what_is_set_is_meant_until_another_is_used(contexts: Contexts) -> None:
    assert contexts() == f"{contexts.path} has no context: rmq context set NAME -n host:port makes one\n"
    assert "test is a:9876 (current), in " in contexts("set", "test", "-n", "a:9876")
    account = contexts.path.parent / "prod.yml"
    account.write_text("accessKey: a\nsecretKey: b\n")
    contexts("set", "prod", "-n", "b:9876;c:9876", "--credentials", str(account))
    assert contexts() == f"* test  a:9876\n  prod  b:9876;c:9876  {account}\n"
    assert reach(None, None, None) == {"namesrv": "a:9876"}
    assert contexts("use", "prod") == "prod (b:9876;c:9876) is the current context\n"
    assert reach(None, None, None) == {"namesrv": "b:9876;c:9876", "credentials_file": str(account)}
    contexts("set", "prod", "-n", "d:9876")
    assert reach(None, None, None) == {"namesrv": "d:9876", "credentials_file": str(account)}
    contexts("set", "prod", "--credentials", "")
    assert reach(None, None, None) == {"namesrv": "d:9876"}
    assert "prod was the current context" in contexts("remove", "prod")
    with pytest.raises(click.UsageError, match="no name server: give one with -n"):
        reach(None, None, None)


def test_what_is_typed_comes_before_the_environment_and_takes_its_own_account(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = contexts.path.parent / "one.yml"
    account.parent.mkdir()
    account.touch()
    contexts("set", "one", "-n", "one:1", "--credentials", str(account))
    contexts("set", "two", "-n", "two:1")
    whole = {"namesrv": "one:1", "credentials_file": str(account)}
    assert reach(None, None, None) == whole
    monkeypatch.setenv("NAMESRV_ADDR", "environment:1")
    assert reach(None, None, None) == {}  # the SDK reads it; the context's account is not sent there
    assert reach("typed:1", None, None) == {"namesrv": "typed:1"}
    monkeypatch.setenv("RMQ_CONTEXT", "one")
    assert reach(None, None, None) == whole
    assert reach(None, "two", None) == {"namesrv": "two:1"}
    assert reach("typed:1", None, None) == {"namesrv": "typed:1"}
    assert reach(None, "one", "mine.yml") == {"namesrv": "one:1", "credentials_file": "mine.yml"}
    with pytest.raises(click.UsageError, match="not both"):
        reach("typed:1", "one", None)


def test_a_file_of_credentials_beside_the_contexts_moves_with_them(contexts: Contexts, tmp_path: Path) -> None:
    account = contexts.path.parent / "one.yml"
    account.parent.mkdir()
    account.touch()
    contexts("set", "one", "-n", "one:1", "--credentials", str(account))
    contexts.path.parent.rename(tmp_path / "moved")
    found = read_contexts(World.real().files, str(tmp_path / "moved" / "contexts.yml"))
    assert found.named["one"].credentials == str(tmp_path / "moved" / "one.yml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current: prd\ncontexts:\n  prod: {namesrv: 'a:1'}", "1: current is prd, and there is no such context"),
        ("contexts:\n  prod: {namesvr: 'a:1'}", "2: there is no key namesvr: did you mean namesrv?"),
        ("contexts:\n  prod:\n    credentials: x", "3: the context prod has no namesrv: host:port is expected"),
        ("contexts:\n  prod: a:1", "2: prod: keys with values are expected"),
        ("contexts:\n  prod: {namesrv: [a]}", "2: namesrv of prod: a text is expected"),
        ("contexts:\n  'a b': {namesrv: 'a:1'}", "2: 'a b' is no name of a context"),
        ("contexts:\n  prod:\n    namesrv: a", "3: prod: the name server address 'a' is not host:port"),
        ("contexts:\n  prod: {namesrv: ;;}", "2: prod: ';;' names no server"),
        ("contexts: [", "this is no YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_named(contexts: Contexts, text: str, said: str) -> None:
    contexts.path.parent.mkdir()
    contexts.path.write_text(text)
    with pytest.raises(ConfigError, match=f"{contexts.path}:.*{said.replace('?', '[?]')}"):
        read_contexts(World.real().files, str(contexts.path))
    assert said in contexts("list", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["use", "prd"], "there is no context prd: did you mean prod?"),
        (["use", "other"], "there is no context other: there are prod"),
        (["set", "new"], "where is new? Give its name servers with -n host:port"),
        (["set", "-n", "a:1", "a/b"], "'a/b' is no name of a context"),
        (["set", "new", "-n", "a"], "the name server address 'a' is not host:port"),
        (["set", "new", "-n", ";;"], "';;' names no server: host:port;host:port is expected"),
        (["set", "prod", "--credentials", "/no/such"], "/no/such is no file"),
    ],
)
def test_what_is_not_there_is_said(contexts: Contexts, words: list[str], said: str) -> None:
    contexts("set", "prod", "-n", "a:1")
    assert said in contexts(*words, code=2)

"""`rmq export`, `diff` and `apply` on a running cluster."""

from __future__ import annotations

import asyncio
import functools
import io
import itertools
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from rmq import AdminClient
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command
from rmq.client.admin import AdminClient as Client
from rmq.testing.cluster import BlockingCluster

FILE = """\
topics:
  orders: {queues: 6}
  clicks:
    queues: 2
    brokers: {broker-0: {queues: 3}, broker-1: }
groups:
  billing: {retryMaxTimes: 5}
kv:
  SHOP: {currency: EUR}
  ORDER_TOPIC_CONFIG: {clicks: broker-0:3;broker-1:2}
"""


class Tool:
    def __init__(self, cluster: BlockingCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self._capsys = cluster, capsys

    def __call__(self, *words: str, code: int = 0, given: str = "") -> str:
        """Standard output and error."""
        sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
        self._capsys.readouterr()
        got = invoke(command, "rmq", [*words, "-n", self.cluster.namesrv_addr])
        out, err = self._capsys.readouterr()
        assert got == code, (words, out, err)
        return out + err


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(FILE)
    with BlockingCluster(tmp_path / "store", brokers=2) as cluster:
        yield Tool(cluster, capsys)


def test_a_cluster_becomes_what_its_file_says_and_goes_back(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tool("export")
    assert yaml.safe_load(empty) == {"brokers": ["broker-0", "broker-1"], "topics": {}, "groups": {}}
    plan = tool("diff", "-f", "cluster.yaml", code=1)
    assert "+ topic clicks at broker-0: readQueueNums 3, writeQueueNums 3, perm 6\n" in plan
    assert "+ kv ORDER_TOPIC_CONFIG/clicks: value broker-0:3;broker-1:2\n" in plan
    assert len(plan.splitlines()) == 8
    assert "8 changes: rmq diff shows them, and --yes makes them" in tool("apply", "-f", "cluster.yaml", code=2)
    assert tool("apply", "-f", "cluster.yaml", "--dry-run") == plan
    assert tool("export") == empty
    told = tool("apply", "-f", "cluster.yaml", "--yes", "--undo", "undo.sh")
    assert told == plan + "8 changes made\n"
    assert tool("diff", "-f", "cluster.yaml") == tool("apply", "-f", "cluster.yaml") == "nothing differs\n"
    with AdminClient(namesrv=tool.cluster.namesrv_addr) as admin:
        masters = admin.masters("DefaultCluster")
        assert [admin.topic_config(masters[name], "clicks").read_queue_nums for name in sorted(masters)] == [3, 2]  # type: ignore[union-attr]
        group = admin.subscription_groups(masters["broker-1"]).subscription_group_table["billing"]
        assert group.retry_max_times == 5
    exported = tool("export", "--kv", "SHOP")
    found = yaml.safe_load(exported)
    assert found["topics"]["clicks"]["brokers"] in ({"broker-0": None, "broker-1": {"queues": 2}},
                                                    {"broker-0": {"queues": 3}, "broker-1": None})  # fmt: skip
    assert found["kv"]["SHOP"] == {"currency": "EUR"}
    assert tool("diff", "-f", "-", "--prune", given=exported) == "nothing differs\n"

    for line in Path("undo.sh").read_text().splitlines():
        words = shlex.split(line, comments=True)
        assert not words or invoke(root, words[0], words[1:]) in (0, 3), line  # one command deletes a topic everywhere
    assert yaml.safe_load(tool("export")) == {"brokers": ["broker-0", "broker-1"], "topics": {}, "groups": {}}


def test_what_brokers_keep_for_themselves_is_nobodys_to_declare(tool: Tool) -> None:
    for kind, name in (("topic", "TBW102"), ("topic", "broker-1"), ("topic", "DefaultCluster"),
                       ("topic", "%RETRY%billing"), ("group", "TOOLS_CONSUMER")):  # fmt: skip
        Path("own.yaml").write_text(f"{kind}s: {{mine: , '{name}': }}\n")
        for words in (("diff",), ("apply", "--yes"), ("apply", "--dry-run")):
            said = tool(*words, "-f", "own.yaml", code=2)
            assert f"own.yaml names {name}: a {kind} that brokers keep for themselves" in said


def test_pruning_and_a_question(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("apply", "-f", "cluster.yaml", "--yes")
    Path("less.yaml").write_text("topics: {orders: }\ngroups:\n")
    assert tool("diff", "-f", "less.yaml") == "nothing differs\n"
    answers = [False, True]
    monkeypatch.setattr(click, "confirm", lambda text, **more: answers.pop(0))

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    said = tool("apply", "-f", "less.yaml", "--prune", code=2)
    assert "- topic clicks at broker-1, with its messages\n" in said
    assert "nothing was changed" in said
    said = tool("apply", "-f", "less.yaml", "--prune")
    assert "4 changes made\n" in said
    assert "to take it back:\n" in said
    assert yaml.safe_load(tool("export"))["topics"].keys() == {"orders"}


def test_what_was_pruned_comes_back_with_its_undo_notes(tool: Tool) -> None:
    tool("apply", "-f", "cluster.yaml", "--yes")
    words = ("export", "--kv", "SHOP", "--kv", "ORDER_TOPIC_CONFIG")
    before = tool(*words)
    Path("less.yaml").write_text("topics: {orders: {queues: 2}}\ngroups:\nkv: {SHOP: , ORDER_TOPIC_CONFIG: }\n")
    assert "- kv SHOP/currency\n" in tool("apply", "-f", "less.yaml", "--prune", "--yes", "--undo", "undo.sh")
    assert tool(*words) != before
    assert tool("diff", "-f", "less.yaml", "--prune") == "nothing differs\n"
    for line in Path("undo.sh").read_text().splitlines():
        words_of_it = shlex.split(line, comments=True)
        assert not words_of_it or invoke(root, "mqadmin", words_of_it[1:]) == 0, line
    assert tool(*words) == before


def test_ctrl_c_in_the_middle_tells_what_was_done(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio gives the command's task a cancellation, and ends with KeyboardInterrupt."""
    made = Client.create_and_update_topic
    turn = itertools.count(1)

    @functools.wraps(made)
    async def third_interrupts(self: Client, *words: Any, **more: Any) -> None:
        if next(turn) == 3:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        await made(self, *words, **more)

    monkeypatch.setattr(Client, "create_and_update_topic", third_interrupts)
    # A run in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    told = tool("apply", "-f", "cluster.yaml", "--yes", "--undo", "undo.sh", code=130).splitlines()
    signal.signal(signal.SIGINT, before)
    assert told[0] == "rmq: interrupted: what was done stays"
    assert [line.partition(" the topic ")[0] for line in told[1:4]] == ["  done: create or change"] * 2 + [
        "  done or not: create or change"
    ]
    assert told[4] == "rmq: 2 of 8 changes were made: the same command goes on with the other 6"
    assert "deleteTopic" in Path("undo.sh").read_text()
    assert "changes made" in tool("apply", "-f", "cluster.yaml", "--yes")
    assert tool("diff", "-f", "cluster.yaml") == "nothing differs\n"


def test_a_broker_that_left_the_name_servers_is_missed(tool: Tool) -> None:
    tool("apply", "-f", "cluster.yaml", "--yes")
    Path("whole.yaml").write_text(tool("export", "--kv", "ORDER_TOPIC_CONFIG"))
    Path("unordered.yaml").write_text("kv: {ORDER_TOPIC_CONFIG: {clicks: broker-0:3}}")
    Path("small.yaml").write_text("topics: {orders: {queues: 6}}")
    tool.cluster.call(lambda cluster: cluster.stop_broker(cluster.brokers[1]))
    for words in (("export",), ("diff", "-f", "small.yaml"), ("apply", "-f", "small.yaml", "--yes")):
        said = tool(*words, code=3)
        assert ", and it was shut down (mqadmin deleteKvConfig -s DEPARTED_BROKERS -k broker-1 forgets it" in said
    address = tool.cluster.namesrv_addr
    # A name server of Java's remembers nobody, and one that was started again does not either.
    assert invoke(root, "mqadmin", ["deleteKvConfig", "-s", "DEPARTED_BROKERS", "-k", "broker-1", "-n", address]) == 0
    for words in (("export",), ("diff", "-f", "small.yaml")):
        said = tool(*words, code=3)
        assert "broker-1: clicks has ordered queues there, and it is not registered" in said
        assert "mqadmin updateOrderConf -t clicks" in said
    # What takes the last trace of it away is not kept from doing so.
    assert "1 changes made" in tool("apply", "-f", "unordered.yaml", "--yes")
    assert yaml.safe_load(tool("export"))["brokers"] == ["broker-0"]
    for words in (("export", "--like", "whole.yaml"), ("diff", "-f", "whole.yaml", "--prune"),
                  ("apply", "-f", "whole.yaml", "--yes")):  # fmt: skip
        said = tool(*words, code=3)
        assert "whole.yaml tells of broker-1, and DefaultCluster has no such master now (broker-0 has it)" in said
        assert "take it out of `brokers` in whole.yaml if it is gone for good" in said


def test_what_cannot_be_meant(tool: Tool, tmp_path: Path) -> None:
    Path("wrong.yaml").write_text("topics:\n  orders: {queues: none}\n")
    assert "wrong.yaml:2: queues is 'none': a whole number is expected" in tool("diff", "-f", "wrong.yaml", code=2)
    Path("wrong.yaml").write_text("topics: {orders: {brokers: [broker-7]}}")
    assert "names broker-7, and DefaultCluster has no such master" in tool("apply", "-f", "wrong.yaml", code=3)
    Path("wrong.yaml").write_text("brokers: broker-0")
    assert "wrong.yaml:1: brokers: a list of names is expected" in tool("diff", "-f", "wrong.yaml", code=2)
    assert "No such file" in tool("diff", "-f", "none.yaml", code=2)
    assert "no cluster Other" in tool("diff", "-f", "cluster.yaml", "-c", "Other", code=3)

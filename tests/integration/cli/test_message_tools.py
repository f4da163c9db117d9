"""`rmq produce`, `consume`, `tap` and `replay`: what goes in comes out, in order, by place and by group."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq import Message, Producer, PullConsumer
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command
from rmq.namesrv.departed import SILENT
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import ROOT


class Tool:
    """Runs commands of rmq in this process against the cluster."""

    def __init__(
        self, cluster: BlockingCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.cluster = cluster
        self._capture = capfdbinary
        self._monkeypatch = monkeypatch

    def __call__(self, *args: str, given: bytes = b"", code: int = 0) -> str:
        """What a command prints; with another exit code than 0, its errors."""
        return self.raw(*args, given=given, code=code).decode()

    def raw(self, *args: str, given: bytes = b"", code: int = 0) -> bytes:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        self._capture.readouterr()
        got = invoke(command, "rmq", args)
        sys.stdout.flush()
        out, err = self._capture.readouterr()
        assert got == code, err.decode()
        return err if code else out

    def lines(self, *args: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self("consume", *args, "-o", "ndjson").splitlines()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster"), settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture
def rmq(cluster: BlockingCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    return Tool(cluster, capfdbinary, monkeypatch)


def test_what_goes_in_comes_out(rmq: Tool, tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(bytes(range(256)))
    rmq("produce", "In", "first", "zweite: ü", "-k", "order-1", "-t", "New", "-H", "shop=berlin", "--in-order")
    rmq("produce", "In", "--file", str(blob))
    rmq("produce", "In", "-D", ":", given=b"k1:v1\r\nno key\nk2:a:b")
    rmq(
        "produce",
        "In",
        "-F",
        "json",
        given=b'{"body64": "AAH/", "flag": 7, "tags": "T"}\n{"body": {"a": [1]}, "keys": "j"}\n',
    )
    found = rmq.lines("In")
    fields = ("body", "keys", "tags", "flag")
    told = {(*map(line.get, fields), str(line.get("body64", ""))[:4]) for line in found}
    assert told == {
        ("first", "order-1", "New", None, ""), ("zweite: ü", "order-1", "New", None, ""),
        (None, None, None, None, "AAEC"), ("v1", "k1", None, None, ""), ("no key", None, None, None, ""),
        ("a:b", "k2", None, None, ""),
        (None, None, "T", 7, "AAH/"), ('{"a":[1]}', "j", None, None, ""),
    }  # fmt: skip
    assert [line["properties"] for line in found if line.get("tags") == "New"] == [{"shop": "berlin"}] * 2
    assert [line["stored"] for line in found] == sorted(line["stored"] for line in found)  # type: ignore[type-var]
    assert rmq("consume", "In", "--tags", "New", "-f", r"%k|%s|%{shop}|%S\x21\n") in (
        "order-1|first|berlin|5!\norder-1|zweite: ü|berlin|10!\n",
        "order-1|zweite: ü|berlin|10!\norder-1|first|berlin|5!\n",
    )
    assert rmq.raw("consume", "In", "--sql", "shop = 'berlin'", "-o", "body", "-c", "1").endswith(b"\n")
    assert " tags=New keys=order-1 first\n" in rmq("consume", "In")


def send(rmq: Tool, topic: str, count: int) -> list[int]:
    """Messages 0, 1, ... to the four queues of a topic in turn; their store times."""
    with Producer("p", namesrv=rmq.cluster.namesrv_addr) as producer:
        producer.create_topic("TBW102", topic, 4)
        queues = producer.fetch_publish_message_queues(topic)
        for number in range(count):
            producer.send(Message(topic, str(number)), queue=queues[number % 4])
    return [line["stored"] for line in rmq.lines(topic)]  # type: ignore[misc]


def test_places(rmq: Tool) -> None:
    stored = send(rmq, "Places", 40)
    body = "%s "

    def read(*args: str) -> list[int]:
        return sorted(int(one) for one in rmq("consume", "Places", "-f", body, *args).split())

    assert read() == list(range(40))
    assert read("--from", "latest") == []
    assert read("--from", "-2") == list(range(32, 40))
    assert read("--from", "offset:3", "--to", "offset:5") == list(range(12, 20))
    assert read("--from", "offset:99999999999") == []
    assert read("-q", "1", "--from", "offset:8") == [33, 37]
    assert read("--from", "-1h") == list(range(40))
    assert read("--from", "-2h", "--to", "-1h") == []
    assert read("--from", "2001-01-01", "--to", "2002-01-01T00:00Z") == []
    for at in (stored[0], stored[17], stored[39], stored[39] + 1):
        # Of a millisecond that several messages have, all of them or none.
        assert read("--from", str(at)) == [number for number in range(40) if stored[number] >= at]
        assert read("--to", str(at)) == [number for number in range(40) if stored[number] < at]
    assert len(read("-c", "7")) == 7


def test_a_group_goes_on_where_it_was(rmq: Tool) -> None:
    send(rmq, "Grouped", 12)
    seen = [
        rmq("consume", "Grouped", "-g", "g", "-c", str(count), "--idle", "20", "-f", "%s ").split() for count in (5, 7)
    ]
    assert sorted(int(one) for some in seen for one in some) == list(range(12))
    with PullConsumer("g", namesrv=rmq.cluster.namesrv_addr) as consumer:
        queues = consumer.fetch_subscribe_message_queues("Grouped")
        assert sum(max(0, consumer.fetch_consume_offset(queue)) for queue in queues) == 12
    assert rmq("consume", "Grouped", "-g", "g", "--idle", "0.2") == ""


def test_a_capture_is_sent_again_in_its_order(rmq: Tool, tmp_path: Path) -> None:
    send(rmq, "Tapped", 20)
    file = tmp_path / "tapped.ndjson"
    rmq("tap", "Tapped", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["tapped.ndjson"]
    assert len(file.read_bytes().splitlines()) == 20
    assert "is there already: --force writes over it" in rmq("tap", "Tapped", str(file), code=2)
    rmq("replay", str(file), "-t", "Again", "-c", "5")
    rmq("replay", str(file), "-t", "Again", "--skip", "5", "--speed", "100000")
    for queue in range(4):
        bodies = rmq("consume", "Again", "-q", str(queue), "-f", "%s ").split()
        assert bodies == rmq("consume", "Tapped", "-q", str(queue), "-f", "%s ").split()
        assert bodies == [str(number) for number in range(queue, 20, 4)]


def test_a_bad_line_ends_a_replay_and_says_where_to_go_on(rmq: Tool, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"topic": "Broken", "body": "a"}\n{"topic": "Broken", "body": "b"}\nnonsense\n')
    said = rmq("replay", str(file), code=1)
    assert "line 3: it is no JSON" in said
    assert "2 messages were sent; go on with --skip 2" in said
    assert len(rmq.lines("Broken")) == 2


def test_a_message_that_is_not_taken_costs_itself_alone(rmq: Tool) -> None:
    said = rmq(
        "produce",
        "Some",
        "-F",
        "json",
        given=b'{"body": "a"}\n[1]\n{"body": "b", "flag": "x"}\n{"body": "c"}\n',
        code=1,
    )
    assert said.splitlines() == [
        "rmq: line 2 was not sent: it is no JSON object", "rmq: line 3 was not sent: flag is 'x': give a whole number",
    ]  # fmt: skip
    assert sorted(line["body"] for line in rmq.lines("Some")) == ["a", "c"]  # type: ignore[type-var]
    too_large = b"x" * (5 << 20) + b"\nsmall\n"
    (line,) = rmq("produce", "Some", given=too_large, code=1).splitlines()
    assert line.startswith("rmq: line 1 was not sent: ")
    assert rmq.lines("Some", "--from", "-1")[-1]["body"] in ("a", "c", "small")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["consume", "In", "--from", "-5x"], "'-5x' is no time"),
        (["consume", "In", "--from", "12:30"], "is no time"),
        (["consume", "In", "--zone", "Mars/Base"], "'Mars/Base' is no time zone"),
        (["consume", "In", "-f", "%z"], "%z is no field"),
        (["consume", "In", "-f", "50%"], "ends in the middle of '%'"),
        (["consume", "In", "--tags", "A", "--sql", "a > 1"], "--tags or --sql"),
        (["consume", "In", "-g", "g", "--from", "-5"], "a group goes on where it is"),
        (["consume", "In", "--idle", "3"], "--idle is for -g"),
        (["produce", "In", "x", "-H", "novalue"], "'novalue' is no name=value"),
        (["produce", "In", "x", "-D", ""], "--delimiter is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said(rmq: Tool, args: list[str], said: str) -> None:
    (line,) = rmq(*args, code=2).splitlines()
    assert said in line


def test_what_is_not_there_is_said(rmq: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    send(rmq, "Four", 1)
    (line,) = rmq("consume", "Four", "-q", "9", code=1).splitlines()
    assert "the topic Four has no queue 9: mqadmin topicStatus -t Four" in line
    (line,) = rmq("consume", "NoSuchTopic", code=3).splitlines()
    assert "NoSuchTopic" in line

    monkeypatch.delenv("NAMESRV_ADDR")
    (line,) = rmq("consume", "Four", code=2).splitlines()
    assert "no name server: give one with -n" in line


@pytest.mark.parametrize("words", [["bench", "consumer", "-q", "5", "-t"], ["consume", "-g", "waiting", "-c", "5"]])
def test_a_member_of_a_group_does_not_wait_for_what_is_not_there(
    rmq: Tool, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (line,) = rmq(*words, "Nowhere", code=3).splitlines()
    assert "Nowhere" in line
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    (line,) = rmq(*words, "In", code=5).splitlines()
    assert line.startswith("rmq: no name server answered (127.0.0.1:1)")


def test_the_page_says_what_works(rmq: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RMQ_CONTEXTS", str(tmp_path / "contexts.yml"))
    (tmp_path / "lines.txt").write_text("order-7:seven\norder-8:eight\n")
    (tmp_path / "prod-tools.yml").write_text("accessKey: rocketmq\nsecretKey: 12345678\n")
    page = page.replace("127.0.0.1:9876", rmq.cluster.namesrv_addr)
    commands = re.findall(r"^(rmq|mqadmin|sh) (.*)$", page, re.MULTILINE)
    assert len(commands) > 8
    for program, command_line in commands:
        words = shlex.split(command_line, comments=True)
        if ">" in words:
            (tmp_path / words.pop()).write_text(rmq(*words[:-1]))
            continue
        if words[0] == "doctor":  # this machine's disk may be full
            continue
        if "-F" in words and words[0] != "produce":
            words += ["-c", "1"]
        if ("--watch" in words or words[0] == "top") and "--rounds" not in words:
            words += ["--rounds", "1", "--every", "0.2"]
        if program == "sh":
            for line in (tmp_path / words[0]).read_text().splitlines():
                back = shlex.split(line, comments=True)
                assert not back or invoke(root, back[0], back[1:]) == 0, line
        elif program == "rmq":
            rmq(*words)
        else:
            assert invoke(root, program, words) == 0, command_line
    (letters,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert letters == rmq("consume", "--letters")


def test_a_context_is_a_cluster(rmq: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send(rmq, "Named", 3)
    monkeypatch.delenv("NAMESRV_ADDR")
    monkeypatch.setenv("RMQ_CONTEXTS", str(tmp_path / "contexts.yml"))
    rmq("context", "set", "here", "-n", rmq.cluster.namesrv_addr)
    rmq("context", "set", "nowhere", "-n", "127.0.0.1:1")
    assert len(rmq.lines("Named")) == 3
    assert invoke(root, "mqadmin", ["topicRoute", "-t", "Named"]) == 0
    assert invoke(root, "mqadmin", ["topicRoute", "-t", "Named", "--context", "nowhere"]) == 5
    assert "no context her: did you mean here?" in rmq("consume", "Named", "--context", "her", code=2)


class Full(io.RawIOBase):
    """A disk without room."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_capture_that_cannot_be_written_leaves_nothing_and_names_the_file(
    rmq: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rmq, "Untapped", 2)
    file = tmp_path / "old"
    file.write_text("kept")
    (line,) = rmq("tap", "Untapped", str(tmp_path / "none" / "x"), code=2).splitlines()
    assert line == f"rmq: {tmp_path}/none/x cannot be written: No such file or directory"
    real = open

    def opened(path: str, mode: str = "r", **more: object) -> object:
        return Full() if ".part" in str(path) and real(path, mode).close() is None else real(path, mode, **more)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", opened)
    (line,) = rmq("tap", "Untapped", str(file), "--force", code=2).splitlines()
    monkeypatch.undo()
    assert line == f"rmq: {file} cannot be written: No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert file.read_text() == "kept"


def test_a_cluster_is_measured(rmq: Tool) -> None:
    with Producer("p", namesrv=rmq.cluster.namesrv_addr) as producer:
        producer.create_topic("TBW102", "Bench", 4)
    for words in (
        ["producer", "-q", "200", "-k", "-l", "2", "-p", "3", "-s", "10"],
        ["batch", "-q", "200", "-b", "16"],
        ["transaction", "-q", "40", "-w", "8", "--rollback", "0"],
    ):
        told = json.loads(rmq("bench", *words, "-t", "Bench", "--json"))
        assert (told["kind"], told["messages"], told["failed"]) == (words[0], int(words[2]), 0)
        assert 0 < told["ms"]["p50"] <= told["ms"]["p99.9"] <= told["ms"]["max"]
    (found, *_) = rmq.lines("Bench", "--tags", "tag1")
    assert found["body"] == "hello baby"
    assert found["properties"] == {f"property-{number}": f"value-{number}" for number in range(3)}
    told = json.loads(rmq("bench", "consumer", "-t", "Bench", "-g", "bench", "-q", "20", "--seconds", "20", "--json"))
    assert told["messages"] >= 20
    assert told["sinceStoredMs"]["p50"] >= 0
    (line,) = rmq("bench", "producer", "-t", "Bench", "--delay", "1", "-e", "3", code=2).splitlines()
    assert "--delay or --delay-level" in line
    (line,) = rmq("bench", "producer", "-t", "a b", "-q", "5", code=1).splitlines()
    assert "topic" in line


def test_what_others_have_is_read_and_a_capture_is_whole_or_none(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A request without an answer in time is a TimeoutError, as the end of --idle is; and an OSError, like no room."""
    answered = RemotingClient.request
    with BlockingCluster(tmp_path / "cluster", brokers=2) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
        rmq = Tool(cluster, capfdbinary, monkeypatch)
        send(rmq, "Two", 8)
        host, port = cluster.cluster.brokers[1].address

        async def request(self: RemotingClient, address: str, command: Command, timeout: float, *rest: Any) -> Command:
            if address == f"{host}:{port}":
                raise RequestTimeout(f"{address} does not answer")
            return await answered(self, address, command, timeout, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(RemotingClient, "request", request)
            (line,) = rmq("consume", "Two", code=4).splitlines()
            assert line == f"rmq: broker-1 is missing here: {host}:{port} does not answer"
            for words in (["tap", "Two", str(tmp_path / "x")], ["consume", "Two", "--broker", "broker-1"]):
                (line,) = rmq(*words, code=5).splitlines()
                assert line.startswith(f"rmq: {host}:{port} does not answer")
        cluster.call(lambda cluster: cluster.stop_broker(cluster.brokers[1]))
        rmq("consume", "Two")
        cluster.cluster.namesrvs[0].routes.departed.left("broker-1", "DefaultCluster", "10.0.0.9:10911", SILENT)
        (line,) = rmq("consume", "Two", code=4).splitlines()
        assert line.startswith("rmq: broker-1 is missing here: it was at 10.0.0.9:10911, and the name server has heard")
        (line,) = rmq("tap", "Two", str(tmp_path / "x"), code=3).splitlines()
        assert line.startswith("rmq: a capture without these brokers would not be whole: broker-1: it was at 10.0.0.9")
        assert not (tmp_path / "x").exists()

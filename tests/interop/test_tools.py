"""Our tools on clusters of Java: what they read there means the same, and what they change comes about."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq import AdminClient as Asked
from rmq import RMQError
from rmq.aio import ConsumeResult, Message, MessageExt, Producer, PushConsumer
from rmq.cli.command import invoke
from rmq.cli.completion.names import live_names
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command
from rmq.client.admin import AdminClient
from tests.support.interop import Clusters, fresh

pytestmark = pytest.mark.parametrize("kind", ["java-4.9.4", "java-5.3.3"])


class Tools:
    def __init__(self, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.namesrv, self._capsys = namesrv, capsys

    async def __call__(self, line: str, code: int = 0) -> str:
        program, *words = shlex.split(line)
        self._capsys.readouterr()
        got = await asyncio.to_thread(
            invoke, command if program == "rmq" else root, program, [*words, "-n", self.namesrv, "--timeout", "60"]
        )
        out, err = self._capsys.readouterr()
        assert got == code, (line, out, err)
        return out


@pytest.fixture
def tools(clusters: Clusters, kind: str, capsys: pytest.CaptureFixture[str]) -> Tools:
    cluster = clusters.get(kind)
    # Java's broker dies of the question, and gives no answer, until it has figures.
    with Asked(namesrv=cluster.namesrv, mq_client_api_timeout=3) as admin:
        for _ in range(150):
            with contextlib.suppress(RMQError):
                admin.broker_runtime_stats(cluster.broker_addr)
                break
            time.sleep(0.2)
    return Tools(cluster.namesrv, capsys)


async def until(ask: Callable[[], Any], right: Callable[[Any], bool]) -> Any:
    """What is asked for, as soon as it is right."""
    for _ in range(150):
        found = await ask()
        if right(found):
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(found)


async def test_a_message_s_story(tools: Tools) -> None:
    topic, fails, passes = fresh("told"), fresh("fails"), fresh("passes")

    async def masters() -> Any:
        async with AdminClient(namesrv=tools.namesrv) as admin:
            return (await admin.cluster_info()).broker_addr_table

    await until(masters, bool)  # it may have started just now
    await tools(f"mqadmin updateTopic -c DefaultCluster -t {topic} -r 1 -w 1")

    async def refuses(message: MessageExt) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    async def takes(message: MessageExt) -> ConsumeResult:
        return ConsumeResult.SUCCESS

    members = [PushConsumer(name, namesrv=tools.namesrv) for name in (fails, passes)]
    members[0].on(topic, "A")(refuses)
    members[1].on(topic, "B")(takes)
    async with Producer("p", namesrv=tools.namesrv) as producer, members[0], members[1]:
        sent = await producer.send(Message(topic, b"x", tags="A"))

        async def told() -> dict[str, tuple[str, str]]:
            found = json.loads(await tools(f"rmq explain {sent.msg_id} -t {topic} -o json"))
            return {one["group"]: (one["state"], one["next"]) for one in found["groups"]}

        found = await until(told, lambda found: passes in found and found.get(fails, ("", ""))[0] == "tries again")
        assert re.match(r"try \d of 17", found[fails][1])
        assert found[passes][0] == "filtered"

        async def top() -> dict[str, Any]:
            view: dict[str, Any] = json.loads(await tools(f"rmq top -t {topic} --every 0.2 --rounds 1 -o json"))
            return view

        # Members tell brokers their offsets every five seconds.
        view = await until(top, lambda view: {row["group"] for row in view["groups"]} >= {fails, passes})
        assert [row["topic"] for row in view["topics"]] == [topic]
        assert f"{passes}: 1 member" in await tools(f"rmq explain {passes} -o classic")


async def test_a_delayed_message_is_found_right_behind_its_sending(tools: Tools) -> None:
    topic = fresh("delayed")
    await tools(f"mqadmin updateTopic -c DefaultCluster -t {topic} -r 1 -w 1")
    async with Producer("p", namesrv=tools.namesrv) as producer:
        for _ in range(10):  # its level is one second here
            sent = await producer.send(Message(topic, b"x", delay_level=1))
            for line in (f"rmq explain {sent.msg_id} -o json", f"rmq explain {sent.msg_id} -t {topic} -o json"):
                told = json.loads(await tools(line))["message"]
                assert (told["messageId"], told["topic"]) == (sent.msg_id, topic)
        plain = await producer.send(Message(topic, b"x"))
        assert plain.msg_id in await tools(f"mqadmin queryMsgByUniqueKey -t {topic} -i {plain.msg_id}")


async def test_a_cluster_becomes_what_a_file_says_and_goes_back(tools: Tools, tmp_path: Path) -> None:
    topic, group, namespace = fresh("declared"), fresh("declared"), fresh("N")
    path, undo = tmp_path / "cluster.yaml", tmp_path / "undo.sh"
    path.write_text(yaml.safe_dump({
        "topics": {topic: {"queues": 3}}, "groups": {group: {"retryMaxTimes": 2}}, "kv": {namespace: {"k": "v"}},
    }))  # fmt: skip
    assert len((await tools(f"rmq diff -f {path}", code=1)).splitlines()) == 3
    assert "3 changes made" in await tools(f"rmq apply -f {path} --yes --undo {undo}")
    assert await tools(f"rmq diff -f {path}") == "nothing differs\n"
    found = yaml.safe_load(await tools("rmq export"))
    assert found["topics"][topic]["queues"] == 3
    assert found["groups"][group]["retryMaxTimes"] == 2
    path.write_text(yaml.safe_dump(found))
    assert await tools(f"rmq diff -f {path}") == "nothing differs\n"
    async with AdminClient(namesrv=tools.namesrv) as admin:
        assert topic in await live_names(admin, "topic")
        assert group in await live_names(admin, "group")
    before = await tools("rmq export")
    change = tmp_path / "change.sh"
    await tools(f"mqadmin updateTopic -c DefaultCluster -t {topic} -r 5 -w 5 --undo {change}")
    await tools(f"mqadmin updateSubGroup -c DefaultCluster -g {group} -r 9 --undo {change}")
    await tools(f"mqadmin deleteKvConfig -s {namespace} -k k --undo {change}")
    assert await tools("rmq export") != before
    for file in (change, undo):
        for line in file.read_text().splitlines():
            if not line.startswith("#"):
                await tools(line.partition(" -n ")[0])
        if file == change:
            assert await tools("rmq export") == before
            assert "v" in await tools(f"rmq export --kv {namespace}")
    found = yaml.safe_load(await tools("rmq export"))
    assert topic not in found["topics"]
    assert group not in found["groups"]


def test_it_is_measured(clusters: Clusters, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    namesrv, topic = clusters.get(kind).namesrv, fresh("bench")

    def bench(*words: str) -> Any:
        capsys.readouterr()
        line = ["bench", *words, "-t", topic, "-q", "100", "--json", "-n", namesrv]
        assert invoke(command, "rmq", line) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    assert (
        invoke(root, "mqadmin", ["updateTopic", "-c", "DefaultCluster", "-t", topic, "-n", namesrv, "--timeout", "60"])
        == 0
    )
    for what in ("producer", "batch", "transaction"):
        told = bench(what)
        assert (told["kind"], told["messages"], told["failed"]) == (what, 100, 0)
    told = bench("consumer", "-g", topic, "--seconds", "60")
    assert (told["messages"] >= 100, told["failed"]) == (True, 0)

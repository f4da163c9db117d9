"""Our SDK and our mqadmin against a Java 4.9.4 broker with its own access control."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmq.aio
from rmq import AccessDenied, AdminClient, Message, MessageExt, Producer, PushConsumer, RMQError
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from tests.support.interop import fresh, until
from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

ACCOUNTS = """\
accounts:
  - accessKey: operator
    secretKey: 12345678
    admin: true
  - accessKey: ordinary
    secretKey: 12345678
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
    topicPerms:
      - closed=DENY
      - written=PUB
"""
ORDINARY = {"access_key": "ordinary", "secret_key": "12345678"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    try:
        cluster = start_cluster(
            "java-4.9.4",
            properties={**FAST_RETRIES, "traceTopicEnable": "true"},
            our_namesrv=True,
            accounts=ACCOUNTS,
        )
    except ToolMissing as missing:
        skip_or_fail(missing)
    with cluster:
        yield cluster


@pytest.fixture
def mqadmin(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Ours, with the account of conf/tools.yml; gives exit code, output and errors."""
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))

    def run(*words: str, key: str = "operator", secret: str = "12345678") -> tuple[int, str, str]:
        (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: {key}\nsecretKey: {secret}\n")
        capsys.readouterr()
        code = invoke(root, "mqadmin", [words[0], "-n", guarded.namesrv, "--timeout", "60", *words[1:]])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_an_account_sends_consumes_and_is_traced(guarded: Cluster, mqadmin: Any) -> None:
    topic, group = fresh("acl"), fresh("g")
    assert mqadmin("updateTopic", "-b", guarded.broker_addr, "-t", topic)[0] == 0
    seen: list[str] = []
    how: dict[str, Any] = {"namesrv": guarded.namesrv, "enable_msg_trace": True, **ORDINARY}
    consumer = PushConsumer(group, consume_from_where="CONSUME_FROM_FIRST_OFFSET", **how)

    @consumer.on(topic)
    def listen(message: MessageExt) -> None:
        seen.append(message.keys)
        if message.keys == "k3" and seen.count("k3") == 1:
            raise ValueError("once")

    async def more() -> str:
        async with rmq.aio.Producer(fresh("p"), **how) as producer:
            return (await producer.send(Message(topic, b"x", keys="k9"))).msg_id

    with consumer, Producer(fresh("p"), **how) as producer:
        for number in range(5):
            producer.send(Message(topic, b"x", keys=f"k{number}"))
        last = asyncio.run(more())
        got = until(lambda: sorted(seen), lambda keys: len(keys) == 7)
    assert got == ["k0", "k1", "k2", "k3", "k3", "k4", "k9"]
    _, out, _ = until(lambda: mqadmin("queryMsgTraceById", "-i", last, "--json"), lambda told: "SubAfter" in told[1])
    assert {end["type"] for end in json.loads(out)} == {"Pub", "SubBefore", "SubAfter"}
    # Java's own client is refused here: it signs a field that this broker takes for unsigned.
    with AdminClient(namesrv=guarded.namesrv, **ORDINARY) as admin:
        assert admin.view_message(last, topic).keys == "k9"


@pytest.mark.parametrize(
    ("account", "topic", "why"),
    [
        ({"access_key": "ordinary", "secret_key": "another one"}, "TopicTest", "Check signature failed"),
        ({"access_key": "nobody-known", "secret_key": "12345678"}, "TopicTest", "No acl config for nobody-known"),
        ({}, "TopicTest", "No accessKey is configured"),
        (ORDINARY, "closed", "topic:closed"),
    ],
)
def test_who_may_not_send_is_told_why(
    account: dict[str, str], topic: str, why: str, guarded: Cluster, mqadmin: Any
) -> None:
    assert mqadmin("updateTopic", "-b", guarded.broker_addr, "-t", topic)[0] == 0
    with (
        Producer(fresh("p"), namesrv=guarded.namesrv, **account) as producer,
        pytest.raises(RMQError, match=why) as refused,
    ):
        producer.send(Message(topic, b"x"))
    assert isinstance(refused.value, AccessDenied)

    async def send() -> None:
        async with rmq.aio.Producer(fresh("p"), namesrv=guarded.namesrv, **account) as producer:
            await producer.send(Message(topic, b"x"))

    with pytest.raises(RMQError, match=why):
        asyncio.run(send())


def test_a_consumer_without_permission_gets_nothing_and_says_why(
    guarded: Cluster, mqadmin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert mqadmin("updateTopic", "-b", guarded.broker_addr, "-t", "written")[0] == 0
    seen: list[MessageExt] = []
    consumer = PushConsumer(
        fresh("g"), namesrv=guarded.namesrv, consume_from_where="CONSUME_FROM_FIRST_OFFSET", **ORDINARY
    )
    consumer.subscribe("written")
    consumer.register_message_listener(seen.append)
    with consumer, Producer(fresh("p"), namesrv=guarded.namesrv, **ORDINARY) as producer:
        producer.send(Message("written", b"x"))
        until(lambda: caplog.text, lambda text: "topic:written" in text)
    assert "topic:written" in caplog.text
    assert not seen


def test_mqadmin_signs_by_tools_yml(guarded: Cluster, mqadmin: Any) -> None:
    broker = ("-b", guarded.broker_addr)
    topic = fresh("made")
    assert mqadmin("updateTopic", *broker, "-t", topic)[0] == 0
    code, out, err = mqadmin("updateTopic", *broker, "-t", fresh("not"), key="ordinary")
    assert (code != 0, "success" in out) == (True, False)
    assert "Need admin permission" in err
    code, _, err = mqadmin("updateTopic", *broker, "-t", fresh("not"), secret="87654321")
    assert code != 0
    assert "Check signature failed" in err
    assert "87654321" not in err
    assert topic in until(lambda: mqadmin("topicList")[1], lambda out: topic in out)
    code, out, _ = mqadmin("brokerStatus", *broker)
    assert code == 0
    assert "bootTimestamp" in out

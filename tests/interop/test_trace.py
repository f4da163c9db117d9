"""Message traces: Java's mqadmin prints what ours of the same shows, whether a Java client wrote them or ours."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rmq import Message, MessageExt, Producer, PushConsumer, TransactionProducer, TransactionState
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from tests.support.interop import Scene, fresh, rows_of, until
from tests.support.peers import Client


class Tools:
    """queryMsgTraceById, Java's (4.9.8 and 5.3.3) and ours."""

    def __init__(self, scene: Scene, newer: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        self._scene = scene
        self._newer = newer.mqadmin
        self._newer("topicList")  # the first command of a JVM prints how its logging begins
        self._capsys = capsys

    def ours(self, msg_id: str, *words: str) -> str:
        self._capsys.readouterr()
        invoke(root, "mqadmin", ["queryMsgTraceById", "-n", self._scene.cluster.namesrv, "-i", msg_id, *words])
        return self._capsys.readouterr().out

    def told(self, msg_id: str, ends: int) -> str:
        """What all print of a message, as soon as they print the same: clients tell of its sending and of the end of
        each listener call, so many in all, behind these."""

        def printed() -> list[str]:
            words = ("queryMsgTraceById", "-i", msg_id)
            return [self.ours(msg_id), self._scene.mqadmin(*words), self._newer(*words)]

        def alike(found: list[str]) -> bool:
            # Groups come in the order of a hash table from Java's.
            return len({tuple(sorted(one.split("\n\n"))) for one in found}) == 1

        def ended(told: str) -> int:
            return told.count("success") + told.count("failed")

        found = until(printed, lambda found: ended(found[0]) >= ends and alike(found))
        assert alike(found), found
        assert ended(found[0]) == ends, found[0]
        return found[1]


def test_each_tool_reads_what_each_client_writes(
    scene: Callable[[str, str], Scene], clients: Callable[[str, str], Client], capsys: pytest.CaptureFixture[str]
) -> None:
    where = scene("ours", "java-4.9.8")
    tools = Tools(where, Scene(where.cluster, where.client, clients("java-5.3.3", "tested")), capsys)
    namesrv, java = where.cluster.namesrv, where.client
    topic, handle, groups = where.topic("traced"), fresh("h"), [fresh("pyg"), fresh("javag")]
    seen: list[str] = []
    consumer = PushConsumer(
        groups[0], namesrv=namesrv, enable_msg_trace=True, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    )

    @consumer.on(topic)
    def listen(message: MessageExt) -> None:
        seen.append(message.msg_id)
        if message.keys == "ours-1" and seen.count(message.msg_id) == 1:
            raise ValueError("once")

    java.call(
        "subscribe", handle=handle, namesrv=namesrv, group=groups[1], topic=topic, expression="*",
        model="clustering", trace=True,
    )  # fmt: skip
    how = {"namesrv": namesrv, "enable_msg_trace": True}
    with (
        consumer,
        Producer(fresh("p"), **how) as producer,  # type: ignore[arg-type]
        TransactionProducer(fresh("tx"), lambda _: TransactionState.COMMIT, **how) as transactions,  # type: ignore[arg-type]
    ):
        sent = producer.send([Message(topic, b"a", keys="ours-0"), Message(topic, b"b", keys="ours-1")])
        half = transactions.send_in_transaction(Message(topic, b"c", keys="ours-2"), lambda _: TransactionState.COMMIT)
        [row] = rows_of(
            java.call(
                "produce", namesrv=namesrv, group="javap", topic=topic, prefix="java", count=1, mode="sync",
                tags=["A"], trace=True,
            )
        )  # fmt: skip
        assert len(rows_of(java.call("received", handle=handle, count=4, timeout=60))) == 4
        assert row.unique_id is not None
        first, second = sent.msg_id.split(",")
        for msg_id in (first, half.msg_id, row.unique_id):
            printed = tools.told(msg_id, 3)
            assert printed.count("success") == 3
            assert all(group in printed for group in groups)
        again = tools.told(second, 4)
        assert (again.count("failed"), again.count("success")) == (1, 3)

        def decided() -> list[str]:
            told = json.loads(tools.ours(half.msg_id, "--json"))
            return [end["state"] for end in told if end["type"] == "EndTransaction"]

        assert until(decided, bool) == ["COMMIT_MESSAGE"]
    java.call("unsubscribe", handle=handle)

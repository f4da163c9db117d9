"""`rmq explain` on a running cluster: the same message in every group that does something else with it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import (
    AdminClient,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from rmq.cli.command import invoke
from rmq.cli.rmq import command
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.testing.cluster import Cluster


class Explain:
    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._capsys = cluster, capsys

    async def __call__(self, *words: str, code: int = 0, form: str = "json") -> str:
        self._capsys.readouterr()
        line = ["explain", *words, "-n", self._cluster.namesrv_addr, "-o", form]
        got = await asyncio.to_thread(invoke, command, "rmq", line)
        out, err = self._capsys.readouterr()
        assert got == code, (out, err)
        return out if code == 0 else err

    async def json(self, *words: str) -> Any:
        return json.loads(await self(*words))

    async def states(self, msg_id: str) -> dict[str, str]:
        return {one["group"]: one["state"] for one in (await self.json(msg_id))["groups"]}


async def test_each_group_has_its_own_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hands, back = asyncio.Event(), asyncio.Event()

    def member(group: str, tags: str, listener: Any, tries: int = -1) -> PushConsumer:
        made = PushConsumer(
            group, namesrv=cluster.namesrv_addr, max_reconsume_times=tries, persist_consumer_offset_interval=0.2
        )
        made.on("T", tags)(listener)
        return made

    async def takes(message: MessageExt) -> ConsumeResult:
        return ConsumeResult.SUCCESS

    async def holds(message: MessageExt) -> ConsumeResult:
        hands.set()
        await back.wait()
        return ConsumeResult.SUCCESS

    async def refuses(message: MessageExt) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", namesrv=cluster.namesrv_addr) as producer,
        AdminClient(namesrv=cluster.namesrv_addr) as admin,
    ):
        explain = Explain(cluster, capsys)
        await admin.create_and_update_topic(cluster.broker_addr, "T", read_queue_nums=1, write_queue_nums=1)
        members = [member("takes", "A", takes), member("passes", "B", takes), member("holds", "*", holds),
                   member("fails", "*", refuses), member("gives-up", "*", refuses, 0)]  # fmt: skip
        for one in members:
            await one.start()
        sent = await producer.send(Message("T", b"x", tags="A"))
        await hands.wait()
        wanted = {"takes": "consumed", "passes": "filtered", "holds": "in hand", "fails": "tries again",
                  "gives-up": "dead"}  # fmt: skip
        for _ in range(1000):
            if (found := await explain.states(sent.msg_id)) == wanted:
                break
            await asyncio.sleep(0.05)
        assert found == wanted
        assert await explain.states(sent.offset_msg_id) == wanted
        text = await explain(sent.msg_id, "-g", "fails", form="classic")
        assert text.startswith(f"{sent.msg_id} of T: broker-0/0 at 0\n")
        assert "fails: tries again\n  a listener gave it back 1 times" in text
        assert "next: try 2 of 17 is due at" in text
        dead = await admin.query_message("%DLQ%gives-up", sent.msg_id)
        assert (await explain.states(dead.messages[0].offset_msg_id)) == wanted  # of a copy the first one
        group = await explain.json("holds")
        assert group["members"] == [members[2].client_id]
        assert "no member that wants it" in await explain(sent.msg_id, "-g", "nobody", code=3)
        back.set()
        for one in members:
            await one.shutdown()
        await producer.send(Message("T", b"y", tags="A"))
        assert "takes: nobody online, 1 messages wait" in await explain("takes", form="classic")


async def test_what_nobody_can_consume_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        explain = Explain(cluster, capsys)
        level = await producer.send(Message("T", b"x", delay_level=5))
        timed = await producer.send(Message("T", b"x", delay=3_600))
        for sent, when in ((level, r"in ([1-5]\d[.]\ds|1m00s|60[.]0s)"), (timed, "in (59m|1h00m)")):
            kept = (await explain.json(sent.msg_id))["message"]
            assert kept["topic"] == "T"
            assert "it waits for its time, 20" in kept["kept"]["what"]
            assert re.search(f"it is delivered {when}", kept["kept"]["next"])
        assert "neither the offset id" in await explain("0" * 32, code=3)
        assert "is no message id: -t and -g are for one" in await explain("T", "-t", "T", code=2)
        assert "no broker knows the group T" in await explain("T", code=3)
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            await admin.create_and_update_subscription_group(cluster.broker_addr, SubscriptionGroupConfig("planned"))
        said = await explain("planned", form="classic")
        assert said.startswith("planned: nobody online, 0 messages wait\n")
        assert "planned: it was never connected: no member is online" in said


async def test_half_a_transaction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path) as cluster:
        explain = Explain(cluster, capsys)
        producer = TransactionProducer(
            "tp", namesrv=cluster.namesrv_addr, check=lambda message: TransactionState.UNKNOWN
        )
        async with producer:
            sent = await producer.send_in_transaction(Message("T", b"x"), lambda message: TransactionState.UNKNOWN)
            kept = (await explain.json(sent.msg_id))["message"]
            assert "half a transaction of tp, asked for 0 times" in kept["kept"]["what"]
            # A client that is not ours may have named its group anything.
            monkeypatch.setattr("rmq.cli.explain.command._kept", lambda *given: ("of tp\x1b[2K\nrmq", "nothing"))
            assert "\n  of tp\\x1b[2K\\nrmq\n" in await explain(sent.msg_id, form="classic")

"""`rmq doctor` asks a running cluster: what was broken is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rmq.aio import ConsumeResult, Message, MessageExt, Producer, PushConsumer
from rmq.cli.command import invoke
from rmq.cli.rmq import command
from rmq.testing.cluster import Cluster


class Doctor:
    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._capsys = cluster, capsys

    async def __call__(self, *args: str, code: int) -> list[dict[str, object]]:
        self._capsys.readouterr()
        words = ["doctor", *args, "-n", self._cluster.namesrv_addr, "-o", "json"]
        got = await asyncio.to_thread(invoke, command, "rmq", words)
        out, err = self._capsys.readouterr()
        assert got == code, (out, err)
        found: list[dict[str, object]] = json.loads(out) if out else [{"what": err}]
        return found


async def test_what_is_broken_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hangs, told = asyncio.Event(), asyncio.Event()
    async with Cluster(tmp_path, brokers=2, settings={"maxMessageSize": "65536"}) as cluster:
        ask = Doctor(cluster, capsys)
        disk = [one for one in await ask(code=0) if "its disk is" not in str(one["what"])]  # this machine's, not ours
        assert disk == []
        (unknown,) = await ask("-g", "nobody", code=3)
        assert "no broker knows the group nobody" in str(unknown["what"])

        consumer = PushConsumer("g", namesrv=cluster.namesrv_addr)

        @consumer.on("T")
        async def listen(message: MessageExt) -> ConsumeResult:
            told.set()
            await hangs.wait()
            return ConsumeResult.SUCCESS

        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("T", b"0"))
            async with consumer:
                await producer.send(Message("T", b"1"))
                await told.wait()
                assert [one for one in await ask("-g", "g", code=0) if one["wrong"]] == []
                hangs.set()
            for number in range(8):
                await producer.send(Message("T", str(number)))
        (left,) = [one for one in await ask("-g", "g", code=1) if one["wrong"]]
        assert "nobody is online, and" in str(left["what"])
        await cluster.stop_broker(cluster.brokers[1])
        await cluster.start_broker(1, maxMessageSize="1024")
        found = {str(one["what"]) for one in await ask(code=0)}
        assert any(one.startswith("maxMessageSize differs ('1024' on broker-1; '65536' on broker-0)") for one in found)

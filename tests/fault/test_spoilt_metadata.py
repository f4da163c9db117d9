"""B005, B007: a real broker whose configuration files were emptied, spoilt or shortened goes on with what is good."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.exchange.view import Broker
from tests.support.kills.killer import BrokerProcess
from tests.support.kills.load import commit, offset_of, send_command

FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


async def _configure(address: str, groups: int) -> None:
    client = RemotingClient(World.real())
    try:
        answer = await client.request(address, send_command("T0", 0, ["0.0.000001"]), 30)
        assert answer.code == 0
        delayed = send_command("T1", 0, ["0.0.000002"])
        delayed.ext = {**(delayed.ext or {}), "i": "UNIQ_KEY\x01delayed\x02DELAY\x011"}
        assert (await client.request(address, delayed, 30)).code == 0
        broker = Broker(client, address)
        await broker.until(lambda: broker.maximum("T1", 0), 1)
        for number in range(groups):
            body = json.dumps({"groupName": f"g{number}", "retryMaxTimes": 7}).encode()
            assert (await client.request(address, Command(200, body=body), 30)).code == 0
            await commit(client, address, f"g{number}", "T0", 0, 1)
    finally:
        await client.close()


async def _told(address: str) -> tuple[set[str], set[str], int]:
    """Topics, groups, the offset of the first group."""
    client = RemotingClient(World.real())
    try:
        topics = json.loads((await client.request(address, Command(21), 30)).body)["topicConfigTable"]
        groups = json.loads((await client.request(address, Command(201), 30)).body)["subscriptionGroupTable"]
        return set(topics), set(groups), await offset_of(client, address, "g0", "T0", 0)
    finally:
        await client.close()


@pytest.mark.parametrize("spoil", [b"", random.Random(5).randbytes(300)], ids=["empty", "random"])
async def test_b005_a_spoilt_file_gives_way_to_its_backup(tmp_path: Path, spoil: bytes) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:
        await _configure(await broker.start(), 2)
        assert await broker.stop() == 0
        before = await _told(await broker.start())
        assert before[2] == 1
        assert await broker.stop() == 0
        for name in FILES:
            path = broker.store / "config" / name
            backup = path.with_name(f"{name}.bak")
            backup.write_bytes(path.read_bytes())
            path.write_bytes(spoil)
            assert await _told(await broker.start()) == before, name
            assert await broker.stop() == 0


async def test_b007_shorter_offsets_leave_nothing_of_longer_ones(tmp_path: Path) -> None:
    """200 groups with offsets, then one: the file holds that one and nothing behind it."""
    async with BrokerProcess(tmp_path / "broker") as broker:
        address = await broker.start()
        await _configure(address, 200)
        assert await broker.stop() == 0
        path = broker.store / "config" / "consumerOffset.json"
        long = path.stat().st_size
        address = await broker.start()
        client = RemotingClient(World.real())
        try:
            for number in range(1, 200):
                ext: dict[str, str | None] = {"groupName": f"g{number}", "cleanOffset": "true"}
                assert (await client.request(address, Command(207, ext=ext), 30)).code == 0
        finally:
            await client.close()
        assert await broker.stop() == 0
        held = json.loads(path.read_text().replace("{0:", '{"0":'))["offsetTable"]
        assert held == {"T0@g0": {"0": 1}}
        assert path.stat().st_size < long // 10
        assert (await _told(await broker.start()))[2] == 1
        assert await broker.stop() == 0

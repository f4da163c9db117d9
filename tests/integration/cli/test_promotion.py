"""The runbook of docs/replication.md: a slave takes the place of a master that is gone, command by command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import Message, Producer, PullConsumer
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.client.message import MessageQueue
from tests.support.daemons import PATIENCE, environment, running
from tests.support.peers.ports import broker_port, free_port
from tests.support.virtual import eventually

COUNT = 20
#: Messages that the old master alone has.
LOST = 7


def variables(folder: Path, port: int) -> dict[str, str]:
    """Of a broker with its folder and port."""
    return environment(
        folder,
        RMQ_BROKER_IP1="127.0.0.1",
        RMQ_BROKER_IP2="127.0.0.1",
        RMQ_LISTEN_PORT=str(port),
        RMQ_STORE_PATH_ROOT_DIR=str(folder / "store"),
        RMQ_MAPPED_FILE_SIZE_COMMIT_LOG="1048576",
        RMQ_MAX_HASH_SLOT_NUM="1000",
        RMQ_MAX_INDEX_NUM="4000",
    )


Tell = Callable[..., Awaitable[Any]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Tell:
    """What a command of mqadmin says."""

    async def tell(*args: str) -> Any:
        code = await asyncio.to_thread(invoke, root, "mqadmin", [*args, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    return tell


async def test_the_runbook(tmp_path: Path, told: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    namesrv_port, first, second = free_port(), broker_port(), broker_port()
    namesrv = f"127.0.0.1:{namesrv_port}"
    common = f"brokerName=broker-a\nnamesrvAddr={namesrv}\n"
    (tmp_path / "master").mkdir()
    (tmp_path / "slave").mkdir()
    master_file, slave_file = tmp_path / "master.properties", tmp_path / "slave.properties"
    master_file.write_text(common + "brokerRole=ASYNC_MASTER\nbrokerId=0\n")
    slave_file.write_text(common + "brokerRole=SLAVE\nbrokerId=1\nslaveReadEnable=true\n")
    slave_env = variables(tmp_path / "slave", second)
    at_namesrv = environment(tmp_path, RMQ_LISTEN_PORT=str(namesrv_port))
    slave = f"127.0.0.1:{second}"
    async with running("mqnamesrv", env=at_namesrv):
        async with (
            running("mqbroker", "-c", str(master_file), env=variables(tmp_path / "master", first)) as dead,
            running("mqbroker", "-c", str(slave_file), env=slave_env) as held,
        ):
            async with Producer("p", namesrv=namesrv) as producer:
                for number in range(COUNT):
                    await producer.send(Message("T", b"%d" % number))
            figures = (await told("brokerStatus", "-b", f"127.0.0.1:{first}", "-n", namesrv)).popitem()[1]
            topics = tmp_path / "slave" / "store" / "config" / "topics.json"
            await eventually(lambda: topics.exists() and '"T"' in topics.read_text(), within=PATIENCE)
            wanted, reached = {"commitLogMaxOffset": figures["commitLogMaxOffset"], "dispatchBehindBytes": "0"}, {}
            while not wanted.items() <= reached.items():
                reached = (await told("brokerStatus", "-b", slave, "-n", namesrv))[slave]
            status = await told("haStatus", "-b", slave, "-n", namesrv)
            both = int(figures["commitLogMaxOffset"])
            assert status[slave]["haClientRuntimeInfo"]["maxOffset"] == both
            assert await held.stop() == 0
            async with Producer("p", namesrv=namesrv) as producer:
                for number in range(LOST):
                    await producer.send(Message("T", b"lost-%d" % number))
            dead.process.kill()
        slave_file.write_text(common + "brokerRole=ASYNC_MASTER\nbrokerId=0\n")
        async with running("mqbroker", "-c", str(slave_file), env=slave_env):
            (row,) = await told("clusterList", "-n", namesrv)
            assert (row["brokerId"], row["addr"], row["figures"]["brokerRole"]) == (0, slave, "master")
            async with (
                Producer("p", namesrv=namesrv) as producer,
                PullConsumer("g", namesrv=namesrv) as puller,
            ):
                await producer.send(Message("T", b"after"))
                found = [
                    message.body
                    for queue in range(4)
                    for message in (await puller.pull(MessageQueue("T", "broker-a", queue), "*", 0, 32)).messages
                ]
            assert sorted(found) == sorted([*(b"%d" % number for number in range(COUNT)), b"after"])
            # The old master is to be its slave: what it has alone is shown, kept, and cut.
            where = ("-c", str(master_file), "-s", str(tmp_path / "master" / "store"), "-o", "maxHashSlotNum=1000")
            cut = ("store", "truncate", "--to-master", slave, *where)
            assert await asyncio.to_thread(invoke, root, "mqadmin", list(cut)) == 2, "nobody has said yes"
            capsys.readouterr()
            shown = await told(*cut, "--yes")
            assert (shown["from"], shown["records"], {one["topic"] for one in shown["queues"]}) == (both, LOST, {"T"})
            (kept,) = (tmp_path / "master" / "store").glob("gone-*")
            assert await asyncio.to_thread(invoke, root, "mqadmin", ["store", "dump", "records", "-s", str(kept)]) == 0
            assert len(capsys.readouterr().out.splitlines()) == 1 + LOST
            again = await told(*cut)
            assert (again["records"], again["from"], again["commitLog"]["end"]) == (0, both, both)

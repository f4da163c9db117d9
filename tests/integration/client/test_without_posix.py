"""The SDK where there is no POSIX: it is imported and used without the modules that Windows does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE

ROOT = Path(__file__).parents[3]

PROGRAM = """
from tests.support.without_posix import become_poor

become_poor()

import asyncio
import os
import signal
import sys

import rmq
import rmq.aio
from rmq import Message, Producer, PushConsumer

namesrv, folder = sys.argv[1:]
for module in (rmq, rmq.aio):
    for name in module.__all__:
        getattr(module, name)

with Producer("blocking", namesrv=namesrv) as producer:
    assert producer.send(Message("Poor", b"1")).ok
    assert producer.send_async(Message("Poor", b"2")).result(60).ok


async def more() -> None:
    async with rmq.aio.Producer("coroutines", namesrv=namesrv) as producer:
        assert (await producer.send(rmq.aio.Message("Poor", b"3"))).ok


asyncio.run(more())
consumer = PushConsumer(
    "everybody", namesrv=namesrv, message_model="BROADCASTING", consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    offset_store_dir=folder,
)
seen = []


@consumer.on("Poor")
def listen(message):
    seen.append(message.body)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGTERM)


if sys.argv[2].endswith("loop"):
    coroutine = rmq.aio.PushConsumer(
        "everybody", namesrv=namesrv, message_model="BROADCASTING", consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        offset_store_dir=folder,
    )
    coroutine.on("Poor")(listen)
    asyncio.run(coroutine.run())
else:
    consumer.run()
assert sorted(seen) == [b"1", b"2", b"3"], seen
assert any(files for _, _, files in os.walk(folder)), "a broadcasting group keeps its offsets here"
print("done")
"""


@pytest.mark.parametrize("run", ["threads", "loop"])
def test_it_sends_and_consumes(run: str, tmp_path: Path) -> None:
    """Field case B137."""
    with BlockingCluster(tmp_path / "cluster") as cluster:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.namesrv_addr, str(tmp_path / run)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
    assert (ended.returncode, ended.stdout.strip()) == (0, "done"), ended.stderr[-2_000:]


REST = """
from tests.support.without_posix import become_poor

become_poor()

import asyncio
import logging
import os
import signal
import sys

import rmq.aio
from rmq import Message, Producer, PushConsumer
from rmq.app import App
from rmq.integrations import openmessaging, opentelemetry, prometheus
from rmq.integrations.logging import RocketMQHandler
from rmq.protocol.errors import StoreError
from rmq.testing import BlockingCluster, BlockingSimCluster, SimCluster, simloop
from rmq.testing import plugin

namesrv, folder = sys.argv[1:]
got = []
with BlockingSimCluster() as cluster:
    consumer = PushConsumer("late", namesrv=cluster.namesrv_addr)
    consumer.on("T")(lambda message: got.append(message.body))
    with consumer, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        producer.send(Message("T", "x", delay=600))
        cluster.advance(minutes=11)
assert got == [b"x"]


async def an_hour() -> int:
    async with SimCluster() as cluster, rmq.aio.Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", "x"))
        await cluster.kill_broker()
        await cluster.start_broker()
        await cluster.advance(hours=1)
        return len(await cluster.messages("T"))


assert simloop.run(an_hour()) == 1
handler = RocketMQHandler("logs", namesrv=namesrv)
logging.getLogger("shop").addHandler(handler)
logging.getLogger("shop").warning("hello")
handler.close()
app = App("shop", namesrv=namesrv, health="127.0.0.1:0")


@app.listener("logs", group="readers", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
def read(line: str) -> None:
    got.append(line)
    os.kill(os.getpid(), signal.SIGTERM)


app.run()
assert got == [b"x", "hello"], got
try:
    BlockingCluster(folder).__enter__()
except StoreError as error:
    print(error)
"""


def test_what_stands_on_it_works_there_too_and_a_broker_says_that_it_does_not(tmp_path: Path) -> None:
    """Field case B137: the cluster of tests, applications and integrations."""
    with BlockingCluster(tmp_path / "cluster") as cluster:
        ended = subprocess.run(
            [sys.executable, "-c", REST, cluster.namesrv_addr, str(tmp_path / "none")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-2_000:]
    assert ended.stdout.startswith("brokers and name servers need Linux or another POSIX system, which this is not")

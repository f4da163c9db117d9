"""The commit log of a master at its slave, byte for byte: Java's slave under our master, and ours under Java's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.exchange.load import TOPIC, Filler
from tests.support.exchange.turn import SMALL
from tests.support.kills.campaign import amount
from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import FAST_RETRIES, Broker, start_broker

JAVA = "java-4.9.4"
#: Master and slave.
PAIRS = {"Java's slave under ours": ("ours", JAVA), "our slave under Java's": (JAVA, "ours")}
#: A file has room for the largest message, and not for two.
LOG_SIZE = 5 << 20
LARGEST = (4 << 20) - 1024
SETTINGS = {**SMALL, **FAST_RETRIES, "mappedFileSizeCommitLog": str(LOG_SIZE)}
#: Messages of a life, besides those of other kinds; both lives have 100,000 with ``make torture``.
PLAIN = amount(700, 50_000)


def start(master: str, slave: str, **settings: str) -> Iterator[tuple[Cluster, Broker, Broker]]:
    """A name server of ours, a master and its slave, both empty."""
    of_slave = {**SETTINGS, "brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE"}
    try:
        cluster = start_cluster(master, properties={**SETTINGS, **settings}, our_namesrv=True)
    except ToolMissing as missing:
        skip_or_fail(missing)
    if slave == JAVA:  # told by the name server, as in test_slaves.py, it learns the address five seconds too late
        host, _, port = cluster.broker_addr.rpartition(":")
        of_slave |= {"haMasterAddress": f"{host}:{int(port) + 1}"}
    with cluster:
        held = start_broker(cluster, "broker-a-s", of_slave, kind=slave)
        try:
            yield cluster, cluster.brokers[0], held
        finally:
            held.daemon.kill()


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Broker, Broker]]:
    yield from start(*PAIRS[request.param])


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def end_of(client: RemotingClient, broker: Broker) -> int:
    """Where a broker's commit log ends; -1 while it does not say, which Java's does not in its first moments."""
    answer = await client.request(broker.addr, Command(28), 30)
    return -1 if answer.code or not answer.body else int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


async def killed_and_started(broker: Broker) -> None:
    broker.daemon.kill()
    await asyncio.to_thread(broker.daemon.start)


def log_of(broker: Broker) -> tuple[int, bytes]:
    """Where a log begins, and all of its files."""
    files = sorted(file for file in Path(broker.store, "commitlog").iterdir() if file.name.isdigit())
    return int(files[0].name), b"".join(file.read_bytes() for file in files)


async def same(client: RemotingClient, master: Broker, slave: Broker) -> int:
    """Wait until the slave has everything, and compare; the bytes that both have."""
    await until(lambda: _level(client, master, slave))
    end = await end_of(client, slave)
    (start, ours), (begun, theirs) = log_of(master), log_of(slave)
    begin = max(start, begun)
    for at in range(begin, end, 4096):
        here, there = (
            data[at - first : min(at + 4096, end) - first] for data, first in ((ours, start), (theirs, begun))
        )
        assert here == there, f"the logs differ from {at} on; they begin at {start} and {begun}, and end at {end}"
    return end - begin


async def _level(client: RemotingClient, master: Broker, slave: Broker) -> bool:
    end = await end_of(client, master)
    return -1 < end == await end_of(client, slave) == await end_of(client, master)


async def fill(client: RemotingClient, broker: Broker, life: int, *, delays: bool = True) -> None:
    """Everything that a store can hold, the largest messages between it, and some whose sender has an IPv6 address."""
    filler = Filler(client, broker.addr, life)
    await filler.send(TOPIC, 0, size=LARGEST)
    await filler.fill(plain=PLAIN, delays=delays)
    over_6 = Filler(client, f"[::1]:{broker.addr.rpartition(':')[2]}", 10 + life)
    for number in range(8):
        await over_6.send(TOPIC, number % 4, size=100)
    await filler.send(TOPIC, 1, size=LARGEST)
    await filler.send(TOPIC, 2, size=LARGEST)


def test_logs_are_equal_byte_for_byte_with_kills_of_either_side(pair: tuple[Cluster, Broker, Broker]) -> None:
    _, master, slave = pair

    async def main() -> None:
        async with RemotingClient(World.real()) as client:
            filling = asyncio.create_task(fill(client, master, 1, delays=False))
            await until(lambda: _beyond(LARGEST + (128 << 10)))
            await killed_and_started(slave)
            await filling
            first = await same(client, master, slave)
            await killed_and_started(master)
            await fill(client, master, 2)
            assert await same(client, master, slave) > first + 2 * LOG_SIZE
            _, log = log_of(slave)
            assert log.count(bytes(15) + b"\x01" + bytes(2)) >= 8, "the senders' ::1 is in the records"

    async def _beyond(end: int) -> bool:
        async with RemotingClient(World.real()) as client:
            return await end_of(client, slave) > end

    asyncio.run(main())


def test_our_sync_master_with_a_java_slave_and_without() -> None:
    async def main(master: Broker, slave: Broker) -> None:
        async with RemotingClient(World.real()) as client:

            async def code() -> int:
                ext: dict[str, str | None] = {
                    "a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "",
                    "j": "0", "k": "false",
                }  # fmt: skip
                return (await client.request(master.addr, Command(310, ext=ext, body=b"x"), 30)).code

            # No slave has reported yet.
            async def is_code(wanted: int) -> bool:
                return await code() == wanted

            await until(lambda: is_code(0))
            assert [await code() for _ in range(50)] == [0] * 50
            slave.daemon.kill()
            await until(lambda: is_code(11))
            await asyncio.to_thread(slave.daemon.start)
            await until(lambda: is_code(0))

    for _, master, slave in start("ours", JAVA, brokerRole="SYNC_MASTER"):
        asyncio.run(main(master, slave))

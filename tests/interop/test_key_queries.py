"""A broker that lost every derived file serves at once; who asks for a key is told that the index is not done yet.

Apache's mqadmin shows nobody's remark: it says what it says of a key that nobody has.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.daemons import environment, run
from tests.support.dispatched import dispatched
from tests.support.exchange.load import Filler
from tests.support.exchange.view import Broker
from tests.support.faults.os_calls import Rule
from tests.support.interop import Scene
from tests.support.kills.killer import BrokerProcess
from tests.support.peers import Client, start_cluster

TOPIC = "KeyQueries"
#: What is to be indexed is more than a start waits for.
COUNT = 70
SIZE = 1 << 20
#: The build goes no further than its first step, whose keys wait to be written.
HELD = Rule("run:index.write.before", "sleep:600", count=-1)


class Registered(BrokerProcess):
    """A broker that a name server knows."""

    namesrv = ""

    def _environment(self, rules: list[Rule]) -> dict[str, str]:
        return {**super()._environment(rules), "RMQ_NAMESRV_ADDR": self.namesrv}


def test_keys_while_the_index_is_rebuilt(tmp_path: Path, clients: Callable[[str, str], Client]) -> None:
    reader = clients("java-4.9.8", "reader")
    words = ("queryMsgByKey", "-t", TOPIC, "-k", f"key{COUNT - 1}")

    async def fill(address: str) -> None:
        client = RemotingClient(World.real())
        try:
            filler = Filler(client, address, 1)
            for number in range(COUNT):
                await filler.send(TOPIC, 0, size=SIZE, keys=f"key{number}")
        finally:
            await client.close()

    async def served(address: str, *, index: bool) -> None:
        client = RemotingClient(World.real())
        try:
            broker = Broker(client, address)
            if index:
                await dispatched(lambda command: broker.ask(command, 1))
            assert len(await broker.records(TOPIC, 0, 0, COUNT)) == COUNT
        finally:
            await client.close()

    async def main() -> None:
        with start_cluster("ours", brokers=0) as cluster:
            scene = Scene(cluster, reader, reader)
            async with Registered(tmp_path / "broker", RMQ_MAPPED_FILE_SIZE_COMMIT_LOG=str(32 << 20)) as broker:
                broker.namesrv = cluster.namesrv
                await fill(await broker.start())
                assert await broker.stop() == 0
                for name in ("consumequeue", "index"):
                    shutil.rmtree(broker.store / name)
                (broker.store / "checkpoint").unlink()
                await served(await broker.start(HELD), index=False)
                reader.call("route", namesrv=cluster.namesrv, topic=TOPIC)
                assert "query message by key finished, but no message." in scene.mqadmin(*words)
                ours = await run("mqadmin", *words, "-n", cluster.namesrv, env=environment(tmp_path))
                assert ours.code == 3, "a message that is not there"
                (line,) = ours.lines
                assert re.search(
                    r"broker-a: the index is being rebuilt and [1-9]\d?\.\d % done: messages stored after", line
                )
                await broker.kill()
                await served(await broker.start(), index=True)
                found = scene.mqadmin(*words).splitlines()
                assert [row.split()[1:] for row in found if not row.startswith(("#", "RocketMQ"))] == [
                    ["0", f"{COUNT - 1}"]
                ]
                ours = await run("mqadmin", *words, "-n", cluster.namesrv, env=environment(tmp_path))
                assert (ours.code, ours.lines) == (0, [])

    asyncio.run(main())

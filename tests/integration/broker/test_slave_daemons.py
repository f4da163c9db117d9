"""A master and its slave over real sockets, on the loop that daemons run on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq.aio import Message, Producer, PullConsumer
from rmq.client.message import MessageQueue
from rmq.testing.cluster import Cluster
from tests.support.virtual import eventually


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_slave_gets_what_is_sent(loop: str, tmp_path: Path) -> None:
    factory = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def main() -> None:
        async with (
            Cluster(tmp_path, slaves=1, settings={"brokerRole": "SYNC_MASTER"}) as cluster,
            Producer("p", namesrv=cluster.namesrv_addr) as producer,
        ):
            master, slave = cluster.brokers
            await eventually(lambda: master.store.acks.has_replica())
            sent = [await producer.send(Message("T", b"%d" % number)) for number in range(5)]
            assert {result.send_status.name for result in sent} == {"SEND_OK"}
            await eventually(lambda: slave.store.log.end == master.store.log.end and not slave.store.dispatcher.behind)
            assert slave.roles.slave is not None
            await slave.roles.slave.metadata.round(slave.roles.slave.metadata._plain)
            await cluster.stop_broker(master)
            async with PullConsumer("g", namesrv=cluster.namesrv_addr) as puller:
                found = [
                    message.body
                    for queue in range(4)
                    for message in (await puller.pull(MessageQueue("T", "broker-0", queue), "*", 0, 32)).messages
                ]
            assert sorted(found) == [b"%d" % number for number in range(5)]

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())

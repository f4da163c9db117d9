"""A broker one part of which fails to stop: the others stop, the store above all."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import Message, Producer
from rmq.broker.app import BrokerApp
from rmq.runtime.ending import Parts
from rmq.testing.cluster import Cluster
from tests.support.virtual import in_virtual_time, one_world

#: What a stop ends, in order.
PARTS = (
    "observer.leaving", "_tasks.close", "_registration.stop", "front.delivery.close", "roles.release",
    "roles.master.replication.let_go", "roles.master.pop.close", "server.stop", "roles.end",
    "roles.master.replication.stop", "roles.master.check.close", "roles.master.schedule.stop",
    "roles.master.timers.stop", "roles.master.pop.stop", "stats.stop", "metadata.persist_offsets", "filters.persist",
    "metadata.close", "metadata._offsets_file.close", "topics.file.close", "_peers.close", "_client.close",
    "observer.stop",
)  # fmt: skip
#: Not broken here: their parts are, and the ports that are kept are let go before.
OTHERS = (
    "its ports", "the store, as it was found", "the store", "the services of a master", "what they are told of",
)  # fmt: skip
STORE_PARTS = ("store.upkeep.finish", "store.log.close", "store.queues.close", "store.index.close")


def stacks(app: BrokerApp) -> list[Parts]:
    """What a master's stop goes through."""
    master = app.roles.master
    assert master is not None
    return [app._begun, app.roles._begun, master._begun, master._waiting]


def break_part(app: BrokerApp, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a method do what it does, and raise then."""
    way, _, name = path.rpartition(".")
    of: Any = functools.reduce(getattr, way.split("."), app)
    real = getattr(type(of), name)
    pushed = getattr(of, name)

    @functools.wraps(real)
    def failing(self: object, *values: object, **named: object) -> object:
        result = real(self, *values, **named)
        if self is not of:
            return result

        async def fail_later() -> None:
            await result
            raise RuntimeError(f"{path} is broken")

        if inspect.isawaitable(result):
            return fail_later()
        raise RuntimeError(f"{path} is broken")

    for parts in stacks(app):
        for number, (part, stop) in enumerate(parts._begun):
            if stop == pushed:
                parts._begun[number] = (part, functools.partial(failing, of))
                return
    monkeypatch.setattr(type(of), name, failing)


@in_virtual_time
async def test_each_part_that_ends_is_tried(tmp_path: Path) -> None:
    async with Cluster(tmp_path, world=one_world()) as cluster:
        (broker,) = cluster.brokers
        tried = [functools.reduce(getattr, path.split("."), broker) for path in PARTS]
        left = {part for parts in stacks(broker) for part, stop in parts._begun if stop not in tried}
        assert left <= set(OTHERS)


@in_virtual_time
async def test_each_part_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with Cluster(tmp_path, world=one_world()) as cluster:
        (first,) = cluster.brokers
        await cluster.stop_broker(first)
        before = len(asyncio.all_tasks())
        for path in PARTS + STORE_PARTS:
            caplog.clear()
            broker = await cluster.start_broker()  # finds the lock of the folder released
            async with Producer("g", namesrv=cluster.namesrv_addr, world=cluster.world) as producer:
                await producer.send(Message("T", b"x"))
            with monkeypatch.context() as patch:
                break_part(broker, path, patch)
                cluster.brokers.remove(broker)
                assert len(await broker.stop()) == 1, path
            assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [f"{path} is broken"]
            # Nothing is recovered after a stop whose store has done its part.
            assert cluster.world.files.exists(f"{tmp_path}/broker-0/abort") == (path in STORE_PARTS), path
            assert len(asyncio.all_tasks()) == before, path

"""A background service that ends is told of: in readiness, in the log and in a metric, by broker and nameserver."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq.broker.app import BrokerApp
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.remoting.health import Observer
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.http_get import fetch
from tests.support.raw_peer import RawPeer, send

OBSERVED = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
#: Every service there is, for a reader of this test; the names of the tasks are checked against it.
BROKER = {
    *("broker.offsets", "broker.filters", "broker.expiry", "broker.memory", "broker.message sizes"),
    *("broker.slow readers", "store.flush", "store.queues", "store.checkpoint", "store.clean", "store.disk"),
    *(
        "store.scrub",
        "store.ownership",
        "schedule.deliver",
        "schedule.offsets",
        "timers.deliver",
        "timers.roll",
        "timers.floor",
    ),
    *("transaction check.pass", "transaction check.progress", "pop.revive", "pop.positions", "pop.journal"),
    *("stats.second", "stats.minute", "stats.hour", "stats.day", "registration.periodic", "replication.ends"),
}
NAMESRV = {"namesrv.scan"}


def services() -> dict[str, asyncio.Task[object]]:
    """Every service of whatever owner, watched or not."""
    owners = [one for one in gc.get_objects() if isinstance(one, TaskOwner) and not one.closed]
    loop = asyncio.get_running_loop()
    return {task.get_name(): task for owner in owners for task in owner.services() if task.get_loop() is loop}


async def running(observer: Observer) -> dict[str, float]:
    assert observer.address is not None
    status, text = await fetch(observer.address, "/metrics")
    assert status == 200
    asked_for = "\n".join(line for line in text.splitlines() if "rmq_service_running" in line)
    (family,) = text_string_to_metric_families(asked_for)
    return {sample.labels["service"]: sample.value for sample in family.samples}


async def end(task: asyncio.Task[object]) -> None:
    """Have what a service waits for raise."""
    waits_for = task._fut_waiter  # type: ignore[attr-defined]
    waits_for.set_exception(RuntimeError("planted"))
    await asyncio.wait([task])
    await asyncio.sleep(0)


async def check_each(daemon: BrokerApp | NamesrvApp, names: set[str], caplog: pytest.LogCaptureFixture) -> None:
    observer = daemon.observer
    assert observer.address is not None
    assert await running(observer) == dict.fromkeys(names, 1)
    assert await fetch(observer.address, "/health/ready") == (200, "ready\n")
    tasks = services()  # which looks at all that there is
    for number, name in enumerate(sorted(names), 1):
        caplog.clear()
        await end(tasks[name])
        status, text = await fetch(observer.address, "/health/ready")
        assert status == 503
        assert f"{name} (RuntimeError: planted)" in text
        now = await running(observer)
        assert (now[name], list(now.values()).count(0)) == (0, number)
        told = [record for record in caplog.records if name in record.getMessage()]
        assert [record.levelno for record in told] == [logging.CRITICAL]


async def test_every_service_of_a_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(tmp_path, settings=OBSERVED) as cluster:
        broker = cluster.brokers[0]
        assert set(services()) == BROKER | NAMESRV
        await check_each(broker, BROKER, caplog)
        # What is left goes on.
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send())).code == 0
        assert (await fetch(broker.observer.address or ("", 0), "/health/live"))[0] == 200


async def test_every_service_of_a_nameserver(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = NamesrvSettings(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(tmp_path / "kv.json"),
        metrics_exporter_type="PROM",
        metrics_prom_exporter_port=0,
    )
    async with NamesrvApp(World.real(), settings) as namesrv:
        assert set(services()) == NAMESRV
        await check_each(namesrv, NAMESRV, caplog)


async def test_a_service_that_is_cancelled_is_told_of_and_a_stop_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path, settings=OBSERVED) as cluster:
        broker = cluster.brokers[0]
        task = services()["timers.deliver"]
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert broker.observer.services.ended == {"timers.deliver": "it was not to end"}
    assert broker.observer.services.ended == {}, "its owner is done, and no other has ended before its time"
    assert [record.levelname for record in caplog.records if "has ended" in record.getMessage()] == ["CRITICAL"]


async def test_work_of_the_store_that_fails_unforeseen_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, settings={**OBSERVED, "flushDiskType": "SYNC_FLUSH"}) as cluster:
        broker = cluster.brokers[0]

        ended = asyncio.Event()

        async def fails() -> None:
            asyncio.get_running_loop().call_later(0, ended.set)  # the task's end is told before that
            raise RuntimeError("planted")

        monkeypatch.setattr(broker.store.flusher, "_flush_once", fails)
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send(props="WAIT\x01false\x02"))).code == 0
        await ended.wait()
        await asyncio.sleep(0)
        assert broker.observer.services.ended == {"store.flush-now": "RuntimeError: planted"}
        monkeypatch.undo()

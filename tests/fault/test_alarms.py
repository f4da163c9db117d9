"""I11: what goes wrong with the disk is loud: metrics, the readiness probe and the log."""

from __future__ import annotations

import asyncio
import errno
import re
from pathlib import Path

import pytest

from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simloop import run
from tests.support.faults.os_calls import Rule
from tests.support.http_get import fetch
from tests.support.kills.killer import BrokerProcess
from tests.support.kills.load import read_back, send_command
from tests.support.scenes.pop import PopScene, pop_scene

_HTTP = re.compile(r"metrics and health of the broker on http://127\.0\.0\.1:(\d+)")


async def metrics(scene: PopScene) -> dict[str, float]:
    labels, families = await scene.app.metrics.page({})
    assert labels
    return {
        "".join((family.name, *(f" {name}={value}" for name, value in labels))): number
        for family in families
        for _, labels, number in family.samples
        if family.name.startswith("rmq_")
    }


async def test_a_failed_flush_makes_the_broker_unready_and_is_told(tmp_path: Path) -> None:
    async with BrokerProcess(
        tmp_path / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH", RMQ_METRICS_EXPORTER_TYPE="PROM",
        RMQ_METRICS_PROM_EXPORTER_PORT="0",
    ) as broker:  # fmt: skip
        first = "*/00000000000000000000"
        address = await broker.start(Rule("run:log.datasync.before", "errno:EIO", skip=3, count=1, of=first))
        found = _HTTP.search((broker.folder / "logs" / "broker.log").read_text())
        assert found
        http = ("127.0.0.1", int(found[1]))
        assert (await fetch(http, "/health/ready"))[0] == 200
        assert "rmq_messages_refused{" in (page := (await fetch(http, "/metrics"))[1])
        assert not re.search(r'reason="flush_failed"\} 1', page)
        client = RemotingClient(World.real())
        try:
            codes = []
            while 14 not in codes:
                codes.append((await client.request(address, send_command("T0", 0, [f"k{len(codes)}"]), 30)).code)
        finally:
            await client.close()
        assert codes[0] == 0
        assert codes[-2:] == [10, 14], "who waited for the flush is told that it failed, who comes later is refused"
        status, text = await fetch(http, "/health/ready")
        assert status == 503
        assert "restarted" in text
        assert "a flush to disk failed" in text
        assert (await fetch(http, "/health/live"))[0] == 200
        page = (await fetch(http, "/metrics"))[1]
        assert re.search(r'rmq_messages_refused\{.*reason="flush_failed"\} 1', page)
        assert re.search(r"rmq_flush_failures_total\{.*\} 1", page)
        assert (await read_back(address)).places, "pulls are served"
        critical = [line for line in broker_log(broker) if " CRITICAL " in line]
        assert any("could not be forced to disk" in line for line in critical)


def broker_log(broker: BrokerProcess) -> list[str]:
    return (broker.folder / "logs" / "broker.log").read_text().splitlines()


def test_a_full_disk_and_what_it_costs_are_told() -> None:
    async def main() -> None:
        async with pop_scene(1, mappedFileSizeCommitLog=str(64 << 10), cleanResourceInterval="1000") as scene:
            scene.node.disk.capacity = 2 << 20
            told = await metrics(scene)
            assert told["rmq_messages_refused reason=disk_full"] == 0
            assert told["rmq_files_deleted_early_total"] == 0
            assert 0 <= told["rmq_disk_used_ratio of=commitlog"] < 0.5
            body = "x" * 8000
            while scene.node.disk.used < 0.88 * (2 << 20):
                await scene.send(body)
            await asyncio.sleep(70)
            told = await metrics(scene)
            assert told["rmq_files_deleted_early_total"] == scene.app.store.retention.deleted_files > 0
            assert 0.5 < told["rmq_disk_used_ratio of=consumequeue"] < 0.9
            assert scene.app._missing() is None
            scene.node.disk.fail("pwrite", errno.ENOSPC, "*/commitlog/*")
            with pytest.raises(AssertionError, match="disk is full"):
                await scene.send(body)
            assert (await metrics(scene))["rmq_messages_refused reason=disk_full"] == 1
            assert scene.app._missing() is None, "it passes without a restart"

    run(main())


def test_a_write_that_failed_otherwise_needs_a_restart_and_says_so() -> None:
    async def main() -> None:
        async with pop_scene(1) as scene:
            await scene.send("first")
            scene.node.disk.fail("pwrite", errno.EIO, "*/commitlog/*")
            with pytest.raises(AssertionError):
                await scene.send("second")
            assert (await metrics(scene))["rmq_messages_refused reason=write_failed"] == 1
            assert "restarted" in (scene.app._missing() or "")

    run(main())

"""The pytest plugin, as a user's test-suite has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient


def test_blocking(rmq_cluster):
    async def ask(cluster):
        async with RemotingClient(cluster.world) as client:
            return await client.request(rmq_cluster.namesrv_addr, Command(106))
    assert b"broker-0" in rmq_cluster.call(ask).body


async def test_asyncio(rmq_aio_cluster):
    async with RemotingClient(rmq_aio_cluster.world) as client:
        assert b"broker-0" in (await client.request(rmq_aio_cluster.namesrv_addr, Command(106))).body
"""


def test_both_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rmq.testing.plugin"]\n')
    (tmp_path / "test_user.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    root = Path(__file__).resolve().parents[3]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout

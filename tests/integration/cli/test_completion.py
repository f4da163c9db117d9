"""A shell completes names that a running cluster has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rmq import Producer
from rmq.cli.completion.names import live_names
from rmq.client.admin import AdminClient
from rmq.testing.cluster import BlockingCluster, Cluster

#: bash's own words are cut at colons; it replaces what stands behind the last one.
SCRIPT = """
rmq() {{ {python} -m rmq.cli.rmq "$@"; }}
eval "$(rmq completion bash)" 2> /dev/null
mqadmin() {{ {python} -m rmq.cli.mqadmin "$@"; }}
for COMP_LINE in 'mqadmin topicRoute -t Comp' 'mqadmin brokerStatus -b {begun}'; do
    COMP_POINT=${{#COMP_LINE}}
    _mqadmin_completion mqadmin
    echo "${{COMPREPLY[@]}}"
done
"""


async def test_the_names_that_there_are(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        await admin.create_and_update_topic(cluster.broker_addr, "Mine", read_queue_nums=1, write_queue_nums=1)
        assert await live_names(admin, "topic") == ["Mine"]
        assert list(await live_names(admin, "cluster")) == ["DefaultCluster"]
        assert list(await live_names(admin, "broker")) == ["broker-0"]
        assert list(await live_names(admin, "address")) == [cluster.broker_addr]
        assert list(await live_names(admin, "group")) == []


def test_bash_is_answered(tmp_path: Path) -> None:
    with BlockingCluster(tmp_path) as cluster:
        with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            producer.create_topic("TBW102", "Completed", 1)
        host, _, port = cluster.broker_addr.partition(":")
        script = SCRIPT.format(python=sys.executable, begun=f"{host}:{port[:2]}")
        done = subprocess.run(
            ["bash", "--norc", "-c", script], env={"NAMESRV_ADDR": cluster.namesrv_addr, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=120,
        )  # fmt: skip
    assert done.stdout.splitlines() == ["Completed", port]

"""``rmq secure check -n``: what it says of clusters in this process, with and without what closes them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmq.cli.command import Refused
from rmq.cli.secure.running import look_at_cluster
from rmq.testing.cluster import Cluster
from tests.support.accounts import SECRET, home
from tests.support.certificates import make_certificate

NOW = datetime.now(UTC)


async def found(cluster: Cluster, credentials: Path | None = None, days: int = 30) -> dict[str, list[str]]:
    """What is open, by who has it open."""
    named = {cluster.namesrv_addr: "namesrv", cluster.broker_addr: "broker"}
    told: dict[str, list[str]] = {"namesrv": [], "broker": []}
    for one in await look_at_cluster(cluster.namesrv_addr, str(credentials) if credentials else None, NOW, days):
        told[named[one.where]].append(one.what)
    return told


async def test_a_cluster_as_it_is_delivered_is_open(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings={"tls.enable": "false"}) as cluster:
        told = await found(cluster)
    alike = [
        "it takes connections without TLS",
        "it answers requests without an account",
        "its certificate is its own word (made for this run)",
        "no certificate",
    ]
    assert told == {"namesrv": alike, "broker": [*alike, "tls.enable=false", "autoCreateTopicEnable=true"]}


async def test_who_may_not_ask_is_told_so_and_who_may_finds_what_is_left(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "own", hosts=["localhost"])
    closed = {
        **home(tmp_path),
        "tls.server.mode": "enforcing",
        "tls.server.certPath": made.cert,
        "tls.server.keyPath": made.key,
        "tls.enable": "true",
        "autoCreateTopicEnable": "false",
    }
    of_namesrv = {key: value for key, value in closed.items() if key not in ("tls.enable", "autoCreateTopicEnable")}
    credentials = tmp_path / "tools.yml"
    tls = f"tlsCaFile: {made.cert}\ntlsServerName: localhost\n"
    credentials.write_text(f"accessKey: operator\nsecretKey: '{SECRET}'\n{tls}")
    signs = tmp_path / "broker.yml"
    signs.write_text(f"accessKey: a-broker\nsecretKey: '{SECRET}'\n")
    settings = {**closed, "aclCredentialsFile": str(signs)}
    async with Cluster(tmp_path, settings=settings, namesrvs=0, brokers=0) as cluster:
        await cluster.start_namesrv(**of_namesrv)
        await cluster.start_broker()
        both = ["its certificate is its own word (own)"]
        assert await found(cluster, credentials, days=0) == {"namesrv": both, "broker": both}
        ends = f"it ends on {datetime.fromtimestamp(NOW.timestamp() + 2 * 86_400, UTC):%Y-%m-%d}"
        assert await found(cluster, credentials) == {"namesrv": [*both, ends], "broker": [*both, ends]}
        with pytest.raises(Refused, match="perhaps it takes TLS only"):
            await found(cluster)
        credentials.write_text(f"accessKey: unprivileged\nsecretKey: '{SECRET}'\n{tls}")
        with pytest.raises(Refused, match=r"cannot be looked at: .*Need admin permission"):
            await found(cluster, credentials)


async def test_a_slave_that_its_master_keeps_the_log_from_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings={"tls.server.mode": "disabled"}, brokers=0) as cluster:
        await cluster.start_broker(haAllowedAddresses="10.0.0.0/8")
        await cluster.start_broker(1, brokerName="broker-0", brokerId="1", brokerRole="SLAVE")
        told = {one.what for one in await look_at_cluster(cluster.namesrv_addr, None, NOW, 30)}
        assert "a slave on 127.0.0.1 gets no log" in told

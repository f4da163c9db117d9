"""Clients over TLS, where nothing else is taken: the SDK in both forms, and mqadmin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import rmq
from rmq.aio import AdminClient, Message, Producer, TransportError
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.testing.cluster import Cluster
from tests.support.certificates import Certificate, make_certificate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "cluster")


@pytest.fixture
async def cluster(tmp_path: Path, made: Certificate) -> AsyncIterator[Cluster]:
    """Its certificate is for localhost, and clients call 127.0.0.1."""
    enforcing = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": made.cert,
        "tls.server.keyPath": made.key,
        "tls.enable": "true",
    }
    async with Cluster(tmp_path, settings=enforcing, namesrvs=0, brokers=0) as cluster:
        await cluster.start_namesrv(**enforcing)
        await cluster.start_broker()
        yield cluster


async def test_both_forms_of_the_sdk_send_over_tls(cluster: Cluster, made: Certificate) -> None:
    how: Any = {"namesrv": cluster.namesrv_addr, "tls": True, "tls_ca_file": made.cert, "tls_server_name": "localhost"}
    async with Producer("p", **how) as producer:
        assert (await producer.send(Message("T", b"x"))).ok

    def blocking() -> bool:
        with rmq.Producer("p", **how) as producer:
            return producer.send(rmq.Message("T", b"x")).ok

    assert await asyncio.to_thread(blocking)


async def test_clients_of_one_name_do_not_share_what_one_of_them_verifies(
    cluster: Cluster, made: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """One that takes any certificate must not lend its connections."""
    how: Any = {"namesrv": cluster.namesrv_addr, "instance_name": "one", "tls": True}
    async with AdminClient(**how, tls_verify=False) as careless, AdminClient(**how, tls_ca_file=made.cert) as careful:
        assert (await careless.cluster_info()).broker_addr_table
        with pytest.raises(TransportError, match=r"not for '127\.0\.0\.1'"):
            await careful.cluster_info()
    assert caplog.text.count("tls_verify=False") == 1


async def test_who_does_not_speak_it_is_told_what_to_try(cluster: Cluster) -> None:
    async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
        with pytest.raises(TransportError, match="perhaps it takes TLS only"):
            await admin.cluster_info()


async def test_mqadmin_speaks_it_by_options_environment_and_file(
    cluster: Cluster,
    made: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def run(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(invoke, root, "mqadmin", ["clusterList", "-n", cluster.namesrv_addr, *words])
        out, err = capsys.readouterr()
        return code, out + err

    code, said = await run("--tlsCaFile", made.cert)
    assert code == 5
    assert "its TLS certificate is not for '127.0.0.1'" in said
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"tlsCaFile: {made.cert}\ntlsServerName: localhost\n")
    code, said = await run("--credentialsFile", str(file))
    assert code == 0
    assert "DefaultCluster" in said
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert (await run())[0] == 0
    monkeypatch.delenv("ROCKETMQ_HOME")
    monkeypatch.setenv("ROCKETMQ_TLS_CA_FILE", made.cert)
    monkeypatch.setenv("ROCKETMQ_TLS_SERVER_NAME", "localhost")
    assert (await run("--tls"))[0] == 0

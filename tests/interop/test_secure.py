"""Java's client 4.9.8 with useTLS and AclClientRPCHook at a cluster of ``rmq secure init``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.auth.client_file import read_client_file
from rmq.cli.command import invoke
from rmq.cli.rmq import command
from rmq.config.sources import read_file
from rmq.runtime.files import RealFiles
from tests.support.interop import Scene, run_cell
from tests.support.peers import Client, ClientError, Cluster, start_cluster
from tests.support.peers.clients import java_client
from tests.support.peers.cluster import FAST_RETRIES

#: What the harness gives daemons itself.
_OF_ITS_OWN = {"listenPort", "namesrvAddr", "brokerName", "brokerId", "brokerIP1", "autoCreateTopicEnable"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secured") / "s"
    assert invoke(command, "rmq", ["secure", "init", str(folder), "--require-client-certificates"]) == 0
    return folder


@pytest.fixture(scope="module")
def cluster(secured: Path) -> Iterator[Cluster]:
    def given(name: str) -> dict[str, str]:
        found = read_file(str(secured / f"{name}.properties"))
        return {item.key: item.value or "" for item in found if item.key not in _OF_ITS_OWN}

    properties = {**FAST_RETRIES, **given("broker")}
    with start_cluster("ours", properties=properties, namesrv_properties=given("namesrv")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def java(secured: Path) -> Iterator[dict[str, Client]]:
    """By account; ``stranger`` has one, and shows no certificate."""
    tls = ("-Dtls.enable=true", f"-Dtls.config.file={secured}/java-tls.properties")
    bare = ("-Dtls.enable=true", "-Dtls.test.mode.enable=true")
    started: dict[str, Client] = {}
    try:
        for name, file, options in (
            ("application", "client.yml", tls), ("operator", "conf/tools.yml", tls), ("stranger", "client.yml", bare),
        ):  # fmt: skip
            account = read_client_file(RealFiles(), str(secured / file)).account
            assert account is not None
            folder = Path(tempfile.mkdtemp(prefix=f"rmq-client-{name}-"))
            words = java_client("4.9.8", *options, f"-Dpeer.account={account.access_key}:{account.secret_key}")
            started[name] = Client("java-4.9.8-account", words(folder), folder)
        yield started
    finally:
        for client in started.values():
            client.close()
            shutil.rmtree(client.folder, ignore_errors=True)


@pytest.mark.parametrize("cell", ["sync", "retry"])
def test_java_sends_and_consumes_with_certificate_and_account(
    cell: str, cluster: Cluster, java: dict[str, Client]
) -> None:
    run_cell(cell, Scene(cluster, java["application"], java["operator"]))


def test_java_without_a_certificate_is_refused(cluster: Cluster, java: dict[str, Client]) -> None:
    scene = Scene(cluster, java["application"], java["operator"])
    topic = scene.topic("stranger")
    with pytest.raises(ClientError, match=r"connect to|No name server|RemotingConnectException|send request to"):
        scene.produce(topic, "sync", count=1, by=java["stranger"])

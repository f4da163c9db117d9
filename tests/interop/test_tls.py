"""A Java client that speaks TLS to our nameserver and broker, beside one that does not."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.interop import Scene, fresh, rows_of, run_cell
from tests.support.peers import Client, ClientError, Cluster, start_client, start_cluster
from tests.support.peers.cluster import FAST_RETRIES
from tests.support.peers.process import PATIENCE


@pytest.fixture(scope="module")
def tls_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our cluster with a certificate: both daemons take TLS and plain connections on the same port."""
    cert, key = _certificate(tmp_path_factory.mktemp("tls"))
    tls = {"tls.server.certPath": str(cert), "tls.server.keyPath": str(key)}
    with start_cluster("ours", properties={**FAST_RETRIES, **tls}, namesrv_properties=tls) as cluster:
        yield cluster


def _certificate(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "server.pem", folder / "server.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return cert_file, key_file


class Enforcing(NamedTuple):
    """A cluster that takes nothing but TLS, and what becomes of a send by a Go client that does not speak it."""

    cluster: Cluster
    plain: Future[Any]


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory, clients: Callable[[str, str], Client]) -> Iterator[Enforcing]:
    """Go's gives up after thirteen seconds, which pass while other tests run."""
    cert, key = _certificate(tmp_path_factory.mktemp("enforcing"))
    tls = {"tls.server.mode": "enforcing", "tls.server.certPath": str(cert), "tls.server.keyPath": str(key)}
    broker = {**FAST_RETRIES, **tls, "tls.enable": "true"}
    stranger = clients("go", "stranger")
    with (
        start_cluster("ours", properties=broker, namesrv_properties=tls) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        topic = fresh("go-plain")
        send: dict[str, Any] = {
            "namesrv": cluster.namesrv, "topic": topic, "prefix": topic, "count": 1, "mode": "sync", "tags": ["A"],
        }  # fmt: skip
        stranger.call("produce", group=fresh("p"), tls=True, **send)
        yield Enforcing(cluster, pool.submit(stranger.call, "produce", group=fresh("p"), tls=False, **send))


@pytest.mark.usefixtures("enforcing")
@pytest.mark.parametrize("client", ["java-4.9.8-tls"])
@pytest.mark.parametrize("cell", ["sync", "async", "clustering", "retry"])
def test_tls_beside_plain(client: str, cell: str, tls_cluster: Cluster, clients: Callable[[str, str], Client]) -> None:
    """The client under test speaks TLS; the reader, on the same ports, does not."""
    run_cell(cell, Scene(tls_cluster, clients(client, "tested"), clients("java-4.9.8", "reader")))


def test_a_broker_without_a_certificate_of_its_own(scene: Callable[[str, str], Scene]) -> None:
    """As Java's (tls.test.mode.enable): it makes one, and a client that trusts any server is served."""
    run_cell("sync", scene("ours", "java-4.9.8-tls"))


def test_gos_client_speaks_tls_too(enforcing: Enforcing, clients: Callable[[str, str], Client]) -> None:
    """Where nothing else is taken; it checks no certificate."""
    client, topic, handle = clients("go", "tested"), fresh("go-tls"), fresh("h")
    who = {"namesrv": enforcing.cluster.namesrv, "group": fresh("g"), "topic": topic, "tls": True}
    sent = rows_of(client.call("produce", prefix=topic, count=60, mode="sync", tags=["A"], **who))
    client.call("subscribe", handle=handle, expression="*", model="clustering", **who)
    got = rows_of(client.call("received", handle=handle, count=60, timeout=60))
    assert sorted(row.key for row in got) == sorted(row.key for row in sent)
    assert sorted(row.digest for row in got) == sorted(row.digest for row in sent)
    client.call("unsubscribe", handle=handle)
    with pytest.raises(ClientError):
        enforcing.plain.result(PATIENCE)


def test_each_side_checks_the_certificate_of_the_other(
    tmp_path: Path, clients: Callable[[str, str], Client], scene: Callable[[str, str], Scene]
) -> None:
    """Mutual TLS, with the keys of Java's own settings: tls.client.* there, tls.server.* here."""
    server, client = (_certificate(tmp_path / name) for name in ("server", "client"))
    demands = {
        "tls.server.mode": "enforcing", "tls.server.certPath": str(server[0]), "tls.server.keyPath": str(server[1]),
        "tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(client[0]),
        # The broker's own calls to the name server.
        "tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": str(server[0]),
        "tls.client.certPath": str(client[0]), "tls.client.keyPath": str(client[1]),
    }  # fmt: skip
    its = {key: value for key, value in demands.items() if key.startswith(("tls.enable", "tls.client"))}
    options = [f"-D{key}={value}" for key, value in its.items()]
    with (
        start_cluster("ours", properties=demands, namesrv_properties=demands) as cluster,
        start_client("java-4.9.8", "-Dtls.test.mode.enable=false", *options) as known,
    ):
        run_cell("sync", Scene(cluster, known, known))
        topic, group = fresh("refused"), fresh("p")
        for stranger, namesrv in (
            (clients("java-4.9.8-tls", "tested"), cluster.namesrv),  # shows no certificate
            (known, scene("ours", "java-4.9.8-tls").cluster.namesrv),  # is shown one that it does not trust
        ):
            with pytest.raises(ClientError):
                stranger.call(
                    "produce", namesrv=namesrv, group=group, topic=topic, prefix=topic, count=1, mode="sync", tags=["A"]
                )

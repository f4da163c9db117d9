"""TLS to the name server and to a broker that wants to see a certificate, by the source's and the sink's options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Certificate, make_certificate
from tests.support.peers.cluster import Cluster, start_cluster
from tests.support.spark.topics import create, fill, numbers, places, stored

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    folder = tmp_path_factory.mktemp("certificates")
    return {name: make_certificate(folder, name) for name in ("namesrv", "broker", "spark")}


@pytest.fixture(scope="module")
def cluster(certificates: dict[str, Certificate]) -> Iterator[Cluster]:
    """Certificates of their own for both daemons; what the tests do beside Spark goes over plain connections."""

    def tls(name: str) -> dict[str, str]:
        return {"tls.server.certPath": certificates[name].cert, "tls.server.keyPath": certificates[name].key}

    ask = {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": certificates["spark"].cert}
    with start_cluster("ours", properties=tls("broker") | ask, namesrv_properties=tls("namesrv")) as made:
        create(made.namesrv, made.broker_addr, "read")
        create(made.namesrv, made.broker_addr, "written")
        fill(made.namesrv, "read", 100)
        yield made


@pytest.fixture
def options(cluster: Cluster, certificates: dict[str, Certificate], tmp_path: Path) -> dict[str, str]:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join(Path(certificates[name].cert).read_text() for name in ("namesrv", "broker")))
    own = certificates["spark"]
    tls = {"useTLS": "true", "tlsCaFile": str(trusted), "tlsCertFile": own.cert, "tlsKeyFile": own.key}
    tls["tlsServerName"] = "localhost"
    return {"nameServer": cluster.namesrv, "topic": "read", **tls}


def test_both_directions_over_tls(spark: Any, cluster: Cluster, options: dict[str, str]) -> None:
    rows = spark.read.format("rocketmq").options(**options).load()
    assert places(rows.collect()) == stored(cluster.namesrv, "read")
    sink = {**options, "topic": "written"}
    rows.select("value").write.format("rocketmq").options(**sink).mode("append").save()
    written = spark.read.format("rocketmq").options(**sink).load()
    assert sorted(numbers(written.collect())) == list(range(100))


def test_a_file_says_who_comes_and_how_and_secrets_stand_in_no_plan(
    spark: Any, cluster: Cluster, options: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "client.yml"
    tls = "".join(f"{name}: {options[name]}\n" for name in options if name.startswith("tls"))
    file.write_text(f"accessKey: someone\nsecretKey: hush-file\n{tls}")
    given = {"nameServer": cluster.namesrv, "topic": "read"}
    rows = spark.read.format("rocketmq").options(**given, credentialsFile=str(file)).load()
    assert places(rows.collect()) == stored(cluster.namesrv, "read")
    account = {"accessKey": "someone", "secretKey": "hush-1", "securityToken": "hush-2"}
    named = spark.read.format("rocketmq").options(**options, **account).load()
    for each in (rows, named):
        assert each.count() == 100
        assert "hush" not in repr(each) + each._jdf.queryExecution().toString()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"tlsCaFile": "spark"},
            "ConfigError: {namesrv}: its TLS certificate is not trusted (self-signed certificate): give the one that",
        ),
        (
            {"tlsCaFile": "namesrv"},
            "ConfigError: {broker}: its TLS certificate is not trusted (self-signed certificate): give the one that",
        ),
        (
            {"tlsCertFile": None, "tlsKeyFile": None},
            "ConfigError: {broker}: it wants to see a TLS certificate that it trusts: give one with tlsCertFile and",
        ),
        (
            {"tlsServerName": None},
            "ConfigError: {namesrv}: its TLS certificate is not for '127.0.0.1': call it by",
        ),
        ({"tlsCaFile": "nowhere"}, "ConfigError: TLS: nowhere cannot be read: "),
        ({"useTLS": None}, "needs useTLS=true beside it"),
    ],
)
def test_who_is_not_to_be_trusted_is_named(
    spark: Any,
    cluster: Cluster,
    options: dict[str, str],
    certificates: dict[str, Certificate],
    change: dict[str, str | None],
    said: str,
) -> None:
    files = {name: each.cert for name, each in certificates.items()}
    given = {name: value for name, value in {**options, **change}.items() if value is not None}
    given["tlsCaFile"] = files.get(given["tlsCaFile"], given["tlsCaFile"])
    with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
        spark.read.format("rocketmq").options(**given).load().collect()
    assert said.format(namesrv=cluster.namesrv, broker=cluster.broker_addr) in str(error.value)

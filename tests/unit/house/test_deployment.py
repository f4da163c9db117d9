"""The systemd units and Kubernetes manifests: accepted by their validators, of one mind with the settings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq.broker.raft.peers import Peers
from rmq.broker.settings import BrokerSettings
from rmq.config.sources import environment_name
from rmq.namesrv.settings import NamesrvSettings
from tests.support.daemons import PATIENCE

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "conf" / "systemd").iterdir())
MANIFESTS = sorted((ROOT / "docker" / "kubernetes").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def every(kind: str) -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in documents(path) if document["kind"] == kind]


def variables(settings: type[BrokerSettings] | type[NamesrvSettings]) -> set[str]:
    return {environment_name(settings.env_prefix, line.key) for line in settings._table.values()}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_validator_accepts_the_manifests(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (extra dev)")
    for document in documents(path):
        validator.validate(document, validator.latest_version(), strict=True)


def test_manifests_select_pods_that_there_are() -> None:
    sets = every("StatefulSet")
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in sets]
    selectors = [one["spec"]["selector"] for one in every("Service")]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in [*sets, *every("PodDisruptionBudget")]]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in every("NetworkPolicy")]
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods), selector
    services = {one["metadata"]["name"] for one in every("Service")}
    for one in sets:
        assert one["spec"]["serviceName"] in services
        claims = {claim["metadata"]["name"] for claim in one["spec"]["volumeClaimTemplates"]}
        volumes = claims | {volume["name"] for volume in one["spec"]["template"]["spec"].get("volumes", ())}
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        ports = {port["name"] for port in container["ports"]}
        assert all(container[probe]["httpGet"]["port"] in ports for probe in container if probe.endswith("Probe"))


def test_ports_are_those_that_the_daemons_listen_on() -> None:
    broker, namesrv = BrokerSettings(), NamesrvSettings()
    listening = {
        "broker": {
            broker.listen_port - 2, broker.listen_port, broker.listen_port + 1, broker.metrics_prom_exporter_port,
        },
        "namesrv": {namesrv.listen_port, namesrv.metrics_prom_exporter_port},
    }  # fmt: skip
    for one in every("StatefulSet"):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert {port["containerPort"] for port in container["ports"]} == listening[one["metadata"]["labels"]["part"]]
    for one in every("Service"):
        assert {port["port"] for port in one["spec"]["ports"]} == listening[one["metadata"]["labels"]["part"]]
    for one in every("NetworkPolicy"):
        opened = {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]}
        assert opened == listening[one["spec"]["podSelector"]["matchLabels"]["part"]]


@pytest.mark.parametrize(
    ("pod", "identity", "role"), [("broker-a-0", "0", "SYNC_MASTER"), ("broker-a-1", "1", "SLAVE")]
)
def test_the_number_of_a_pod_says_what_it_is(tmp_path: Path, pod: str, identity: str, role: str) -> None:
    (one,) = [one for one in every("StatefulSet") if one["metadata"]["name"] == "broker-a"]
    (container,) = one["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("exec mqbroker -c /etc/rmq/broker.properties", "env")
    ran = subprocess.run(
        [*container["command"], script], env={"HOSTNAME": pod, "NAMESPACE": "mq", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    said = dict(line.split("=", 1) for line in ran.stdout.splitlines() if line.startswith("RMQ_"))
    assert said["RMQ_BROKER_ID"] == identity
    assert said["RMQ_BROKER_ROLE"] == role
    assert said["RMQ_BROKER_IP1"] == f"{pod}.broker-a.mq.svc.cluster.local"
    assert set(said) <= variables(BrokerSettings)
    (settings,) = [one for one in every("ConfigMap") if one["metadata"]["name"] == "broker-a"]
    file = tmp_path / "broker.properties"
    file.write_text(settings["data"]["broker.properties"])
    broker = BrokerSettings.from_sources(file=str(file))
    names = {one["metadata"]["name"] for one in every("Service")}
    assert {server.split(":")[0].partition(".")[2] for server in broker.namesrv_addr.split(";")} <= names
    assert broker.broker_name == one["metadata"]["name"]
    assert broker.store_path_root_dir in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_number_of_a_pod_says_which_member_it_is(tmp_path: Path) -> None:
    (one,) = [one for one in every("StatefulSet") if one["metadata"]["name"] == "group-a"]
    (settings,) = [one for one in every("ConfigMap") if one["metadata"]["name"] == "group-a"]
    file = tmp_path / "broker.properties"
    file.write_text(settings["data"]["broker.properties"])
    (container,) = one["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("exec mqbroker -c /etc/rmq/broker.properties", "env")
    for number in range(one["spec"]["replicas"]):
        pod = f"group-a-{number}"
        ran = subprocess.run(
            [*container["command"], script], env={"HOSTNAME": pod, "NAMESPACE": "mq", "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        said = dict(line.split("=", 1) for line in ran.stdout.splitlines() if line.startswith("RMQ_"))
        assert set(said) <= variables(BrokerSettings)
        broker = BrokerSettings.from_sources(file=str(file), env=said)
        broker.validate()
        peers = Peers.of(broker)
        assert peers.at[peers.members.me] == (f"{pod}.group-a", 10912)
        assert len(peers.at) == one["spec"]["replicas"]
        assert broker.broker_ip1 == f"{pod}.group-a.mq.svc.cluster.local"
        assert (broker.broker_name, peers.group) == ("group-a", "group-a")
    assert one["spec"]["podManagementPolicy"] == "Parallel"
    (service,) = [one for one in every("Service") if one["metadata"]["name"] == "group-a"]
    assert service["spec"]["publishNotReadyAddresses"]


def test_variables_of_containers_are_settings() -> None:
    for one in every("StatefulSet"):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        known = variables(NamesrvSettings if one["metadata"]["name"] == "namesrv" else BrokerSettings)
        assert {entry["name"] for entry in container["env"]} - {"NAMESPACE"} <= known


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Verified with this folder as the installation, one instance of the template."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    paths = []
    for unit in UNITS:
        path = tmp_path / unit.name.replace("@.", "@broker-a.")
        path.write_text(unit.read_text().replace("/opt/rmq/bin", str(ROOT / "bin")))
        paths.append(str(path))
    said = subprocess.run([analyze, "verify", "--man=no", *paths], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, "")


def test_daemons_get_more_time_to_stop_than_they_take() -> None:
    for unit in UNITS:
        (limit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
        assert int(limit) > 28
    for one in every("StatefulSet"):
        assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 28

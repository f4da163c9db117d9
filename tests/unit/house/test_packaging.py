"""What the repository promises beside its code: settings page, container files, samples, thin commands."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq.broker.raft.peers import Peers
from rmq.broker.settings import BrokerSettings
from rmq.cli.reference import page
from rmq.namesrv.settings import NamesrvSettings
from tests.golden.broker.differences import ACCEPTED

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_settings_page_is_current() -> None:
    assert (ROOT / "docs/settings.md").read_text() == page(), "run `make docs`"


@pytest.mark.parametrize("path", [*sorted((ROOT / "conf").rglob("*.properties")), ROOT / "conf/broker.conf"], ids=str)
def test_every_sample_is_a_broker_we_can_run(path: Path) -> None:
    settings = BrokerSettings.from_sources(file=str(path))
    settings.validate()
    assert settings.broker_cluster_name == "DefaultCluster"
    assert settings.broker_name in ("broker-a", "broker-b")


def test_the_sample_logging_file_says_what_the_built_in_rule_says() -> None:
    from rmq.runtime import logs

    sample = yaml.safe_load((ROOT / "conf/logging.yaml").read_text())
    assert sample["handlers"] == logs._DEFAULT["handlers"]
    assert sample["formatters"] == logs._DEFAULT["formatters"]
    assert sample["root"] == logs._DEFAULT["root"]


def instructions() -> list[tuple[str, list[str]]]:
    text = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split()[1:]) for line in lines]


def test_the_dockerfile_copies_what_exists_and_starts_what_is_installed() -> None:
    found = instructions()
    for name, words in found:
        assert name in {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "CMD"}
        if name == "COPY" and not words[0].startswith("--from"):
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
    (command,) = [words for name, words in found if name == "CMD"]
    assert yaml.safe_load(" ".join(command))[0] in PROJECT["project"]["scripts"]
    extras = {e for _, words in found for m in re.findall(r"\.\[([\w,]+)\]", " ".join(words)) for e in m.split(",")}
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert PROJECT["project"]["readme"] in (ROOT / "docker/Dockerfile").read_text()


def composed(name: str) -> Any:
    """A compose file, whose services fit the Dockerfile."""
    compose = yaml.safe_load((ROOT / "docker" / name).read_text())
    build = compose["services"]["namesrv"]["build"]
    context = ROOT / "docker" / build["context"]
    assert (context / build["dockerfile"]).is_file()
    exposed = {port for name, words in instructions() if name == "EXPOSE" for port in words}
    volumes = {v for name, words in instructions() if name == "VOLUME" for v in yaml.safe_load(" ".join(words))}
    for service in compose["services"].values():
        assert service["command"][0] in PROJECT["project"]["scripts"]
        assert service["image"] == compose["services"]["namesrv"]["image"]
        for port in service.get("ports", ()):
            assert port.split(":")[1] in exposed
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert target in volumes if source in compose["volumes"] else (ROOT / "docker" / source).is_file()
    assert f"{NamesrvSettings().listen_port}:{NamesrvSettings().listen_port}" in compose["services"]["namesrv"]["ports"]
    return compose


def test_the_compose_file_fits_the_dockerfile_and_the_settings() -> None:
    compose = composed("compose.yaml")
    assert set(compose["services"]) == {"namesrv", "broker"}
    broker = BrokerSettings.from_sources(file=str(ROOT / "docker/broker.conf"))
    broker.validate()
    assert f"{broker.listen_port}:{broker.listen_port}" in compose["services"]["broker"]["ports"]


def test_the_compose_file_of_two_pairs_makes_two_pairs() -> None:
    """Each finds its master by what that registers, so an address is a container's own."""
    compose = composed("compose-pairs.yaml")
    (home,) = (words[0].partition("=")[2] for name, words in instructions() if name == "ENV")
    (subnet,) = (ip_network(one["subnet"]) for one in compose["networks"]["rmq"]["ipam"]["config"])
    made, places = {}, []
    for name, service in compose["services"].items():
        address = service["networks"]["rmq"]["ipv4_address"]
        assert ip_address(address) in subnet
        places += [address, *service["volumes"]]
        if name != "namesrv":
            file = Path(service["command"][-1]).relative_to(home)
            settings = BrokerSettings.from_sources(file=str(ROOT / file), env=service["environment"])
            settings.validate()
            assert (settings.broker_ip1, settings.broker_ip2) == (address, address)
            assert service["command"][1:3] == ["-n", "namesrv:9876"]
            made[settings.broker_name, settings.broker_id] = (name, settings.broker_role)
    assert len(set(places)) == len(places)
    assert made == {
        (f"broker-{one}", number): (f"broker-{one}{'-s' * number}", "SLAVE" if number else "SYNC_MASTER")
        for one in "ab"
        for number in (0, 1)
    }


def test_the_compose_file_of_a_group_makes_a_group() -> None:
    compose = composed("compose-group.yaml")
    (subnet,) = (ip_network(one["subnet"]) for one in compose["networks"]["rmq"]["ipam"]["config"])
    places, made = [], {}
    for name, service in compose["services"].items():
        address = service["networks"]["rmq"]["ipv4_address"]
        assert ip_address(address) in subnet
        places += [address, *service["volumes"]]
        if not name.startswith("namesrv"):
            settings = BrokerSettings.from_sources(env=service["environment"])
            settings.validate()
            peers = Peers.of(settings)
            assert (peers.members.me, settings.broker_ip1, peers.at[name]) == (name, address, (address, 10912))
            assert service["command"] == ["mqbroker", "-n", "namesrv:9876;namesrv-b:9876"]
            made[name] = peers.group, settings.broker_name, peers.at
    assert len(set(places)) == len(places)
    assert set(made) == {"n0", "n1", "n2"}
    assert len({str(one) for one in made.values()}) == 1


@pytest.mark.parametrize("path", sorted((ROOT / "conf/dledger").iterdir()), ids=lambda path: path.stem)
def test_every_sample_of_a_group_is_a_member_we_can_run(path: Path) -> None:
    settings = BrokerSettings.from_sources(file=str(path))
    settings.validate()
    peers = Peers.of(settings)
    number = int(path.stem[-1])
    assert (peers.group, peers.members.me) == ("RaftNode00", f"n{number}")
    assert settings.listen_port == 30911 + 10 * number
    assert peers.at == {f"n{one}": ("127.0.0.1", 40911 + one) for one in range(3)}


@pytest.mark.parametrize("name", ["mqnamesrv", "mqbroker", "mqshutdown", "mqadmin"])
def test_a_thin_command_runs_its_own_or_the_installed_one(name: str, tmp_path: Path) -> None:
    assert name in PROJECT["project"]["scripts"]
    script = tmp_path / "clone" / "bin" / name
    elsewhere = tmp_path / "elsewhere"

    def put(folder: Path, text: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        return folder

    def run() -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{script.parent}:{elsewhere}:/usr/bin:/bin"}
        return subprocess.run([script, "-c", "a b"], env=env, capture_output=True, text=True, timeout=60, check=False)

    assert os.access(ROOT / "bin" / name, os.X_OK)
    put(script.parent, (ROOT / "bin" / name).read_text())
    missing = run()
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"{name} is not installed: ")
    put(elsewhere, '#!/bin/sh\necho installed "$@"\n')
    assert run().stdout == "installed -c a b\n"
    put(tmp_path / "clone" / ".venv" / "bin", '#!/bin/sh\necho own "$@" "$ROCKETMQ_HOME"\n')
    assert run().stdout == f"own -c a b {tmp_path}/clone\n"


def test_the_map_of_the_code_names_every_package_and_nothing_else() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `(rmq[\w/]*)` \|", text, re.MULTILINE))
    found = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "rmq/*.py"], capture_output=True, text=True, timeout=60, check=False
    )
    # What git holds; in an unpacked archive what is there.
    paths = found.stdout.split() or [str(path.relative_to(ROOT)) for path in (ROOT / "rmq").rglob("*.py")]
    packages = {os.path.dirname(path) for path in paths if not path.endswith("__init__.py")}
    assert named == packages - {"rmq"}
    for path in re.findall(r"`([\w/]+/\w+\.py)`", text):
        assert (ROOT / "rmq" / path).exists() or (ROOT / "rmq/broker" / path).exists(), path


def test_every_accepted_difference_of_the_broker_is_told_to_users() -> None:
    page = (ROOT / "docs/differences.md").read_text()
    assert [one.why for one in ACCEPTED if f"| {one.why} |" not in page] == []

"""Java's client and mqadmin 4.9.8 with AclClientRPCHook against our nameserver and broker with access control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.accounts import home
from tests.support.interop import Scene, run_cell
from tests.support.peers import Client, ClientError, Cluster, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

ACCOUNTS = """\
# the accounts of this test
accounts:
  - accessKey: operator
    secretKey: 12345678
    admin: true
  - accessKey: a-broker
    secretKey: 12345678
    broker: true
  - accessKey: ordinary
    secretKey: 12345678
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
    topicPerms:
      - closed=DENY
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Cluster]:
    (folder / "broker.yml").write_text("accessKey: a-broker\nsecretKey: 12345678\n")
    settings = home(folder, ACCOUNTS)
    properties = {**FAST_RETRIES, **settings, "aclCredentialsFile": str(folder / "broker.yml")}
    with start_cluster("ours", properties=properties, namesrv_properties=settings) as cluster:
        yield cluster


@pytest.fixture
def scene(guarded: Cluster, clients: Callable[[str, str], Client]) -> Scene:
    return Scene(guarded, clients("java-4.9.8-account", "tested"), clients("java-4.9.8-operator", "reader"))


@pytest.mark.parametrize("cell", ["sync", "retry", "querykey"])
def test_an_account_sends_and_consumes(cell: str, scene: Scene) -> None:
    """Field case B105: retries, and dead letters, need no more than the group."""
    run_cell(cell, scene)


def test_who_is_refused_is_told_what_is_missing(scene: Scene, clients: Callable[[str, str], Client]) -> None:
    scene.reader.call("topic", namesrv=scene.cluster.namesrv, topic="closed", queues=1)
    with pytest.raises(ClientError, match="No default permission for topic:closed"):
        scene.produce("closed", "sync", count=1)
    with pytest.raises(ClientError, match="No route info"):  # the nameserver tells it nothing
        scene.produce("closed", "sync", count=1, by=clients("java-4.9.8", "reader"))


def test_mqadmin_changes_accounts(scene: Scene, folder: Path) -> None:
    broker = ("-b", scene.cluster.broker_addr)
    file = folder / "conf" / "plain_acl.yml"
    made = scene.mqadmin("updateAclConfig", *broker, "-a", "newcomer", "-s", "87654321", "-t", "T=PUB,U=SUB")
    assert "success" in made, made
    assert file.read_text().startswith(ACCOUNTS + "  - accessKey: newcomer\n    secretKey: 87654321\n")
    assert "plain_acl.yml" in scene.mqadmin("clusterAclConfigVersion", *broker)
    assert "87654321" not in scene.mqadmin("updateAclConfig", *broker, "-a", "short", "-s", "87654321")
    assert "success" in scene.mqadmin("deleteAclConfig", *broker, "-a", "newcomer")
    assert file.read_text().startswith(ACCOUNTS + "dataVersion:")
    assert "success" in scene.mqadmin("updateGlobalWhiteAddr", *broker, "-g", "127.0.0.1")
    assert "127.0.0.1" in file.read_text()

"""Java's client and mqadmin 4.9.8 with AclClientRPCHook, Go's and Node's, against our daemons with access control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.accounts import home
from tests.support.interop import Scene, fresh, rows_of, run_cell
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


@pytest.mark.parametrize("language", ["go", "node"])
def test_clients_of_other_languages_sign_too(
    language: str, scene: Scene, clients: Callable[[str, str], Client]
) -> None:
    client, topic, handle = clients(language, "tested"), scene.topic(language), fresh("h")
    who = {"namesrv": scene.cluster.namesrv, "group": fresh("g"), "topic": topic, "account": "ordinary:12345678"}
    scene.retry_topic(who["group"])
    client.call("subscribe", handle=handle, expression="*", model="clustering", **who)
    sent = rows_of(client.call("produce", prefix=topic, count=20, mode="sync", tags=["A"], **who))
    got = rows_of(client.call("received", handle=handle, count=20, timeout=60))
    assert sorted(row.key for row in got) == sorted(row.key for row in sent)
    client.call("unsubscribe", handle=handle)
    for account in ("ordinary:87654321", "nobody-known:12345678", ""):
        refused = {**who, "account": account, "group": fresh("p")}
        with pytest.raises(ClientError):
            client.call("produce", prefix=topic, count=1, mode="sync", tags=["A"], **refused)
    assert len(scene.read(topic, 20)) == 20


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

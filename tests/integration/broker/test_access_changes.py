"""Accounts change while clients are connected: by the file, and by requests 50 to 54."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rmq.auth.plain_acl import parse_plain_acl
from rmq.broker.app import BrokerApp
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.accounts import ACCOUNTS, SECRET, by, home
from tests.support.raw_peer import RawPeer, pull, send

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
TOPIC = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
         "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip


async def look(broker: BrokerApp) -> None:
    """As it does by itself each second."""
    assert broker.access is not None
    await broker.access.look()
    await broker.access.look()


async def parked(broker: BrokerApp) -> None:
    """A pull and a pop wait."""
    assert broker.roles.master is not None
    for _ in range(6000):
        if broker.front.delivery.holds.count and len(broker.roles.master.pop.polls):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


async def test_what_is_taken_from_an_account_is_refused_on_its_connection(tmp_path: Path) -> None:
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path))
        async with RawPeer(*broker.address) as peer:
            await peer.ask(by("operator", Command(17, ext=dict(TOPIC))))
            assert (await peer.ask(by("owner-of-T", send("T")))).code == 0
            first = await peer.ask(by("owner-of-T", pull("G", "T")))
            assert first.code == 0
            waiting = peer.submit(by("owner-of-T", pull("G", "T", 1, hold_ms=60_000)))
            assert (await peer.ask(by("owner-of-T", pop("G", "T")))).code == 0
            popped = peer.submit(by("owner-of-T", pop("G", "T")))
            await parked(broker)
            home(tmp_path, ACCOUNTS.replace("- G=SUB", "- G=DENY"))
            await look(broker)
            why = EXCEPTION + "No default permission for group:G, accessKey=owner-of-T needs SUB"
            assert (await waiting).remark == why
            assert (await popped).code != 0
            assert (await peer.ask(by("owner-of-T", pull("G", "T")))).remark == why
            assert (await peer.ask(by("owner-of-T", send("T")))).code == 0
            home(
                tmp_path,
                ACCOUNTS.replace(f"owner-of-T\n    secretKey: {SECRET}", "owner-of-T\n    secretKey: 87654321"),
            )
            await look(broker)
            # A good signature and then a bad one, on one connection.
            assert (await peer.ask(by("owner-of-T", send("T"), "87654321"))).code == 0
            for request in (send("T"), pull("G", "T")):
                answer = await peer.ask(by("owner-of-T", request))
                assert answer.remark == EXCEPTION + "Check signature failed for accessKey=owner-of-T"


def pop(group: str, topic: str) -> Command:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000",
           "pollTime": "15000", "bornTime": "1795999261027", "initMode": "1"}  # fmt: skip
    return Command(200050, ext=dict(ext))


async def test_accounts_are_changed_by_requests(tmp_path: Path) -> None:
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path))
        file = tmp_path / "conf" / "plain_acl.yml"
        async with RawPeer(*broker.address) as peer:

            async def ask(code: int, **ext: str) -> Command:
                return await peer.ask(by("operator", Command(code, ext=dict(ext))))

            made = await ask(50, accessKey="newcomer", secretKey="87654321", admin="false", defaultTopicPerm="PUB",
                             topicPerms="T=DENY,U=PUB|SUB", whiteRemoteAddress="127.0.0.{1,2}")  # fmt: skip
            assert (made.code, made.remark) == (0, None)
            assert file.read_text().startswith(ACCOUNTS)
            assert (await peer.ask(by("newcomer", send("Any"), "87654321"))).code == 0
            assert (await peer.ask(by("newcomer", send("T"), "87654321"))).code == 1
            # Only what is named changes.
            assert (await ask(50, accessKey="newcomer", topicPerms="U=PUB|SUB")).code == 0
            (account,) = [a for a in parse_plain_acl("f", file.read_bytes()).accounts if a.access_key == "newcomer"]
            assert (account.secret_key, account.topics, account.white.text) == (
                "87654321", {"U": 12}, "127.0.0.{1,2}",
            )  # fmt: skip
            for ext, says in (
                ({"accessKey": "ab", "secretKey": "87654321"}, "length should longer than 6"),
                ({"accessKey": "another-one"}, "length should longer than 6"),
                ({"accessKey": "newcomer", "topicPerms": "T=ZZ"}, "Parse resource permission error for T=ZZ."),
                ({"accessKey": "newcomer", "whiteRemoteAddress": "1.x"}, "no address pattern"),
                ({"accessKey": "newcomer", "defaultGroupPerm": "ALL"}, "DENY, PUB, SUB or PUB|SUB is expected"),
                ({"accessKey": "a\nadmin: true\nx", "secretKey": "87654321"}, "control characters"),
                ({"accessKey": "newcomer", "secretKey": "1234567\n    admin: true"}, "control characters"),
            ):
                before = file.read_text()
                answer = await ask(50, **ext)
                assert answer.code == 209
                assert says in (answer.remark or "")
                assert "87654321" not in (answer.remark or "")
                assert file.read_text() == before
            shown = json.loads((await ask(54)).body)
            assert [one["accessKey"] for one in shown["plainAccessConfigs"]][-1] == "newcomer"
            assert not any("secretKey" in one for one in shown["plainAccessConfigs"])
            version = await ask(52)
            assert version.ext is not None
            assert json.loads(version.ext["allAclFileVersion"] or "")[str(file)]["counter"] == 2
            assert (await ask(51, accessKey="newcomer")).code == 0
            assert (await peer.ask(by("newcomer", send("Any"), "87654321"))).remark == EXCEPTION + (
                "No acl config for newcomer"
            )
            gone = await ask(51, accessKey="newcomer")
            assert (gone.code, gone.remark) == (
                210, "The accesskey[newcomer] corresponding to accessConfig has been deleted failed.",
            )  # fmt: skip
            assert (await ask(53, globalWhiteAddrs="127.0.0.1,10.1.2.{3,4}", aclFileFullPath="")).code == 0
            assert [one.text for one in parse_plain_acl("f", file.read_bytes()).white] == ["127.0.0.1", "10.1.2.{3,4}"]
            for addresses, path, says in (
                ("10.x.y", "", "no address pattern"),
                ("10.1.1.1", "", "would be refused with this list"),
                ("127.0.0.1", "/etc/passwd", "no file of accounts"),
            ):
                answer = await ask(53, globalWhiteAddrs=addresses, aclFileFullPath=path)
                assert answer.code == 211
                assert says in (answer.remark or "")
            assert ACCOUNTS.splitlines()[-1] in file.read_text().splitlines()


async def test_changes_at_once_are_all_there(tmp_path: Path) -> None:
    """Field case B107 (d)."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path))
        async with RawPeer(*broker.address) as peer:
            names = [f"newcomer-{number}" for number in range(5)]
            answers = [
                peer.submit(by("operator", Command(50, ext={"accessKey": name, "secretKey": SECRET}))) for name in names
            ]
            assert [answer.code for answer in await asyncio.gather(*answers)] == [0] * 5
            accounts = parse_plain_acl("f", (tmp_path / "conf" / "plain_acl.yml").read_bytes()).accounts
            assert [one.access_key for one in accounts][-5:] == names


async def test_a_nameserver_takes_brokers_with_a_broker_s_account(tmp_path: Path) -> None:
    """X09: registration, key-value settings and its own need an account that may."""
    (tmp_path / "tools.yml").write_text(f"accessKey: a-broker\nsecretKey: {SECRET}\n")
    settings = NamesrvSettings.from_sources(overrides={"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json"),
                                                       "bindAddress": "127.0.0.1", **home(tmp_path)})  # fmt: skip
    async with (
        NamesrvApp(World.real(), settings) as namesrv,
        Cluster(tmp_path / "store", brokers=0, namesrvs=0) as cluster,
        RawPeer(*namesrv.address) as peer,
    ):
        address = ":".join(map(str, namesrv.address))
        signed = await cluster.start_broker(
            namesrvAddr=address, brokerName="signed", aclCredentialsFile=str(tmp_path / "tools.yml"), **home(tmp_path)
        )
        await cluster.start_broker(
            namesrvAddr=address, brokerName="unsigned", storePathRootDir=str(tmp_path / "unsigned")
        )
        own = ":".join(map(str, signed.address))
        info = await peer.ask(by("unprivileged", Command(RequestCode.GET_BROKER_CLUSTER_INFO)))
        assert list(ClusterInfo.decode(info.body).broker_addr_table) == ["signed"]
        for code, ext in (
            (103, {"brokerName": "signed", "brokerAddr": "6.6.6.6:1", "clusterName": "DefaultCluster",
                   "haServerAddr": "6.6.6.6:2", "brokerId": "0"}),
            (104, {"brokerName": "signed", "brokerAddr": own, "clusterName": "DefaultCluster",
                   "brokerId": "0"}),
            (100, {"namespace": "n", "key": "k", "value": "v"}),
            (216, {"topic": "T"}),
            (205, {"brokerName": "signed"}),
            (318, {}),
        ):  # fmt: skip
            for who in (None, "unprivileged", "owner-of-T", "disabled-one"):
                answer = await peer.ask(by(who, Command(code, ext=dict(ext))))
                assert (answer.remark or "").startswith(EXCEPTION), (code, who)
        unsigned = await peer.ask(Command(105, ext={"topic": "T"}))
        assert unsigned.remark == EXCEPTION + "No accessKey is configured"
        again = await peer.ask(by("unprivileged", Command(RequestCode.GET_BROKER_CLUSTER_INFO)))
        assert again.body == info.body


async def test_a_daemon_says_what_is_missing_at_its_start(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"aclEnable": "true"}, "needs rocketmqHome"),
        ({"aclEnable": "true", "rocketmqHome": str(tmp_path / "no")}, "no/conf/plain_acl.yml: there is no such file"),
        ({"aclUncheckedCodes": "true"}, "loosens access control, which is off"),
        ({**home(tmp_path), "aclCredentialsFile": str(tmp_path / "none.yml")}, "none.yml: the account to sign with"),
    ]
    for given, says in cases:
        async with Cluster(tmp_path / "store", brokers=0) as cluster:
            with pytest.raises(ConfigError, match=says):
                await cluster.start_broker(**given)

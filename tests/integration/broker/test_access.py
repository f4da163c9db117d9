"""Access control of broker and nameserver, over real connections: every code, every listener, every kind of asker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmq.auth import guard
from rmq.auth.access import Role
from rmq.broker.access import BROKER_ACCESS
from rmq.broker.app import BrokerApp
from rmq.namesrv.access import NAMESRV_ACCESS
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol import frame
from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from rmq.protocol.command import Command
from rmq.protocol.headers.table import REQUEST_HEADERS
from rmq.protocol.signature import verify
from rmq.remoting.certificates import client_context
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.accounts import by, home
from tests.support.odd.requests import body as sensible_body
from tests.support.raw_peer import RawPeer, pull, send, subscribe
from tests.support.state import broker_state, changed, namesrv_state

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


async def test_every_code_is_classified_and_names_what_its_header_has(tmp_path: Path) -> None:
    """Field case B106."""
    async with Cluster(tmp_path) as cluster:
        broker, namesrv = cluster.brokers[0], cluster.namesrvs[0]
        for codes, table, router in ((broker.codes, BROKER_ACCESS, broker.router),
                                     (namesrv.codes, NAMESRV_ACCESS, namesrv._router)):  # fmt: skip
            assert sorted(codes) == sorted(table)
            for code, access in table.items():
                handler = router.handler(code)
                assert handler is not None
                named = {access.publishes, access.reads, access.groups} - {""}
                assert not named or (handler.header is not None and named <= set(handler.header.wire_names)), code
                assert named or access.reason or access.role is not Role.ACCOUNT, code


def refused(answer: Command) -> bool:
    return answer.code == 1 and (answer.remark or "").startswith(EXCEPTION)


def requests(topic: str, group: str, offset: int, half: Command) -> dict[int, Command]:
    """A request of each code that concerns a topic, a message of it, and a group."""
    made: dict[int, Command] = {}
    values = {
        "topic": topic, "b": topic, "group": group, "consumerGroup": group, "groupName": group, "srcGroup": group,
        "destGroup": "H", "topics": topic, "order": "false", "subscription": "*", "expressionType": "TAG",
        "accessKey": "newcomer", "secretKey": "12345678", "globalWhiteAddrs": "1.1.1.1", "extraInfo": "0 0 0 0 b 0 0",
        "commitOrRollback": "8", "timestamp": "0",
    }  # fmt: skip
    for code in BROKER_ACCESS:
        kind = REQUEST_HEADERS.get(code)
        ext = {name: values.get(name, "1" if name in (kind.required if kind else ()) else None)
               for name in (kind.wire_names.values() if kind else ())}  # fmt: skip
        made[code] = Command(code, ext={name: value for name, value in ext.items() if value is not None})
    made |= {310: send(topic), 320: send(topic), 325: send(topic), 11: pull(group, topic), 34: subscribe(group, topic)}
    made[361] = Command(361, ext=pull(group, topic).ext)
    made[325].code = 325
    v1 = {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false",
    }  # fmt: skip
    made |= {10: Command(10, ext=dict(v1), body=b"x"), 324: Command(324, ext=dict(v1), body=b"x")}
    made[320] = Command(320, ext={**(send(topic).ext or {}), "m": "true"}, body=b"x")
    made[36] = Command(36, ext={"offset": str(offset), "group": group, "delayLevel": "0"})
    made |= {33: Command(33, ext={"offset": str(offset)}), 37: half}
    lock = json.dumps({"clientId": "c", "consumerGroup": group, "mqSet": []}).encode()
    made |= {41: Command(41, body=lock), 42: Command(42, body=lock)}
    check = {"clientId": "c", "group": group, "subscriptionData": {"topic": topic, "subString": "*"}}
    made[46] = Command(46, body=json.dumps(check).encode())
    assign = {"clientId": "c", "consumerGroup": group, "topic": topic, "messageModel": "CLUSTERING"}
    made[400] = Command(400, body=json.dumps(assign).encode())
    acks = {"acks": [{"c": group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": "1"}]}
    made[200151] = Command(200151, body=json.dumps(acks).encode())
    made[25] = Command(25, body=b"traceOn=false")
    made |= {code: Command(code, body=sensible_body(code)) for code in (18, 225, 401)}
    made |= {317: Command(317, ext={"isOrder": "false"}), 906: Command(906, ext={"masterHaAddress": "127.0.0.1:1"})}
    made[200] = Command(200, body=json.dumps({"groupName": "newcomer"}).encode())
    made[17] = Command(17, ext={**values, "topic": "Newcomer", "defaultTopic": "TBW102", "readQueueNums": "1",
                                "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"})  # fmt: skip
    return made


#: Codes that say all there is in their number alone; any other one has fields or a body, or fails the test.
BARE = {
    21, 26, 28, 43, 45, 52, 54, 60, 61, 106, 201, 206, 304, 305, 306, 311, 312, 313, 316, 319, 328, 329, 402, 907, 1005,
    *range(3001, 3011),
}  # fmt: skip
#: Who is nobody here, and who is somebody without rights.
STRANGERS = (None, "wrong", "unknown", "disabled-one")
#: Not served on the VIP port.
PULLS = (11, 361)


def plausible(code: int, request: Command) -> None:
    assert request.ext or request.body or code in BARE, f"request {code}: make a frame for it here"


@pytest.mark.parametrize("listener", ["plain", "vip", "tls"])
async def test_every_code_for_every_asker_on_both_ports(tmp_path: Path, listener: str) -> None:
    """Field cases B105 and B106: a group is enough for a send-back, and a signature is for nothing else."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path), autoCreateTopicEnable="false")
        host, port = broker.address
        secure = client_context(verify=False) if listener == "tls" else None
        async with RawPeer(host, port) as setup, RawPeer(host, port - 2 * (listener == "vip"), ssl=secure) as peer:
            places, halves = await fill(broker, setup)
            before = broker_state(broker)
            for code, request in requests("T", "G", places["T"], halves["T"]).items():
                plausible(code, request)
                if listener == "vip" and code in PULLS:
                    continue
                for who in (*STRANGERS, "unprivileged"):
                    answer = await ask(peer, who, request)
                    assert refused(answer), (code, who, answer)
                    assert not changed(before, broker_state(broker)), (code, who)
            for code, request in requests("Other", "H", places["Other"], halves["Other"]).items():
                if listener == "vip" and code in PULLS:
                    continue
                for who in ("owner-of-T", *(["a-broker"] if BROKER_ACCESS[code].role is Role.ADMIN else [])):
                    answer = await ask(peer, who, request)
                    assert refused(answer), (code, who, answer)
                    assert not changed(before, broker_state(broker)), (code, who)
            # Its own group, but the message of another topic.
            back = {"offset": str(places["Other"]), "group": "G", "delayLevel": "0"}
            assert refused(await ask(peer, "owner-of-T", Command(36, ext=dict(back))))
            assert not changed(before, broker_state(broker))
            for code, request in requests("T", "G", places["T"], halves["T"]).items():
                if listener == "vip" and code in PULLS:
                    continue
                access = BROKER_ACCESS[code]
                if access.role is Role.ACCOUNT and code not in (324, 325):
                    answer = await ask(peer, "owner-of-T", request)
                    assert not refused(answer), (code, answer)
                    assert "field" not in (answer.remark or ""), (code, answer)
                if access.role is Role.BROKER:
                    assert not refused(await ask(peer, "a-broker", request)), code
                if code not in (25, 50, 51, 53, 215):
                    answer = await ask(peer, "operator", request)
                    assert not refused(answer), (code, answer)


async def test_no_body_is_hashed_that_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is enough to have a signature compared, and it covers all of the body."""
    hashed: list[int] = []

    def seen(ext: Any, body: bytes, *others: Any) -> bool:
        hashed.append(len(body))
        return verify(ext, body, *others)

    monkeypatch.setattr(guard, "verify", seen)
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path), maxMessageSize="100000")
        async with RawPeer(*broker.address) as peer:
            for code, most in {310: 100_000, 10: 100_000, 324: 100_000, 34: 8 << 20, 11: 65_536, 28: 65_536}.items():
                request = requests("T", "G", 0, Command(37))[code]
                request.body = bytes(most + 1)
                answer = await ask(peer, "wrong", request)
                assert answer.code == (13 if code in (310, 10) else 1), (code, answer)
                assert hashed == [], code
                request.body = bytes(min(most, 100_000))
                answer = await ask(peer, "wrong", request)
                assert refused(answer), (code, answer)
                assert hashed.pop() == len(request.body)


async def test_no_code_does_anything_on_the_port_of_slaves(tmp_path: Path) -> None:
    """Frames are no reports of a slave: whoever signed them, the connection ends, and nothing has come of it."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path), autoCreateTopicEnable="false")
        host, port = broker.address
        async with RawPeer(host, port) as setup:
            places, halves = await fill(broker, setup)
            before = broker_state(broker)
            for code, request in requests("T", "G", places["T"], halves["T"]).items():
                for who in (None, "unprivileged", "operator"):
                    fresh = by(who, Command(request.code, ext=dict(request.ext or {}), body=request.body))
                    reader, writer = await asyncio.open_connection(host, port + 1)
                    writer.write(frame.encode(fresh))
                    assert await reader.read() == b"", (code, who)
                    writer.close()
                    assert not changed(before, broker_state(broker)), (code, who)


async def fill(broker: BrokerApp, peer: RawPeer) -> tuple[dict[str, int], dict[str, Command]]:
    """Two topics with a message and a half message each: where the messages are, and the ends of the halves."""
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
    places, halves = {}, {}
    for name in ("T", "Other"):
        assert (await peer.ask(by("operator", Command(17, ext={**topic, "topic": name})))).code == 0
        places[name] = broker.store.log.end
        assert (await peer.ask(by("operator", send(name)))).code == 0
        at = broker.store.log.end
        half = send(name, props="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u\x02")
        assert half.ext is not None
        half.ext["f"] = "4"
        answer = await peer.ask(by("operator", half))
        assert answer.code == 0
        index = (answer.ext or {})["queueOffset"]
        end = {"producerGroup": "P", "tranStateTableOffset": index, "commitLogOffset": str(at), "commitOrRollback": "8"}
        halves[name] = Command(37, ext=dict(end))
    return places, halves


async def ask(peer: RawPeer, who: str | None, request: Command) -> Command:
    fresh = Command(request.code, ext=dict(request.ext or {}), body=request.body)
    if who == "wrong":
        return await peer.ask(by("operator", fresh, "87654321"))
    return await peer.ask(by(who, fresh))


NAMESRV_BODIES = {103: b"{}", 104: b"", 318: b"orderMessageEnable=true", 322: b'{"timestamp":1,"counter":1}'}
NAMESRV_FIELDS = {
    "brokerName": "broker-9", "brokerAddr": "127.0.0.1:7", "clusterName": "C", "haServerAddr": "127.0.0.1:8",
    "brokerId": "0", "namespace": "N", "key": "k", "value": "v", "topic": "T", "cluster": "DefaultCluster",
}  # fmt: skip


def namesrv_requests() -> dict[int, Command]:
    made = {}
    for code in NAMESRV_ACCESS:
        kind = REQUEST_HEADERS[code]
        names = kind.wire_names.values() if kind else ()
        ext = {name: NAMESRV_FIELDS[name] for name in names if name in NAMESRV_FIELDS}
        made[code] = Command(code, ext=dict(ext) or None, body=NAMESRV_BODIES.get(code, b""))
    made[103].body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(
            topic_config_table={"T": TopicConfig(topic_name="T")}, data_version=DataVersion(counter=1, timestamp=1)
        ),
        filter_server_list=[],
    ).encode()
    return made


@pytest.mark.parametrize("listener", ["plain", "tls"])
async def test_every_code_of_the_nameserver_for_every_asker(tmp_path: Path, listener: str) -> None:
    """X09: a broker's place in a route is a broker's account's to take."""
    settings = NamesrvSettings.from_sources(
        overrides={
            "bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json"),
            "configStorePath": str(tmp_path / "namesrv.properties"), **home(tmp_path),
        }
    )  # fmt: skip
    async with NamesrvApp(World.real(), settings) as namesrv:
        secure = client_context(verify=False) if listener == "tls" else None
        async with RawPeer(*namesrv.address) as setup, RawPeer(*namesrv.address, ssl=secure) as peer:
            assert (await setup.ask(by("a-broker", namesrv_requests()[103]))).code == 0
            assert (await setup.ask(by("operator", namesrv_requests()[100]))).code == 0
            before = namesrv_state(namesrv)
            for code, request in namesrv_requests().items():
                plausible(code, request)
                role = NAMESRV_ACCESS[code].role
                refuses = list(STRANGERS)
                refuses += [] if role is Role.ACCOUNT else ["unprivileged", "owner-of-T"]
                refuses += ["a-broker"] if role is Role.ADMIN else []
                for who in refuses:
                    answer = await ask(peer, who, request)
                    assert refused(answer), (code, who, answer)
                    assert not changed(before, namesrv_state(namesrv)), (code, who)
            assert not (tmp_path / "namesrv.properties").exists()
            for code, request in namesrv_requests().items():
                role = NAMESRV_ACCESS[code].role
                who = {Role.ACCOUNT: "unprivileged", Role.BROKER: "a-broker", Role.ADMIN: "operator"}[role]
                answer = await ask(peer, who, request)
                assert not refused(answer), (code, answer)
                assert "field" not in (answer.remark or ""), (code, answer)

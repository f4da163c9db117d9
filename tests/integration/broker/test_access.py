"""Access control of broker and nameserver, over real connections: every code, every listener, every kind of asker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmq.auth.access import Role
from rmq.broker.access import BROKER_ACCESS
from rmq.broker.app import BrokerApp
from rmq.namesrv.access import NAMESRV_ACCESS
from rmq.protocol.command import Command
from rmq.protocol.headers.table import REQUEST_HEADERS
from rmq.testing.cluster import Cluster
from tests.support.accounts import by, home
from tests.support.raw_peer import RawPeer, pull, send, subscribe

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
NOBODY = (None, "wrong", "unknown", "disabled-one")


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


def state(broker: BrokerApp) -> str:
    """Everything that a request may change, but for who is connected."""
    store, tables = broker.store, broker.tables
    parts: list[Any] = [
        store.log.end, tables.topics.encode(), tables.groups.encode(), broker.settings.dump(),
        sorted((pair, tables.offsets.of(pair[1], pair[0])) for pair in tables.offsets.pairs()),
        broker.access.known.contents if broker.access else "",
    ]  # fmt: skip
    return repr(parts)


def requests(topic: str, group: str, offset: int) -> dict[int, Command]:
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
    made[33] = Command(33, ext={"offset": str(offset)})
    lock = json.dumps({"clientId": "c", "consumerGroup": group, "mqSet": []}).encode()
    made |= {41: Command(41, body=lock), 42: Command(42, body=lock)}
    check = {"clientId": "c", "group": group, "subscriptionData": {"topic": topic, "subString": "*"}}
    made[46] = Command(46, body=json.dumps(check).encode())
    assign = {"clientId": "c", "consumerGroup": group, "topic": topic, "messageModel": "CLUSTERING"}
    made[400] = Command(400, body=json.dumps(assign).encode())
    acks = {"acks": [{"c": group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": "1"}]}
    made[200151] = Command(200151, body=json.dumps(acks).encode())
    made[25] = Command(25, body=b"traceOn=false")
    made[200] = Command(200, body=json.dumps({"groupName": "newcomer"}).encode())
    made[17] = Command(17, ext={**values, "topic": "Newcomer", "defaultTopic": "TBW102", "readQueueNums": "1",
                                "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"})  # fmt: skip
    return made


#: Of these a broker knows only in the end that the asker may not: no such message, no such transaction.
NEEDS_A_MESSAGE = {37}


async def test_every_code_for_every_asker_on_both_ports(tmp_path: Path) -> None:
    """Field cases B105 and B106: a group is enough for a send-back, and a signature is for nothing else."""
    async with Cluster(tmp_path / "store", brokers=0) as cluster:
        broker = await cluster.start_broker(**home(tmp_path), autoCreateTopicEnable="false")
        host, port = broker.address
        async with RawPeer(host, port) as plain, RawPeer(host, port - 2) as vip:
            topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                     "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
            places = {}
            for name in ("T", "Other"):
                made = await plain.ask(by("operator", Command(17, ext={**topic, "topic": name})))
                assert made.code == 0
                places[name] = broker.store.log.end
                assert (await plain.ask(by("operator", send(name)))).code == 0
            before = state(broker)
            for peer in (plain, vip):
                for code, request in requests("T", "G", places["T"]).items():
                    if peer is vip and code in (11, 361):
                        continue  # not served there
                    for who in NOBODY:
                        answer = await ask(peer, who, request)
                        assert refused(answer), (code, who, answer)
                    answer = await ask(peer, "unprivileged", request)
                    assert refused(answer) or code in NEEDS_A_MESSAGE, (code, answer)
                for code, request in requests("Other", "H", places["Other"]).items():
                    if peer is vip and code in (11, 361):
                        continue
                    answer = await ask(peer, "owner-of-T", request)
                    assert refused(answer) or code in NEEDS_A_MESSAGE, (code, answer)
                    if BROKER_ACCESS[code].role is Role.ADMIN:
                        assert refused(await ask(peer, "a-broker", request)), code
            # Its own group, but the message of another topic.
            back = {"offset": str(places["Other"]), "group": "G", "delayLevel": "0"}
            assert refused(await ask(plain, "owner-of-T", Command(36, ext=dict(back))))
            assert state(broker) == before
            for code, request in requests("T", "G", places["T"]).items():
                access = BROKER_ACCESS[code]
                if access.role is Role.ACCOUNT and code not in (324, 325):
                    answer = await ask(plain, "owner-of-T", request)
                    assert not refused(answer), (code, answer)
                if access.role is Role.BROKER:
                    assert not refused(await ask(plain, "a-broker", request)), code
                if code not in (25, 50, 51, 53, 215):
                    answer = await ask(plain, "operator", request)
                    assert not refused(answer), (code, answer)


async def ask(peer: RawPeer, who: str | None, request: Command) -> Command:
    fresh = Command(request.code, ext=dict(request.ext or {}), body=request.body)
    if who == "wrong":
        return await peer.ask(by("operator", fresh, "87654321"))
    return await peer.ask(by(who, fresh))

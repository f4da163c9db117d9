"""Every request code is served by broker, name server or client, or listed as served by nobody with the reason."""

from __future__ import annotations

from pathlib import Path

from rmq.broker.admin.unsupported import UNSUPPORTED
from rmq.client.answers import Answers
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.router import Router
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, subscribe

#: What may be served by nobody. 4.9 itself does not use the first two kinds any more; the others are not wanted.
ALLOWED = {
    "4.9 has the number": {13, 22, 23, 27, *range(209, 215)},
    "filter servers ended": {301, 302},
    "5.3 has the number": {47},
    "5.x brokers with enableSingleTopicRegister": {217},
    "5.x controller": {901, 904, 905, 1001, 1003, 1004, *range(1006, 1014)},
    "5.x broker container": {902, 903},
    "5.x cold data": {2001, 2002, 2003, 2004},
    "5.x RocksDB": {354, 355, 200056},
    "5.x static topics": {513},
}
#: Codes that broker and client both serve: the broker hands them on.
BOTH = {307, 309}
#: Sent by the broker to the clients of the Java world that wait for a reply; the SDK has no such call.
PUSHED = 326
#: Served by 4.9.8 on a broker: what its own table of processors holds.
OF_4_9 = {
    10, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43, 45, 46, 50, 51, 52, 53,
    200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 320,
    321, 323, 324, 325, 328, 329,
}  # fmt: skip
#: What 5.3.3 clients and mqadmin send besides.
OF_5_3 = {18, 225, 343, 345, 351, 352, 353, 361, 370, 400, 401, 402, 907, *range(200050, 200056), 200151}


async def test_every_code_is_served_or_listed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        broker = set(cluster.brokers[0].codes)
        namesrv = set(cluster.namesrvs[0].codes)
    client = set(Router([Answers.__new__(Answers)]).codes()) | {PUSHED}
    every = {int(code) for code in RequestCode}
    listed = {int(code) for code in UNSUPPORTED}
    assert broker | namesrv | client <= every
    assert broker & client == BOTH
    assert not broker & namesrv
    assert not (broker | namesrv | client) & listed
    assert sorted(every - broker - namesrv - client - listed) == []
    assert sorted((OF_4_9 | OF_5_3 | {54}) - broker) == []


def test_nothing_else_is_served_by_nobody() -> None:
    for begins, codes in ALLOWED.items():
        assert {int(code) for code, why in UNSUPPORTED.items() if why.startswith(begins)} == codes, begins
    assert set(UNSUPPORTED) == set().union(*ALLOWED.values())


async def test_a_listed_code_is_answered_with_code_3(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, RawPeer(*cluster.brokers[0].address) as peer:
        for code in UNSUPPORTED:
            answer = await peer.ask(Command(int(code)))
            assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")


async def test_requests_about_accounts_say_that_access_control_is_off(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, RawPeer(*cluster.brokers[0].address) as peer:
        codes = {50: 209, 51: 210, 52: 1, 53: 211, 54: 1, **dict.fromkeys(range(3001, 3011), 1)}
        for request, code in codes.items():
            answer = await peer.ask(Command(request))
            assert answer.code == code
            assert (answer.remark or "").startswith("access control is off")


async def test_a_group_that_must_not_read_a_topic_pulls_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, RawPeer(*cluster.brokers[0].address) as peer:
        cluster.brokers[0].topics.put(TopicConfig(topic_name="T"))
        await peer.ask(subscribe())
        where = {"group": "G", "topic": "T"}
        ours = pull()
        ours.ext = {**(ours.ext or {}), "sysFlag": "0"}
        assert (await peer.ask(ours)).code == 19
        answer = await peer.ask(Command(353, ext={**where, "readable": "false"}))
        assert answer.body == b'{"group":"G","readable":false,"topic":"T"}'
        refused = await peer.ask(ours)
        assert (refused.code, refused.remark) == (16, "the consumer group[G] is forbidden for topic[T]")
        assert (await peer.ask(Command(353, ext={**where, "readable": "true"}))).code == 0
        assert (await peer.ask(ours)).code == 19

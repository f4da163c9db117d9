"""A broker of ten that stands still (SIGSTOP: it takes connections and answers nothing) costs a command its deadline
once, and its own part of the answer; every command is tried, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.aio import AdminClient, ConsumeFromWhere, Message, MessageExt, MessageQueue, Producer, PushConsumer
from rmq.cli.mqadmin.commands import COMMANDS
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.testing.simcluster import SimCluster
from tests.support.accounts import ACCOUNTS, SECRET, in_simulation
from tests.support.manual.shell import Shell, Still, began_then

FROZEN = 3
#: Virtual seconds: the deadline of an answer, or of a send, and the ways.
MOST = 3.1
ACCOUNT = {"access_key": "operator", "secret_key": SECRET}


async def _life(cluster: SimCluster) -> list[PushConsumer | Producer]:
    """A topic on every broker, a group that reads it, a producer that was there."""
    async with AdminClient(namesrv=cluster.namesrv_addr, **ACCOUNT) as admin:
        for address in (await admin.masters("DefaultCluster")).values():
            await admin.create_and_update_topic(address, "orders", read_queue_nums=2, write_queue_nums=2)
            for group in ("billing", "audit"):
                await admin.create_and_update_subscription_group(address, SubscriptionGroupConfig(group))
    producer = Producer("shop", namesrv=cluster.namesrv_addr, **ACCOUNT)
    await producer.start()
    for number in range(40):
        queue = MessageQueue("orders", f"broker-{number % 10}", number // 10 % 2)
        await producer.send(Message("orders", f"order {number}", keys=f"k{number % 2}"), queue=queue)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("billing", namesrv=cluster.namesrv_addr, consume_from_where=first, **ACCOUNT)

    @consumer.on("orders")
    async def take(message: MessageExt) -> None:
        """It is consumed."""

    await consumer.start()
    await cluster.advance(40)
    return [producer, consumer]


class Frozen:
    """The terminal, the address of the broker that stands still, and the id of a message on another."""

    def __init__(self, shell: Shell, address: str) -> None:
        self.shell = shell
        self.address = address
        found = shell.run("mqadmin queryMsgByKey -t orders -k k1 -o json | jq -r '.[]|[.brokerName,.msgId]|@tsv'")
        ids = dict(line.split("\t") for line in found.splitlines())
        self.id, self.lost = ids["broker-5"], ids[f"broker-{FROZEN}"]

    def run(self, line: str) -> tuple[str, float]:
        """What it prints, and how many virtual seconds it takes."""
        loop = self.shell.cluster.cluster.simulation.loop
        assert loop is not None
        began = loop.time()
        out = self.shell.run(line.format(id=self.id, lost=self.lost, frozen=self.address))
        return out, loop.time() - began


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    with began_then():
        cluster = Still(brokers=10)
        in_simulation(cluster.cluster, 10, ACCOUNTS)
        with cluster:
            clients = cluster.call(_life)
            folder = tmp_path_factory.mktemp("frozen")
            shell = Shell(cluster, folder, ROCKETMQ_ACCESS_KEY="operator", ROCKETMQ_SECRET_KEY=SECRET)
            host, port = cluster.cluster.brokers[FROZEN].address
            made = Frozen(shell, f"{host}:{port}")
            cluster.cluster.simulation.net._listeners[host, port].factory = asyncio.Protocol
            yield made
            for client in clients:
                cluster.call(lambda _, client=client: client.shutdown())  # type: ignore[misc]


#: It has all there is to say without that broker.
WHOLE = [
    "topicList",
    "topicRoute -t orders",
    "topicClusterList -t orders",
    "allocateMQ -t orders -i 10.0.0.1,10.0.0.2",
    "sendMessage -t orders -p hello -b broker-0 -i 0",
    "queryCq -t orders -q 0 -i 0",
    "printMsgByQueue -t orders -a broker-0 -i 0 -p true",
    "brokerConsumeStats -b 10.0.0.3:10911",
    "producer -b 10.0.0.3:10911",
    "sendMsgStatus -b broker-0 -c 1",
    "updateOrderConf -t orders -m put -v broker-0:2",
    "updateKvConfig -s ns -k k -v v",
    "deleteKvConfig -s ns -k k",
    "wipeWritePerm -b broker-3",
    "addWritePerm -b broker-3",
    "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v false",
]
#: The other nine are there, and it is named.
PARTS = [
    "clusterList",
    "clusterList -m",
    "topicList -c",
    "topicStatus -t orders",
    "statsAll",
    "statsAll -t orders",
    "consumerProgress",
    "consumerProgress -g billing",
    "consumerProgress -g billing -s true",
    "consumerStatus -g billing",
    "consumerConnection -g billing",
    "producerConnection -g shop -t orders",
    "getConsumerConfig -g billing",
    "queryMsgByKey -t orders -k k1",
    "queryMsgByUniqueKey -t orders -i {id}",
    "queryMsgById -i {id}",
    "queryMsgByOffset -t orders -b broker-0 -i 0 -o 0",
    "printMsg -t orders",
    "consumeMessage -t orders",
    "brokerStatus -c DefaultCluster",
    "haStatus -c DefaultCluster",
    "getBrokerConfig -c DefaultCluster",
    "exportMetadata -c DefaultCluster -f .",
    "exportConfigs -c DefaultCluster -f .",
    "exportMetrics -c DefaultCluster -f .",
    "getAclConfig -c DefaultCluster",
    "clusterAclConfigVersion -c DefaultCluster",
]
#: Changes: the other nine have them, and it is named.
CHANGES = [
    "updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 71",
    "cleanExpiredCQ -c DefaultCluster",
    "deleteExpiredCommitLog",
    "cleanUnusedTopic -c DefaultCluster",
    "updateTopic -c DefaultCluster -t orders -r 2 -w 2",
    "updateTopicList -c DefaultCluster -f topics.json",
    "updateTopicPerm -c DefaultCluster -t orders -p 6",
    "updateSubGroup -c DefaultCluster -g billing",
    "updateSubGroupList -c DefaultCluster -f groups.json",
    "setConsumeMode -c DefaultCluster -t orders -g audit -m PULL",
    "updateAclConfig -c DefaultCluster -a accessKey -s secretKey",
    "updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.1",
]
#: Refused while a broker's word is missing, and nothing is changed anywhere.
ALL_OR_NOTHING = {
    "resetOffsetByTime -g billing -t orders -s now": 5,
    "skipAccumulatedMessage -g billing -t orders": 5,
    "cloneGroupOffset -s billing -d audit -t orders": 5,
    "deleteSubGroup -c DefaultCluster -g audit": 5,
    "deleteAclConfig -c DefaultCluster -a accessKey": 5,
    "queryMsgByUniqueKey -t orders -i {lost}": 5,
    "queryMsgById -i {lost}": 4,
    "brokerStatus -b {frozen}": 5,
    "getBrokerConfig -b {frozen}": 5,
    "cleanExpiredCQ -b {frozen}": 5,
    "updateTopic -b {frozen} -t orders": 5,
    "electMaster -bn broker-3 -b n1": 5,
}
#: They say in their own words what it costs: the exit code, and what stands in the output.
OTHERS = {
    "checkMsgSendRT -t orders -a 40 -s 10": (1, "4 of 40 messages were not stored"),
    "clusterRT -c DefaultCluster -a 3 -s 10 --rounds 1": (1, "broker-3"),
    "startMonitoring --rounds 1": (1, "broker-3 does not tell"),
    "deleteTopic -c DefaultCluster -t orders": (4, "not at {frozen}"),
}
#: It asks the trace topic alone, which this cluster does not have; its brokers are asked as for any key.
#: recallMessage sends to the one broker of its handle. store looks at files.
_ELSEWHERE = {"queryMsgTraceById", "recallMessage", "store"}


@pytest.mark.parametrize("line", WHOLE)
def test_it_costs_nothing_where_it_has_no_part(frozen: Frozen, line: str) -> None:
    out, took = frozen.run(f"mqadmin {line}")
    assert (frozen.shell.code, took < 0.5) == (0, True), out


@pytest.mark.parametrize("line", PARTS)
def test_it_costs_its_part_alone_and_is_named(frozen: Frozen, line: str) -> None:
    out, took = frozen.run(f"mqadmin {line}")
    assert frozen.shell.code == 4, out
    assert took < MOST, out
    assert "missing here" in out
    assert "broker-3" in out or frozen.address in out
    if line.startswith("export"):
        file = frozen.shell.folder / {"Meta": "metadata", "Conf": "configs", "Metr": "metrics"}[line[6:10]]
        assert len(json.loads(file.with_suffix(".json").read_text())["missing"]) == 1
    else:
        others = ("10.0.0.11:10911", "broker-9", "DefaultCluster", "10.0.0.1@", " CLUSTERING ", " billing ", frozen.id)
        assert any(name in out for name in others), out


#: Where it is, at least; and never that something is not there.
EXPLAINED = {
    "explain {id}": "{id} of orders: broker-5/",
    "explain {lost}": "not looked for where nobody answers: broker-3",
    "explain nobody": "no broker that answers knows the group nobody; ",
    "doctor -g nobody": "no broker that answers knows the group nobody; ",
}


@pytest.mark.parametrize("line", EXPLAINED)
def test_an_explanation_is_one_in_part(frozen: Frozen, line: str) -> None:
    out, _ = frozen.run(f"rmq {line}")
    assert frozen.shell.code == 4, out
    assert EXPLAINED[line].format(id=frozen.id) in out
    assert frozen.address in out


@pytest.mark.parametrize("line", CHANGES)
def test_the_other_nine_are_changed(frozen: Frozen, line: str) -> None:
    folder: Path = frozen.shell.folder
    (folder / "topics.json").write_text('[{"topicName": "more", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]')
    (folder / "groups.json").write_text('[{"groupName": "more"}]')
    out, took = frozen.run(f"mqadmin {line}")
    assert frozen.shell.code == 4, out
    assert took < MOST, out
    done, _, not_done = out.partition("; not at ")
    assert not_done.startswith(f"{frozen.address}: ")
    assert done.count(":10911") == 9


@pytest.mark.parametrize("line", ALL_OR_NOTHING)
def test_nothing_is_changed_where_all_or_nothing_is_meant(frozen: Frozen, line: str) -> None:
    out, took = frozen.run(f"mqadmin {line}")
    assert frozen.shell.code == ALL_OR_NOTHING[line], out
    assert took < MOST, out
    assert frozen.address in out
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize("line", OTHERS)
def test_what_it_costs_is_said(frozen: Frozen, line: str) -> None:
    out, took = frozen.run(f"mqadmin {line}")
    code, said = OTHERS[line]
    assert frozen.shell.code == code, out
    assert took < MOST, out
    assert said.format(frozen=frozen.address) in out


def test_every_command_is_tried() -> None:
    tried = {line.split()[0] for line in (*WHOLE, *PARTS, *CHANGES, *ALL_OR_NOTHING, *OTHERS)}
    assert set(COMMANDS) - tried == _ELSEWHERE

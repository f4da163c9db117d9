"""Every command, and everything that may be wrong with what it is given: one helpful line, an exit code by kind, no
traceback, no hang. In virtual time, against a broker with accounts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.aio import AdminClient
from rmq.cli.mqadmin.commands import COMMANDS
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.testing.simcluster import SimCluster
from tests.support.accounts import ACCOUNTS, SECRET, in_simulation
from tests.support.manual.shell import Shell, Still, began_then

ACCOUNT = {"access_key": "operator", "secret_key": SECRET}
BROKER = "10.0.0.2:10911"
NOBODY = "10.9.9.9:10911"
#: Virtual seconds that a command may take where nobody answers.
MOST = 6.0
ID = "0A00000300002A9F0000000000000000"
#: A sound line of each command: {t} topic, {g} group, {b} a broker's address, {c} cluster, {id} of a message.
LINES = {
    "updateTopic": "-b {b} -t {t}", "updateTopicList": "-b {b} -f topics.json", "deleteTopic": "-c {c} -t {t}",
    "updateSubGroup": "-b {b} -g {g}", "updateSubGroupList": "-b {b} -f groups.json",
    "setConsumeMode": "-b {b} -t {t} -g {g} -m PULL", "deleteSubGroup": "-b {b} -g {g}",
    "updateBrokerConfig": "-b {b} -k fileReservedTime -v 71", "updateTopicPerm": "-b {b} -t {t} -p 6",
    "topicRoute": "-t {t}", "topicStatus": "-t {t}", "topicClusterList": "-t {t}", "brokerStatus": "-b {b}",
    "haStatus": "-b {b}", "queryMsgById": "-i {id}", "queryMsgByKey": "-t {t} -k key",
    "queryMsgByUniqueKey": "-t {t} -i {id}", "queryMsgByOffset": "-t {t} -b broker-0 -i 0 -o 0",
    "queryMsgTraceById": "-i {id}", "printMsg": "-t {t}", "printMsgByQueue": "-t {t} -a broker-0 -i 0 -p true",
    "sendMsgStatus": "-b broker-0 -c 1", "brokerConsumeStats": "-b {b}", "producerConnection": "-g {g} -t {t}",
    "consumerConnection": "-g {g}", "consumerProgress": "-g {g}", "consumerStatus": "-g {g}", "producer": "-b {b}",
    "cloneGroupOffset": "-s {g} -d other -t {t}", "clusterList": "", "topicList": "",
    "updateKvConfig": "-s n -k k -v v",
    "deleteKvConfig": "-s n -k k", "wipeWritePerm": "-b broker-0", "addWritePerm": "-b broker-0",
    "resetOffsetByTime": "-g {g} -t {t} -s now", "skipAccumulatedMessage": "-g {g} -t {t}",
    "updateOrderConf": "-t {t} -m get", "cleanExpiredCQ": "-b {b}", "deleteExpiredCommitLog": "-b {b}",
    "cleanUnusedTopic": "-b {b}", "startMonitoring": "--rounds 1", "statsAll": "-t {t}", "allocateMQ": "-t {t} -i 1,2",
    "checkMsgSendRT": "-t {t} -a 2 -s 1", "clusterRT": "-c {c} -a 1 -s 1 --rounds 1", "getNamesrvConfig": "",
    "updateNamesrvConfig": "-k orderMessageEnable -v false", "getBrokerConfig": "-b {b}",
    "getConsumerConfig": "-g {g}", "queryCq": "-t {t} -q 0 -i 0", "sendMessage": "-t {t} -p x",
    "consumeMessage": "-t {t}", "updateAclConfig": "-b {b} -a accessKey -s secretKey",
    "deleteAclConfig": "-b {b} -a accessKey", "clusterAclConfigVersion": "-b {b}",
    "updateGlobalWhiteAddr": "-b {b} -g 1.1.1.1",
    "getAclConfig": "-b {b}", "exportMetadata": "-c {c} -f .", "exportConfigs": "-c {c} -f .",
    "exportMetrics": "-c {c} -f .", "recallMessage": "-t {t} -r aGFuZGxl",
}  # fmt: skip
RMQ = ("doctor -g {g}", "explain {g}", "explain {id}", "top --rounds 1 -t {t}", "export", "diff -f cluster.yaml",
       "produce {t} x", "consume {t}", "tap {t} -", "bench producer -t {t} -q 1",
       "consume {t} -g {g} -c 1")  # fmt: skip
EVERY = [f"mqadmin {name} {line}" for name, line in LINES.items()] + [f"rmq {line}" for line in RMQ]
RIGHT = {"t": "orders", "g": "billing", "b": BROKER, "c": "DefaultCluster", "id": ID}
#: What they name need not be there: they make it, or it is for whatever comes.
MAKERS = (
    "updateTopic ",
    "updateTopicList",
    "updateSubGroup",
    "setConsumeMode",
    "produce",
    "bench producer",
    "{t} -g {g}",
)
#: An account that may do nothing: what name servers tell and take is nobody's secret where they have no accounts.
OF_NAME_SERVERS = ("topicRoute", "topicClusterList", "topicList", "KvConfig", "WritePerm", "updateOrderConf",
                   "allocateMQ", "NamesrvConfig", "recallMessage", "startMonitoring")  # fmt: skip
#: It shows what there is without brokers, or says in its own words what became of each send.
OTHERWISE = {"clusterList": 4, "printMsg ": 4, "checkMsgSendRT": 1, "clusterRT": 1,
             "queryMsgTraceById": 3, "producerConnection": 3, "consumerConnection": 3,
             "consumerProgress": 4, "consumerStatus": 4, "doctor": 4, "explain {g}": 4}  # fmt: skip


async def _life(cluster: SimCluster) -> None:
    async with AdminClient(namesrv=cluster.namesrv_addr, **ACCOUNT) as admin:
        await admin.create_and_update_topic(BROKER, "orders", read_queue_nums=2, write_queue_nums=2)
        await admin.create_and_update_subscription_group(BROKER, SubscriptionGroupConfig("billing"))
    await cluster.advance(40)


class Terminal(Shell):
    """A shell that keeps an eye on what a command costs."""

    def fails(self, line: str, words: dict[str, str], code: int, lines: int = 1) -> str:
        """What it says. :param lines: that it says at most; 0: any number."""
        loop = self.cluster.cluster.simulation.loop
        assert loop is not None
        began = loop.time()
        said = self.run(line.format(**words))
        assert self.code == code, (line, self.code, said)
        assert "Traceback" not in said
        assert loop.time() - began < MOST, line
        assert not lines or len(said.splitlines()) <= lines, said
        return said


def _terminal(cluster: Still, folder: Path, account: str) -> Terminal:
    (folder / "topics.json").write_text('[{"topicName": "more"}]')
    (folder / "groups.json").write_text('[{"groupName": "more"}]')
    (folder / "cluster.yaml").write_text("topics: {orders: }")
    return Terminal(cluster, folder, ROCKETMQ_ACCESS_KEY=account, ROCKETMQ_SECRET_KEY=SECRET)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with began_then():
        cluster = Still(brokers=1)
        in_simulation(cluster.cluster, 1, ACCOUNTS)
        with cluster:
            cluster.call(_life)
            yield _terminal(cluster, tmp_path_factory.mktemp("typed"), "operator")


def test_every_command_is_here() -> None:
    assert COMMANDS.keys() - LINES.keys() == {
        "store",
        "electMaster",
    }  # files; groups that elect, which there is none of


def test_an_option_that_there_is_not(terminal: Terminal) -> None:
    for line in EVERY:
        terminal.fails(f"{line} --nosuch", RIGHT, 2)


def test_a_name_server_that_nobody_is(terminal: Terminal) -> None:
    for line in EVERY:
        if "{b}" not in line:  # those ask a broker alone
            assert "10.9.9.9:9" in terminal.fails(f"{line} -n 10.9.9.9:9", RIGHT, 5)


def test_a_broker_that_nobody_is(terminal: Terminal) -> None:
    for line in EVERY:
        if "{b}" in line:
            assert NOBODY in terminal.fails(line, {**RIGHT, "b": NOBODY}, 3 if "updateTopicPerm" in line else 5)


@pytest.mark.parametrize(("what", "name"), [("t", "nosuch"), ("g", "nobody"), ("c", "Nowhere"), ("id", "F" * 32),
                                            ("id", "hello")])  # fmt: skip
def test_a_name_of_nothing(terminal: Terminal, what: str, name: str) -> None:
    for line in EVERY:
        if f"{{{what}}}" in line and not any(maker in line for maker in MAKERS) and "recallMessage" not in line:
            assert name in terminal.fails(line, {**RIGHT, what: name}, 3) or what == "id"


def test_an_account_that_may_do_nothing(terminal: Terminal, tmp_path: Path) -> None:
    denied = _terminal(terminal.cluster, tmp_path, "unprivileged")  # type: ignore[arg-type]
    for line in EVERY:
        if any(word in line for word in OF_NAME_SERVERS):
            continue
        code = next((code for word, code in OTHERWISE.items() if word in line), 6)
        said = denied.fails(line, RIGHT, code, lines=1 if code == 6 else 0)
        assert code == 3 or "access denied" in said, said


def test_a_cluster_without_brokers(tmp_path: Path) -> None:
    with Still(brokers=0) as empty:
        alone = _terminal(empty, tmp_path, "operator")
        for line in EVERY:
            if not any(word in line for word in ("KvConfig", "NamesrvConfig")):
                asks = "{b}" in line and "updateTopicPerm" not in line
                alone.fails(line, RIGHT, 5 if asks or line.startswith(("rmq produce", "rmq bench producer")) else 3)

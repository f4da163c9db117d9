"""Our commands print what Java's mqadmin printed for the same cluster (tests/golden/mqadmin)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin import session
from rmq.cli.mqadmin.commands import COMMANDS, root
from rmq.client.admin import Answers
from rmq.client.message import MessageExt
from rmq.client.results import QueryResult, TopicStats
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import Connection, ConsumerConnection
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from rmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset
from rmq.protocol.errors import ResponseError
from rmq.protocol.queue import MessageQueue

ADDR = "127.0.0.1:21911"
STORED = 1_795_825_637_113
UNIQUE = "FD0000000000000000000000000000022E0E5FFD2B278B24AEE40000"
GOLDEN: dict[str, str] = dict(
    section.split("\n", 1)
    for section in re.split(
        r"^=== ", (Path(__file__).parents[2] / "golden/mqadmin/java-4.9.8.txt").read_text(), flags=re.MULTILINE
    )[1:]
)
FIGURES = {
    name.strip(): value
    for name, _, value in (line.partition(": ") for line in GOLDEN[f"brokerStatus -b {ADDR}"].splitlines())
}


def message() -> MessageExt:
    made = MessageExt()
    made.topic, made.body, made.broker_name = "TopicA", b"hello", "broker-a"
    made.properties = {"KEYS": "key1", "UNIQ_KEY": UNIQUE, "CLUSTER": "DefaultCluster", "TAGS": "tagA"}
    made.queue_id, made.queue_offset, made.commit_log_offset = 1, 0, 0
    made.flag, made.sys_flag, made.reconsume_times = 0, 0, 0
    made.born_timestamp, made.born_host = STORED - 21, ("127.0.0.1", 43804)
    made.store_timestamp, made.store_host, made.store_size = STORED, ("127.0.0.1", 21911), 213
    return made


class RecordedCluster:
    """Answers as the recorded Java cluster did; takes the place of AdminClient."""

    def __init__(self, **_: object) -> None:
        self.name_server_addresses = ["127.0.0.1:29876"]
        self.world = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: STORED))
        self.created: list[object] = []

    async def __aenter__(self) -> RecordedCluster:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def consumer_running_info(self, group: str, client_id: str, addr: str) -> ConsumerRunningInfo:
        assert addr == ADDR
        return ConsumerRunningInfo(
            mq_table={queue: ProcessQueueInfo() for queue in (await self.consume_stats(group)).offset_table}
        )

    async def kv_list(self, namespace: str) -> dict[str, str]:
        return {}

    async def cluster_info(self) -> ClusterInfo:
        broker = BrokerData({0: ADDR}, "broker-a", "DefaultCluster")
        return ClusterInfo({"broker-a": broker}, {"DefaultCluster": ["broker-a"]})

    async def masters(self, cluster: str) -> dict[str, str]:
        return {"broker-a": ADDR}

    async def brokers(self, cluster: str) -> list[str]:
        return [ADDR]

    async def broker_runtime_stats(self, addr: str) -> dict[str, str]:
        return dict(FIGURES)

    async def broker_runtime_stats_of(self, addrs: list[str]) -> Answers[dict[str, str]]:
        return Answers({addr: dict(FIGURES) for addr in addrs})

    async def topic_list(self) -> TopicList:
        return TopicList(topic_list=["TopicA", "%RETRY%GroupB", "%RETRY%GroupA"])

    async def topics_by_cluster(self, cluster: str) -> TopicList:
        lines = GOLDEN["topicList -c (with a group)"].splitlines()[1:]
        return TopicList(topic_list=["%RETRY%GroupB", *(line[22:].split()[0] for line in lines)])

    async def topic_groups(self, topic: str) -> Answers[list[str]]:
        return Answers({"broker-a": ["GroupB"] if topic == "TopicA" else []})

    async def topic_route(self, topic: str) -> TopicRouteData:
        broker = BrokerData({0: ADDR}, "broker-a", "DefaultCluster")
        return TopicRouteData(broker_datas=[broker], queue_datas=[QueueData("broker-a", 6, 4, 0, 4)])

    async def topic_stats(self, topic: str) -> TopicStats:
        found = {MessageQueue("TopicA", "broker-a", number): TopicOffset() for number in (3, 2, 0, 1)}
        found[MessageQueue("TopicA", "broker-a", 1)] = TopicOffset(STORED, 1, 0)
        return TopicStats(found)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        if group == "GroupA":
            raise ResponseError(206, "no offsets")
        found = {MessageQueue("TopicA", "broker-a", number): OffsetWrapper() for number in (2, 3, 0, 1)}
        found[MessageQueue("TopicA", "broker-a", 1)] = OffsetWrapper(1, 1, STORED)
        found[MessageQueue("%RETRY%GroupB", "broker-a", 0)] = OffsetWrapper()
        return ConsumeStats(0.05, found)

    async def consumer_connections(self, group: str, broker_addr: str | None = None) -> ConsumerConnection:
        if group == "GroupA":
            raise ResponseError(206, "not online")
        client = Connection("127.0.0.1:40000", "192.0.2.2@77", "JAVA", 409)
        return ConsumerConnection([client], consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING")

    async def query_message(self, topic: str, key: str, max_num: int = 32) -> QueryResult:
        return QueryResult(0, [message()])

    async def create_and_update_topic(self, addr: str, topic: str, **values: object) -> None:
        self.created.append((addr, topic, values))

    async def create_and_update_subscription_group(self, addr: str, config: object) -> None:
        self.created.append((addr, config))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(session, "AdminClient", RecordedCluster)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:29876")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def printed(recorded: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(line: str, code: int = 0) -> str:
        assert invoke(root, "mqadmin", line.split()) == code
        return capsys.readouterr().out

    return run


ALIKE = [
    "updateTopic -c DefaultCluster -t TopicA -r 4 -w 4",
    "updateSubGroup -c DefaultCluster -g GroupA",
    "topicRoute -t TopicA",
    "topicRoute -t TopicA -l",
    "topicStatus -t TopicA",
    "queryMsgByKey -t TopicA -k key1",
    "consumerProgress -g GroupB",
    "consumerProgress -g GroupB -s true",
    f"brokerStatus -b {ADDR}",
]


@pytest.mark.parametrize("line", ALIKE)
def test_columns_are_those_of_java(line: str, printed: Callable[..., str]) -> None:
    assert printed(line.partition(" (")[0]) == GOLDEN[line]


def test_topics_are_javas_in_order_of_names(printed: Callable[..., str]) -> None:
    head, *rows = GOLDEN["topicList -c (with a group)"].splitlines()
    assert printed("topicList -c").splitlines() == [head, *sorted(rows)]
    assert rows != sorted(rows)


def test_cluster_list_shows_no_age_where_nothing_is_stored(printed: Callable[..., str]) -> None:
    ours, java = printed("clusterList"), GOLDEN["clusterList"]
    assert ours == java.replace("498840.45", "    -")


@pytest.mark.parametrize(("put", "got"), [(("0", "0", "0"), ("0", "0", "0")), (("5", "12", "1000"), ("1", "3", "7"))])
def test_more_stats_are_yesterday_and_today(
    put: tuple[str, ...], got: tuple[str, ...], printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, totals in (("msgPutTotal", put), ("msgGetTotal", got)):
        for when, total in zip(("YesterdayMorning", "TodayMorning", "TodayNow"), totals, strict=True):
            monkeypatch.setitem(FIGURES, name + when, total)
    ours = printed("clusterList -m")
    if put[0] == "0":
        assert ours == GOLDEN["clusterList -m"]
    else:
        assert ours.split()[-4:] == ["7", "2", "988", "4"]


def test_the_summary_of_groups(printed: Callable[..., str]) -> None:
    # Java sorts by backlog and leaves equal ones in hash order; ours go by name.
    ours = printed("consumerProgress").splitlines()
    java = GOLDEN["consumerProgress (all)"].splitlines()
    assert [ours[0], *sorted(line.rstrip() for line in ours[1:])] == [
        java[0],
        *sorted(line.rstrip() for line in java[1:]),
    ]


def test_the_figures_of_a_cluster_bear_the_address(printed: Callable[..., str]) -> None:
    ours = printed("brokerStatus -c DefaultCluster").splitlines()
    java = GOLDEN["brokerStatus -c DefaultCluster"].splitlines()
    names = re.compile(r"^(\S+ +\S+ *:) ")
    assert [names.match(line)[1] for line in ours] == [names.match(line)[1] for line in java]  # type: ignore[index]


def test_a_message_by_its_id(printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def by_offset(*_: object) -> MessageExt:
        return message()

    async def nobody(self: RecordedCluster, topic: str) -> Answers[list[str]]:
        return Answers()

    monkeypatch.setattr("rmq.cli.mqadmin.messages._by_offset", by_offset)
    monkeypatch.setattr(RecordedCluster, "topic_groups", nobody)
    java = GOLDEN["queryMsgById -i 7F000001000055970000000000000000"].rstrip("\n") + "\n"
    ours = printed("queryMsgById -i 7F000001000055970000000000000000")
    assert ours.replace(str(tmp_path), "/tmp") == java
    kept = tmp_path / "rocketmq" / "msgbodys" / UNIQUE
    assert kept.read_bytes() == b"hello"
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_takes_its_name_in_any_case(name: str, printed: Callable[..., str]) -> None:
    shown = printed(f"{name.upper()} -h")
    # The commands for a stopped store ask nobody.
    assert ("-n, --namesrvAddr" in shown) == (name != "store")
    assert printed(f"help {name}").splitlines()[1:] == shown.splitlines()[1:]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("noSuchCommand", "there is no command noSuchCommand"),
        ("topicLst", "there is no command topicLst: did you mean topicList?"),
        ("getBrokerEpoch", "there is no command getBrokerEpoch: haStatus shows who leads a group"),
        ("topicRoute", "Missing option '-t'"),
        ("updateTopic -t T", "give a broker with -b or a cluster with -c"),
        ("updateTopic -t T -b a:1 -c C", "give a broker with -b or a cluster with -c"),
        ("updateTopic -t T -b a:1 -p 9", "'9' is not one of '2', '4', '6'"),
        ("topicList --bogus", "there is no option --bogus"),
        ("-n a:1 topiclist", "options stand behind the command: mqadmin topiclist -n"),
        ("-n", "No such option '-n'"),
        ("topicStatus -t ''", "'-t' / '--topic': it is empty"),
        ("queryMsgByKey -t T -k ''", "'-k' / '--msgKey': it is empty"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    line: str, error: str, recorded: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(root, "mqadmin", shlex.split(line)) == 2
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith("mqadmin: ")
    assert error in shown


def test_without_a_name_server_it_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    assert invoke(root, "mqadmin", ["topicList"]) == 2
    assert "give one with -n host:port, or set NAMESRV_ADDR" in capsys.readouterr().err


def test_help_lists_every_command(printed: Callable[..., str]) -> None:
    assert all(name in printed("") for name in COMMANDS)
    assert printed("help") == printed("-h")


def test_groups_of_commands_say_whole_sentences(printed: Callable[..., str]) -> None:
    shown = " ".join(printed("store -h").split())
    assert "dump Print records of the commit log, entries of a queue, or entries of the index, a line each." in shown


def test_importing_the_group_imports_no_command() -> None:
    program = "import sys, rmq.cli.mqadmin.commands; print([name for name in sys.modules if 'rmq.client' in name])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"


def test_what_brokers_say_of_a_key_query_is_shown(
    recorded: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def query(self: RecordedCluster, topic: str, key: str, max_num: int = 32) -> QueryResult:
        if key == "there":
            return QueryResult(0, [message()], "broker-a: the index is being rebuilt")
        raise ResponseError(22, f"no message of {topic} with the key {key} (broker-a: the index is being rebuilt)")

    monkeypatch.setattr(RecordedCluster, "query_message", query)
    assert invoke(root, "mqadmin", ["queryMsgByKey", "-t", "TopicA", "-k", "there"]) == 0
    out, err = capsys.readouterr()
    assert "#Message ID" in out
    assert err == "mqadmin: broker-a: the index is being rebuilt\n"
    assert invoke(root, "mqadmin", ["queryMsgByKey", "-t", "TopicA", "-k", "gone"]) == 3
    assert "(broker-a: the index is being rebuilt)" in capsys.readouterr().err
    assert invoke(root, "mqadmin", f"queryMsgById -i {'0' * 31}Z -t TopicA".split()) == 2

"""`--dry-run`, `--yes`, `--undo` and `--show-code` of commands that change a running cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from rmq import AdminClient, Message, Producer, PullConsumer
from rmq.cli.command import invoke
from rmq.cli.mqadmin.changes import CHANGING
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command
from rmq.protocol.errors import ClientError
from rmq.testing.cluster import BlockingCluster

SECRETS = """
accounts:
- accessKey: rocketmq
  secretKey: 12345678
  admin: true
- accessKey: somebody
  secretKey: 87654321
  admin: false
  topicPerms:
  - Kept=PUB|SUB
"""


class Tool:
    def __init__(self, cluster: BlockingCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys
        self.broker = cluster.broker_addr
        self.namesrv = cluster.namesrv_addr

    def __call__(self, line: str, *more: str, code: int = 0) -> str:
        """Standard output; with another exit code than 0, standard error."""
        self._capsys.readouterr()
        words = shlex.split(line.replace("BROKER", self.broker))
        got = invoke(root, "mqadmin", [*words, "-n", self.namesrv, *more])
        out, err = self._capsys.readouterr()
        assert got == code, (line, out, err)
        self.err = err
        return out if code == 0 else err

    def state(self) -> dict[str, Any]:
        """Whatever the commands here change."""
        with AdminClient(namesrv=self.namesrv) as admin:
            topics = admin.topic_configs(self.broker).topic_config_table
            groups = admin.subscription_groups(self.broker).subscription_group_table
            route = admin.topic_route("Kept").queue_datas[0]
            accounts = admin.acl_config(self.broker)
            return {
                "topics": {name: (one.read_queue_nums, one.write_queue_nums, one.perm, one.order)
                           for name, one in topics.items()},
                "groups": {name: one.to_object() for name, one in groups.items()},
                "offsets": admin.consumer_offsets("g", "Kept"),
                "perm": route.perm,
                "kv": [admin.kv_config("N", key) for key in ("here", "new")],
                "order": admin.kv_config("ORDER_TOPIC_CONFIG", "Kept"),
                "settings": admin.broker_settings([self.broker]).whole()[self.broker]["longPollingEnable"],
                "namesrv": admin.name_server_config().whole()[self.namesrv].get("orderMessageEnable"),
                "accounts": {one.access_key: (one.admin, one.topic_perms)
                             for one in accounts.plain_access_configs or ()},
                "white": accounts.global_white_addrs,
            }  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "home" / "conf").mkdir(parents=True)
    (folder / "home" / "conf" / "plain_acl.yml").write_text(SECRETS + "globalWhiteRemoteAddresses:\n- 127.0.0.1\n")
    settings = {
        "aclEnable": "true", "rocketmqHome": str(folder / "home"), "autoCreateSubscriptionGroup": "true",
        "transactionCheckInterval": "3600000",  # a pass makes a topic of its own, after a minute
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCKETMQ_ACCESS_KEY", "rocketmq")
        patch.setenv("ROCKETMQ_SECRET_KEY", "12345678")
        with BlockingCluster(folder, settings=settings) as cluster:
            yield cluster


@pytest.fixture
def tool(cluster: BlockingCluster, capsys: pytest.CaptureFixture[str]) -> Tool:
    made = Tool(cluster, capsys)
    made("updateTopic -b BROKER -t Kept -r 4 -w 4 -o true")
    made("updateTopicPerm -b BROKER -t Kept -p 6")
    made("updateSubGroup -b BROKER -g g -r 7")
    made("updateKvConfig -s N -k here -v old")
    with Producer("p", namesrv=made.namesrv) as producer, PullConsumer("g", namesrv=made.namesrv) as consumer:
        for queue in consumer.fetch_subscribe_message_queues("Kept"):
            for number in range(consumer.max_offset(queue), 2):  # not those that an earlier test has found there
                producer.send(Message("Kept", str(number)), queue=queue)
            consumer.update_consume_offset(queue, 1)
    return made


#: A line for each command that changes something, and what --dry-run says of it.
LINES = {
    "updateTopic -b BROKER -t Kept -r 2 -w 2": "would create or change the topic Kept at BROKER: 2 queues to read, 2 ",
    "updateTopic -b BROKER -t Fresh": "would create or change the topic Fresh at BROKER",
    "updateTopicList -b BROKER -f FILE": "would create or change Listed at BROKER",
    "updateTopicPerm -b BROKER -t Kept -p 4": "would give the topic Kept at BROKER the perm 4",
    "updateOrderConf -t Kept -m put -v broker-0:9": "would set Kept of ORDER_TOPIC_CONFIG to 'broker-0:9' at",
    "deleteTopic -t Kept -c DefaultCluster": "would delete the topic Kept and its messages at BROKER",
    "updateSubGroup -b BROKER -g g -r 3": "would create or change the group g at BROKER",
    "updateSubGroup -b BROKER -g fresh": "would create or change the group fresh at BROKER",
    "updateSubGroupList -b BROKER -f GROUPS": "would create or change listed at BROKER",
    "deleteSubGroup -b BROKER -g g -r true": "would delete the group g and its offsets at BROKER",
    "setConsumeMode -b BROKER -t Kept -g g -m POP": "would have g POP from Kept at BROKER",
    "resetOffsetByTime -g g -t Kept -s 1": "would move the group g on Kept to 1 ms\n  broker-0/0: 1 -> 0",
    "resetOffsetByTime -g g -t Kept -b broker-0 -q 1 -o 2": "in broker-0/1 of Kept to 2\n  broker-0/1: 1 -> 2",
    "skipAccumulatedMessage -g g -t Kept": "would move the group g on Kept to the end\n  broker-0/0: 1 -> 2",
    "cloneGroupOffset -s g -d copy -t Kept": "would give copy the offsets of g on Kept",
    "updateBrokerConfig -b BROKER -k longPollingEnable -v false": "would set longPollingEnable=false at BROKER",
    "cleanExpiredCQ -b BROKER": "would delete queue files at BROKER of which every message has expired",
    "deleteExpiredCommitLog -b BROKER": "would delete commit log files at BROKER that have expired",
    "cleanUnusedTopic -b BROKER": "would delete the queues at BROKER of topics that it does not have any more",
    "updateKvConfig -s N -k here -v new": "would set here of N to 'new' at the name servers",
    "updateKvConfig -s N -k new -v new": "would set new of N to 'new' at the name servers",
    "deleteKvConfig -s N -k here": "would delete here of N at the name servers",
    "wipeWritePerm -b broker-0": "would take the right to write from the broker broker-0",
    "addWritePerm -b broker-0": "would give the right to write to the broker broker-0",
    "updateNamesrvConfig -k orderMessageEnable -v true": "would set orderMessageEnable=true at the name servers",
    "updateAclConfig -b BROKER -a newcomer -s 123456789": "would create or change the account newcomer at BROKER",
    "updateAclConfig -b BROKER -a somebody -t Other=SUB": "would create or change the account somebody at BROKER",
    "deleteAclConfig -b BROKER -a somebody": "would delete the account somebody at BROKER",
    "updateGlobalWhiteAddr -b BROKER -g 127.0.0.1,10.2.2.2": "would set the white list to 127.0.0.1,10.2.2.2 at BROKER",
}
#: What takes these back is more than one command, or nothing does.
NOT_UNDONE = ("deleteTopic", "clean", "deleteExpired", "setConsumeMode", "cloneGroupOffset", "deleteAclConfig")


def filled(line: str, folder: Path) -> str:
    (folder / "topics.json").write_text('[{"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 3}]')
    (folder / "groups.json").write_text('[{"groupName": "listed", "retryMaxTimes": 2}]')
    return line.replace("FILE", str(folder / "topics.json")).replace("GROUPS", str(folder / "groups.json"))


def test_there_is_a_line_for_each_command() -> None:
    # A group that elects its master is another kind of cluster.
    assert {line.split()[0] for line in LINES} == CHANGING - {"electMaster"}


def test_a_dry_run_says_what_would_change_and_changes_nothing(tool: Tool, tmp_path: Path) -> None:
    before = tool.state()
    for line, said in LINES.items():
        assert said.replace("BROKER", tool.broker) in tool(filled(line, tmp_path), "--dry-run"), line
        assert "took it without a word" not in tool.err  # that was not asked for
        assert tool.state() == before, line
    assert tool("deleteTopic -t Kept -c DefaultCluster", "--dry-run", "-o", "json").count("delete the topic Kept") == 2
    assert "there is no topic None" in tool("deleteTopic -t None -c DefaultCluster", "--dry-run", code=3)
    assert "has no offset on Kept" in tool("skipAccumulatedMessage -g nobody -t Kept", "--dry-run", code=3)


def test_what_an_undo_file_says_takes_it_back(tool: Tool, tmp_path: Path) -> None:
    changed = 0
    for number, line in enumerate(line for line in LINES if not line.startswith(NOT_UNDONE)):
        notes = tmp_path / f"undo-{number}"
        before = tool.state()
        tool(filled(line, tmp_path), "--undo", str(notes))
        after = tool.state()
        head, *lines = notes.read_text().splitlines() if notes.exists() else ["# nothing changed"]
        assert head.startswith("# ")
        for one in lines:
            program, *words = shlex.split(one, comments=True) or ["mqadmin"]
            assert program == "mqadmin"
            if words:
                assert words[-2:] == ["-n", tool.namesrv]
                assert invoke(root, "mqadmin", words) == 0, one
        assert tool.state() == before, (line, lines)
        changed += after != before
    assert changed > 12


def test_what_does_not_come_back_is_said(tool: Tool, tmp_path: Path) -> None:
    notes = tmp_path / "undo"
    tool("deleteTopic -t Kept -c DefaultCluster", "--undo", str(notes))
    tool("deleteAclConfig -b BROKER -a somebody", "--undo", str(notes))
    said = notes.read_text()
    assert f"mqadmin updateTopic -b {tool.broker} -t Kept -r 4 -w 4 -p 6 -o true -n {tool.namesrv}\n" in said
    assert "# messages of Kept do not come back\n" in said
    (account,) = [line for line in said.splitlines() if "updateAclConfig" in line]
    assert account.startswith(f"mqadmin updateAclConfig -b {tool.broker} -a somebody -s SECRET ")
    assert " -t 'Kept=PUB|SUB' -m false" in account
    assert f"# the secret that somebody had at {tool.broker} is not told: give it with -s" in said
    assert "87654321" not in said
    tool("updateAclConfig -b BROKER -a somebody -s 87654321 -t 'Kept=PUB|SUB'")


def test_the_python_of_a_command_does_the_same(tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "updateTopic -b BROKER -t Coded -r 3 -w 3",
        "updateSubGroup -c DefaultCluster -g coded -r 2",
        "resetOffsetByTime -g g -t Kept -b broker-0 -q 2 -o 2",
        "updateKvConfig -s N -k new -v coded",
    ):
        before = tool.state()
        code = tool(filled(line, tmp_path), "--show-code")
        assert tool.state() == before
        exec(code, {})
        assert tool.state() != before, code
    exec(tool("topicRoute -t Kept", "--show-code"), {})
    assert "TopicRouteData(" in capsys.readouterr().out
    said = tool("updateAclConfig -b BROKER -a newcomer -s 123456789", "--show-code")
    assert "PlainAccessConfig(access_key='newcomer', secret_key=\"...\")" in said
    tool("deleteTopic -t Coded -c DefaultCluster")
    tool("deleteSubGroup -b BROKER -g coded")


def test_to_be_shown_code_nothing_is_sent(tool: Tool) -> None:
    with AdminClient(namesrv=tool.namesrv) as admin:
        queue = admin.fetch_subscribe_message_queues("Kept")[0]
        first = admin.message_at(queue, admin.min_offset(queue))
        assert first is not None
        ends = {queue: admin.max_offset(queue) for queue in admin.fetch_subscribe_message_queues("Kept")}
        said = tool(f"queryMsgById -i {first.offset_msg_id} -s true", "--show-code", code=2)
        assert "--show-code knows what is asked, and not what is sent" in said
        said = tool(f"queryMsgById -i {first.offset_msg_id} -g g -d nobody", "--show-code")
        assert f"admin.consume_message_directly('g', 'nobody', '{first.offset_msg_id}'" in said
        assert ends == {queue: admin.max_offset(queue) for queue in admin.fetch_subscribe_message_queues("Kept")}


def test_on_a_terminal_somebody_is_asked_and_told(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(text: str, **more: object) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr(click, "confirm", confirm)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    before = tool.state()
    said = tool("deleteKvConfig -s N -k here", code=2)
    assert "this will delete here of N at the name servers\n" in said
    assert said.endswith("mqadmin: nothing was changed\n")
    assert tool.state() == before
    tool("deleteKvConfig -s N -k here")
    assert f"to take it back:\n  mqadmin updateKvConfig -s N -k here -v old -n {tool.namesrv}\n" in tool.err
    assert tool.state() != before
    tool("updateKvConfig -s N -k here -v old", "--quiet")
    assert tool.err == ""
    tool("deleteKvConfig -s N -k here", "--yes")
    assert len(asked) == 2


def test_several_changes_are_taken_back_the_last_one_first(tool: Tool, tmp_path: Path) -> None:
    notes = tmp_path / "undo"
    tool("updateTopic -b BROKER -t Twice -r 8 -w 8")
    before = tool.state()
    for queues in (4, 2, 4, 1):
        tool(f"updateTopic -b BROKER -t Twice -r {queues} -w {queues}", "--undo", str(notes))
    for line in notes.read_text().splitlines():
        if words := shlex.split(line, comments=True):
            assert invoke(root, "mqadmin", words[1:]) == 0, line
    assert tool.state() == before
    tool("deleteTopic -t Twice -c DefaultCluster")


def test_undo_notes_say_which_cluster(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "undo"
    monkeypatch.setenv("RMQ_CONTEXTS", str(tmp_path / "contexts.yml"))
    monkeypatch.setenv("NAMESRV_ADDR", tool.namesrv)
    words = ["updateKvConfig", "-s", "N", "-k", "which", "-v", "x", "--undo", str(notes)]
    assert invoke(root, "mqadmin", words) == 0
    monkeypatch.delenv("NAMESRV_ADDR")
    assert invoke(command, "rmq", ["context", "set", "here", "-n", tool.namesrv]) == 0
    assert invoke(root, "mqadmin", words) == 0
    first, second = (line for line in notes.read_text().splitlines() if not line.startswith("#"))
    assert first == "mqadmin updateKvConfig -s N -k which -v x --context here"
    assert second == f"mqadmin deleteKvConfig -s N -k which -n {tool.namesrv}"
    tool("deleteKvConfig -s N -k which")


def test_what_a_server_says_is_no_command_of_an_undo_file(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refused(*words: object) -> str:
        raise ClientError("no\nrm -rf ~\r\x1b[2K")

    monkeypatch.setattr("rmq.aio.AdminClient.kv_config", refused)
    tool("updateKvConfig -s N -k here -v old", "--undo", str(tmp_path / "undo"))
    _, line = (tmp_path / "undo").read_text().splitlines()
    assert line == r"# what was there before could not be looked at: no\nrm -rf ~\r\x1b[2K"


def test_an_undo_file_that_cannot_be_written_loses_no_note(tool: Tool) -> None:
    tool("updateKvConfig -s N -k here -v other", "--undo", "/no/such/folder/file")
    assert "/no/such/folder/file cannot be written, the undo notes are: No such file or directory" in tool.err
    assert "mqadmin updateKvConfig -s N -k here -v old" in tool.err

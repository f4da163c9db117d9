"""Java's mqadmin 4.9.8 and ours change the accounts of the same broker, one after the other: they print the same."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from tests.support.accounts import home
from tests.support.peers import Client, Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

ACCOUNTS = """\
accounts:
  - accessKey: operator
    secretKey: 12345678
    admin: true
"""
#: What changes from one run to the next: counters, times, and the columns that are as wide as they are.
_FIGURE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(?<![\w.])\d+(?![\w.])")


@dataclass
class Tools:
    """Both tools, in the name of the account that administrates."""

    cluster: Cluster
    client: Client

    def words(self, line: str) -> list[str]:
        return line.format(A=self.cluster.broker_addr, D="DefaultCluster").split()

    def java(self, line: str) -> list[str]:
        return _lines(self.client.call("mqadmin", namesrv=self.cluster.namesrv, args=self.words(line))["output"])

    def ours(self, line: str, code: int = 0) -> list[str]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            words = [*self.words(line), "-n", self.cluster.namesrv, "--timeout", "60"]
            assert invoke(root, "mqadmin", words) == code, printed.getvalue()
        return _lines(printed.getvalue())


def _lines(text: str) -> list[str]:
    lines = [re.sub(" +", " ", _FIGURE.sub("#", line)).rstrip() for line in text.splitlines()]
    # Java prints the address of an object besides.
    return [line for line in lines if line and not line.startswith("org.apache.rocketmq.common.PlainAccessConfig@")]


@pytest.fixture(scope="module", params=["ours", "java-4.9.4"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        if request.param == "ours":
            folder: Path = tmp_path_factory.mktemp("home")
            started = start_cluster("ours", properties={**FAST_RETRIES, **home(folder, ACCOUNTS)})
        else:
            started = start_cluster(request.param, properties=FAST_RETRIES, our_namesrv=True, accounts=ACCOUNTS)
    except ToolMissing as missing:
        skip_or_fail(missing)
    with started as running:
        yield running


@pytest.fixture
def tools(cluster: Cluster, clients: Callable[[str, str], Client], monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "operator")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "12345678")
    return Tools(cluster, clients("java-4.9.8-operator", "reader"))


#: In an order in which each leaves what the next one finds.
SAME = [
    "updateAclConfig -b {A} -a newcomer -s 87654321 -t T=PUB,U=SUB -g G=SUB,H=DENY -i DENY -u SUB -m false",
    "updateAclConfig -c {D} -a newcomer -s 87654321 -t T=PUB|SUB",
    "updateAclConfig -c {D} -a newcomer -s 87654321 -w 192.168.0.*",
    "updateAclConfig -b {A} -a another1 -s 87654321 -m true",
    "clusterAclConfigVersion -b {A}",
    "clusterAclConfigVersion -c {D}",
    "updateGlobalWhiteAddr -b {A} -g 127.0.0.1",
    "updateGlobalWhiteAddr -c {D} -g 127.0.0.1,10.0.0.*",
]


@pytest.mark.parametrize("line", SAME)
def test_both_print_the_same(tools: Tools, line: str) -> None:
    java, ours = tools.java(line), tools.ours(line)
    assert "Exception" not in "".join(java)
    assert ours == java


@pytest.mark.parametrize("command", ["deleteAclConfig", "deleteAccessConfig"])
def test_both_delete_alike(tools: Tools, command: str) -> None:
    said = []
    for run in (tools.java, tools.ours):
        tools.ours("updateAclConfig -c {D} -a newcomer -s 87654321")
        said.append(run(f"{command} -c {{D}} -a newcomer"))
    assert said[0] == said[1]
    assert "has no account newcomer" in tools.ours(f"{command} -b {{A}} -a newcomer", 3)[0]


def test_what_java_wrote_ours_shows_and_no_secret(tools: Tools) -> None:
    tools.java("updateAclConfig -b {A} -a newcomer -s 87654321 -t T=PUB,U=SUB -g G=SUB -i DENY -u SUB -w 192.168.0.*")
    shown = "\n".join(tools.ours("getAclConfig -b {A}"))
    for said in ("accessKey: newcomer", "topicPerms: [T=PUB, U=SUB]", "groupPerms: [G=SUB]", "defaultTopicPerm: DENY",
                 "defaultGroupPerm: SUB", "whiteRemoteAddress: 192.168.0.*", "admin: false"):  # fmt: skip
        assert said in shown
    assert "87654321" not in shown
    assert tools.ours("getAccessConfigSubCommand -b {A}") == tools.ours("getAclConfig -c {D}")


@pytest.mark.parametrize(
    "line", ["updateAclConfig -b {A} -a newcomer -s 123", "updateAclConfig -b {A} -a newcomer1 -s 87654321 -t T=READ"]
)
def test_what_java_refuses_ours_refuses(tools: Tools, line: str) -> None:
    assert "success" not in "".join(tools.java(line))
    assert "success" not in "".join(tools.ours(line, 2))

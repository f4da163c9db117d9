"""Members that pop, ours and Java's 5.3.3, and their broker are killed between pop and acknowledgement.

Nothing is lost, and what was not acknowledged comes again when its invisible time is over, and not before.

``make torture`` kills a hundred times.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.test_pop import program
from tests.support.kills.campaign import LONG, PIECE, amount
from tests.support.kills.groups import judge_pops
from tests.support.kills.members import WORK, Churn
from tests.support.peers import JAVA_OPENS, Client, Cluster, ToolMissing, skip_or_fail, start_cluster

#: Seconds that popped messages are invisible, and beyond that what a death and a start take.
INVISIBLE = 5.0
LATE = 20.0
KINDS = (("python", "java"), ("python",), ("java",))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with start_cluster("ours", properties={"messageDelayLevel": " ".join(["1s"] * 18)}) as running:
        yield running


def java() -> Client:
    folder = Path(tempfile.mkdtemp(prefix="rmq-client-pop-"))
    try:
        command = [
            "java", "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Drocketmq.client.rebalance.waitInterval=1000", *JAVA_OPENS, f"-Duser.home={folder}",
            "-cp", program(), "peer.Popping",
        ]  # fmt: skip
    except ToolMissing as missing:
        shutil.rmtree(folder, ignore_errors=True)
        skip_or_fail(missing)
    return Client("java-5.3.3-pop", command, folder)


def join(churn: Churn, kind: str) -> None:
    if kind == "java":
        churn.join("java", java, invisible=int(INVISIBLE * 1000), failEvery=0, pause=WORK)
    else:
        churn.join(kind)


def kill_broker(churn: Churn, away: float) -> None:
    daemon = churn.cluster.brokers[0].daemon
    daemon.kill()
    time.sleep(away)
    daemon.start()


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("kinds", KINDS if LONG else KINDS[:1], ids="-".join)
def test_killed_members_and_brokers(cluster: Cluster, kinds: tuple[str, ...], say: Callable[[str], None]) -> None:
    churn = Churn(cluster, 7 + 1000 * PIECE, pop=INVISIBLE)
    deaths = 1
    try:
        churn.start()
        for number in range(2):
            join(churn, kinds[number % len(kinds)])
        churn.rest(2)
        churn.kill_at_work(0)
        churn.rest(0.5)
        kill_broker(churn, 0.2)
        join(churn, kinds[0])
        churn.rest(2)
        for _ in range(amount(0, 100)):
            dice = churn.random.random()
            if len(churn.members) < 2 or (dice < 0.3 and len(churn.members) < 4):
                join(churn, kinds[churn.joined % len(kinds)])
            elif dice < 0.75:
                churn.kill_at_work(churn.random.randrange(len(churn.members)))
            else:
                deaths += 1
                kill_broker(churn, churn.random.random())
            churn.rest(3 * churn.random.random())
        lines = churn.finish()
    finally:
        churn.close()
    sent = {key: at for key, (_, _, at) in churn.sent.items()}
    verdict = judge_pops(lines, sent, invisible=INVISIBLE, late=LATE)
    say(f"{' and '.join(kinds)}: {churn.killed} members and {deaths} brokers killed: {dict(verdict.counts)}")
    verdict.demand()
    assert len(sent) > 100
    assert verdict.counts["given again, never done"], "nobody was killed with a message in hand"

"""mqadmin over a large cluster: ``python -m benchmark.tools [--brokers 10] [--topics 2000] [--groups 500] [--java]``.

Ten brokers and a name server run in one process beside it, with 2,000 topics of 4 queues on each and 500 groups that
have offsets. Each command is a process of its own: from its start to its end, its CPU time and its memory, the least of
some rounds. In the same rounds Python is started that loads what any such tool needs and does nothing, and with
``--java`` Java's own mqadmin. Exit code 1 when a bound of the project is broken: 0.2 s for topicList, 1.5 s for the
others, 100 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

# The rest is loaded where the cluster runs: what a process uses at most is counted from where it was forked.
if TYPE_CHECKING:
    from rmq.aio import AdminClient

#: Command -> seconds that it may take; infinity where the project has no bound.
COMMANDS = {
    "topicList": 0.2,
    "clusterList": 1.5,
    "topicList -c": 1.5,
    "consumerProgress": 1.5,
    "consumerProgress -g group-007": 1.5,
    "topicRoute -t topic-0007": 1.5,
    "topicStatus -t topic-0007": 1.5,
    "statsAll": float("inf"),
    "statsAll -t topic-0007": 1.5,
    "getConsumerConfig -g group-007": 1.5,
}
_MIB = 100
_QUEUES = 4
#: What any tool of Python's with these libraries costs before it begins.
_BARE = "import asyncio, click, orjson"


@dataclass(slots=True)
class Cost:
    """The least of several runs. :param mib: of memory, the most of them."""

    seconds: float
    cpu: float
    mib: float

    def least(self, other: Cost) -> Cost:
        return Cost(min(self.seconds, other.seconds), min(self.cpu, other.cpu), max(self.mib, other.mib))


# -- the cluster ----------------------------------------------------------------------------------------------


async def serve(brokers: int, topics: int, groups: int) -> None:
    """Print the name server's address once everything is there; until standard input ends."""
    from rmq.aio import AdminClient
    from rmq.testing.cluster import Cluster

    with tempfile.TemporaryDirectory(prefix="rmq-tools-") as folder:
        async with Cluster(folder, brokers=brokers) as cluster:
            async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
                for address in (await admin.masters("DefaultCluster")).values():
                    await _fill(admin, address, topics, groups)
            print(cluster.namesrv_addr, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _fill(admin: AdminClient, address: str, topics: int, groups: int) -> None:
    from benchmark.scale import all_answered
    from rmq.protocol.bodies.group import SubscriptionGroupConfig
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.protocol.codes import RequestCode
    from rmq.protocol.command import Command
    from rmq.protocol.names import retry_topic
    from tests.support.raw_peer import RawPeer

    names = [f"group-{number:03}" for number in range(groups)]
    made = [TopicConfig(f"topic-{number:04}", _QUEUES, _QUEUES, 6) for number in range(topics)]
    await admin.create_and_update_topics(address, made)
    await admin.create_and_update_subscription_groups(address, [SubscriptionGroupConfig(name) for name in names])
    await admin.create_and_update_topics(address, [TopicConfig(retry_topic(name), 1, 1, 6) for name in names])

    def offset(number: int) -> Command:
        ext = {"consumerGroup": names[number // _QUEUES], "topic": f"topic-{number // _QUEUES % topics:04}",
               "queueId": str(number % _QUEUES), "commitOffset": "0"}  # fmt: skip
        return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=dict(ext))

    host, _, port = address.rpartition(":")
    async with RawPeer(host, int(port)) as peer:
        await all_answered(peer, groups * _QUEUES, offset)


# -- the commands ---------------------------------------------------------------------------------------------


def cost(words: Sequence[str]) -> Cost:
    """Run a program to its end, its output thrown away.

    :raises SystemExit: it failed.
    """
    nothing = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begun = time.perf_counter()
    pid = os.posix_spawnp(words[0], words, os.environ, file_actions=nothing)
    _, status, used = os.wait4(pid, 0)
    seconds = time.perf_counter() - begun
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"benchmark: {' '.join(words)} ended with {code}")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _java_home() -> str:
    """A folder in which Java's tool finds that it is to log nothing."""
    home = tempfile.mkdtemp(prefix="rmq-tools-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.mkdir(os.path.join(home, "conf"))
    with open(os.path.join(home, "conf", "logback_tools.xml"), "w") as file:
        file.write("<configuration/>")
    return home


def measure(namesrv: str, rounds: int, java: bool) -> dict[str, Cost]:
    """Every command in turn, some times."""
    programs: dict[str, list[str]] = {"nothing": [sys.executable, "-c", _BARE]}
    for line in COMMANDS:
        programs[line] = [sys.executable, "-m", "rmq.cli.mqadmin", *line.split(), "-n", namesrv]
    if java:
        from tests.support.peers.jars import JAVA_OPENS, java_classpath

        options = [*JAVA_OPENS, f"-Drocketmq.home.dir={_java_home()}", "-cp", java_classpath("4.9.8")]
        for line in ("topicList", "clusterList", "consumerProgress"):
            start = ["java", *options, "org.apache.rocketmq.tools.command.MQAdminStartup"]
            programs[f"Java: {line}"] = [*start, *line.split(), "-n", namesrv]
    found: dict[str, Cost] = {}
    for _ in range(rounds):
        for name, words in programs.items():
            one = cost(words)
            found[name] = found[name].least(one) if name in found else one
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.tools", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--java", action="store_true", help="Java's mqadmin 4.9.8, too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.serve:
        asyncio.run(serve(options.brokers, options.topics, options.groups))
        return 0
    sizes = [f"--{name}={getattr(options, name)}" for name in ("brokers", "topics", "groups")]
    server = [sys.executable, "-m", "benchmark.tools", "--serve", *sizes]
    with subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        namesrv = cluster.stdout.readline().strip()
        if not namesrv:
            print("benchmark: the cluster did not start", file=sys.stderr)
            return 2
        try:
            found = measure(namesrv, options.rounds, options.java)
        finally:
            cluster.communicate()
    return report(found)


def report(found: dict[str, Cost]) -> int:
    """Print the figures. :returns: the exit code."""
    print(f"{'':34}{'seconds':>9}{'CPU s':>9}{'MiB':>7}")
    broken = []
    for name, one in found.items():
        print(f"{name:34}{one.seconds:9.3f}{one.cpu:9.3f}{one.mib:7.0f}")
        if one.seconds > COMMANDS.get(name, one.seconds):
            broken.append(f"{name}: {one.seconds:.2f} s, at most {COMMANDS[name]} s")
        if name in COMMANDS and one.mib > _MIB:
            broken.append(f"{name}: {one.mib:.0f} MiB, at most {_MIB}")
    for line in broken:
        print(f"over its bound: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""OpenMessaging as Apache implements it (rocketmq-openmessaging 4.9.4) and ours: each reads what the other sends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rmq import AdminClient
from rmq.integrations.openmessaging import messaging_access_point
from tests.support.interop import Clusters, fresh
from tests.support.peers import JAVA_OPENS, ToolMissing, require, skip_or_fail
from tests.support.peers.cache import cached, content_key
from tests.support.peers.jars import dependencies, resolve_pom, run_tool
from tests.support.peers.programs import PROGRAMS

POM = dependencies("4.9.4", "openmessaging")


def program() -> str:
    """The class path of the Java program."""
    source = PROGRAMS / "java" / "oms"
    jars = f"{resolve_pom('4.9.4/oms', POM)}/*"

    def build(folder: Path) -> None:
        require("javac")
        files = [str(file) for file in source.rglob("*.java")]
        run_tool(["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(folder), "-cp", jars, *files], folder)

    return f"{cached(f'4.9.4/oms-{content_key(POM, source)}', build)}:{jars}"


def test_each_reads_what_the_other_sends(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters.get("ours")
    url = f"oms:rocketmq://alice@{cluster.namesrv}/us-east"
    ours, theirs = fresh("oms-python"), fresh("oms-java")
    place = messaging_access_point(url)
    with AdminClient(namesrv=cluster.namesrv) as admin:
        for topic in (ours, theirs):
            admin.create_and_update_topic(cluster.brokers[0].addr, topic, read_queue_nums=2, write_queue_nums=2)
    sent: set[tuple[str, ...]] = set()
    with place.create_producer() as producer:
        for number in range(5):
            message = producer.create_bytes_message(ours, f"from Python {number}")
            message.put_sys_headers("SEARCH_KEYS", f"k{number}").put_user_headers("number", number)
            sent.add((f"from Python {number}", producer.send(message).message_id, ours, f"k{number}", str(number)))
    try:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *JAVA_OPENS, f"-Duser.home={tmp_path}"]
        command += ["-cp", program(), "peer.Oms", url, theirs, ours, "5"]
    except ToolMissing as missing:
        skip_or_fail(missing)
    done = subprocess.run(
        command, env={**os.environ, "OMS_RMQ_DIRECT_NAME_SRV": "true"}, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    said = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
    for who in ("push", "pull"):
        assert {row[1:] for row in said if row[0] == who} == sent, done.stdout + done.stderr[-2000:]
    (their_id,) = [row[1] for row in said if row[0] == "sent"]
    with place.create_pull_consumer({"rmq.consumer.group": fresh("g")}) as consumer:
        consumer.attach_queue(theirs)
        got = consumer.receive({"OPERATION_TIMEOUT": 60_000})
        assert got is not None
        consumer.ack(str(got.sys_headers["MESSAGE_ID"]))
    assert (got.body, got.user_headers["number"]) == (b"from Java", "7")
    names = ("MESSAGE_ID", "DESTINATION", "SEARCH_KEYS", "REDELIVERED_NUMBER")
    assert [got.sys_headers[name] for name in names] == [their_id, theirs, "k-java", 0]

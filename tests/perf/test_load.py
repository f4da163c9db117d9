"""The load program of benchmark/ against our broker for a second: prints figures, asserts nothing about time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.program import BenchmarkError, EchoServer, compile_load, run_load
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from tests.support.peers import Cluster, start_cluster

TOPIC = "LoadTopic"


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return compile_load()
    except BenchmarkError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with start_cluster("ours") as cluster:
        yield cluster


def stored(addr: str, topic: str) -> int:
    """The sum of the max offsets of a topic's four queues."""
    host, _, port = addr.rpartition(":")
    total = 0
    with socket.create_connection((host, int(port)), timeout=100) as connection:
        for queue in range(4):
            ext: dict[str, str | None] = {"topic": topic, "queueId": str(queue)}
            connection.sendall(frame.encode(Command(RequestCode.GET_MAX_OFFSET, ext=ext, opaque=queue)))
            with connection.makefile("rb") as reader:
                (length,) = struct.unpack(">i", reader.read(4))
                answer = frame.decode(reader.read(length))
            assert (answer.code, answer.opaque) == (0, queue), answer
            assert answer.ext is not None
            total += int(answer.ext["offset"] or -1)
    return total


def test_the_echo_server_gives_every_frame_back(program: Path) -> None:
    with EchoServer(program) as echo:
        result = run_load(program, "send", echo.addr, connections=4, in_flight=8, messages=2_000, seconds=20, echo=True)
    assert (result.acknowledged, result.problem) == (2_000, "")


def test_every_acknowledged_message_is_in_the_store(program: Path, cluster: Cluster) -> None:
    acknowledged = 0
    for connections, in_flight, body in ((1, 1, 128), (8, 16, 128), (8, 16, 1024), (1, 256, 1024)):
        result = run_load(
            program,
            "send",
            cluster.broker_addr,
            connections=connections,
            in_flight=in_flight,
            body=body,
            seconds=0.7,
            warm=0.1,
            topic=TOPIC,
            server_pid=cluster.brokers[0].daemon.pid,
        )
        print(
            f"{body} B {connections}x{in_flight}: {result.rate:,.0f}/s, {result.cpu_us:.1f} us CPU a message, "
            f"p50 {result.p50_us:,.0f} us, p99 {result.p99_us:,.0f} us"
        )
        assert result.problem == ""
        acknowledged += result.acknowledged
    assert stored(cluster.broker_addr, TOPIC) == acknowledged


def test_pulls_bring_whole_records(program: Path, cluster: Cluster) -> None:
    topic = "LoadPullTopic"
    filled = run_load(
        program, "send", cluster.broker_addr, in_flight=16, body=1024, messages=2_000, seconds=30, topic=topic
    )
    assert (filled.acknowledged, filled.problem) == (2_000, "")
    result = run_load(
        program, "pull", cluster.broker_addr, connections=4, in_flight=4, seconds=0.7, warm=0.1, topic=topic
    )
    print(f"pull 32 x 1 KB 4x4: {result.rate:,.0f}/s, p50 {result.p50_us:,.0f} us, p99 {result.p99_us:,.0f} us")
    assert result.problem == ""


def test_a_refusal_is_reported_and_not_counted(program: Path, cluster: Cluster) -> None:
    # Blanks are not allowed in a topic's name: code 1 for every message.
    result = run_load(program, "send", cluster.broker_addr, messages=10, seconds=20, topic="not a topic")
    assert result.count == result.acknowledged == 0
    assert "'errors': 10" in result.problem

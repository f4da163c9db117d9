"""A group with a Java member and one of ours: they share the queues, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import COUNT, Clusters, Scene, assert_same, shares_of, until
from tests.support.peers import Client


@pytest.fixture
def mixed(scene: Callable[[str, str], Scene]) -> Scene:
    return scene(Clusters.tested(), "java-4.9.8")


@pytest.fixture
def python(clients: Callable[[str, str], Client]) -> Client:
    return clients("python", "tested")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_share_the_queues(mixed: Scene, python: Client, orderly: bool) -> None:
    topic, group = mixed.topic("mixed"), mixed.group("mixed")
    members = [
        mixed.subscribe(topic, group, orderly=orderly),
        mixed.subscribe(topic, group, by=python, orderly=orderly),
    ]
    mixed.settle(topic, members)
    mode = "ordered" if orderly else "async"
    sent = mixed.produce(topic, mode, prefix="java") + mixed.produce(topic, mode, by=python, prefix="python")
    shares = shares_of(members, 2 * COUNT)
    assert_same(sent, [row for share in shares for row in share])
    queues = [{row.queue for row in share} for share in shares]
    assert len(queues[0]) == len(queues[1]) == 2
    assert not queues[0] & queues[1], "both members were given messages of one queue"
    for member in members:
        member.stop()


@pytest.mark.parametrize("leaving", ["java", "python"])
def test_one_leaves_while_messages_come(mixed: Scene, python: Client, leaving: str) -> None:
    topic, group = mixed.topic("leaving"), mixed.group("leaving")
    java_member = mixed.subscribe(topic, group)
    python_member = mixed.subscribe(topic, group, by=python)
    members = [java_member, python_member]
    mixed.settle(topic, members)
    first, second = members if leaving == "java" else members[::-1]
    sent = mixed.produce(topic, "async", prefix="before")
    taken = shares_of(members, COUNT)
    before = {row.key for row in first.received(0)}
    assert before
    first.stop()
    sent += mixed.produce(topic, "async", prefix="after")
    # What the first one had not committed the second one is given again.
    keys = until(lambda: before | {row.key for row in second.received(0)}, lambda keys: len(keys) >= len(sent))
    assert keys == {row.key for row in sent}, f"{len(sent) - len(keys)} messages were lost when the member left"
    assert sum(map(len, taken)) == COUNT
    second.stop()

"""Names in a namespace are Java's (what its classes say, tests/golden/client)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq.aio import ClientError, Producer, PushConsumer
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace, namespace_of

GOLDEN = Path(__file__).parents[2] / "golden" / "client" / "names-4.9.4.jsonl"
RECORDED = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def test_names_are_wrapped_and_unwrapped_as_java_does() -> None:
    cases = [case for case in RECORDED if "resource" in case]
    assert len(cases) == 81
    for case in cases:
        names = Namespace(case["namespace"])
        found = names.wrap(case["resource"]), names.plain(case["resource"])
        assert found == (case["wrapped"], case["plain"]), case


def test_an_instances_address_says_its_namespace_as_with_java() -> None:
    cases = [case for case in RECORDED if "address" in case]
    assert len(cases) == 14
    for case in cases:
        assert namespace_of(None, case["address"]) == case["namespace"], case
        assert Producer("g", namesrv=case["address"])._settings.namespace == case["namespace"]
        assert Producer("g", namesrv=case["address"], namespace="own").group == "own%g"
        assert Producer("g", namesrv=case["address"], namespace="").group == "g"


@pytest.mark.parametrize("given", ["a%b", "a.b", "%", "a b"])
def test_what_is_no_namespace_is_refused(given: str) -> None:
    with pytest.raises(ClientError, match=r"namespace is .*: give letters, digits, - and _"):
        PushConsumer("g", namespace=given)


def test_a_group_too_long_with_its_namespace_is_refused() -> None:
    with pytest.raises(ClientError, match="longer than group max length"):
        PushConsumer("g" * 100, namespace="n" * 30)


def test_a_selector_gets_and_gives_queues_without_the_namespace() -> None:
    names, wire = Namespace("NS"), [MessageQueue("NS%T", "b", i) for i in range(2)]
    seen = []

    def last(queues: object, message: object, arg: object) -> MessageQueue:
        seen.append(queues)
        return MessageQueue("T", "b", 1)

    selector = names.selector(last)
    assert selector is not None
    assert selector(wire, None, None) == wire[1]  # type: ignore[arg-type]
    assert seen == [[MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]]

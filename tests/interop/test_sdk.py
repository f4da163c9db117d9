"""Our SDK: every cell against the real Java 4.9.4 and 5.3.3 name servers and brokers, and against ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.interop import PROMISED, Scene, fresh, run_cell, until
from tests.support.peers import Client

#: Where it is tried, and by which of its surfaces: 5.3.3 once, for CI's minutes; below the calls both are one code.
PLACES = [
    ("java-4.9.4", "python"),
    ("java-4.9.4", "python-blocking"),
    ("java-5.3.3", "python"),
    ("ours", "python"),
    ("ours", "python-blocking"),
]


@pytest.mark.parametrize("cell", PROMISED["python"])
@pytest.mark.parametrize(("kind", "client"), PLACES)
def test_cell(kind: str, client: str, cell: str, scene: Callable[[str, str], Scene]) -> None:
    run_cell(cell, scene(kind, client))


@pytest.mark.parametrize(("kind", "client"), PLACES)
def test_requests_are_answered_between_java_s_clients_and_ours(
    kind: str, client: str, scene: Callable[[str, str], Scene]
) -> None:
    where = scene(kind, client)
    namesrv = where.cluster.namesrv

    def ask(who: Client, topic: str, key: str, timeout: float = 60.0) -> dict[str, Any]:
        return who.call("request", namesrv=namesrv, topic=topic, key=key, timeout=timeout)

    for asking, answering in ((where.client, where.reader), (where.reader, where.client)):
        topic, handle = where.topic("rpc"), fresh("responder")
        answering.call("respond", handle=handle, namesrv=namesrv, group=where.group("rpc"), topic=topic)
        if asking is where.reader:  # who asks with Java's client may not be known to the broker yet
            until(partial(ask, asking, topic, "warm", 3.0), lambda answer: "reply" in answer)
        for key in ("first", "second", "\u8ba2\u5355", "long" * 2_000):
            assert ask(asking, topic, key).get("reply") == f"re:{key}"
        assert "timeout" in ask(asking, topic, "silent", 1)
        answering.call("unrespond", handle=handle)

"""Transactions of our SDK on Java brokers: commit, rollback, check-back, another answer when asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import Scene, fresh, until


@pytest.mark.parametrize(
    ("kind", "name"), [("java-4.9.4", "python"), ("java-4.9.4", "python-blocking"), ("java-5.3.3", "python")]
)
def test_a_java_broker_asks_and_is_answered(kind: str, name: str, scene: Callable[[str, str], Scene]) -> None:
    where = scene(kind, name)
    topic, handle, namesrv = where.topic("tx"), fresh("tx"), where.cluster.namesrv
    member = where.subscribe(topic, where.group("tx"), by=where.reader)
    sdk = where.client
    sdk.call("txstart", handle=handle, namesrv=namesrv, group=where.group("txp"), answer="UNKNOW")
    for key, state in (("committed", "COMMIT_MESSAGE"), ("rolled", "ROLLBACK_MESSAGE"), ("unknown", "UNKNOW")):
        answer = sdk.call("txsend", handle=handle, topic=topic, key=key, state=state)
        assert answer["status"] == "SEND_OK"

    def checks() -> list[list[str]]:
        """Of the one whose end is open: on a busy machine other ends take longer than the second until a check."""
        return [row for row in sdk.call("txchecks", handle=handle)["rows"] if row[0] == "unknown"]

    assert until(checks, bool)[0] == ["unknown", "unknown", topic, answer["uniqueId"], "1", "A"]
    member.received(1)
    assert [row.key for row in member.received(2, 1)] == ["committed"]
    sdk.call("txanswer", handle=handle, answer="COMMIT_MESSAGE")
    assert sorted(row.key for row in member.received(2)) == ["committed", "unknown"]
    sdk.call("txstop", handle=handle)
    member.stop()

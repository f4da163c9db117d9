"""Who is let in, request by request (A04, A05)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq.auth.access import ADMIN, BROKER, Access, inside, publisher, signed
from rmq.auth.guard import Guard, Leniency
from rmq.auth.plain_acl import parse_plain_acl
from rmq.auth.rules import Rules
from rmq.protocol.command import Command
from rmq.protocol.errors import AuthError
from rmq.protocol.permissions import publish_topic, use_topic
from rmq.protocol.signature import signed_fields
from rmq.runtime.world import World

FILE = """\
accounts:
- {accessKey: ordinary, secretKey: 12345678, topicPerms: [orders=PUB]}
- {accessKey: operator, secretKey: 12345678, admin: true}
- {accessKey: a-broker, secretKey: 12345678, broker: true}
- {accessKey: gone-one, secretKey: 12345678, admin: true, disabled: true}
- {accessKey: one-place, secretKey: 12345678, whiteRemoteAddress: 10.0.0.1, topicPerms: [orders=PUB]}
"""
TABLE: Mapping[int, Access] = {1: signed("for all"), 2: ADMIN, 3: BROKER, 4: publisher("topic"), 5: inside("what")}
HEADER: Any = SimpleNamespace(topic="orders")


def guard(text: str = FILE, leniency: Leniency | None = None) -> Guard:
    made = Guard(World.real().clock, TABLE, leniency)
    made.rules = Rules.of([parse_plain_acl("f", text.encode())])
    return made


def signed_by(key: str | None, code: int = 1, *, secret: str = "12345678", topic: str = "orders") -> Command:
    ext: dict[str, str | None] = {"topic": topic}
    return Command(code, ext=ext if key is None else signed_fields(ext, b"body", key, secret), body=b"body")


def ask(at: Guard, request: Command, host: str = "9.9.9.9", topic: str = "orders") -> str:
    """Why a request is refused; nothing when it is not."""
    conn: Any = SimpleNamespace(host=host, peer=f"{host}:1")
    try:
        at.admit(conn, request)
        at.check(conn, request, cast(Any, SimpleNamespace(topic=topic)))
    except AuthError as error:
        return str(error)
    return ""


def test_names_that_nothing_has_are_not_remembered() -> None:
    """Whoever has an account may send names of 16 KiB, one after the other."""
    at = guard()
    for number in range(20):
        assert ask(at, signed_by("ordinary", 4), topic=f"{number}{'x' * 16_000}").startswith("No default permission")
        assert ask(at, signed_by("ordinary", 4), topic=f"{number}").startswith("No default permission")
        assert ask(at, signed_by("ordinary", 4)) == ""
    assert len(at._verdicts) == 21


def test_who_is_known_and_who_is_not() -> None:
    at = guard()
    assert ask(at, Command(1)) == "No accessKey is configured"
    assert ask(at, signed_by(None)) == "No accessKey is configured"
    assert ask(at, signed_by("NOBODY12")) == "No acl config for NOBODY12"
    assert ask(at, signed_by("ordinary", secret="wrong one")) == "Check signature failed for accessKey=ordinary"
    assert ask(at, signed_by("gone-one")) == "accessKey=gone-one is disabled"
    assert ask(at, signed_by("ordinary")) == ""
    assert dict(at.refused) == {"unsigned": 2, "unknown": 1, "signature": 1, "disabled": 1}


@pytest.mark.parametrize("change", ["body", "value", "field", "no signature", "empty", "null", "name"])
def test_a_request_that_was_changed_on_its_way(change: str) -> None:
    request = signed_by("ordinary")
    assert request.ext is not None
    if change == "body":
        request.body = b"bodx"
    elif change == "value":
        request.ext["topic"] = "others"
    elif change == "field":
        request.ext["more"] = "1"
    elif change == "no signature":
        del request.ext["Signature"]
    elif change == "empty":
        request.ext["Signature"] = ""
    elif change == "null":
        request.ext["topic"] = None
    else:
        request.ext["AccessKey"] = "operator"
    assert ask(guard(), request).startswith("Check signature failed for accessKey=")


def test_roles() -> None:
    at = guard()
    may = {who: [code for code in (1, 2, 3, 77) if not ask(at, signed_by(who, code))]
           for who in ("ordinary", "a-broker", "operator")}  # fmt: skip
    assert may == {"ordinary": [1], "a-broker": [1, 3], "operator": [1, 2, 3, 77]}
    assert (
        ask(at, signed_by("ordinary", 77)) == "Need admin permission for request code=77, but accessKey=ordinary is not"
    )


def test_permissions_are_those_of_the_header_that_the_handler_gets() -> None:
    at = guard()
    assert ask(at, signed_by("ordinary", 4)) == ""
    refused = ask(at, signed_by("ordinary", 4, topic="orders"), topic="others")
    assert refused == "No default permission for topic:others, accessKey=ordinary needs PUB"


def test_a_grant_follows_the_rules() -> None:
    at = guard()
    request = signed_by("ordinary", 5)
    assert ask(at, request) == ""
    request.demand(publish_topic("orders"))
    with pytest.raises(AuthError, match="needs SUB"):
        request.demand(use_topic("orders"))
    at.rules = Rules.of([parse_plain_acl("f", FILE.replace("orders=PUB", "orders=DENY").encode())])
    with pytest.raises(AuthError, match="needs PUB"):
        request.demand(publish_topic("orders"))
    at.rules = Rules()
    with pytest.raises(AuthError, match="No acl config for ordinary"):
        request.demand(publish_topic("orders"))
    assert at.refused["permission"] == 3


def test_white_lists_only_narrow() -> None:
    """Field case B108."""
    listed = "globalWhiteRemoteAddresses: [10.0.0.*]\n" + FILE
    for host in ("10.0.0.1", "9.9.9.9"):
        assert ask(guard(listed), signed_by(None), host) == "No accessKey is configured"
        assert ask(guard(listed), signed_by("one-place", secret="wrong one"), host).startswith("Check signature")
    assert ask(guard(listed), signed_by("ordinary", 4), "10.0.0.1") == ""
    assert "not for the address 9.9.9.9" in ask(guard(listed), signed_by("ordinary", 4))
    assert ask(guard(), signed_by("one-place", 4), "10.0.0.1") == ""
    assert "not for the address 10.0.0.2" in ask(guard(listed), signed_by("one-place", 4), "10.0.0.2")


def test_white_lists_as_java_has_them() -> None:
    """Field case B108."""
    at = guard("globalWhiteRemoteAddresses: [10.0.0.9]\n" + FILE, Leniency(white_lists=True))
    assert ask(at, signed_by(None, 2), "10.0.0.9") == ""
    assert ask(at, signed_by("one-place", 2, secret="wrong one"), "10.0.0.1") == ""
    assert ask(at, signed_by("NOBODY12"), "10.0.0.1") == "No acl config for NOBODY12"
    assert ask(at, signed_by("ordinary"), "9.9.9.9") == ""


def test_codes_that_java_does_not_check() -> None:
    at = guard()
    lenient = guard(leniency=Leniency(unchecked_codes=True))
    for code in (320, 14, 26):
        assert ask(at, signed_by("ordinary", code)).startswith("Need admin")
        assert ask(lenient, signed_by("ordinary", code)) == ""
    for code in (17, 25, 200, 50, 51, 53, 54):
        assert ask(lenient, signed_by("ordinary", code)).startswith("Need admin")


def test_the_trace_topic_as_java_has_it() -> None:
    for leniency, refused in ((Leniency(), True), (Leniency(trace_topic=True), False)):
        request = signed_by("ordinary", 5)
        assert ask(guard(leniency=leniency), request) == ""
        assert refused == _refused(request, publish_topic("RMQ_SYS_TRACE_TOPIC"))
        assert _refused(request, use_topic("RMQ_SYS_TRACE_TOPIC"))


def _refused(request: Command, need: Any) -> bool:
    try:
        request.demand(need)
    except AuthError:
        return True
    return False


@pytest.mark.parametrize("version", [399, 409])
@pytest.mark.parametrize("marked", [True, False])
def test_a_query_by_unique_key_is_signed_with_its_mark_or_without(version: int, marked: bool) -> None:
    ext: dict[str, str | None] = {"topic": "orders", "_UNIQUE_KEY_QUERY": "true"}
    fields = signed_fields(ext if marked else {"topic": "orders"}, b"", "ordinary", "12345678") | ext
    assert ask(guard(), Command(1, ext=fields, version=version)) == ""

"""What one account may ask for: its own figures go before those of all, and each is its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmq.auth.access import Access, signed
from rmq.auth.guard import Guard
from rmq.auth.plain_acl import parse_plain_acl
from rmq.auth.quota import Quotas
from rmq.auth.rules import Rules
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ResponseError
from rmq.protocol.signature import signed_fields

ALIKE, FREE, LITTLE = "as-the-rest", "without-any", "little-one"


def file(**shares: str) -> str:
    lines = "".join(f"  {name}: {value}\n" for name, value in shares.items())
    none = "".join(f"  {name}: 0\n" for name in shares)
    return (
        f"accounts:\n- accessKey: {ALIKE}\n  secretKey: 12345678\n"
        f"- accessKey: {FREE}\n  secretKey: 12345678\n{none}"
        f"- accessKey: {LITTLE}\n  secretKey: 12345678\n{lines}"
    )


class Scene:
    """A guard in a second that does not pass."""

    def __init__(self, text: str, **settings: int) -> None:
        clock: Any = SimpleNamespace(monotonic=lambda: self.now, now_ms=lambda: 0)
        self.now = 0.0
        table: dict[int, Access] = {1: signed("for all")}
        self.guard = Guard(clock, table)
        none = dict.fromkeys(("account_max_requests_per_second", "account_max_bytes_per_second"), 0)
        self.settings: Any = SimpleNamespace(**{**none, "account_max_connections": 0, **settings})
        self.guard.quotas = self.quotas = Quotas(clock, self.settings)
        self.take(text)

    def take(self, text: str) -> None:
        self.guard.rules = Rules.of([parse_plain_acl("f", text.encode())])

    def ask(self, key: str, conn: Any = None, body: bytes = b"") -> str:
        """Which setting a request is refused for; nothing when it is not."""
        conn = conn or connection()
        request = Command(1, ext=signed_fields({}, body, key, "12345678"), body=body)
        try:
            self.guard.admit(conn, request)
        except ResponseError as error:
            return str(error.remark).partition("(")[2].partition(")")[0]
        return ""


def connection() -> Any:
    class Conn(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    return Conn(host="9.9.9.9", peer="9.9.9.9:1", closed=False)


def test_requests_of_an_account_with_a_figure_of_its_own() -> None:
    scene = Scene(file(maxRequestsPerSecond="2"), account_max_requests_per_second=4)
    found = {key: [scene.ask(key) for _ in range(6)] for key in (ALIKE, FREE, LITTLE)}
    assert found == {
        ALIKE: [""] * 4 + ["accountMaxRequestsPerSecond"] * 2,
        FREE: [""] * 6,
        LITTLE: [""] * 2 + ["maxRequestsPerSecond"] * 4,
    }
    scene.now += 1
    assert [scene.ask(LITTLE) for _ in range(3)] == ["", "", "maxRequestsPerSecond"]


def test_bytes_of_an_account_in_both_directions() -> None:
    scene = Scene(file(maxBytesPerSecond="1000"), account_max_bytes_per_second=2000)
    found = {key: [scene.ask(key, body=b"x" * 900) for _ in range(4)] for key in (ALIKE, FREE, LITTLE)}
    assert found == {
        ALIKE: ["", "", "accountMaxBytesPerSecond", "accountMaxBytesPerSecond"],
        FREE: [""] * 4,
        LITTLE: ["", *["maxBytesPerSecond"] * 3],
    }
    scene.now += 60
    request = Command(1, ext=signed_fields({}, b"", LITTLE, "12345678"))
    scene.guard.admit(connection(), request)
    assert request.grant is not None
    request.grant.charge(10_000)
    scene.now += 5
    assert scene.ask(LITTLE) == "maxBytesPerSecond"
    scene.now += 5
    assert scene.ask(LITTLE) == ""
    scene.take(file().replace(LITTLE, "somebody-else"))
    request.grant.charge(10_000)  # an account that is gone is charged nothing


def test_connections_of_an_account_and_how_they_are_forgotten() -> None:
    scene = Scene(file(maxConnections="1"), account_max_connections=2)
    conns = [connection() for _ in range(3)]
    found = {key: [scene.ask(key, conn) for conn in conns] for key in (ALIKE, FREE, LITTLE)}
    assert found == {
        ALIKE: ["", "", "accountMaxConnections"], FREE: [""] * 3, LITTLE: ["", "maxConnections", "maxConnections"],
    }  # fmt: skip
    # One account's limit goes: what is counted of the other on the same connection stays.
    scene.take(file(maxConnections="0"))
    assert [scene.ask(LITTLE, conn) for conn in conns] == [""] * 3
    assert scene.ask(ALIKE, conns[2]) == "accountMaxConnections"
    scene.quotas.closed(conns[0])
    assert scene.ask(ALIKE, conns[2]) == ""
    scene.settings.account_max_connections = 0
    assert scene.ask(ALIKE, conns[1]) == ""
    for conn in conns:
        scene.quotas.closed(conn)
    assert not scene.quotas._conns
    assert not scene.quotas._accounts


@pytest.mark.parametrize("value", ["-1", "many", "1.5", "'1 '", "9999999999999999", "[1]", "٣"])
def test_a_figure_that_is_none_names_its_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"f:8: maxConnections is (a number|one value)"):
        parse_plain_acl("f", file(maxConnections=value).replace("  maxConnections: 0\n", "").encode())


def test_a_misspelt_figure_is_refused_and_an_empty_one_is_that_of_all() -> None:
    with pytest.raises(ConfigError, match="is it maxConnections"):
        parse_plain_acl("f", file(maxConnection="1").encode())
    assert parse_plain_acl("f", file(maxConnections="").encode()).accounts[2].connections is None

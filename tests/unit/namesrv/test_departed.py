"""What a name server remembers of brokers that left: until they are back, or are said to be gone for good."""

from __future__ import annotations

import json

from rmq.namesrv.departed import SILENT, Departed
from rmq.namesrv.routes import BROKER_EXPIRY, Registration, RouteTable
from rmq.protocol.bodies.topic import DataVersion


def told(name: str, number: int = 0) -> Registration:
    return Registration("C", name, number, f"10.0.0.1:{10_000 + 100 * ord(name[0]) + number}", "", DataVersion())


def how(table: RouteTable) -> dict[str, str]:
    return {name: json.loads(text)["how"] for name, text in table.departed.table().items()}


def test_it_knows_how_each_left_and_forgets_who_is_back() -> None:
    routes = RouteTable()
    for name in "abcd":
        routes.register(told(name), name, 0.0)
    routes.register(told("a", 1), "a1", 0.0)
    assert routes.unregister("b", 0, told("b").addr)
    routes.close("c")
    routes.refresh(told("a").addr, 100.0)
    routes.refresh(told("a", 1).addr, 200.0)
    routes.expire(BROKER_EXPIRY + 1)
    assert how(routes) == {"b": "unregistered", "c": "ended", "d": "silent"}
    routes.expire(BROKER_EXPIRY + 150)  # the master of a, whose slave is there
    assert "a" not in how(routes)
    assert json.loads(routes.departed.table()["d"]) == {"cluster": "C", "addr": told("d").addr, "how": "silent"}
    routes.register(told("c"), "c", 200.0)
    routes.departed.forget("b")
    routes.departed.forget("nobody")
    assert how(routes) == {"d": "silent"}


def test_another_name_at_the_same_address_is_no_departure() -> None:
    routes = RouteTable()
    routes.register(told("a"), "x", 0.0)
    routes.register(Registration("C", "renamed", 0, told("a").addr, "", DataVersion()), "x", 1.0)
    assert how(routes) == {}


def test_so_many_are_remembered() -> None:
    departed = Departed()
    for number in range(300):
        departed.left(f"b{number}", "C", "10.0.0.1:1", SILENT)
    departed.left("b44", "C", "10.0.0.1:1", SILENT)
    assert len(departed.table()) == 256
    assert [*departed.table()][-1] == "b44"
    assert "b43" not in departed.table()

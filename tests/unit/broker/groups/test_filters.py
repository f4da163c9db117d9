"""SQL92 filters of groups: born, changed, dead, forgotten; their file; the bit maps that they leave on messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.groups import filters as filters_module
from rmq.broker.groups.filters import ConsumerFilters
from rmq.broker.settings import BrokerSettings
from rmq.filter.sql import SqlFilter
from rmq.protocol import properties
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.turns import Turns

#: As a Java 4.9.4 broker wrote it, but for the times.
JAVA = (
    b'{\n\t"filterDataByTopic":{\n\t\t"T":{\n\t\t\t"groupFilterData":{\n\t\t\t\t"G":{\n\t\t\t\t\t"bloomFilterData":{\n'
    b'\t\t\t\t\t\t"bitNum":112,\n\t\t\t\t\t\t"bitPos":[24,26,83]\n\t\t\t\t\t},\n\t\t\t\t\t"bornTime":1000,\n'
    b'\t\t\t\t\t"clientVersion":16,\n\t\t\t\t\t"consumerGroup":"G",\n\t\t\t\t\t"dead":true,\n\t\t\t\t\t"deadTime":2000,\n'
    b'\t\t\t\t\t"expression":"a = 2",\n\t\t\t\t\t"expressionType":"SQL92",\n\t\t\t\t\t"topic":"T"\n\t\t\t\t}\n'
    b'\t\t\t},\n\t\t\t"topic":"T"\n\t\t}\n\t}\n}'
)


def sql(text: str, version: int, topic: str = "T", kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, sub_version=version, expression_type=kind)


class Scene:
    def __init__(self, node: SimNode | None = None, **settings: Any) -> None:
        self.node = node or Simulation(1).node("a")
        self.clock = self.node.world.clock
        settings = {"enable_calc_filter_bit_map": True, **settings}
        self.filters = ConsumerFilters(self.node.world, BrokerSettings(**settings), "/c/consumerFilter.json")

    def state(self, group: str = "G", topic: str = "T") -> tuple[str, int, bool] | None:
        one = self.filters.get(topic, group)
        return None if one is None else (one.compiled.text, one.client_version, one.dead)


def test_versions_decide_what_a_heartbeat_changes() -> None:
    async def main() -> None:
        scene = Scene()
        register = scene.filters.register
        steps: list[tuple[list[SubscriptionData], tuple[str, int, bool] | None]] = [
            ([sql("*", 5, kind="TAG")], None),
            ([sql("a > 1", 10)], ("a > 1", 10, False)),
            ([sql("a > 2", 10)], ("a > 1", 10, False)),
            ([sql("a > 2", 9)], ("a > 1", 10, False)),
            ([sql("a > 1", 11)], ("a > 1", 11, False)),
            ([sql("a > 2", 12)], ("a > 2", 12, False)),
            ([], ("a > 2", 12, True)),
            ([sql("a > 2", 11)], ("a > 2", 12, True)),
            ([sql("a > 2", 12)], ("a > 2", 12, False)),
            ([sql("a >", 13)], None),
            ([sql("a > 3", 1)], ("a > 3", 1, False)),
        ]
        for said, then in steps:
            register("G", said)
            assert scene.state() == then, said

    run(main())


def test_a_filter_is_forgotten_a_day_after_its_group() -> None:
    async def main() -> None:
        scene = Scene(filter_data_clean_time_span=1000)
        scene.filters.register("G", [sql("a > 1", 1), sql("b > 1", 1, "U")])
        scene.filters.register("H", [sql("a > 1", 1)])
        scene.filters.unregister("G")
        scene.filters.unregister("nobody")
        scene.filters.clean()
        assert scene.state() == ("a > 1", 1, True)
        await asyncio.sleep(1.0)
        scene.filters.clean()
        assert (scene.state(), scene.state(topic="U"), scene.state("H")) == (None, None, ("a > 1", 1, False))

    run(main())


def test_the_file_is_javas_there_and_back() -> None:
    async def main() -> None:
        scene = Scene(filter_data_clean_time_span=1 << 60)
        files = scene.node.world.files
        files.mkdir("/c")
        files.write_atomic("/c/consumerFilter.json", JAVA, backup=False)
        scene.filters.load()
        assert scene.state() == ("a = 2", 16, True)
        scene.filters.register("H", [sql("b", 3, "U")])
        scene.filters._forget(next(iter(scene.filters._groups["H"].values())))
        await scene.filters.persist()
        assert files.read("/c/consumerFilter.json") == files.read("/c/consumerFilter.json.bak") == JAVA

    run(main())


def test_filters_that_lived_are_dead_until_their_clients_are_back() -> None:
    async def main() -> None:
        scene = Scene()
        scene.filters.register("G", [sql("a > 1", 7)])
        born = scene.filters.get("T", "G").born_time  # type: ignore[union-attr]
        await scene.filters.persist()
        await asyncio.sleep(90.0)
        again = Scene(scene.node)
        again.filters.load()
        assert again.state() == ("a > 1", 7, True)
        again.filters.register("G", [sql("a > 1", 8)])
        assert again.state() == ("a > 1", 8, False)
        # The same expression, so the maps of its messages count on.
        assert again.filters.get("T", "G").born_time == born  # type: ignore[union-attr]

    run(main())


def test_a_load_replaces_what_is_there() -> None:
    async def main() -> None:
        scene = Scene()
        scene.filters.register("G", [sql("a > 1", 7)])
        await scene.filters.persist()
        scene.filters.register("G", [sql("a > 2", 8)])
        scene.filters.register("H", [sql("b", 3, "U")])
        scene.filters.load()
        assert scene.state() == ("a > 1", 7, True)
        assert scene.state("H", topic="U") is None
        assert scene.filters._groups.keys() == {"G"}

    run(main())


def test_another_bloom_size_or_damage_lets_the_file_go() -> None:
    async def main() -> None:
        scene = Scene()
        scene.filters.register("G", [sql("a > 1", 7)])
        await scene.filters.persist()
        other = Scene(scene.node, expect_consumer_num_use_filter=64)
        other.filters.load()
        assert other.state() is None
        files = scene.node.world.files
        files.write_atomic("/c/consumerFilter.json", b"{torn", backup=False)
        damaged = Scene(scene.node)
        damaged.filters.load()
        assert damaged.state() is None

    run(main())


def text(**table: str) -> bytes:
    return properties.encode(table).encode()


def test_bit_maps_tell_who_wants_a_message() -> None:
    async def main() -> None:
        scene = Scene()
        filters = scene.filters
        assert filters.bit_map("T", text(a="2")) == b""
        filters.register("G", [sql("a = 2", 1)])
        filters.register("H", [sql("b = 'x'", 1)])
        filters.unregister("H")
        born = scene.clock.now_ms()
        g, h = filters.get("T", "G"), filters.get("T", "H")
        assert g is not None
        assert h is not None
        sent = {"none": text(a="1"), "g": text(a="2"), "h": text(b="x"), "both": text(a="2", b="x")}
        maps = {key: filters.bit_map("T", value) for key, value in sent.items()}
        assert maps["none"] == bytes(14)
        assert {key for key, value in maps.items() if g.bits.refuses(value, born + 1)} == {"none", "h"}
        # The dead are asked, too: they may come back.
        assert {key for key, value in maps.items() if h.bits.refuses(value, born + 1)} == {"none", "g"}
        # Stored before the filter was there, in its first millisecond, or noted in another size: it counts for nothing.
        assert not g.bits.refuses(maps["none"], born)
        assert not g.bits.refuses(bytes(16), born + 1)
        assert not g.bits.refuses(b"", born + 1)
        assert filters.bit_map("other", text(a="2")) == b""
        assert Scene(enable_calc_filter_bit_map=False).filters.bit_map("T", text(a="2")) == b""

    run(main())


def test_messages_of_one_turn_are_marked_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a send is handed to each filter: those without a map are asked about when they are pulled."""

    async def main() -> None:
        scene = Scene()
        long = " or ".join(f"a = {number}" for number in range(100))
        for number in range(20):
            scene.filters.register(f"G{number}", [sql(f"{long} or b = {number}", 1)])
        held = scene.filters.get("T", "G0")
        assert held is not None
        asked = Turns(monkeypatch, SqlFilter, "matches", lambda one, _: one.weight)
        maps = [scene.filters.bit_map("T", text(a="99")) for _ in range(50)]
        marked = [one for one in maps if one]
        assert 0 < len(marked) < 10
        assert maps == marked + [b""] * (50 - len(marked))
        assert not held.bits.refuses(b"", scene.clock.now_ms() + 1)
        await asyncio.sleep(0)
        assert scene.filters.bit_map("T", text(a="99")) == marked[0]
        assert asked.longest <= filters_module._MARKS_PER_TURN + 20 * held.compiled.weight
        # More than a turn has for one message alone.
        await asyncio.sleep(0)
        for number in range(20, 80):
            scene.filters.register(f"G{number}", [sql(f"{long} or b = {number}", 1)])
        assert scene.filters.bit_map("T", text(a="99")) == b""

    run(main())

"""Subscription groups and what they must not read."""

from __future__ import annotations

import logging

import pytest

from rmq.broker.groups.configs import GroupTable
from rmq.broker.settings import BrokerSettings
from rmq.protocol import fastjson
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

#: The member as a Java 5.3.3 broker wrote it into subscriptionGroup.json.
JAVA = b'\t"forbiddenTable":{\n\t\t"g":{\n\t\t\t"T":4\n\t\t}\n\t},\n\t"subscriptionGroupTable":{\n'


def test_a_forbidden_topic_is_kept_and_ends_with_its_group() -> None:
    async def main() -> None:
        world = Simulation(1).node("a").world
        table = GroupTable(world, BrokerSettings(), "/c/subscriptionGroup.json")
        assert b"forbiddenTable" not in table.encode()
        before = table.data_version.counter
        table.let_read("g", "T", allowed=False)
        table.let_read("g", "T", allowed=False)
        assert table.data_version.counter == before + 1
        assert not table.may_read("g", "T")
        assert table.may_read("g", "U")
        assert table.may_read("h", "T")
        assert fastjson.loads(table.encode())["forbiddenTable"] == {"g": {"T": 4}}
        await table.file.flush()
        assert JAVA in world.files.read("/c/subscriptionGroup.json")

        again = GroupTable(world, BrokerSettings(), "/c/subscriptionGroup.json")
        again.load()
        assert not again.may_read("g", "T")
        again.delete("g")
        assert again.may_read("g", "T")
        table.let_read("g", "T", allowed=True)
        assert table.forbidden == {}

    run(main())


def test_groups_that_clients_make_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        table = GroupTable(Simulation(1).node("a").world, BrokerSettings(), "/c/subscriptionGroup.json")
        for number in range(150):
            assert table.find(f"g{number}") is not None
        assert [record.getMessage() for record in caplog.records] == [
            f"subscription group g{number} is created" for number in range(100)
        ]
        await table.file.flush()

    run(main())


def test_a_load_replaces_what_is_there() -> None:
    async def main() -> None:
        world = Simulation(1).node("a").world
        table = GroupTable(world, BrokerSettings(), "/c/subscriptionGroup.json")
        table.put(SubscriptionGroupConfig(group_name="g"))
        await table.file.flush()
        written = world.files.read("/c/subscriptionGroup.json")
        built_in = {config.group_name for config in table.all()} - {"g"}
        table.put(SubscriptionGroupConfig(group_name="later"))
        for name in (*built_in, "g"):
            table.put(SubscriptionGroupConfig(group_name=name, retry_max_times=99))
        world.files.write_atomic("/c/subscriptionGroup.json", written)
        table.load()
        assert {config.group_name for config in table.all()} == {*built_in, "g"}
        assert {config.retry_max_times for config in table.all()} == {16}

    run(main())

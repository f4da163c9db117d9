"""Topics: how they come to be, and topics.json (store-and-broker.md 7.5, 1.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmq.broker.groups.configs import GroupTable
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.names import topic_name_fault
from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation

PATH = "/store/config/topics.json"
GROUPS = "/store/config/subscriptionGroup.json"


def settings(**more: Any) -> BrokerSettings:
    return BrokerSettings(broker_name="broker-a", **more)


def with_table(test: Callable[[SimNode, TopicTable], Any], **more: Any) -> Any:
    async def main() -> Any:
        node = Simulation().node("a")
        result = test(node, TopicTable(node.world, settings(**more), PATH))
        return await result if hasattr(result, "__await__") else result

    return run(main())


def test_topics_of_a_fresh_broker() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        found = {config.topic_name: (config.write_queue_nums, config.perm) for config in table.all()}
        assert found == {
            "SELF_TEST_TOPIC": (1, 6),
            "TBW102": (8, 7),
            "BenchmarkTest": (1024, 6),
            "DefaultCluster": (16, 7),
            "broker-a": (1, 7),
            "OFFSET_MOVED_EVENT": (1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 6),
            "DefaultCluster_REPLY_TOPIC": (1, 6),
        }
        assert not node.files.exists(PATH)

    with_table(check)


def test_the_settings_decide_about_some_of_them() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        assert table.get("TBW102") is None
        cluster = table.get("DefaultCluster")
        assert cluster is not None
        assert cluster.perm == 1
        assert "MyTrace" in table

    with_table(
        check,
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        trace_topic_enable=True,
        msg_trace_topic_name="MyTrace",
    )


def test_a_topic_is_made_from_the_template() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        told: list[str | None] = []
        table.on_change.append(told.append)
        made = table.create_for_send("T", "TBW102", 4, 1, "x")
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.topic_sys_flag) == (4, 4, 6, 1)
        assert told == ["T"]
        assert table.create_for_send("T", "TBW102", 8, 0, "x") is made
        many = table.create_for_send("U", "TBW102", 100, 0, "x")
        assert many is not None
        assert many.write_queue_nums == 8
        none = table.create_for_send("V", "TBW102", -3, 0, "x")
        assert none is not None
        assert none.write_queue_nums == 0
        assert table.create_for_send("W", "NOPE", 4, 0, "x") is None
        assert table.create_for_send("W", "T", 4, 0, "x") is None
        assert table.data_version.counter == 3

    with_table(check)


def test_what_is_made_and_what_is_changed_are_told_apart() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        made: list[str] = []
        table.on_made.append(made.append)
        table.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        table.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        table.set_unit("T", True)
        table.touch()
        table.create_for_send("U", "TBW102", 4, 0, "x")
        table.create_for_send("U", "TBW102", 4, 0, "x")
        table.create_for_send_back("%RETRY%G", 1, 6, 0)
        assert made == ["T", "U", "%RETRY%G"]
        table.delete("T")
        table.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        assert made[3:] == ["T"]

    with_table(check)


def test_auto_creation_is_switched_while_running() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        told: list[str | None] = []
        table.on_change.append(told.append)
        for round_ in range(2):
            table._settings.auto_create_topic_enable = False
            table.auto_creation_changed()
            config = table.get("TBW102")
            assert config is not None
            assert (config.perm, config.write_queue_nums) == (0, 8)
            assert table.create_for_send(f"T{round_}", "TBW102", 4, 0, "x") is None
            table._settings.auto_create_topic_enable = True
            table.auto_creation_changed()
            table.auto_creation_changed()
            made = table.create_for_send(f"T{round_}", "TBW102", 4, 0, "x")
            assert made is not None
            assert made.perm == 6
        assert told == ["TBW102", "TBW102", "T0", "TBW102", "TBW102", "T1"]

    with_table(check)


def test_auto_creation_is_switched_on_where_it_never_was() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        table.auto_creation_changed()
        assert table.get("TBW102") is None
        table._settings.auto_create_topic_enable = True
        table.auto_creation_changed()
        assert table.create_for_send("T", "TBW102", 4, 0, "x") is not None

    with_table(check, auto_create_topic_enable=False)


@pytest.mark.parametrize(("enabled", "perm"), [(True, 7), (False, None)])
@pytest.mark.parametrize("stored", [7, 6, 0])
def test_a_restart_has_the_template_that_the_setting_says(enabled: bool, perm: int | None, stored: int) -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        held = TopicConfig(topic_name="TBW102", write_queue_nums=5, perm=stored)
        text = TopicConfigTable(topic_config_table={"TBW102": held}).encode()
        node.files.mkdir("/store/config")
        node.files.write_atomic(PATH, text)
        table.load()
        config = table.get("TBW102")
        assert (None if config is None else config.perm) == perm
        assert config is None or config.write_queue_nums == 5
        assert (b"TBW102" in table.encode()) is enabled
        assert (table.create_for_send("T", "TBW102", 4, 0, "x") is not None) is enabled

    with_table(check, auto_create_topic_enable=enabled)


def test_system_topics_and_those_nobody_may_send_to() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        for topic in ("TBW102", "DefaultCluster", "broker-a", "rmq_sys_zz", "DefaultCluster_REPLY_TOPIC"):
            assert topic in table.system
        assert "T" not in table.system
        assert table.system.refuses_send("SCHEDULE_TOPIC_XXXX")
        assert not table.system.refuses_send("TBW102")
        assert set(table.system.names()) >= {"TBW102", "broker-a", "RMQ_SYS_TRACE_TOPIC"}

    with_table(check)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_trace_topic_of_another_name_is_reserved_while_it_is_used(enabled: bool) -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        assert ("our_trace" in table.system) is enabled
        assert ("our_trace" in table.system.names()) is enabled
        assert "T" not in table.system

    with_table(check, trace_topic_enable=enabled, msg_trace_topic_name="our_trace")


def test_the_file_reads_back_over_the_system_topics() -> None:
    async def check(node: SimNode, table: TopicTable) -> None:
        table.put(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2, perm=4, order=True))
        table.put(TopicConfig(topic_name="BenchmarkTest", read_queue_nums=7, write_queue_nums=7))
        await table.file.flush()
        text = node.files.read(PATH)
        assert text.startswith(b'{\n\t"dataVersion":{\n\t\t"counter":2,\n\t\t"timestamp":')
        assert b'\n\t\t"T":{\n\t\t\t"order":true,\n\t\t\t"perm":4,\n\t\t\t"readQueueNums":3,\n' in text
        again = TopicTable(node.world, settings(), PATH)
        again.load()
        assert {c.topic_name: c for c in again.all()} == {c.topic_name: c for c in table.all()}
        assert again.data_version == table.data_version
        assert TopicConfigTable.decode(again.encode()).topic_config_table["T"].read_queue_nums == 3
        assert table.delete("T")
        assert not table.delete("T")
        await table.file.flush()
        assert b'"T":{' not in node.files.read(PATH)
        assert b'"T":{' in node.files.read(PATH + ".bak")

    with_table(check)


def test_a_load_replaces_what_is_there() -> None:
    async def check(node: SimNode, table: TopicTable) -> None:
        table.put(TopicConfig(topic_name="T"))
        await table.file.flush()
        written, held = node.files.read(PATH), {c.topic_name: c for c in table.all()}
        table.put(TopicConfig(topic_name="later"))
        table.put(TopicConfig(topic_name="BenchmarkTest", read_queue_nums=7, write_queue_nums=7))
        table.put(TopicConfig(topic_name="T", perm=4))
        await table.file.flush()
        node.files.write_atomic(PATH, written)
        table.load()
        assert {c.topic_name: c for c in table.all()} == held
        assert b"later" not in table.encode()

    with_table(check)


def test_a_permission_of_the_broker_that_changes_is_a_change_of_every_topic() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        table.put(TopicConfig(topic_name="T"))
        known = table.data_version
        table.touch()
        assert table.data_version.counter == known.counter + 1
        assert table.changed_since(known) is None

    with_table(check)


def test_a_load_forgets_what_changed_before_it() -> None:
    """Who knows an older version is told everything: what the file holds instead is in no list of changes."""

    async def check(node: SimNode, table: TopicTable) -> None:
        before = table.data_version
        table.put(TopicConfig(topic_name="T"))
        await table.file.flush()
        written = table.data_version
        table.put(TopicConfig(topic_name="later"))
        assert table.changed_since(before) == ["later", "T"]
        table.load()
        assert table.data_version == written
        assert table.changed_since(written) == []
        assert table.changed_since(before) is None

    with_table(check)


@pytest.mark.parametrize(
    ("topic", "enabled", "refused"),
    [
        ("rmq_sys_traces", True, False),
        ("rmq_sys_traces", False, True),
        ("rmq_sys_others", True, True),
        ("plain", True, False),
        ("plain", False, False),
    ],
)
def test_sends_to_the_topic_that_the_settings_give_to_traces_are_taken(
    topic: str, enabled: bool, refused: bool
) -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        assert table.system.refuses_send(topic) == refused

    with_table(check, trace_topic_enable=enabled, msg_trace_topic_name="rmq_sys_traces")


def test_a_topic_of_the_brokers_own_is_no_topic_for_traces() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        assert table.system.refuses_send("SCHEDULE_TOPIC_XXXX")

    with_table(check, trace_topic_enable=True, msg_trace_topic_name="SCHEDULE_TOPIC_XXXX")


def test_a_damaged_file_is_replaced_by_its_backup_and_both_damaged_stop_the_broker() -> None:
    async def check(node: SimNode, table: TopicTable) -> None:
        table.put(TopicConfig(topic_name="T"))
        await table.file.flush()
        table.put(TopicConfig(topic_name="U"))
        await table.file.flush()
        for junk in (b"", b"\x00\x17junk", b"[]"):
            node.files.write_atomic(PATH, junk)
            again = TopicTable(node.world, settings(), PATH)
            again.load()
            assert "T" in again
            assert "U" not in again
        node.files.write_atomic(PATH + ".bak", b"\x00junk")
        with pytest.raises(StoreError, match="restore one of them"):
            TopicTable(node.world, settings(), PATH).load()

    with_table(check)


def test_a_storm_of_changes_is_few_writes() -> None:
    async def check(node: SimNode, table: TopicTable) -> None:
        writes = []
        replace = node.files.write_atomic
        node.files.write_atomic = lambda path, data, backup=False: (  # type: ignore[method-assign]
            writes.append(path),
            replace(path, data, backup=backup),
        )[1]
        for number in range(1000):
            table.create_for_send(f"T{number}", "TBW102", 4, 0, "x")
        await table.file.flush()
        assert len(writes) <= 2
        assert b'"T999":{' in node.files.read(PATH)

    with_table(check)


def test_order_topics_follow_the_name_server() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        table.put(TopicConfig(topic_name="T"))
        version = table.data_version
        table.set_order_topics(["T", "elsewhere"])
        assert table.is_order("T")
        assert table.data_version.counter == version.counter + 1
        table.set_order_topics(["T"])
        assert table.data_version.counter == version.counter + 1
        table.put(TopicConfig(topic_name="T", perm=4))
        assert table.is_order("T")
        table.set_order_topics([])
        assert not table.is_order("T")

    with_table(check)


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("T", None),
        ("%RETRY%g|x-y_Z9", None),
        ("L" * 127, None),
        ("", "The specified topic is blank."),
        (None, "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("L" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_names(topic: str | None, fault: str | None) -> None:
    """Field case B085, B112."""
    assert topic_name_fault(topic) == fault


def test_a_retry_topic_with_an_impossible_name_is_not_made() -> None:
    def check(node: SimNode, table: TopicTable) -> None:
        assert table.create_for_send_back("%RETRY%a b", 1, 6, 0) is None
        assert table.create_for_send_back("%RETRY%g", 1, 6, 2) is not None

    with_table(check)


def test_groups_are_made_on_demand_and_read_back() -> None:
    async def main() -> None:
        node = Simulation().node("a")
        live = settings()
        groups = GroupTable(node.world, live, GROUPS)
        assert groups.get("g") is None
        made = groups.find("g")
        assert made is not None
        assert (made.retry_max_times, made.retry_queue_nums) == (16, 1)
        live.auto_create_subscription_group = False
        assert groups.find("h") is None
        assert groups.find("CID_RMQ_SYS_X") is not None
        assert groups.find("TOOLS_CONSUMER") is not None
        groups.put(SubscriptionGroupConfig(group_name="h", retry_queue_nums=3))
        groups.disable("h")
        await groups.file.flush()
        again = GroupTable(node.world, live, GROUPS)
        again.load()
        found = again.get("h")
        assert found is not None
        assert not found.consume_enable
        assert again.data_version == groups.data_version
        assert groups.delete("h")
        assert not groups.delete("h")
        assert "h" not in SubscriptionGroupTable.decode(groups.encode()).subscription_group_table
        await groups.file.flush()

    run(main())


def test_a_group_made_on_demand_is_there_after_a_restart() -> None:
    async def main() -> None:
        node = Simulation().node("a")
        groups = GroupTable(node.world, settings(), GROUPS)
        groups.find("g")
        await groups.file.flush()
        again = GroupTable(node.world, settings(auto_create_subscription_group=False), GROUPS)
        again.load()
        assert again.find("g") is not None

    run(main())


def test_what_is_so_already_is_no_change() -> None:
    """Each change is written, and told to every name server and slave."""

    async def main() -> None:
        node = Simulation().node("a")
        groups = GroupTable(node.world, settings(), GROUPS)
        groups.find("g")
        groups.disable("g")
        asked = groups.file.asked
        groups.disable("g")
        groups.disable("unknown")
        assert groups.file.asked == asked
        table = TopicTable(node.world, settings(), PATH)
        table.set_unit("TBW102", True)
        asked, version = table.file.asked, table.data_version
        table.set_unit("TBW102", True)
        table.set_unit("unknown", True)
        assert (table.file.asked, table.data_version) == (asked, version)
        table.set_unit("TBW102", False)
        assert table.file.asked == asked + 1

    run(main())

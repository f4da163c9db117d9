"""The route table as a state machine: registrations, time and closed connections in, answers out."""

from __future__ import annotations

import pytest

from rmq.namesrv import routes
from rmq.namesrv.routes import BROKER_EXPIRY, Registration, RouteTable
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.errors import ResponseError

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def topic(name: str, *, perm: int = 6, queues: int = 4, flag: int = 0) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=flag)


def registration(
    addr: str = A,
    *topics: TopicConfig,
    name: str = "broker-a",
    cluster: str = "C1",
    broker_id: int = 0,
    counter: int = 1,
    filters: list[str] | None = None,
) -> Registration:
    return Registration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        addr=addr,
        ha_addr=addr.replace("10911", "10912"),
        version=DataVersion(counter=counter, timestamp=1_700_000_000_000),
        topics=topics,
        filter_servers=filters,
    )


def addrs(table: RouteTable, name: str) -> dict[str, dict[int, str]]:
    route = table.route(name)
    return {} if route is None else {b.broker_name: b.broker_addrs for b in route.broker_datas}


def test_a_registered_topic_has_a_route() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T", perm=4, queues=3, flag=1)), "c1", 0.0)
    route = table.route("T")
    assert route is not None
    assert [(b.broker_name, b.cluster, b.broker_addrs) for b in route.broker_datas] == [("broker-a", "C1", {0: A})]
    assert [
        (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag) for q in route.queue_datas
    ] == [("broker-a", 3, 3, 4, 1)]
    assert table.route("other") is None


def test_a_slave_learns_its_master_and_brings_no_topics() -> None:
    table = RouteTable()
    assert table.register(registration(B, topic("S"), broker_id=1), "c2", 0.0).master_addr is None
    assert table.route("S") is None
    assert table.register(registration(A, topic("T")), "c1", 0.0).master_addr is None
    told = table.register(registration(B, topic("S"), broker_id=1), "c2", 1.0)
    assert (told.master_addr, told.ha_addr) == (A, "10.0.0.1:10912")
    assert addrs(table, "T") == {"broker-a": {0: A, 1: B}}


def test_topics_are_taken_over_only_with_another_data_version() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T1")), "c1", 0.0)
    table.register(registration(A, topic("T1"), topic("T2")), "c1", 1.0)
    assert table.topics() == ["T1"]
    table.register(registration(A, topic("T2"), counter=2), "c1", 2.0)
    assert table.topics() == ["T1", "T2"], "a registration never removes a topic"


def test_a_registration_without_body_changes_no_topic() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    bare = Registration(
        cluster="C1",
        broker_name="broker-a",
        broker_id=0,
        addr=A,
        ha_addr="",
        version=DataVersion(counter=0, timestamp=0),
    )
    table.register(bare, "c1", 1.0)
    assert table.topics() == ["T"]
    assert table.version_of(A) == DataVersion(counter=0, timestamp=0)


def test_an_address_that_changes_its_id_keeps_one_id() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, broker_id=1), "c2", 0.0)
    table.register(registration(B, topic("T"), broker_id=0, counter=7), "c2", 1.0)
    assert addrs(table, "T") == {"broker-a": {0: B}}


def test_a_broker_is_dropped_after_120_silent_seconds() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, topic("T"), name="broker-b"), "c2", 100.0)
    assert table.expire(BROKER_EXPIRY) == ([], [])
    assert table.expire(BROKER_EXPIRY + 0.1) == ([A], ["c1"])
    assert addrs(table, "T") == {"broker-b": {0: B}}
    assert table.expire(1000.0) == ([B], ["c2"])
    assert table.topics() == []
    assert table.cluster_info().cluster_addr_table == {}


def test_a_version_query_keeps_a_broker_alive() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.refresh(A, 100.0)
    table.refresh("10.9.9.9:1", 100.0)
    assert table.expire(200.0) == ([], [])
    assert table.expire(220.1) == ([A], ["c1"])


def test_a_closed_connection_takes_its_brokers_at_once() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    assert table.close("c2") == []
    assert table.close("c1") == [A]
    assert table.route("T") is None
    assert table.close("c1") == []


def test_a_broker_that_reconnected_survives_the_end_of_its_old_connection() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "old", 0.0)
    table.register(registration(A, topic("T")), "new", 1.0)
    assert table.close("old") == []
    assert addrs(table, "T") == {"broker-a": {0: A}}


def test_a_connection_shared_by_two_brokers_stays_while_one_lives() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c", 0.0)
    table.register(registration(B, topic("T"), name="broker-b"), "c", 100.0)
    assert table.expire(130.0) == ([A], [])
    assert table.close("c") == [B]


def test_unregister_removes_topics_with_the_last_address_only() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, broker_id=1), "c2", 0.0)
    assert table.unregister("broker-a", 0, A)
    assert addrs(table, "T") == {"broker-a": {1: B}}
    assert not table.unregister("broker-a", 0, A)
    assert table.unregister("broker-a", 1, B)
    assert table.route("T") is None
    assert table.cluster_info().broker_addr_table == {}


def test_a_broker_replaced_at_another_address_cannot_unregister_its_successor() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    told = table.register(registration(B, topic("T")), "c2", 1.0)
    assert told.rival is not None
    assert not table.unregister("broker-a", 0, A)
    assert table.close("c1") == []
    assert addrs(table, "T") == {"broker-a": {0: B}}


def test_a_renamed_broker_is_listed_once() -> None:  # field case B092 (a)
    table = RouteTable()
    table.register(registration(A, topic("T"), name="old"), "c1", 0.0)
    table.register(registration(A, topic("T"), name="new"), "c1", 1.0)
    info = table.cluster_info()
    assert list(info.broker_addr_table) == ["new"]
    assert info.cluster_addr_table == {"C1": ["new"]}
    assert addrs(table, "T") == {"new": {0: A}}


def test_the_same_name_in_a_second_cluster_is_refused_while_the_first_lives() -> None:  # field case B092 (b)
    table = RouteTable()
    table.register(registration(A, topic("T"), cluster="C1"), "c1", 0.0)
    with pytest.raises(ResponseError, match="belongs to cluster C1") as refused:
        table.register(registration(B, topic("T"), cluster="C2"), "c2", 1.0)
    assert refused.value.code == 1
    assert addrs(table, "T") == {"broker-a": {0: A}}
    table.expire(200.0)
    table.register(registration(B, topic("T"), cluster="C2"), "c2", 201.0)
    assert table.cluster_info().cluster_addr_table == {"C2": ["broker-a"]}


def test_one_broker_may_move_to_another_cluster() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T"), cluster="C1"), "c1", 0.0)
    table.register(registration(A, topic("T"), cluster="C2"), "c1", 1.0)
    assert table.cluster_info().cluster_addr_table == {"C2": ["broker-a"]}
    assert table.topics_of_cluster("C1") == []
    assert table.topics_of_cluster("C2") == ["T"]


def test_a_restart_at_another_address_switches_the_route_at_once() -> None:  # field case B093
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.close("c1")
    table.register(registration(B, topic("T")), "c2", 1.0)
    assert addrs(table, "T") == {"broker-a": {0: B}}


def test_a_wiped_broker_stays_wiped_until_permission_is_given_back() -> None:  # field case B121
    table = RouteTable()
    table.register(registration(A, topic("T"), topic("READ", perm=4)), "c1", 0.0)
    table.register(registration(B, topic("T"), name="broker-b"), "c2", 0.0)
    assert table.wipe_write_perm("broker-a") == 2
    assert table.wipe_write_perm("nobody") == 0
    table.register(registration(A, topic("T"), topic("NEW"), counter=2), "c1", 1.0)

    def perms(name: str) -> dict[str, int]:
        route = table.route(name)
        assert route is not None
        return {q.broker_name: q.perm for q in route.queue_datas}

    assert perms("T") == {"broker-a": 4, "broker-b": 6}
    assert perms("NEW") == {"broker-a": 4}
    assert table.add_write_perm("broker-a") == 3
    assert perms("T") == {"broker-a": 6, "broker-b": 6}
    assert perms("READ") == {"broker-a": 4}


def test_a_restart_of_the_broker_ends_the_wipe() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.wipe_write_perm("broker-a")
    table.close("c1")
    table.register(registration(A, topic("T")), "c2", 1.0)
    route = table.route("T")
    assert route is not None
    assert route.queue_datas[0].perm == 6


def test_delete_topic_of_one_cluster_or_of_all() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T"), topic("U")), "c1", 0.0)
    table.register(registration(B, topic("T"), name="broker-b", cluster="C2"), "c2", 0.0)
    table.delete_topic("T", "nowhere")
    table.delete_topic("unknown", None)
    assert addrs(table, "T") == {"broker-a": {0: A}, "broker-b": {0: B}}
    table.delete_topic("T", "C1")
    assert addrs(table, "T") == {"broker-b": {0: B}}
    table.delete_topic("T", None)
    assert table.topics() == ["U"]


def test_filter_servers_follow_their_broker() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T"), filters=["10.0.0.1:30000"]), "c1", 0.0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {A: ["10.0.0.1:30000"]}
    table.register(registration(A, topic("T"), filters=None), "c1", 1.0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {A: ["10.0.0.1:30000"]}
    table.register(registration(A, topic("T"), filters=[]), "c1", 2.0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_topic_lists_by_flag_and_system_names() -> None:
    table = RouteTable()
    assert table.system_topics() == ([], None)
    table.register(registration(A, topic("P"), topic("U", flag=1), topic("S", flag=2), topic("B", flag=3)), "c1", 0.0)
    assert table.topics_with_flags(unit=True) == ["U", "B"]
    assert table.topics_with_flags(unit_sub=True) == ["S", "B"]
    assert table.topics_with_flags(unit=False, unit_sub=True) == ["S"]
    assert table.system_topics() == (["C1", "broker-a"], A)


def test_a_registration_is_told_of_once() -> None:
    table = RouteTable()
    line = "broker-a id 0 at 10.0.0.1:10911 of C1 registered"
    assert table.register(registration(A, topic("T")), "c1", 0.0).notices == (line,)
    assert table.register(registration(A, topic("T")), "c1", 30.0).notices == ()
    table.close("c1")
    assert table.register(registration(A, topic("T")), "c2", 40.0).notices == (line,)


def test_of_two_slaves_with_one_id_one_is_to_have_another_id() -> None:
    table = RouteTable()
    table.register(registration(A, broker_id=1), "c1", 0.0)
    told = table.register(registration(B, broker_id=1), "c2", 1.0)
    assert told.rival is not None
    what = "give one of them another brokerId (a member of a group that elects its master: another dLegerSelfId)"
    assert told.rival.endswith(what)


def test_two_brokers_of_one_name_and_id_are_told_and_the_first_has_its_place_again() -> None:
    table = RouteTable()
    assert table.register(registration(A, topic("T")), "c1", 0.0).rival is None
    told = table.register(registration(B, topic("T", queues=8), counter=5), "c2", 1.0)
    assert told.rival is not None
    assert f"broker-a id 0 at {B} takes the place of the one at {A}, which has not gone" in told.rival
    assert told.rival.endswith("another brokerName, or make it the other's slave")
    assert addrs(table, "T") == {"broker-a": {0: B}}
    # The first one registers in its turn: it is told the same, and the second one waits.
    told = table.register(registration(A, topic("T")), "c1", 30.0)
    assert told.rival is not None
    assert f"at {A} takes the place of the one at {B}" in told.rival
    table.register(registration(B, topic("T", queues=8), counter=5), "c2", 31.0)
    assert table.unregister("broker-a", 0, B)
    assert table.close("c2") == []
    assert addrs(table, "T") == {"broker-a": {0: A}}, "there is a route at once"
    assert table.returned() == [("broker-a", A)]
    assert table.returned() == []
    # What it says of its topics counts, though its version is the same.
    table.register(registration(A, topic("T", queues=4)), "c1", 60.0)
    route = table.route("T")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 4
    assert table.close("c1") == [A]
    assert table.route("T") is None


@pytest.mark.parametrize("end", ["closed", "unregistered", "silent"])
def test_a_broker_that_has_gone_gets_no_place_back(end: str) -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    assert table.register(registration(B, topic("T"), counter=2), "c2", 100.0).rival is not None
    if end == "closed":
        assert table.close("c1") == []
    elif end == "unregistered":
        assert not table.unregister("broker-a", 0, A)
    else:
        assert table.expire(BROKER_EXPIRY + 1) == ([], [])
    assert table.close("c2") == [B]
    assert table.route("T") is None
    assert table.returned() == []


def test_who_takes_another_id_gets_its_old_place_back_from_nobody() -> None:
    """A member of a group that is cut off, follows the next leader, and sees that one die."""
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, topic("T"), counter=2), "c2", 1.0)
    table.register(registration(A, broker_id=1, counter=3), "c1", 2.0)
    table.close("c2")
    assert addrs(table, "T") == {"broker-a": {1: A}}
    assert table.returned() == []


def test_who_takes_another_id_leaves_its_place_to_whom_it_had_it_from() -> None:
    """A leader that is cut off says once more that it leads, when the next one does already."""
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, topic("T"), counter=2), "c2", 1.0)
    table.register(registration(A, topic("T"), counter=3), "c1", 2.0)
    assert addrs(table, "T") == {"broker-a": {0: A}}
    table.register(registration(A, broker_id=1, counter=4), "c1", 3.0)
    assert addrs(table, "T") == {"broker-a": {0: B, 1: A}}
    assert table.returned() == [("broker-a", B)]
    assert table.close("c2") == [B]
    assert addrs(table, "T") == {"broker-a": {1: A}}


def test_a_broker_that_moves_is_no_other_one() -> None:
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    assert table.register(registration(B, topic("T"), counter=2), "c1", 1.0).rival is None
    table.close("c1")
    table.register(registration(A, topic("T")), "c3", 2.0)
    assert table.register(registration(A, topic("T")), "c4", 3.0).rival is None, "its own older connection"


def test_topics_that_a_broker_has_no_longer_are_forgotten_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "MOST_TOPICS", 10)
    table = RouteTable()
    table.register(registration(B, topic("other"), name="broker-b"), "c2", 0.0)
    notices: list[str] = []
    for number in range(10):
        one = registration(A, *(topic(f"T{number}-{n}") for n in range(4)), counter=number)
        notices += table.register(one, "c1", float(number)).notices
        assert len(table.topics()) <= 11
        assert table.route(f"T{number}-3") is not None
    assert table.route("other") is not None
    told = "broker-a has no longer 8 topics that it registered before: forgotten"
    assert notices.count(told) == 4, "with every second registration from the third on"


def test_a_leader_that_stood_still_takes_nobodys_place_for_longer_than_it_believes_to_lead() -> None:
    """It says once more that it is the master, wakes up to the next one, and has an id of those that follow then."""
    table = RouteTable()
    table.register(registration(A, topic("T")), "c1", 0.0)
    table.register(registration(B, broker_id=2, counter=1), "c2", 0.0)
    assert table.register(registration(B, topic("T"), counter=2), "c2", 10.0).rival is not None
    assert table.register(registration(A, topic("T")), "c1", 20.0).rival is not None
    assert addrs(table, "T") == {"broker-a": {0: A}}
    table.register(registration(A, broker_id=1, counter=3), "c1", 20.01)
    assert addrs(table, "T") == {"broker-a": {0: B, 1: A}}, "the one that leads has its place at once"
    assert table.returned() == [("broker-a", B)]
    assert table.close("c2") == [B]

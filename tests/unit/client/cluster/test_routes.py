"""What a client knows of the cluster, as name servers say it one topic after the other."""

from __future__ import annotations

from random import Random

from rmq.client.cluster.routes import Routes
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData


def route(**brokers: dict[int, str]) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6, topic_sys_flag=0)
            for name in brokers
        ],
        broker_datas=[
            BrokerData(cluster="c", broker_name=name, broker_addrs=dict(addrs)) for name, addrs in brokers.items()
        ],
    )


def test_brokers_that_come_or_move_are_told() -> None:
    routes = Routes(Random(1))
    assert routes.take("T", route(a={0: "a:1"}), own=True)
    assert not routes.take("T", route(a={0: "a:1"}), own=True)
    assert not routes.take("U", route(a={0: "a:1"}), own=True)
    assert routes.take("T", route(a={0: "a:2"}), own=True)
    assert routes.master_addr("a") == "a:2"
    assert routes.master_addr("b") is None


def test_turns_go_on_when_queues_change_and_readers_of_the_old_ones_are_left_alone() -> None:
    routes = Routes(Random(1))
    routes.take("T", route(a={0: "a:1"}), own=True)
    publish, addrs = routes.publish, routes.broker_addrs
    before = publish["T"]
    routes.take("T", route(b={0: "b:1"}), own=True)
    assert routes.publish["T"].turn is before.turn
    assert [queue.broker_name for queue in before.queues] == ["a", "a"]
    assert (publish["T"], set(addrs)) == (before, {"a"})


def test_a_template_serves_until_the_topic_has_a_route_of_its_own() -> None:
    routes = Routes(Random(1))
    routes.take("T", route(a={0: "a:1"}), own=False)
    assert routes.publish["T"].queues
    assert routes.subscribe_queues("T") is None
    assert (set(routes.own), set(routes.borrowed)) == (set(), {"T"})
    routes.take("T", route(b={0: "b:1"}), own=True)
    assert len(routes.subscribe_queues("T") or ()) == 2
    assert (set(routes.own), set(routes.borrowed)) == ({"T"}, set())
    routes.forget_brokers()
    assert set(routes.broker_addrs) == {"b"}


def test_a_master_that_is_away_is_named() -> None:
    routes = Routes(Random(1))
    assert routes.masters_away("T") == []
    routes.take("T", route(a={0: "a:1"}, b={1: "b:1"}), own=True)
    assert routes.masters_away("T") == ["b"]
    assert {queue.broker_name for queue in routes.publish["T"].queues} == {"a"}

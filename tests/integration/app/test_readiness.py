"""``/readyz`` says no while nobody answers from whom an application would get messages."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rmq.aio import AdminClient, Message, Producer
from rmq.app import App
from rmq.testing import SimCluster
from tests.support.virtual import eventually, in_virtual_time

FIRST = "CONSUME_FROM_FIRST_OFFSET"
ONE_QUEUE = {"defaultTopicQueueNums": "1"}


def app_of(namesrv: str, seen: list[bytes] | None = None, group: str = "shop", **options: Any) -> App:
    app = App(group, namesrv=namesrv, health="127.0.0.1:0")

    @app.listener("T", consume_from_where=FIRST, rebalance_interval=1.0, **options)
    async def take(body: bytes) -> None:
        if seen is not None:
            seen.append(body)

    return app


async def ready(app: App) -> tuple[int, str]:
    assert app.health is not None
    answer = await app.health._ready({})
    return answer.status, app.missing or ""


@in_virtual_time
async def test_no_name_server_answers() -> None:
    async with SimCluster() as cluster:
        async with app_of("10.9.9.9:9876") as app:
            for _ in range(3):
                await cluster.advance(10)
                status, why = await ready(app)
                assert (status, "group shop: it is not known which queues of T are for it" in why) == (503, True), why
                assert "name server" in why
        assert (await ready(app))[0] == 503


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("broadcasting", [False, True])
@in_virtual_time
async def test_a_broker_that_its_route_names_does_not_answer(orderly: bool, broadcasting: bool) -> None:
    if broadcasting and orderly:
        return  # the same as each of them
    seen: list[bytes] = []
    async with SimCluster(settings=ONE_QUEUE) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", "one"))
        cluster.cut(0)
        how = {"message_model": "BROADCASTING"} if broadcasting else {}
        async with app_of(cluster.namesrv_addr, seen, orderly=orderly, **how) as app:
            for _ in range(4):
                await cluster.advance(10)
                status, why = await ready(app)
                assert (status, "T" in why) == (503, True), why
            cluster.heal()
            await eventually(lambda: seen == [b"one"], 120)
            assert await ready(app) == (200, "")


@pytest.mark.parametrize("how", ["killed", "cut"])
@in_virtual_time
async def test_its_broker_goes_and_comes_back(how: str) -> None:
    seen: list[bytes] = []
    async with SimCluster(settings=ONE_QUEUE) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", "one"))
        async with app_of(cluster.namesrv_addr, seen) as app:
            await eventually(lambda: seen == [b"one"])
            assert await ready(app) == (200, "")
            if how == "killed":
                await cluster.kill_broker()
            else:
                cluster.cut(0)
            await cluster.advance(40)  # the next heartbeat is not answered
            assert await ready(app) == (503, "group shop: no broker answers that has its queues of T: broker-0")
            if how == "killed":
                await cluster.start_broker()
            else:
                cluster.heal()
            await producer.send(Message("T", "two"), timeout=60)
            await eventually(lambda: seen == [b"one", b"two"], 120)
            assert await ready(app) == (200, "")


@in_virtual_time
async def test_the_name_servers_go_while_its_broker_answers() -> None:
    async with SimCluster(settings=ONE_QUEUE) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", "one"))
        async with app_of(cluster.namesrv_addr) as app:
            await cluster.advance(5)
            for name, node in cluster.simulation.nodes.items():
                if "namesrv" in name:
                    cluster.simulation.net.cut("10.0.0.1", node.address)
            await cluster.advance(minutes=3)
            assert await ready(app) == (200, "")
            cluster.heal()


@in_virtual_time
async def test_half_of_its_brokers_answer() -> None:
    async with SimCluster(brokers=2) as cluster:
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            for broker in cluster.brokers:
                address = f"{broker.address[0]}:{broker.address[1]}"
                await admin.create_and_update_topic(address, "T", read_queue_nums=1, write_queue_nums=1)
        async with app_of(cluster.namesrv_addr) as app:
            await eventually(lambda: len([q for q in app.consumers["shop"].assignment if q.topic == "T"]) == 2)
            await cluster.kill_broker(1)
            await cluster.advance(40)
            assert await ready(app) == (200, "")


@in_virtual_time
async def test_no_queue_is_left_for_it_or_nobody_has_sent_yet() -> None:
    async with SimCluster(settings=ONE_QUEUE) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        async with app_of(cluster.namesrv_addr) as early:
            await cluster.advance(5)
            assert await ready(early) == (200, "")
        await producer.send(Message("T", "one"))
        async with (
            app_of(cluster.namesrv_addr, instance_name="a") as one,
            app_of(cluster.namesrv_addr, instance_name="b") as other,
        ):
            await cluster.advance(30)
            of_t = [sum(q.topic == "T" for q in app.consumers["shop"].assignment) for app in (one, other)]
            assert sorted(of_t) == [0, 1]
            assert await ready(one) == await ready(other) == (200, "")


@in_virtual_time
async def test_clients_of_a_loop_tell_of_a_broker_once(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCluster(settings=ONE_QUEUE) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", "one"))
        async with (
            app_of(cluster.namesrv_addr, group="one", instance_name="a"),
            app_of(cluster.namesrv_addr, group="two", instance_name="b"),
        ):
            await cluster.advance(5)
            caplog.set_level(logging.WARNING)
            caplog.clear()
            cluster.cut(0)
            await cluster.advance(minutes=1)
            cluster.heal()
            await cluster.advance(minutes=1)
        told = [record.getMessage() for record in caplog.records if "10911" in record.getMessage()]
    assert len(told) == 2, told
    assert told[1].endswith("works again")

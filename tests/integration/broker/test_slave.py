"""A slave: what it starts as, what it serves and what it refuses (store-and-broker.md 6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq.broker.settings import BrokerSettings
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.message import decode_records
from rmq.testing.simworld import SimIdentity
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import ROUND, Pair, pair, rounds
from tests.support.virtual import eventually, in_virtual_time

CONF = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"brokerRole": "SLAVE"}, "brokerId"),
        ({"brokerRole": "SLAVE", "brokerId": "-1"}, "brokerId"),
        ({"brokerRole": "ASYNC_MASTER", "brokerId": "1"}, "brokerId"),
    ],
)
def test_a_role_and_an_id_that_do_not_fit_are_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerSettings.from_sources(overrides=settings).validate()


@in_virtual_time
async def test_a_slave_registers_with_its_id_and_learns_where_its_master_is() -> None:
    async with pair() as scene:
        await scene.topic("T")
        route = await scene.client.request(
            f"{scene.nodes['namesrv'].address}:9876", Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": "T"})
        )
        brokers = TopicRouteData.decode(route.body).broker_datas
        assert [broker.broker_addrs for broker in brokers] == [{0: scene.addr("master"), 1: scene.addr("slave")}]
        assert scene.slave._registration.master == (scene.addr("master"), f"{scene.nodes['master'].address}:10912")
        assert scene.master._registration.master == (None, None)


@in_virtual_time
async def test_a_slave_that_starts_first_finds_its_master_soon() -> None:
    scene = Pair({})
    await scene.start_namesrv()
    await scene.start_slave()
    await asyncio.sleep(11)
    await scene.start_master()
    try:
        await eventually(lambda: scene.slave._registration.master.broker, within=ROUND)
    finally:
        await scene.stop()


@in_virtual_time
async def test_a_slave_serves_reads_and_refuses_the_rest() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b")
        assert (await scene.ask("master", send("T", b"keyed", props="KEYS\x01k1 k2\x02"))).code == 0
        await rounds(scene)
        await scene.master.stop()
        scene.master = None  # type: ignore[assignment]
        assert (await scene.ask("slave", send("T"))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        found = await scene.ask("slave", pull("g", "T"))
        assert [record.body for record in decode_records(found.body)] == [b"a", b"b", b"keyed"]
        queue = {"topic": "T", "queueId": "0"}
        for code, more, name, value in (
            (RequestCode.GET_MAX_OFFSET, {}, "offset", "3"),
            (RequestCode.GET_MIN_OFFSET, {}, "offset", "0"),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, "offset", "0"),
        ):
            answer = await scene.ask("slave", Command(code, ext={**queue, **more}))
            assert answer.ext is not None
            assert answer.ext[name] == value
        by_key = {"topic": "T", "key": "k2", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 50)}
        for _ in range(2):
            assert (await scene.ask("slave", Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": "0"}))).code == 0
            found = await scene.ask("slave", Command(RequestCode.QUERY_MESSAGE, ext=dict(by_key)))
            assert [record.body for record in decode_records(found.body)] == [b"keyed"]
            await scene.slave.stop()
            await scene.start_slave()


@in_virtual_time
async def test_the_metrics_of_a_slave_say_how_far_it_is() -> None:
    async with pair(metricsExporterType="PROM") as scene:
        await scene.topic("T")
        await rounds(scene)
        _, families = await scene.slave.metrics.page({})
        told = {family.name: family.samples for family in families}
        ages = list(told["rmq_metadata_age_seconds"])
        assert len(ages) == 5
        assert all(age <= ROUND for _, _, age in ages)
        assert [value for _, _, value in told["rmq_slave_behind_bytes"]] == [0]
        _, families = await scene.master.metrics.page({})
        assert "rmq_slave_behind_bytes" not in {family.name for family in families}
        await scene.master.stop()
        await asyncio.sleep(4 * ROUND)  # it may have had more: nobody knows how far the slave is behind
        _, families = await scene.slave.metrics.page({})
        assert not {"rmq_slave_behind_bytes", "rmq_slave_behind_seconds"} & {family.name for family in families}
        assert scene.slave.roles.figures() == {"brokerRole": "slave", "masterHAAddress": "unknown"}


@pytest.mark.parametrize("sample", sorted(path.relative_to(CONF) for path in CONF.glob("2m-*/*.properties")), ids=str)
def test_every_sample_of_a_set_fits(sample: Path) -> None:
    settings = BrokerSettings.from_sources(file=str(CONF / sample))
    settings.settle(SimIdentity("h", "10.0.0.1"))
    slave = sample.stem.endswith("-s")
    assert (settings.broker_id, settings.broker_role == "SLAVE") == (int(slave), slave)
    assert settings.broker_name == sample.stem.removesuffix("-s")
    assert slave or settings.broker_role == ("SYNC_MASTER" if "sync" in sample.parts[0].split("-") else "ASYNC_MASTER")

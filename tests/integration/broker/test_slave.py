"""A slave: what it starts as, what it takes from its master, what it serves and refuses (store-and-broker.md 6)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from rmq.broker.app import BrokerApp
from rmq.broker.replication import metadata
from rmq.broker.settings import BrokerSettings
from rmq.protocol import fastjson
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.message import decode_records
from rmq.protocol.names import TIMER_GROUP
from rmq.testing.simworld import SimIdentity
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import Pair, pair
from tests.support.virtual import eventually, in_virtual_time

CONF = Path(__file__).parents[3] / "conf"

#: Seconds in which a slave has asked its master at least once more, and what was asked has arrived.
ROUND = 12.0


async def rounds(scene: Pair) -> None:
    """Let the slave ask its master, with everything of the log at hand."""
    await scene.replicated()
    await asyncio.sleep(ROUND)


def offset(scene: Pair, group: str = "g", topic: str = "T") -> int:
    return scene.slave.offsets.query(group, topic, 0)


def delays(scene: Pair) -> dict[int, int]:
    assert scene.slave.roles.slave is not None
    return scene.slave.roles.slave.metadata._delays.table


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
async def test_tables_follow_the_master_and_outlive_a_restart() -> None:
    async with pair() as scene:
        await scene.topic("T", 3)
        await scene.send("T", "a", "b", "c")
        await scene.send("%RETRY%g", "r")
        scene.master.groups.find("g")
        await scene.commit("master", "g", "T", 2)
        mode = SetMessageRequestModeRequestBody(topic="T", consumer_group="g", mode="POP", pop_share_queue_num=2)
        await scene.ask("master", Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
        late = await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        assert late.code == 0
        await asyncio.sleep(5)
        await rounds(scene)
        for _ in range(2):
            config = scene.slave.topics.get("T")
            assert config is not None
            assert config.read_queue_nums == 3
            assert scene.slave.topics.data_version == scene.master.topics.data_version
            assert scene.slave.groups.get("g") is not None
            assert offset(scene) == 2
            assert scene.slave.modes.get("T", "g").mode == "POP"
            written = scene.nodes["slave"].files.read("/store/config/delayOffset.json")
            assert fastjson.loads(written) == {"offsetTable": {1: 1}}
            await scene.slave.stop()
            await scene.master.stop()
            await scene.start_slave()
            await scene.start_master()


@in_virtual_time
async def test_what_has_not_changed_is_not_made_anew() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await asyncio.sleep(ROUND)
        before = scene.slave.topics.get("T"), scene.slave.groups.get("TOOLS_CONSUMER")
        await scene.topic("U")
        scene.master.groups.find("g")
        await asyncio.sleep(ROUND)
        assert "U" in scene.slave.topics
        assert scene.slave.groups.get("g") is not None
        after = scene.slave.topics.get("T"), scene.slave.groups.get("TOOLS_CONSUMER")
        assert all(one is other and one is not None for one, other in zip(before, after, strict=True))


@in_virtual_time
async def test_progress_waits_until_the_log_has_arrived_that_it_speaks_of() -> None:
    async with pair() as scene:
        await scene.unfollow()
        await scene.topic("T")
        await scene.send("T", "a", "b")
        await scene.commit("master", "g", "T", 2)
        await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        await asyncio.sleep(3 * ROUND)
        assert scene.slave.topics.get("T") is not None, "a table waits for no log"
        assert (offset(scene), delays(scene)) == (-1, {})
        await scene.copy_by_hand()
        await asyncio.sleep(ROUND)
        assert (offset(scene), delays(scene)) == (2, {1: 1})


@in_virtual_time
async def test_offsets_go_back_only_where_the_masters_own_did() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", *"abcdefghij")
        await scene.commit("master", "g", "T", 5)
        await rounds(scene)
        # A group went on here while its master was away, and it does not know.
        await scene.commit("slave", "g", "T", 8)
        await rounds(scene)
        assert offset(scene) == 8
        await scene.commit("master", "g", "T", 6)
        await rounds(scene)
        assert offset(scene) == 8
        # A reset is the master's own word.
        await scene.commit("master", "g", "T", 1)
        await rounds(scene)
        assert offset(scene) == 1
        await scene.commit("master", "g", "T", 9)
        await rounds(scene)
        assert offset(scene) == 9
        # A master that was killed has forgotten.
        await scene.master.stop()
        await scene.start_master()
        scene.master.offsets.load({"T@g": {0: 4}})
        await rounds(scene)
        await rounds(scene)
        assert offset(scene) == 9


@in_virtual_time
async def test_what_the_master_deletes_goes_here_and_what_it_never_had_is_only_hidden() -> None:
    async with pair() as scene:
        for topic in ("T", "U"):
            await scene.topic(topic)
            await scene.send(topic, "old")
            await scene.commit("master", "g", topic, 1)
        await rounds(scene)
        await scene.delete_topic("T")
        await rounds(scene)
        assert scene.slave.topics.get("T") is None
        assert (scene.slave.store.queues.all("T"), offset(scene)) == ([], -1)
        await scene.topic("T")
        await scene.send("T", "new")
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T"))
        assert [record.body for record in decode_records(found.body)] == [b"new"]
        # A master with an empty folder.
        await scene.master.stop()
        await scene.start_master(storePathRootDir="/other")
        await asyncio.sleep(2 * ROUND)
        assert scene.slave.topics.get("U") is None
        assert [queue.next for queue in scene.slave.store.queues.all("U")] == [1]
        assert offset(scene, topic="U") == 1
        await scene.master.stop()
        await scene.start_master()
        await rounds(scene)
        assert (await scene.ask("slave", pull("g", "U"))).code == 0


@in_virtual_time
async def test_a_table_that_cannot_be_had_costs_itself(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.commit("master", "g", "T", 1)
        scene.master.groups.encode = lambda: b"junk"  # type: ignore[method-assign]
        scene.master.groups.find("g")
        await rounds(scene)
        await rounds(scene)
        assert scene.slave.topics.get("T") is not None
        assert (offset(scene), scene.slave.groups.get("g")) == (1, None)
        told = [record.message for record in caplog.records if "subscription groups" in record.message]
        assert len(told) == 1
        assert "this slave keeps those it has" in told[0]
        assert scene.slave._missing() is None
        del scene.master.groups.encode
        await rounds(scene)
        assert scene.slave.groups.get("g") is not None


@in_virtual_time
async def test_a_question_that_is_refused_stops_no_other() -> None:
    async with pair() as scene:
        await scene.topic("T")
        scene.master.offsets.encode = lambda: 1 / 0  # type: ignore[assignment,return-value]
        await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        await asyncio.sleep(5)
        await rounds(scene)
        assert delays(scene) == {1: 1}


@in_virtual_time
async def test_a_master_that_is_away_is_said_once_and_nothing_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await scene.topic("T")
        await rounds(scene)
        await scene.master.stop()
        scene.master = None  # type: ignore[assignment]
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(45)
        told = [record.message for record in caplog.records if "no name server knows a master" in record.message]
        assert len(told) == 1
        assert scene.slave._missing() is None
        assert scene.slave.topics.get("T") is not None


@in_virtual_time
async def test_names_that_are_no_topics_are_not_taken() -> None:
    async with pair() as scene:
        body = scene.master.topics.encode().replace(b'"SELF_TEST_TOPIC"', b'"../../../x"')
        scene.master.topics.encode = lambda topics=None: body  # type: ignore[method-assign]
        await asyncio.sleep(ROUND)
        assert scene.slave.topics.get("../../../x") is None
        assert scene.slave.topics.get("BenchmarkTest") is not None


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
async def test_who_wants_what_a_slave_has_not_waits_for_it() -> None:
    """Java tells him to ask at once: he would ask without an end for as long as the master is away."""
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        await scene.unfollow()
        await scene.send("T", "b", "c")
        waiting = asyncio.create_task(scene.ask("slave", pull("g", "T", 2, hold_ms=60_000)))
        await asyncio.sleep(5)
        assert not waiting.done()
        await scene.copy_by_hand()
        found = await waiting
        assert [record.body for record in decode_records(found.body)] == [b"c"]


@in_virtual_time
async def test_a_slave_that_is_not_to_be_read_hands_out_nothing_and_skips_nothing() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        scene.slave.settings.slave_read_enable = False
        at_once = await scene.ask("slave", pull("g", "T"))
        began = asyncio.get_running_loop().time()
        later = await scene.ask("slave", pull("g", "T", hold_ms=60_000))
        waited = asyncio.get_running_loop().time() - began
        for answer, code in ((at_once, 20), (later, 19)):
            assert answer.ext is not None
            told = (answer.code, answer.ext["nextBeginOffset"], answer.ext["suggestWhichBrokerId"], answer.body)
            assert told == (code, "0", "0", b"")
        assert 0.9 < waited < 2


@in_virtual_time
async def test_a_group_that_is_far_behind_is_sent_to_the_slave() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b", "c")
        await rounds(scene)

        async def told(name: str) -> str | None:
            answer = await scene.ask(name, pull("g", "T"))
            assert answer.ext is not None, answer
            return answer.ext["suggestWhichBrokerId"]

        config = scene.master.groups.find("g")
        assert config is not None
        assert (config.broker_id, config.which_broker_when_consume_slowly) == (0, 1)
        limits = scene.master.front.delivery._reader.limits
        limits.memory_bound = 100
        assert await told("master") == "0", "slaveReadEnable is off there"
        scene.master.settings.slave_read_enable = True
        assert await told("master") == "1"
        limits.memory_bound = 1 << 40
        assert await told("master") == "0"
        assert await told("slave") == "0", "who has caught up goes back to the master"


@in_virtual_time
async def test_a_master_that_returns_goes_on_where_groups_are_at_its_slave() -> None:
    """Field case B101."""
    async with pair() as scene:
        for topic in ("T", "U"):
            await scene.topic(topic)
            await scene.send(topic, *"abcdefghij")
        await scene.commit("master", "g", "T", 5)
        await scene.commit("master", "h", "T", 9)
        await rounds(scene)
        await scene.master.stop()
        await scene.commit("slave", "g", "T", 8)
        await scene.commit("slave", "g", "U", 400)
        for group, topic in (("h", "T"), (TIMER_GROUP, "T"), ("g", "Elsewhere")):
            scene.slave.offsets.commit(group, topic, 0, 7)
        asked = []
        listen = BrokerApp._listen

        async def listening(app: BrokerApp) -> None:
            asked.append(app.offsets.query("g", "T", 0))
            await listen(app)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BrokerApp, "_listen", listening)
            await scene.start_master()
        assert asked == [8], "before it serves anybody"
        offsets = scene.master.offsets
        assert offsets.query("h", "T", 0) == 9
        assert offsets.query("g", "U", 0) == 10, "no further than the queue"
        assert offsets.query(TIMER_GROUP, "T", 0) == -1
        assert offsets.query("g", "Elsewhere", 0) == -1
        await rounds(scene)
        assert offset(scene) == 8


@in_virtual_time
async def test_a_master_without_messages_takes_no_offsets_over() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b")
        await scene.commit("master", "g", "T", 2)
        await rounds(scene)
        await scene.master.stop()
        await scene.start_master(storePathRootDir="/other")
        assert scene.master.offsets.query("g", "T", 0) == -1


@in_virtual_time
async def test_a_slave_that_does_not_answer_delays_its_master_by_seconds() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.commit("master", "g", "T", 1)
        await scene.master.stop()
        scene.slave.offsets.encode = lambda: asyncio.sleep(1000, b"")  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await scene.start_master()
        assert asyncio.get_running_loop().time() - began < 5
        assert scene.master.offsets.query("g", "T", 0) == 1


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


@pytest.mark.parametrize("sample", sorted(path.relative_to(CONF) for path in CONF.glob("2m-*/*.properties")), ids=str)
def test_every_sample_of_a_set_fits(sample: Path) -> None:
    settings = BrokerSettings.from_sources(file=str(CONF / sample))
    settings.settle(SimIdentity("h", "10.0.0.1"))
    slave = sample.stem.endswith("-s")
    assert (settings.broker_id, settings.broker_role == "SLAVE") == (int(slave), slave)
    assert settings.broker_name == sample.stem.removesuffix("-s")
    assert slave or settings.broker_role == ("SYNC_MASTER" if "sync" in sample.parts[0].split("-") else "ASYNC_MASTER")


def test_the_rhythm_is_javas() -> None:
    assert (metadata._FIRST, metadata._PERIOD) == (3.0, 10.0)

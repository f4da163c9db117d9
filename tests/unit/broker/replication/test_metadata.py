"""What a slave takes over from its master, when, and what it does not believe (store-and-broker.md 6.6)."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from rmq.broker.replication import judged, metadata
from rmq.broker.store.state import Queue
from rmq.protocol import fastjson
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import ROUND, Pair, pair, rounds
from tests.support.virtual import in_virtual_time


def offset(scene: Pair, group: str = "g", topic: str = "T") -> int:
    return scene.slave.offsets.query(group, topic, 0)


def delays(scene: Pair) -> dict[int, int]:
    assert scene.slave.roles.slave is not None
    return scene.slave.roles.slave.metadata._takeover._delays.table


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
async def test_progress_waits_for_queues_that_trail_the_log() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        store = scene.slave.store
        async with store._catch_up.lock:
            for body in (b"b", b"c"):
                assert (await scene.ask("master", send("T", body))).code == 0
            await scene.commit("master", "g", "T", 3)
            await asyncio.sleep(3 * ROUND)
            assert store.log.end == scene.master.store.log.end
            assert offset(scene) == -1
        await rounds(scene)
        assert offset(scene) == 3


@in_virtual_time
async def test_progress_waits_until_the_log_has_arrived_that_it_speaks_of() -> None:
    async with pair() as scene:
        await asyncio.sleep(1)
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
        # It is deleted while nobody is told: perhaps it never was.
        await scene.slave.stop()
        await scene.delete_topic("U")
        await scene.master.stop()
        await scene.start_master()
        await scene.start_slave()
        await rounds(scene)
        assert scene.slave.topics.get("U") is None
        assert [queue.next for queue in scene.slave.store.queues.all("U")] == [1]
        assert offset(scene, topic="U") == 1
        await scene.topic("U")
        await rounds(scene)
        assert (await scene.ask("slave", pull("g", "U"))).code == 0


@in_virtual_time
async def test_a_topic_made_anew_since_the_master_was_asked_stays_whatever_else_is_taken_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judged, "_SLICE", 1)  # the loop gets its turn within the table
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "old")
        await rounds(scene)
        assert scene.slave.roles.slave is not None
        sync = scene.slave.roles.slave.metadata
        conn = sync._plain[0].conn
        await scene.delete_topic("T")
        without, end = scene.master.topics.answer(), scene.slave.store.log.end
        await scene.topic("T", 2)
        await scene.ask("master", send("T", b"new", queue=1))
        await scene.commit("master", "g", "T", 0)
        await asyncio.sleep(0.1)
        assert scene.slave.store.log.end > end
        taken = asyncio.create_task(sync._take(sync._plain[0], without, conn, end))
        await asyncio.sleep(0)
        await sync._take(sync._progress[0], await scene.master.offsets.encode(), conn, scene.slave.store.log.end)
        await taken
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T", queue=1))
        assert [record.body for record in decode_records(found.body)] == [b"new"]


@in_virtual_time
async def test_a_message_of_a_topic_made_anew_is_not_thrown_away_with_the_old_ones() -> None:
    """Its queue offset is one that the old topic had: it waits until a further one tells that the queue begins anew."""
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "old", "older")
        await rounds(scene)
        assert scene.slave.roles.slave is not None
        sync = scene.slave.roles.slave.metadata
        table = sync._plain[0]
        await scene.delete_topic("T")
        without, end = scene.master.topics.answer(), scene.slave.store.log.end
        await scene.topic("T")
        await scene.send("T", "new")
        await asyncio.sleep(0.1)
        await sync._take(table, without, table.conn, end)
        await scene.send("T", "newer")
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T"))
        assert [record.body for record in decode_records(found.body)] == [b"new", b"newer"]


@in_virtual_time
async def test_a_master_that_has_lost_its_disk_takes_nothing_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b")
        scene.master.groups.find("g")
        await scene.commit("master", "g", "T", 1)
        await rounds(scene)
        await scene.master.stop()
        await scene.start_master(storePathRootDir="/other")
        await asyncio.sleep(2 * ROUND)
        assert "this master's is empty: if this one has lost its disk, stop it, make that slave" in caplog.text
        await scene.topic("T")
        await scene.send("T", *"abcdef")  # its log is the longer one soon
        await scene.commit("master", "g", "T", 6)
        await asyncio.sleep(2 * ROUND)
        assert caplog.text.count("is not known to be the one here: this slave keeps the topics") == 1
        assert scene.slave.groups.get("g") is not None
        assert offset(scene) == 1
        assert (await scene.ask("slave", pull("g", "T"))).code == 0
        await scene.master.stop()
        await scene.start_master()
        await scene.topic("U")
        await rounds(scene)
        assert "U" in scene.slave.topics


@pytest.mark.parametrize("answer", [b"junk", b'{"subscriptionGroupTable":{}}'], ids=["no JSON", "no dataVersion"])
@in_virtual_time
async def test_a_table_that_cannot_be_had_costs_itself(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.commit("master", "g", "T", 1)
        scene.master.groups.encode = lambda: answer  # type: ignore[method-assign]
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


@pytest.mark.parametrize(
    "answer",
    [
        b"{}", b"[]", b"NaN", b"[" * 100_000, b'{"a":' * 50_000, b"\xff{",
        b'{"offsetTable":NaN,"topicConfigTable":null,"subscriptionGroupTable":3,"dataVersion":{"counter":1}}',
        b'{"offsetTable":[],"topicConfigTable":[],"subscriptionGroupTable":[],"dataVersion":{"counter":1}}',
        b'{"offsetTable":{"T@g":{0:1e400}},"topicConfigTable":{"T":[]},"subscriptionGroupTable":{"g":7}}',
        b'{"messageRequestModeTable":{},"dataVersion":{"counter":1,"timestamp":1}}',
        b'{"offsetTable":{"T@g":{0:%b}},"topicConfigTable":{"T":{"perm":%b}}}' % (b"9" * 5000, b"9" * 5000),
    ],
    ids=range(11),
)  # fmt: skip
@in_virtual_time
async def test_what_is_no_table_of_its_kind_takes_nothing_away(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.commit("master", "g", "T", 1)
        scene.master.groups.find("g")
        await rounds(scene)
        assert scene.slave.roles.slave is not None

        async def ask(*_: object) -> bytes:
            return answer

        scene.slave.roles.slave.metadata._ask = ask  # type: ignore[method-assign]
        await rounds(scene)
        await rounds(scene)
        assert scene.slave.topics.get("T") is not None
        assert scene.slave.groups.get("g") is not None
        assert offset(scene) == 1
        told = [record for record in caplog.records if "from the master fails" in record.message]
        assert len(told) == len({record.message for record in told})
        assert all(record.exc_info is None and len(record.message) < 300 for record in told)
        assert scene.slave._missing() is None


@pytest.mark.parametrize("end", ["9" * 5000, "-1", "\u0663", str(1 << 63), "1e9", ""])
@in_virtual_time
async def test_where_a_masters_log_ends_is_a_number_or_nothing(end: str, caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await rounds(scene)
        sync = scene.slave.roles.slave
        assert sync is not None
        known = sync.metadata.master_end
        body = KVTable(table={"commitLogMaxOffset": end}).encode()

        async def request(*_: object) -> Command:
            return Command(0, body=body)

        sync.metadata._client.request = request  # type: ignore[method-assign]
        assert not await sync.metadata._arrived("m", sync.metadata._progress[0])
        assert sync.metadata.master_end == known
        assert "does not say where its log ends" in caplog.text
        assert len(caplog.records[-1].message) < 300


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
async def test_nonsense_in_a_table_costs_itself_and_what_was_under_its_name_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as scene:
        await scene.topic("T", 3)
        await scene.send("T", "a", "b")
        scene.master.groups.find("g")
        await scene.commit("master", "g", "T", 1)
        scene.master.groups.let_read("h", "U", False)
        for group in ("g", "h"):
            mode = SetMessageRequestModeRequestBody(topic="T", consumer_group=group, mode="POP", pop_share_queue_num=2)
            await scene.ask("master", Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
        await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        await asyncio.sleep(5)
        await rounds(scene)
        slave = scene.slave.roles.slave
        assert slave is not None
        assert delays(scene) == {1: 1}
        version = b'"dataVersion":{"counter":9,"timestamp":9}'
        answers = {
            RequestCode.GET_ALL_TOPIC_CONFIG: b'{%b,"topicConfigTable":{"T":{"topicName":"T","readQueueNums":-1},"U":'
            b'{"topicName":"U"},"V":{"topicName":"V","perm":"x"},"W":{"topicName":"W","perm":99},"X":7}}' % version,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: b'{%b,"subscriptionGroupTable":{"g":{"groupName":"g",'
            b'"retryMaxTimes":"x"},"i":{"groupName":"i"},"j":{"groupName":"k"},"l":{"groupName":"l","brokerId":-1},'
            b'" ":{"groupName":" "},"m":{"groupName":"m","retryQueueNums":1099511627776}},'
            b'"forbiddenTable":{"g":{"T":"x"},"h":{"T":4294967296},"i":{"T":2},"":7,"j":{"a\\u0007b":2}}}' % version,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{"T":{"g":{"topic":"T",'
            b'"consumerGroup":"g","mode":"SHOUT"},"i":{"topic":"T","consumerGroup":"i","mode":"POP"}},"U":3,'
            b'"%RETRY%g":{"g":{"topic":"%RETRY%g","consumerGroup":"g","mode":"POP"}}}}',
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@g":{0:1e400},"T@i":{0:2}}}',
            RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{1:-7,2:5,"x":3,-2:9}}',
        }

        async def ask(master: str, table: metadata._Table) -> bytes:
            return answers[table.code]

        slave.metadata._ask = ask  # type: ignore[method-assign]
        await rounds(scene)
        topics, groups, modes = scene.slave.topics, scene.slave.groups, scene.slave.modes
        config = topics.get("T")
        assert config is not None
        assert config.read_queue_nums == 3
        assert [name in topics for name in "UVWX"] == [True, False, False, False]
        assert scene.slave.store.queues.all("T")
        known = groups.get("g")
        assert known is not None
        assert known.retry_max_times == 16
        assert [groups.get(name) is not None for name in "ijklm "] == [True, False, False, False, False, False]
        assert groups.forbidden == {"h": {"U": 4}, "i": {"T": 2}}
        assert [(modes.get("T", group).mode) for group in "ghi"] == ["POP", "PULL", "POP"]
        assert set(modes.all()) == {"T"}
        assert (offset(scene), offset(scene, "i")) == (1, 2)
        assert delays(scene) == {1: 1, 2: 5}
        told = [record.message for record in caplog.records if "this slave does not take" in record.message]
        assert any("'T'" in line and "readQueueNums=-1: a topic has 0 or more" in line for line in told)
        assert scene.slave._missing() is None


@in_virtual_time
async def test_what_is_forbidden_and_no_table_leaves_what_was_and_keeps_no_group_out() -> None:
    async with pair() as scene:
        scene.master.groups.let_read("g", "T", False)
        await rounds(scene)
        slave = scene.slave.roles.slave
        assert slave is not None

        async def ask(master: str, table: metadata._Table) -> bytes | None:
            if table.code != RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return None
            return (
                b'{"dataVersion":{"counter":9,"timestamp":9},"subscriptionGroupTable":{"i":{"groupName":"i"}},'
                b'"forbiddenTable":[1]}'
            )

        slave.metadata._ask = ask  # type: ignore[method-assign]
        await rounds(scene)
        assert scene.slave.groups.get("i") is not None
        assert scene.slave.groups.forbidden == {"g": {"T": 4}}


def test_the_rhythm_is_javas() -> None:
    assert (metadata._FIRST, metadata._PERIOD) == (3.0, 10.0)


def early_rounds(scene: Pair, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the slave asks its master for tables although it is not time, from now on."""
    slave = scene.slave.roles.slave
    assert slave is not None
    asked: list[float] = []
    ask = slave.metadata._round_of_tables

    async def seen() -> None:
        asked.append(asyncio.get_running_loop().time())
        await ask()

    monkeypatch.setattr(slave.metadata, "_round_of_tables", seen)
    return asked


@in_virtual_time
async def test_a_topic_or_a_queue_is_known_as_soon_as_its_first_message_is_here() -> None:
    async with pair() as scene:
        await rounds(scene)
        await scene.topic("New", 2)
        await scene.send("New", "a")
        await scene.replicated()
        await asyncio.sleep(0.1)
        assert (await scene.ask("slave", pull("g", "New", 0))).code == 0
        await asyncio.sleep(1.5)
        await scene.topic("New", 5)
        assert (await scene.ask("master", send("New", b"b", queue=4))).code == 0
        await scene.replicated()
        await asyncio.sleep(0.1)
        assert (await scene.ask("slave", pull("g", "New", 0, queue=4))).code == 0


@in_virtual_time
async def test_new_topics_are_asked_for_once_a_moment() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with pair() as scene:
            await rounds(scene)
            asked = early_rounds(scene, monkeypatch)
            for number in range(30):
                await scene.topic(f"New{number}")
                await scene.send(f"New{number}", "a")
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.1)
            assert all(f"New{number}" in scene.slave.topics for number in range(30))
            assert 2 <= len(asked) <= 5
            assert all(after - before >= 1 for before, after in itertools.pairwise(asked))


@in_virtual_time
async def test_topics_that_the_master_has_not_either_are_asked_for_once() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(metadata, "_MOST_IN_VAIN", 2)
        async with pair() as scene:
            await rounds(scene)
            asked = early_rounds(scene, monkeypatch)
            slave = scene.slave.roles.slave
            assert slave is not None

            async def arrived(*names: str, queue: int = 0) -> int:
                """How often the slave asks when it gets messages of topics that its master has not."""
                before = len(asked)
                for name in names:
                    slave.metadata.arrived([Queue(name, queue)])
                    slave.metadata.arrived([Queue(name, queue)])
                await asyncio.sleep(1.1)
                return len(asked) - before

            assert await arrived("A", "B", "rmq_sys_one", "%LMQ%one", "SCHEDULE_TOPIC_XXXX") == 1
            assert await arrived("A", "B", "rmq_sys_one", "%LMQ%one", "SCHEDULE_TOPIC_XXXX") == 0, "each was asked for"
            assert await arrived("B", queue=1) == 1, "not with so many queues"
            assert await arrived("C") == 1
            assert await arrived("B", "C") == 0
            assert await arrived("A") == 1, "no more than two are remembered"
            await scene.topic("Other")
            await slave.metadata.round(slave.metadata._plain)
            assert await arrived("C") == 1, "the master has another table"
            await scene.master.stop()
            assert await arrived("D") == 1
            assert await arrived("D") == 1, "nobody has answered"

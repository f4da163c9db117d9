"""What a slave does not believe of what its master tells, or cannot have: it keeps what it holds."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.broker.replication import metadata
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import ROUND, pair, rounds
from tests.support.virtual import in_virtual_time


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
        assert scene.offset() == 1
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
        assert (scene.offset(), scene.slave.groups.get("g")) == (1, None)
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
        assert scene.offset() == 1
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
        assert scene.delays() == {1: 1}


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
        assert scene.delays() == {1: 1}
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
        assert (scene.offset(), scene.offset("i")) == (1, 2)
        assert scene.delays() == {1: 1, 2: 5}
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

"""A nameserver over loopback: what the recorded answers do not cover."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import zlib
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from rmq.namesrv import brokers
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import JAVA_DEFAULTS, NamesrvSettings
from rmq.protocol.bodies import topic
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.topic import MOST_TOPICS, DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from rmq.protocol.codes import Language, RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.headers.namesrv import (
    GetRouteInfoRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    UnRegisterBrokerRequest,
)
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World


class Clock:
    """A clock that a test moves; the wall clock stays where it is."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 1_700_000_000_000


@dataclasses.dataclass
class Rig:
    app: NamesrvApp
    clock: Clock
    client: RemotingClient
    folder: Path

    async def ask(self, command: Command) -> Command:
        return await self.client.request("{}:{}".format(*self.app.address), command, 60.0)

    async def register(
        self,
        *topics: str,
        body: bytes | None = None,
        crc: int | None = None,
        addr: str = "127.0.0.1:10911",
        compressed: bool = False,
        client: RemotingClient | None = None,
    ) -> Command:
        if body is None:
            table = TopicConfigTable(DataVersion(1, 2), {name: TopicConfig(name, 4, 4) for name in topics})
            body = RegisterBrokerBody([], table).encode()
        header = RegisterBrokerRequest(
            broker_name="broker-a",
            broker_addr=addr,
            cluster_name="C",
            broker_id=0,
            compressed=compressed,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc,
        )
        command = Command.request(RequestCode.REGISTER_BROKER, header, body)
        return await (client or self.client).request("{}:{}".format(*self.app.address), command, 60.0)

    async def route(self, topic: str, **fields: object) -> Command:
        header = GetRouteInfoRequest(topic=topic)
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        for name, value in fields.items():
            setattr(command, name, value)
        return await self.ask(command)

    async def update(self, text: str) -> Command:
        return await self.ask(Command.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode()))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = Clock()
    world = World.real()
    settings = NamesrvSettings(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    async with NamesrvApp(dataclasses.replace(world, clock=clock), settings) as app, RemotingClient(world) as client:
        yield Rig(app, clock, client, tmp_path)


async def test_a_silent_broker_is_dropped_and_its_connection_closed(rig: Rig) -> None:
    assert (await rig.register("T")).code == 0
    gone = asyncio.Event()
    rig.client.on_close.append(lambda conn: gone.set())
    rig.clock.seconds += 119
    rig.app._brokers.scan()
    assert (await rig.route("T")).code == 0
    rig.clock.seconds += 2
    rig.app._brokers.scan()
    async with asyncio.timeout(100):
        await gone.wait()
    assert (await rig.route("T")).code == 17


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registration_of_too_many_topics_is_refused_before_it_is_read(
    rig: Rig, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 200_000
    if compressed:
        version = DataVersion(1, 2).encode()
        plain = len(version).to_bytes(4, "big") + version + count.to_bytes(4, "big")
        body = zlib.compress(plain + b"\0\0\0\x09T 4 4 6 X" * 10 + os.urandom(70_000))
    else:
        topics = ",".join(f'"t{number}":{{"topicName":"t{number}"}}' for number in range(count))
        body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}}}}}}'.encode()
        monkeypatch.setattr(brokers, "_read", None)
    answer = await rig.register(body=body, compressed=compressed)
    assert answer.code == 1
    assert f"{count} topics; a broker may register {MOST_TOPICS}: run more brokers" in (answer.remark or "")
    assert rig.app.routes.topics() == []


async def test_as_many_topics_as_may_be_are_taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "MOST_TOPICS", 600)
    assert (await rig.register(*(f"T{number}" for number in range(600)))).code == 0
    assert len(rig.app.routes.topics()) == 600
    refused = await rig.register(*(f"{number}".rjust(100, "U") for number in range(601)))
    assert "601 topics; a broker may register 600" in (refused.remark or "")


async def test_a_rival_of_the_same_name_is_told_at_both_brokers(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    assert (await rig.register("T")).remark is None
    async with RemotingClient(World.real()) as other:
        told = await rig.register("T", addr="127.0.0.1:20911", client=other)
        assert told.code == 0
        assert "broker-a id 0 at 127.0.0.1:20911 takes the place of the one at 127.0.0.1:10911" in (told.remark or "")
        assert told.remark in caplog.text
        told = await rig.register("T")
        assert "at 127.0.0.1:10911 takes the place of the one at 127.0.0.1:20911" in (told.remark or "")
        await rig.register("T", addr="127.0.0.1:20911", client=other)
    async with asyncio.timeout(100):
        while b"10911" not in (await rig.route("T")).body:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["b" * 256, "a\nb"])
async def test_a_name_that_no_route_can_carry_is_refused(rig: Rig, name: str) -> None:
    header = RegisterBrokerRequest(broker_name=name, broker_addr="1.1.1.1:1", cluster_name="C", broker_id=0)
    answer = await rig.ask(Command.request(RequestCode.REGISTER_BROKER, header))
    assert answer.code == 1
    assert rig.app.routes.system_topics() == ([], None)


async def test_an_unchanged_version_query_keeps_the_broker(rig: Rig) -> None:
    await rig.register("T")
    header = QueryDataVersionRequest(
        broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="C", broker_id=0
    )
    rig.clock.seconds += 100
    answer = await rig.ask(Command.request(RequestCode.QUERY_DATA_VERSION, header, DataVersion(1, 2).encode()))
    assert not answer.header(QueryDataVersionResponse).changed
    rig.clock.seconds += 100
    rig.app._brokers.scan()
    assert (await rig.route("T")).code == 0
    answer = await rig.ask(Command.request(RequestCode.QUERY_DATA_VERSION, header, DataVersion(1, 9).encode()))
    assert answer.header(QueryDataVersionResponse).changed


async def test_a_java_broker_whose_increment_was_lost_is_asked_for_everything(rig: Rig) -> None:
    """It registers one topic and the version after it; 322 is what it asks when forceRegister is false."""
    header = QueryDataVersionRequest(
        broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="C", broker_id=0
    )
    for counter, *names in ((1, "SELF_TEST_TOPIC", "T1"), (3, "T3"), (3, "SELF_TEST_TOPIC", "T1", "T2", "T3")):
        version = DataVersion(counter, 2)
        table = TopicConfigTable(version, {str(name): TopicConfig(str(name), 4, 4) for name in names})
        assert (await rig.register(body=RegisterBrokerBody([], table).encode())).code == 0
        answer = await rig.ask(Command.request(RequestCode.QUERY_DATA_VERSION, header, version.encode()))
        assert answer.header(QueryDataVersionResponse).changed == (names == ["T3"])
    assert (await rig.route("T2")).code == 0


async def test_only_a_broker_of_ours_is_told_that_increments_are_taken(rig: Rig) -> None:
    header = RegisterBrokerRequest(broker_name="broker-a", broker_addr="127.0.0.1:1", cluster_name="C", broker_id=0)
    table = TopicConfigTable(DataVersion(1, 2), {"SELF_TEST_TOPIC": TopicConfig("SELF_TEST_TOPIC", 1, 1)})
    for language, told in ((Language.JAVA, None), (Language.PYTHON, "true")):
        command = Command.request(RequestCode.REGISTER_BROKER, header, RegisterBrokerBody([], table).encode())
        command.language = language
        assert ((await rig.ask(command)).ext or {}).get("takesIncrements") == told


@pytest.mark.parametrize("text", ["", "x", "[]", "[" * 100])
async def test_an_increment_of_nothing_readable_is_refused(rig: Rig, text: str) -> None:
    header = RegisterBrokerRequest(
        broker_name="broker-a", broker_addr="127.0.0.1:1", cluster_name="C", broker_id=0, increment_of=text
    )
    answer = await rig.ask(Command.request(RequestCode.REGISTER_BROKER, header))
    assert (answer.code, rig.app.routes.system_topics()) == (1, ([], None))


async def test_a_wrong_crc_registers_nothing(rig: Rig) -> None:
    answer = await rig.register("T", crc=1)
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert (await rig.route("T")).code == 17


async def test_an_undecodable_body_registers_nothing(rig: Rig) -> None:
    answer = await rig.register(body=b'{"topicConfigSerializeWrapper":{"topicConfigTable":[')
    assert answer.code == 1
    assert (answer.remark or "").startswith("Failed to decode RegisterBrokerBody")
    info = ClusterInfo.decode((await rig.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))).body)
    assert info.broker_addr_table == {}


class Reading:
    """Watches long registrations being read: they go on when ``hold`` is False."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        self.hold = False
        real = RegisterBrokerBody.reading

        def reading(data: bytes, compressed: bool = False) -> Generator[None, None, RegisterBrokerBody]:
            self.lengths.append(len(data))
            while self.hold and len(data) > 65_536:
                yield
            return (yield from real(data, compressed))

        patch.setattr(RegisterBrokerBody, "reading", reading)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


async def test_a_long_registration_is_read_in_pieces_and_once(rig: Rig, reading: Reading) -> None:
    body = long_body()
    reading.hold = True
    registration = asyncio.create_task(rig.register(body=body))
    assert (await rig.route(MANY[-1])).code == 17, "whoever asks meanwhile is answered"
    reading.hold = False
    assert (await registration).code == 0
    assert (await rig.register(body=body)).code == 0
    assert (await rig.route(MANY[-1])).code == 0
    assert reading.lengths == [len(body)], "the same once more says nothing new"
    # But a name server that has forgotten the broker reads it.
    await rig.ask(unregistration())
    assert (await rig.route(MANY[-1])).code == 17
    assert (await rig.register(body=body)).code == 0
    assert (await rig.route(MANY[-1])).code == 0


@pytest.mark.parametrize("compressed", [False, True])
def test_many_topics_are_read_with_pauses(compressed: bool) -> None:
    assert len(list(RegisterBrokerBody.reading(long_body(compressed), compressed))) >= 5


@pytest.mark.parametrize("then", ["unregistered", "registered anew", "closed"])
async def test_a_later_event_makes_a_long_registration_void(rig: Rig, reading: Reading, then: str) -> None:
    reading.hold = True
    async with RemotingClient(World.real()) as client:
        header = RegisterBrokerRequest(
            broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="C", broker_id=0
        )
        command = Command.request(RequestCode.REGISTER_BROKER, header, long_body())
        await client.oneway("{}:{}".format(*rig.app.address), command)
        while not reading.lengths:
            await rig.route("T")
        if then == "unregistered":
            await rig.ask(unregistration())
        elif then == "registered anew":
            assert (await rig.register("T")).code == 0
    if then == "closed":
        while len(rig.app._server.connections) > 1:
            await rig.route("T")
    reading.hold = False
    while any(task.get_name() == "namesrv.request 103" for task in asyncio.all_tasks()):
        await rig.route("T")
    assert (await rig.route(MANY[0])).code == 17
    assert (await rig.route("T")).code == (0 if then == "registered anew" else 17)


MANY = [f"Topic{number:05d}" for number in range(3000)]


def long_body(compressed: bool = False) -> bytes:
    table = TopicConfigTable(DataVersion(1, 2), {name: TopicConfig(name, 4, 4) for name in MANY})
    return RegisterBrokerBody([], table).encode(compressed)


def unregistration() -> Command:
    header = UnRegisterBrokerRequest(
        broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="C", broker_id=0
    )
    return Command.request(RequestCode.UNREGISTER_BROKER, header)


async def test_a_compressed_body_is_known_by_its_bytes(rig: Rig) -> None:
    # A Java 5.3.3 broker with compressedRegister=true writes compressed=false into the header.
    table = TopicConfigTable(DataVersion(1, 2), {"T": TopicConfig("T", 3, 2)})
    assert (await rig.register(body=RegisterBrokerBody([], table).encode(compressed=True))).code == 0
    (queues,) = TopicRouteData.decode((await rig.route("T")).body).queue_datas
    assert (queues.read_queue_nums, queues.write_queue_nums) == (3, 2)


async def test_a_blank_broker_name_is_refused(rig: Rig) -> None:
    header = RegisterBrokerRequest(broker_name=" ", broker_addr="a:1", cluster_name="C", broker_id=0)
    answer = await rig.ask(Command.request(RequestCode.REGISTER_BROKER, header))
    assert (answer.code, answer.remark) == (1, "the field brokerName is empty")


@pytest.mark.parametrize(("version", "standard"), [(317, False), (400, False), (401, True), (409, True), (479, True)])
async def test_the_form_of_a_route_depends_on_who_asks(rig: Rig, version: int, standard: bool) -> None:
    await rig.register("T")
    body = (await rig.route("T", version=version)).body
    assert (b'"brokerAddrs":{"0":' if standard else b'"brokerAddrs":{0:') in body
    assert TopicRouteData.decode(body).broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}


async def test_a_changed_setting_changes_one_line_of_its_file(rig: Rig) -> None:
    path = rig.folder / "namesrv.properties"
    path.write_text("# ours\nlistenPort=9876\n")
    assert (await rig.update("orderMessageEnable=true")).code == 0
    assert rig.app.settings.order_message_enable
    assert path.read_text() == "# ours\nlistenPort=9876\norderMessageEnable=true\n"
    assert (await rig.update("orderMessageEnable=false")).code == 0
    assert path.read_text() == "# ours\nlistenPort=9876\norderMessageEnable=false\n"


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("orderMessageEnable=true\nkvConfigPath=/tmp/x", 16, "Can not update config in black list."),
        ("orderMessageEnable=true\nnoSuchKey=1", 1, "noSuchKey: no such setting; nothing changed"),
        ("orderMessageEnable=perhaps", 1, "true or false is expected"),
        ("orderMessageEnable=true\nlistenPort=1", 1, "listenPort: cannot be changed while running"),
        ("orderMessageEnable=true\na=\\u12", 1, "string2Properties error"),
        ("orderMessageEnable=true\nproductEnvName=\\uD800", 1, "productEnvName='\\ud800': "),
        ("orderMessageEnable=true\nproductEnvName=a\\nb", 1, "without line ends"),
        ("orderMessageEnable=\udcff", 1, "string2Properties error"),
    ],
)
async def test_a_refused_update_changes_nothing(rig: Rig, text: str, code: int, remark: str) -> None:
    answer = await rig.ask(
        Command.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode("utf-8", "surrogateescape"))
    )
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert not rig.app.settings.order_message_enable
    assert not (rig.folder / "namesrv.properties").exists()


async def test_the_settings_answer_has_every_key_of_java(rig: Rig) -> None:
    answer = await rig.ask(Command(RequestCode.GET_NAMESRV_CONFIG))
    keys = [line.partition("=")[0] for line in answer.body.decode().splitlines()]
    assert len(keys) == len(set(keys))
    assert set(JAVA_DEFAULTS) < set(keys)
    assert "tls.server.keyPassword" not in keys


async def test_an_entry_that_cannot_be_written_is_refused(rig: Rig) -> None:
    (rig.folder / "kvConfig.json").mkdir()
    ext: dict[str, str | None] = {"namespace": "NS", "key": "k", "value": "v"}
    answer = await rig.ask(Command(RequestCode.PUT_KV_CONFIG, ext=ext))
    assert (answer.code, answer.remark) == (1, "the key-value settings cannot be written: nothing changed")
    assert (await rig.ask(Command(RequestCode.GET_KV_CONFIG, ext=ext))).code == 22


async def test_ten_thousand_topics_register_and_list(rig: Rig) -> None:
    names = [f"Topic_{number}" for number in range(10_000)]
    assert (await rig.register(*names)).code == 0
    answer = await rig.ask(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert json.loads(answer.body)["topicList"] == names


async def test_a_taken_port_is_one_clear_error(rig: Rig, tmp_path: Path) -> None:
    settings = NamesrvSettings(
        listen_port=rig.app.address[1], bind_address="127.0.0.1", kv_config_path=str(tmp_path / "other.json")
    )
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: .*in use.*listenPort"):
        await NamesrvApp(World.real(), settings).start()


async def test_every_code_of_4_9_8_is_answered(rig: Rig) -> None:
    codes = [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327]
    assert rig.app.codes == codes

"""Finding name servers: lists, the address server, who is asked."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from rmq.client.cluster.turns import Turns
from rmq.client.nameservers import NameServers, parse_addresses
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ConnectFailed, RequestTimeout, ResponseError
from rmq.protocol.queue import MessageQueue
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simworld import Simulation
from tests.support.virtual import in_virtual_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 , b:2; ", ["a:1", "b:2"]),
        ("http://a:1", ["a:1"]),
        ("[::1]:9876;127.0.0.1:9876", ["[::1]:9876", "127.0.0.1:9876"]),
        ("a:1;a:1", ["a:1"]),
        ("", []),
    ],
)
def test_lists(text: str, expected: list[str]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1;b", "[::1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ClientError, match="is not host:port"):
        parse_addresses(text)


class AddressServer:
    """Stands where the network is: answers HTTP, notes what was asked."""

    def __init__(self, status: int = 200, body: bytes = b"10.0.0.9:9876;10.0.0.8:9876\nmore\n") -> None:
        self.status, self.body = status, body
        self.asked: list[str] = []

    async def http_get(self, url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        self.asked.append(url)
        assert headers["Client-Version"] == "V4_9_8"
        return self.status, self.body


def servers(address_server: AddressServer, *addresses: str, unit_name: str | None = None) -> NameServers:
    world: World = dataclasses.replace(Simulation().node("c").world, network=address_server)  # type: ignore[arg-type]
    return NameServers(world, RemotingClient(world), addresses, unit_name)


@in_virtual_time
async def test_the_address_server_gives_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "names.example")
    answering = AddressServer()
    found = servers(answering, unit_name="u")
    await found.lookup()
    assert answering.asked == ["http://names.example:8080/rocketmq/nsaddr-u?nofix=1"]
    assert sorted(found.addresses) == ["10.0.0.8:9876", "10.0.0.9:9876"]
    assert found.needs_lookup
    answering.status = 500
    await found.lookup()
    assert sorted(found.addresses) == ["10.0.0.8:9876", "10.0.0.9:9876"]


@in_virtual_time
async def test_no_answer_and_no_list_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "names.example:80")
    for answering in (AddressServer(404), AddressServer(body=b""), AddressServer(body=b"nonsense")):
        with pytest.raises(ConnectFailed, match=r"http://names.example:80/rocketmq/nsaddr gave no name servers"):
            await servers(answering).lookup()


@in_virtual_time
async def test_a_list_in_the_settings_needs_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "names.example")
    assert not servers(AddressServer(), "a:1").needs_lookup
    monkeypatch.delenv("ROCKETMQ_NAMESRV_DOMAIN")
    await servers(AddressServer(), "a:1").lookup()
    with pytest.raises(ClientError, match="NAMESRV_ADDR"):
        await servers(AddressServer()).lookup()


class OneOfTwo:
    """Stands where the connections are: the second of two servers answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(address)
        await asyncio.sleep(0.01)
        if address == "a:1":
            raise ConnectFailed("nobody there")
        return command


class Broker:
    """Stands where the connections are: what a broker says to somebody who took it for a name server."""

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 105 not supported")


@in_virtual_time
async def test_the_address_of_a_broker_is_named_as_the_mistake() -> None:
    made = servers(AddressServer(), "b:10911")
    made._remoting = Broker()  # type: ignore[assignment]
    with pytest.raises(ResponseError, match=r"from b:10911: request type 105 .*is this the address of a name server\?"):
        await made.route("T", 3.0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_questions_side_by_side_all_find_the_server_that_works(count: int) -> None:
    @in_virtual_time
    async def run() -> None:
        made = servers(AddressServer(), "a:1", "b:1")
        made._turns = Turns(["a:1", "b:1"], lambda: 0.0)
        made._remoting = remoting = OneOfTwo()  # type: ignore[assignment]
        question = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        await asyncio.gather(*(made.request(question, 3.0) for _ in range(count)))
        await made.request(question, 3.0)
        assert remoting.asked[-1] == "b:1"
        assert len(remoting.asked) == 2 * count + 1

    run()


def test_every_server_may_come_first() -> None:
    firsts: set[Any] = set()
    simulation = Simulation(3)
    world = simulation.node("c").world
    for _ in range(40):
        made = NameServers(world, Knowing(), ["a:1", "b:1", "c:1"], None)  # type: ignore[arg-type]
        firsts.add(made.addresses[0])
    assert firsts == {"a:1", "b:1", "c:1"}


class Knowing:
    """Stands where the connections are: servers by address, each knows a topic, or not, or is away."""

    def __init__(self, **knows: bool | None) -> None:
        self.knows = {f"10.0.0.{name[1:]}:9876": known for name, known in knows.items()}
        self.asked: list[str] = []
        self.left: list[str] = []
        self.server_names: dict[str, str] = {}

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(address)
        known = self.knows.get(address)
        if known is None:
            raise ConnectFailed("nobody there")
        if known:
            return command.reply(0, body=TopicRouteData().encode(standard=True))
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no route")

    def disconnect(self, address: str, reason: str) -> None:
        self.left.append(address)


def asking(knowing: Knowing, *given: str, names: dict[str, list[str]] | None = None) -> NameServers:
    world = Simulation().node("c").world
    if names is not None:
        world.network.names = names  # type: ignore[attr-defined]
    return NameServers(world, knowing, given, None)  # type: ignore[arg-type]


@in_virtual_time
async def test_a_server_that_does_not_know_a_topic_is_not_the_last_to_be_asked() -> None:
    """One that has just been restarted knows nothing; the others do."""
    for order in (["10.0.0.1:9876", "10.0.0.2:9876"], ["10.0.0.2:9876", "10.0.0.1:9876"]):
        knowing = Knowing(n1=False, n2=True)
        made = asking(knowing, *order)
        assert await made.route("T", 3.0) is not None
        knowing.asked.clear()
        assert await made.route("T", 3.0) is not None
        assert knowing.asked == ["10.0.0.2:9876"], "who knows is asked first from then on"
    assert await asking(Knowing(n1=False, n2=False), "10.0.0.1:9876", "10.0.0.2:9876").route("T", 3.0) is None
    assert await asking(Knowing(n1=False, n2=None), "10.0.0.1:9876", "10.0.0.2:9876").route("T", 3.0) is None


@in_virtual_time
async def test_a_name_leads_where_it_leads_now() -> None:
    names = {"ns": ["10.0.0.1"]}
    knowing = Knowing(n1=True)
    made = asking(knowing, "ns:9876", names=names)
    await made.resolve()
    assert made.addresses == ["ns:9876"]
    await made.route("T", 3.0)
    assert knowing.asked == ["10.0.0.1:9876"]
    assert knowing.server_names == {"10.0.0.1:9876": "ns"}
    # It moved: the old machine is left at the next poll, without having failed.
    names["ns"] = ["10.0.0.2"]
    knowing.knows["10.0.0.2:9876"] = True
    assert await made.resolve()
    assert knowing.left[-1] == "10.0.0.1:9876"
    knowing.asked.clear()
    await made.route("T", 3.0)
    assert knowing.asked == ["10.0.0.2:9876"]
    del names["ns"]  # the resolver is away: it leads where it did
    assert not await made.resolve()
    assert made._turns.servers == ["10.0.0.2:9876"]


@pytest.mark.parametrize("old", [None, False])
def test_a_name_that_moved_is_found_before_anything_is_refused(old: bool | None) -> None:
    """The old server is away, or there and knows nothing."""

    @in_virtual_time
    async def run() -> None:
        names = {"ns": ["10.0.0.1"]}
        knowing = Knowing(n1=old, n2=True)
        made = asking(knowing, "ns:9876", names=names)
        await made.resolve()
        names["ns"] = ["10.0.0.2"]
        assert await made.route("T", 3.0) is not None

    run()


@in_virtual_time
async def test_every_address_of_a_name_is_asked() -> None:
    knowing = Knowing(n1=False, n2=None, n3=True)
    made = asking(knowing, "ns:9876", names={"ns": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})
    await made.resolve()
    assert await made.route("T", 3.0) is not None
    assert knowing.asked == ["10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"]


def test_of_doubtful_answers_one_that_says_something_is_kept() -> None:
    route, nothing = Command(ResponseCode.SUCCESS), Command(ResponseCode.TOPIC_NOT_EXIST)
    for answers in ([route, nothing], [nothing, route]):
        question = Turns(["a:1", "b:2"], lambda: 0.0).ask(lambda _: True)
        for answer in answers:
            question.answered(answer)
        assert question.reply is route


@in_virtual_time
async def test_a_resolver_that_hangs_takes_a_call_no_longer_than_it_may_take() -> None:
    loop = asyncio.get_running_loop()
    knowing = Knowing(n1=None)
    made = asking(knowing, "ns:9876", "other:9876", names={"ns": ["10.0.0.1"], "other": ["10.0.0.1"]})
    await made.resolve()

    async def hang(host: str) -> list[str]:
        await asyncio.sleep(3600)
        return []

    made._world.network.resolve = hang  # type: ignore[method-assign]
    began = loop.time()
    with pytest.raises(ConnectFailed):
        await made.route("T", 0.5)
    assert loop.time() - began <= 0.55
    began = loop.time()
    assert not await made.resolve()
    assert loop.time() - began == pytest.approx(3.0), "names are looked up side by side"


@in_virtual_time
async def test_no_answer_in_time_is_a_timeout_and_nothing_was_sent() -> None:
    class Silent(Knowing):
        async def request(self, address: str, command: Command, timeout: float) -> Command:
            await asyncio.sleep(timeout)
            raise RequestTimeout(f"{address}: no answer in {timeout:g} s")

    with pytest.raises(ConnectFailed, match="no name server answered") as raised:
        await asking(Silent(), "10.0.0.1:9876").route("T", 0.5)
    assert isinstance(raised.value, TimeoutError)
    with pytest.raises(ConnectFailed) as raised:
        await asking(Knowing(n1=None), "10.0.0.1:9876").route("T", 0.5)
    assert not isinstance(raised.value, TimeoutError)


@in_virtual_time
async def test_an_error_says_which_name_server_failed_and_no_hint_takes_it_for_a_broker() -> None:
    world = Simulation().node("c").world
    asked = NameServers(world, RemotingClient(world), ("10.0.0.1:9876",), None)
    with pytest.raises(ConnectFailed) as raised:
        await asked.route("T", 0.5)
    error = raised.value.about(queue=MessageQueue("T", "b", 0))
    assert error.address == "10.0.0.1:9876"
    assert error.hint == "mqadmin topicRoute -t T"


@pytest.mark.parametrize("first", ["10.0.0.1:1", "10.0.0.2:1"])
@in_virtual_time
async def test_who_is_away_takes_half_of_the_time_of_one_question_about_a_new_topic(first: str) -> None:
    """Field case B088: a send to a new topic asks for it, and all servers are to know whether it is there."""

    class Half:
        """Stands where the connections are: one of two machines is gone."""

        async def request(self, address: str, command: Command, timeout: float) -> Command:
            if address == "10.0.0.1:1":
                await asyncio.sleep(timeout)
                raise RequestTimeout("nobody says anything")
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    made = servers(AddressServer(), "10.0.0.1:1", "10.0.0.2:1")
    made._remoting = Half()  # type: ignore[assignment]
    made._turns.at = made._turns.servers.index(first)
    now = asyncio.get_running_loop().time
    for took in (1.5, 0.0, 0.0):
        began = now()
        assert await made.route("New", 3.0) is None
        assert now() - began == took
    await asyncio.sleep(5)
    began = now()
    assert await made.route("New", 3.0) is None
    assert now() - began == 1.5, "it may be back"

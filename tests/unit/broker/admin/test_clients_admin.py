"""Heartbeats, locks and connections through their handlers, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from rmq.broker.admin.client import ClientAdmin, notify_members
from rmq.broker.groups.clients import Consumers, Producers
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.locks import RebalanceLocks
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.protocol import fastjson
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation


class Broker:
    def __init__(self, simulation: Simulation) -> None:
        node = simulation.node("broker")
        self.world = node.world
        self.settings = BrokerSettings(broker_name="broker-a")
        self.topics = TopicTable(self.world, self.settings, "/store/config/topics.json")
        self.groups = GroupTable(self.world, self.settings, "/store/config/subscriptionGroup.json")
        self.consumers = Consumers(self.world.clock, partial(notify_members, self.settings))
        self.producers = Producers(self.world.clock)
        admin = ClientAdmin(
            self.settings, self.topics, self.groups, self.consumers, self.producers, RebalanceLocks(self.world.clock)
        )
        self.server = Server(self.world, Router([admin]), Limits(), name="broker")
        self.server.on_close += [self.consumers.closed, self.producers.closed]
        self.address = ""


class Client:
    """A client that takes down what the broker tells it."""

    def __init__(self, simulation: Simulation, name: str, broker: Broker) -> None:
        self.notices: list[str | None] = []
        router = Router()
        router.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.noticed)
        self.remoting = RemotingClient(simulation.node(name).world, router=router)
        self.broker = broker
        self.name = name

    def noticed(self, conn: object, request: Command) -> None:
        self.notices.append((request.ext or {}).get("consumerGroup"))

    async def ask(self, code: int, ext: dict[str, str | None] | None = None, body: object = None) -> Command:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.remoting.request(self.broker.address, Command(code, ext=ext, body=data))

    async def beat(self, *groups: str, topics: tuple[str, ...] = ("T",), version: int = 1) -> Command:
        return await self.ask(34, body=self.heartbeat(*groups, topics=topics, version=version))

    def heartbeat(self, *groups: str, topics: tuple[str, ...] = ("T",), version: int = 1) -> dict[str, Any]:
        subs = [
            {
                "topic": topic,
                "subString": "*",
                "tagsSet": [],
                "codeSet": [],
                "subVersion": version,
                "expressionType": "TAG",
            }
            for topic in topics
        ]
        consumers = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": subs,
                "unitMode": False,
            }
            for group in groups
        ]
        return {"clientID": self.name, "consumerDataSet": consumers, "producerDataSet": [{"groupName": "P"}]}


def scenario(test: Callable[[Broker, Callable[[str], Client]], Awaitable[None]]) -> None:
    async def main() -> None:
        simulation = Simulation(seed=5)
        broker = Broker(simulation)
        host, port = await broker.server.start("10.0.0.1", 0)
        broker.address = f"{host}:{port}"
        clients: list[Client] = []

        def make(name: str) -> Client:
            clients.append(Client(simulation, name, broker))
            return clients[-1]

        try:
            await test(broker, make)
        finally:
            for client in clients:
                await client.remoting.close()
            await broker.server.stop()
            await broker.topics.file.flush()
            await broker.groups.file.flush()

    run(main())


def test_a_heartbeat_makes_group_and_retry_topic_and_tells_every_member() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one, two = make("c1"), make("c2")
        answer = await one.beat("g")
        assert (answer.code, answer.ext, answer.version) == (0, None, 409)
        retry = broker.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.write_queue_nums, retry.perm) == (1, 6)
        await two.beat("g")
        await asyncio.sleep(0.01)
        assert (one.notices, two.notices) == (["g", "g"], ["g"])
        ids = await one.ask(38, {"consumerGroup": "g"})
        assert fastjson.loads(ids.body) == {"consumerIdList": ["c1", "c2"]}
        await two.remoting.close()
        await asyncio.sleep(0.01)
        assert one.notices == ["g", "g", "g"]
        gone = await one.ask(35, {"clientID": "c1", "consumerGroup": "g", "producerGroup": "P"})
        assert (gone.code, gone.ext) == (0, {})
        assert (await one.ask(38, {"consumerGroup": "g"})).code == 1
        assert (await one.ask(203, {"consumerGroup": "g"})).code == 206
        assert (await one.ask(204, {"producerGroup": "P"})).code == 1

    scenario(check)


def test_the_settings_hold_notices_back() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        broker.settings.notify_consumer_ids_changed_enable = False
        one = make("c1")
        await one.beat("g")
        await asyncio.sleep(0.01)
        assert one.notices == []

    scenario(check)


def test_a_thousand_groups_in_one_heartbeat_leave_the_loop_its_turns() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one = make("c1")
        bursts = [0]
        register = broker.consumers.register

        def counted(*args: Any, **more: Any) -> bool:
            if not bursts[-1]:
                asyncio.get_running_loop().call_soon(bursts.append, 0)
            bursts[-1] += 1
            return register(*args, **more)

        broker.consumers.register = counted  # type: ignore[method-assign]
        answer = await one.beat(*(f"g{number}" for number in range(1000)))
        assert answer.code == 0
        assert sum(bursts) == 1000
        assert max(bursts) <= 25
        assert len(broker.consumers.groups()) == 1000
        await asyncio.sleep(1)
        assert len(one.notices) == 1000
        assert broker.topics.get("%RETRY%g999") is not None

    scenario(check)


def test_thousands_of_topics_in_one_group_leave_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        bursts = [0]
        read = SubscriptionData.from_object

        def counted(value: Any) -> SubscriptionData:
            if not bursts[-1]:
                asyncio.get_running_loop().call_soon(bursts.append, 0)
            bursts[-1] += 1
            return read(value)

        monkeypatch.setattr(SubscriptionData, "from_object", counted)
        answer = await make("c1").beat("g", topics=tuple(f"T{number}" for number in range(3000)))
        assert answer.code == 0
        assert sum(bursts) == 3000
        assert max(bursts) <= 250
        group = broker.consumers.group("g")
        assert group is not None
        assert len(group.subscriptions) == 3000

    scenario(check)


def test_long_expressions_are_compiled_one_a_turn_and_before_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the group are remembered when it is registered, however many other groups have."""

    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        bursts = [0]
        order: list[str] = []
        register = broker.consumers.register

        def counted(text: str) -> None:
            if not bursts[-1]:
                asyncio.get_running_loop().call_soon(bursts.append, 0)
            bursts[-1] += 1
            order.append("expression")

        def registered(*args: Any, **more: Any) -> bool:
            order.append("group")
            return register(*args, **more)

        monkeypatch.setattr("rmq.broker.admin.client.compile_sql", counted)
        broker.consumers.register = registered  # type: ignore[method-assign]
        one = make("c1")
        beat = one.heartbeat("g", "h", topics=tuple(f"T{number}" for number in range(100)))
        for sub in beat["consumerDataSet"][0]["subscriptionDataSet"]:
            sub |= {"expressionType": "SQL92", "subString": "a = 1 or " * 50 + "b = 2"}
        assert (await one.ask(34, body=beat)).code == 0
        assert max(bursts) == 1
        assert order == [*["expression"] * 100, "group"] * 2

    scenario(check)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("groups", "HeartbeatData.consumerDataSet: 5001 groups: at most 5000 are taken"),
        ("topics", "g: 10001 topics: at most 10000 are taken of a group"),
        ("expressions", "g: at most 200 expressions are taken of a group"),
        ("bytes", "a body of 1048577 bytes: at most 1048576 are taken by request 34"),
    ],
)
def test_more_than_any_client_has_is_refused(what: str, words: str) -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one = make("c1")
        few: dict[str, list[Any]] = {
            "groups": [{"groupName": f"g{number}"} for number in range(5001)],
            "topics": [{"groupName": "g", "subscriptionDataSet": [{"topic": str(number)} for number in range(10_001)]}],
            "expressions": [
                {
                    "groupName": "g",
                    "subscriptionDataSet": [
                        {
                            "topic": str(number),
                            "expressionType": "SQL92",
                            "subString": f"a = {number} and b = 'a text of some length'",
                        }
                        for number in range(201)
                    ],
                }
            ],
            "bytes": [],
        }
        body = json.dumps({"clientID": "c1", "consumerDataSet": few[what]}).encode()
        if what == "bytes":
            body += b" " * ((1 << 20) + 1 - len(body))
        answer = await one.ask(34, body=body)
        assert (answer.code, answer.remark) == (1, words)
        assert broker.consumers.groups() == []

    scenario(check)


@pytest.mark.parametrize("count", [1, 200])
def test_a_bad_heartbeat_is_answered_and_changes_nothing(count: int) -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one = make("c1")
        beat = one.heartbeat(*(f"g{number}" for number in range(count)))
        for name, value in (("clientID", ""), ("consumerDataSet", [*beat["consumerDataSet"], 7])):
            answer = await one.ask(34, body={**beat, name: value})
            assert answer.code == 1
            assert answer.remark
        assert (await one.ask(34, body=b"{zz" + b" " * (count * 100))).code == 1
        assert broker.consumers.groups() == []
        assert (await one.ask(34, body={})).code == 0

    scenario(check)


def test_thousands_of_locks_are_answered_like_a_few_and_let_others_run() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one, two = make("c1"), make("c2")
        queues = [{"topic": "T", "brokerName": "broker-a", "queueId": number} for number in range(3000)]
        body = {"consumerGroup": "g", "clientId": "c1", "mqSet": queues}
        order: list[str] = []

        async def few() -> None:
            await two.ask(41, body={**body, "clientId": "c2", "mqSet": queues[-1:]})
            order.append("few")

        async def many() -> Command:
            answer = await one.ask(41, body=body)
            order.append("many")
            return answer

        got, _ = await asyncio.gather(many(), few())
        assert fastjson.loads(got.body) == {"lockOKMQSet": queues[:-1]}
        assert order == ["few", "many"]
        assert fastjson.loads((await two.ask(41, body={**body, "clientId": "c2"})).body) == {"lockOKMQSet": queues[-1:]}
        assert (await one.ask(42, body={**body, "mqSet": queues[:-1]})).body == b""
        got = await two.ask(41, body={**body, "clientId": "c2"})
        assert fastjson.loads(got.body) == {"lockOKMQSet": queues}
        for wrong in (
            {**body, "mqSet": [*queues, 5]},
            {**body, "consumerGroup": ""},
            queues,
            {**body, "mqSet": "x" * 20_000},
        ):
            assert (await one.ask(41, body=wrong)).code == 1

    scenario(check)


def test_locks_over_the_wire() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one, two = make("c1"), make("c2")
        queues = [{"topic": "T", "brokerName": "broker-a", "queueId": number} for number in (0, 1)]
        body = {"consumerGroup": "g", "clientId": "c1", "mqSet": queues}
        assert fastjson.loads((await one.ask(41, body=body)).body) == {"lockOKMQSet": queues}
        assert fastjson.loads((await two.ask(41, body={**body, "clientId": "c2"})).body) == {"lockOKMQSet": []}
        await one.ask(42, body={**body, "mqSet": queues[:1]})
        got = await two.ask(41, body={**body, "clientId": "c2"})
        assert fastjson.loads(got.body) == {"lockOKMQSet": queues[:1]}
        await asyncio.sleep(61)
        got = await two.ask(41, body={**body, "clientId": "c2"})
        assert fastjson.loads(got.body) == {"lockOKMQSet": queues}

    scenario(check)


def test_subscriptions_by_expression_are_checked() -> None:
    async def check(broker: Broker, make: Callable[[str], Client]) -> None:
        one = make("c1")

        async def code(kind: str, text: str) -> int:
            sub = {"topic": "T", "subString": text, "expressionType": kind}
            return (await one.ask(46, body={"clientId": "c1", "group": "g", "subscriptionData": sub})).code

        assert await code("TAG", "A") == 0
        assert await code("SQL92", "a > 5") == 1
        broker.settings.enable_property_filter = True
        assert await code("SQL92", "a > 5") == 0
        assert await code("SQL92", "a > ") == 23
        assert await code("OTHER", "a") == 23

    scenario(check)

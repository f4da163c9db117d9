"""Topics and groups of a group under kills, power cuts and cuts: what was answered for holds, at all members.

One seed is one life of a group. What failed may have been done, where the failure does not say what became of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from rmq.aio import AdminClient, Message, MessageQueue, Producer
from rmq.broker.app import BrokerApp
from rmq.broker.replication import metadata
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from tests.support.kills.campaign import amount
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

SEEDS = amount(6, 1_000)
TOPICS, GROUPS = ("A", "B", "C"), ("g", "h")
#: Of a topic: queues and permission; of a group: retries. None: it is not there.
#: What a send makes.
MADE = (4, 6)
State = tuple[int, int] | int | None


@dataclass
class Life:
    """What the administrator knows."""

    cluster: GroupCluster
    admin: AdminClient
    random: Random
    #: By name: what it may be.
    may_be: dict[str, set[State]] = field(default_factory=lambda: {name: {None} for name in (*TOPICS, *GROUPS)})
    #: By topic: what was acknowledged since it was made last, and whether that is known.
    bodies: dict[str, set[bytes]] = field(default_factory=dict)
    sent: int = 0
    makes_topics: bool = False
    #: What is being changed: one at a time.
    asked: set[str] = field(default_factory=set)

    @property
    def at(self) -> str | None:
        """The master, or who was it."""
        led = [name for name in self.cluster.members if self.cluster.members[name].roles.role.leads]
        return f"{self.cluster.addresses[self.random.choice(led)]}:10911" if led else None

    async def change(self) -> None:
        at = self.at
        if at is None:
            return
        free = [name for name in (*TOPICS, *GROUPS) if name not in self.asked]
        if not free:
            return
        name = self.random.choice(free)
        self.asked.add(name)
        try:
            await self._change(at, name)
        finally:
            self.asked.discard(name)

    async def _change(self, at: str, name: str) -> None:
        is_topic, admin = name in TOPICS, self.admin
        state: State = None
        if self.random.random() < 0.65:
            state = (self.random.randint(1, 6), self.random.choice((4, 6))) if is_topic else self.random.randint(0, 9)
        before = self.may_be[name]
        self.may_be[name] = before | {state}
        if is_topic:
            self.bodies.pop(name, None)
        try:
            if isinstance(state, tuple):
                await admin.create_and_update_topic(
                    at, name, read_queue_nums=state[0], write_queue_nums=state[0], perm=state[1]
                )
            elif state is not None:
                config = SubscriptionGroupConfig(group_name=name, retry_max_times=state)
                await admin.create_and_update_subscription_group(at, config)
            elif is_topic:
                answers = await admin.delete_topic_in_broker([at], name)
                if answers.missing:
                    return
            else:
                await admin.delete_subscription_group(at, name, remove_offset=True)
        except ResponseError as error:
            if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                self.may_be[name] = before  # it is not made
            return
        except RMQError:
            return
        self.may_be[name] = {state}
        if is_topic:
            self.bodies[name] = set()

    async def send(self) -> None:
        topic = self.random.choice([topic for topic in TOPICS if topic not in self.asked])
        if self.makes_topics:
            self.may_be[topic] |= {MADE}
        body = b"%d" % self.sent
        self.sent += 1
        async with Producer("p", namesrv=self.cluster.namesrv_addr, retry_times_when_send_failed=0) as producer:
            with suppress(RMQError):
                result = await producer.send(Message(topic, body), queue=MessageQueue(topic, "group", 0), timeout=4)
                if result.send_status.name == "SEND_OK" and topic in self.bodies:
                    self.bodies[topic].add(body)

    async def trouble(self) -> None:
        cluster, random = self.cluster, self.random
        gone = [name for name in cluster.names if name not in cluster.members]
        match random.choice(("kill", "kill", "power", "cut", "cut", "cut", "heal", "begin", "wait", "wait")):
            case "kill" | "power" as how if not gone:
                leader = cluster.leader()
                name = leader if leader is not None and random.random() < 0.7 else random.choice(cluster.names)
                await cluster.kill(name, power=how == "power")
            case "cut" if not gone:
                cluster.isolate(cluster.leader() or random.choice(cluster.names))
                for asked in [asyncio.ensure_future(self.change()) for _ in range(random.randint(0, 2))]:
                    await asyncio.sleep(random.uniform(0, 4))
                    await asked
            case "begin" if gone:
                await cluster.begin(gone[0])
            case "wait":
                await asyncio.sleep(random.uniform(0, 5))
            case _:
                cluster.simulation.net.heal()


def _state(app: BrokerApp, name: str) -> State:
    if name in TOPICS:
        topic = app.topics.get(name)
        return None if topic is None else (topic.read_queue_nums, topic.perm)
    group = app.groups.get(name)
    return None if group is None else group.retry_max_times


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_answered_for_holds_everywhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(metadata, "_GROUP_FIRST", 1e9)
    lived(seed)


@in_virtual_time
async def lived(seed: int) -> None:
    makes_topics = seed % 3 == 0
    settings = {"flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": str(makes_topics).lower()}
    async with GroupCluster(seed=seed, settings=settings) as cluster:  # noqa: SIM117 - the second needs the first
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            await cluster.led_by()
            life = Life(cluster, admin, Random(seed), makes_topics=makes_topics)
            for _ in range(25):
                step = life.random.random()
                if step < 0.25:
                    await life.trouble()
                    continue
                asked = asyncio.ensure_future(life.change() if step < 0.7 else life.send())
                if life.random.random() < 0.3:
                    await asyncio.sleep(life.random.uniform(0, 0.02))
                    await life.trouble()
                await asked
            cluster.simulation.net.heal()
            for name in cluster.names:
                if name not in cluster.members:
                    await cluster.begin(name)
            await cluster.led_by(60)
            await cluster.alike(60)
            await eventually(lambda: all(len({_state(app, name) for app in cluster.members.values()}) == 1
                                         for name in life.may_be), 20)  # fmt: skip
            for name, states in life.may_be.items():
                for member, app in cluster.members.items():
                    assert _state(app, name) in states, (seed, name, member, _state(app, name), states)
                    if name in TOPICS and _state(app, name) is None:
                        assert not await cluster.bodies(member, name), (seed, name, member)
            for topic, bodies in life.bodies.items():
                for member in cluster.members:
                    there = await cluster.bodies(member, topic)
                    assert bodies <= set(there), (seed, topic, member)
                    assert len(there) == len(set(there)), (seed, topic, member)

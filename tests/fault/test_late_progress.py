"""A member leads that was away for long: groups and delayed messages go on where they are, not where it had left them.

It has the log as soon as it is up, and the lead at once where ``preferredLeaderId`` names it. Progress comes beside the
log, every second.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rmq.aio import Message, MessageQueue, Producer, PushConsumer
from rmq.broker.replication import elected
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

#: Messages in the queue that groups read.
SOME = 40


class Groups:
    """What members say of groups, and are told."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster
        self._client = RemotingClient(cluster.simulation.node("groups").world)

    async def _ask(self, name: str, code: RequestCode, whose: str, /, **more: str) -> dict[str, str | None]:
        ext: dict[str, str | None] = {"consumerGroup": whose, "topic": "Orders", "queueId": "0", **more}
        answer = await self._client.request(f"{self._cluster.addresses[name]}:10911", Command(code, ext=ext), 3.0)
        assert answer.code == 0, answer
        return answer.ext or {}

    async def commit(self, name: str, **offsets: int) -> None:
        for group, offset in offsets.items():
            await self._ask(name, RequestCode.UPDATE_CONSUMER_OFFSET, group, commitOffset=str(offset))

    async def clone(self, name: str, source: str, to: str) -> None:
        await self._ask(name, RequestCode.CLONE_GROUP_OFFSET, "", srcGroup=source, destGroup=to, offline="true")

    async def reset(self, name: str, group: str, offset: int) -> None:
        more = {"group": group, "timestamp": "0", "isForce": "true", "offset": str(offset)}
        await self._ask(name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "", **more)

    async def at(self, name: str, *groups: str) -> list[int]:
        said = [await self._ask(name, RequestCode.QUERY_CONSUMER_OFFSET, group) for group in groups]
        return [int(one["offset"] or 0) for one in said]

    async def close(self) -> None:
        await self._client.close()


async def a_member_leads_that_was_away(alone: bool, wait: float) -> None:
    """:param alone: the third one is dead by then. :param wait: seconds from its return until it gets the lead."""
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        away, third = (name for name in cluster.names if name != leader)
        groups, got = Groups(cluster), Counter[bytes]()
        consumer = PushConsumer("late", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")

        @consumer.on("Late")
        async def take(message: Message) -> None:
            got[bytes(message.body)] += 1

        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
            await producer.send(Message("Late", b"first"))
            for _ in range(SOME):
                await producer.send(Message("Orders", b"more"), queue=MessageQueue("Orders", "group", 0))
            await consumer.start()
            await groups.commit(leader, reads=10, reset=30)
            await asyncio.sleep(15)  # the others have taken it over, and it is on their disks
            await cluster.kill(away)
            await groups.commit(leader, reads=20, reset=5)
            for number in range(5):
                await producer.send(Message("Late", b"%d" % number, delay_level=1))
                await asyncio.sleep(2)
            if not alone:
                await asyncio.sleep(5)
            assert got == Counter([b"first", *(b"%d" % number for number in range(5))])
            await cluster.begin(away)
            end = cluster.members[leader].store.log.end
            await eventually(lambda: cluster.members[away].store.log.end >= end, 20)
            if alone:
                await cluster.kill(third)
            await asyncio.sleep(wait)
            cluster.driver(leader).transfer(away)
            await eventually(lambda: cluster.leader() == away, 20)
            await producer.send(Message("Late", b"last", delay_level=1))
            await eventually(lambda: got[b"last"], 20)
            assert await groups.at(away, "reads", "reset") == [20, 5]
            assert set(got.values()) == {1}, f"delivered again: {got}"
            await asyncio.sleep(3)
            assert await groups.at(leader, "reads", "reset") == [20, 5], "those that follow now have lost it"
        await consumer.shutdown()
        await groups.close()


@pytest.mark.parametrize(("alone", "wait"), [(False, 0.0), (False, 0.4), (False, 3.0), (True, 0.0)])
def test_a_member_that_was_away_leads_on_where_groups_and_deliveries_are(alone: bool, wait: float) -> None:
    in_virtual_time(a_member_leads_that_was_away)(alone, wait)


def test_a_member_that_asks_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> None:
        """Ask nobody."""

    monkeypatch.setattr("rmq.broker.roles.slave.ask_members", nobody)
    with pytest.raises(AssertionError):
        in_virtual_time(a_member_leads_that_was_away)(False, 0.0)


@in_virtual_time
async def test_of_members_that_were_all_away_the_one_that_is_further_on_is_believed() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        first, second = (name for name in cluster.names if name != leader)
        groups = Groups(cluster)
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
            for _ in range(SOME):
                await producer.send(Message("Orders", b"more"), queue=MessageQueue("Orders", "group", 0))
        await groups.commit(leader, reads=10)
        await asyncio.sleep(15)
        await cluster.kill(first)
        await groups.commit(leader, reads=20)
        await asyncio.sleep(15)
        await cluster.kill(leader)
        await cluster.kill(second)
        await asyncio.sleep(60)
        await cluster.begin(first)
        await cluster.begin(second)
        led = await cluster.led_by(30)
        assert await groups.at(led, "reads") == [20]
        await groups.close()


@in_virtual_time
async def test_members_that_do_not_answer_hold_the_next_leader_up_for_seconds() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        away = next(name for name in cluster.names if name != leader)
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
            await cluster.kill(away)
            await cluster.begin(away)
            await asyncio.sleep(0.4)
            for name in set(cluster.names) - {away}:
                cluster.members[name].offsets.encode = lambda: asyncio.sleep(60, b"")  # type: ignore[method-assign]
            cluster.driver(leader).transfer(away)
            took = await eventually(lambda: cluster.leader() == away, 20)
            assert took < elected._PATIENCE + 1
            await producer.send(Message("Orders", b"last"))


@in_virtual_time
async def test_what_was_answered_is_known_to_whoever_leads_next() -> None:
    """The leader dies with its answer: a group that was reset would go on where it was, and nobody would know."""
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        groups = Groups(cluster)
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
            for _ in range(SOME):
                await producer.send(Message("Orders", b"more"), queue=MessageQueue("Orders", "group", 0))
        await groups.commit(leader, source=10, cloned=20, reset=20, back=20)
        await asyncio.sleep(3)
        await groups.clone(leader, "source", "cloned")
        await groups.reset(leader, "reset", 5)
        await groups.commit(leader, back=3)
        await cluster.kill(leader)
        led = await cluster.led_by(30)
        assert await groups.at(led, "source", "cloned", "reset", "back") == [10, 10, 5, 3]
        await groups.close()


@in_virtual_time
async def test_a_member_that_says_nothing_holds_no_answer_up_for_longer_than_a_second() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        groups = Groups(cluster)
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
        silent = next(name for name in cluster.names if name != leader)
        cluster.simulation.net.cut(cluster.addresses[leader], cluster.addresses[silent])
        began = asyncio.get_running_loop().time()
        await groups.commit(leader, late=1)
        assert asyncio.get_running_loop().time() - began < 1.1
        await groups.close()


@in_virtual_time
async def test_a_leader_that_loses_the_lead_before_it_answers_says_that_nothing_is_kept() -> None:
    async with GroupCluster() as cluster:
        leader = await cluster.led_by()
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
        cluster.isolate(leader)
        client, answers = RemotingClient(cluster.simulation.node("groups").world), []

        async def commit(offset: int) -> None:
            ext: dict[str, str | None] = {"consumerGroup": "late", "topic": "Orders", "queueId": "0"}
            asked = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext={**ext, "commitOffset": str(offset)})
            answer = await client.request(f"{cluster.addresses[leader]}:10911", asked, 3.0)
            answers.append((cluster.members[leader].roles.role.leads, answer.code))

        told = []
        while cluster.driver(leader).leads is not None:
            told.append(asyncio.create_task(commit(len(told))))
            await asyncio.sleep(0.05)
        await asyncio.gather(*told)
        assert {code for leads, code in answers if not leads} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        await client.close()

"""What no majority has is shown by nobody: neither by its leader nor by who has it already, whatever they are asked.

Followers have it, and their words do not come back. Then the leader is cut off, and another one takes it back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import pytest

from rmq.aio import Message, MessageQueue, Producer, SendResult
from rmq.broker.admin.lookup import Lookup
from rmq.broker.delivery.filtering import Filter
from rmq.broker.delivery.read import Batch, Reader, Scan
from rmq.broker.pop.take import Taker
from rmq.broker.store.log.group_durability import GroupDurability
from rmq.broker.store.messages import Messages
from rmq.broker.store.state import Queue
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.simworld import SimOffload
from tests.support.raft.brokers import GroupCluster
from tests.support.raw_peer import pull, subscribe
from tests.support.virtual import eventually, in_virtual_time

#: In bodies, keys and tags of what is not committed.
SECRET = b"secret"
QUEUES = range(4)
_ENDS = re.compile(rb'"(?:max|broker)Offset":(\d+)')


def asks(position: int, end: int) -> list[Command]:
    """Everything that answers with messages, or says where they are.

    :param position: commit-log offset up to which the group has it, and
    :param end: where the log ends.
    """
    queue = [{"topic": "Topic", "queueId": str(one)} for one in QUEUES]
    found = [subscribe("readers", "Topic")]
    for number in QUEUES:
        found += [pull("readers", "Topic", offset, queue=number) for offset in (0, 2, 3, 4)]
        found.append(pull("readers", "Topic", 2, queue=number, hold_ms=500))
        found.append(Command(RequestCode.POP_MESSAGE, ext={
            "consumerGroup": "poppers", "topic": "Topic", "queueId": str(number), "maxMsgNums": "32",
            "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*",
            "order": "false",
        }))  # fmt: skip
        found += [Command(code, ext=dict(queue[number])) for code in (30, 31, 32)]
        found += [Command(29, ext={**queue[number], "timestamp": str(time)}) for time in (0, 1 << 60)]
        found.append(Command(RequestCode.QUERY_CONSUME_QUEUE, ext={**queue[number], "index": "0", "count": "32"}))
    for key in ("secret", "there"):
        found.append(Command(RequestCode.QUERY_MESSAGE, ext={
            "topic": "Topic", "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60),
        }))  # fmt: skip
    found += [Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(at)}) for at in range(position, end)]
    found.append(Command(RequestCode.GET_TOPIC_STATS_INFO, ext={"topic": "Topic"}))
    found.append(Command(RequestCode.GET_CONSUME_STATS, ext={"consumerGroup": "readers", "topic": "Topic"}))
    return found


def spark_asks() -> list[Command]:
    """What Spark's source asks for ranges that it may have planned by whatever any member has said."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")
    from rmq.spark.options.checked import Endpoint
    from rmq.spark.source.one_range import Pulling, pull_request
    from rmq.spark.source.ranges import Range

    queues = [MessageQueue("Topic", "group", number) for number in QUEUES]
    ranges = [Range(queue, start, 3 + 1024) for queue in queues for start in (0, 1, 2)]
    return [pull_request(Endpoint(("any",)), one, one.start, Pulling("spark")) for one in ranges]


async def shown(client: RemotingClient, address: str, commands: list[Command]) -> list[str]:
    """What one member answers that it may not, with two messages committed in each queue."""
    wrong = []

    async def ask(command: Command) -> None:
        answer = await client.request(address, command, 5.0)
        text = f"{command.code} {command.ext}: {answer.code} {answer.ext} {answer.body[:200]!r}"
        numbers = {name: int(value or 0) for name, value in (answer.ext or {}).items() if name.endswith("ffset")}
        told = command.code != RequestCode.VIEW_MESSAGE_BY_ID and any(
            number > 2 for name, number in numbers.items() if "hy" not in name and name != "nextBeginOffset"
        )
        if SECRET in answer.body or told or (command.code == 33 and answer.code == 0):
            wrong.append(text)
        if any(int(end) > 2 for end in _ENDS.findall(answer.body)):
            wrong.append(text)

    for command in commands:
        await ask(command)
    return wrong


async def look(cluster: GroupCluster, more: Sequence[Command] = ()) -> list[str]:
    """One life: two messages a queue are committed, and more are not; what members show of those.

    :param more: is asked, too.
    """
    leader = await cluster.led_by(60)
    tasks: list[asyncio.Task[SendResult]] = []
    queues = [MessageQueue("Topic", "group", number) for number in QUEUES]
    client = RemotingClient(cluster.simulation.node("reader").world)
    async with Producer(
        "writer", namesrv=cluster.namesrv_addr, send_msg_timeout=30.0, retry_times_when_send_failed=0
    ) as producer:
        await producer.send(Message("Topic", b"first"))
        await eventually(lambda: cluster.members[leader].topics.get("Topic"))
        before = cluster.members[leader].store
        for queue in queues:
            while before.queues.get("Topic", queue.queue_id) is None or (
                before.queues.get("Topic", queue.queue_id).next < 2  # type: ignore[union-attr]
            ):
                await producer.send(Message("Topic", b"there", keys="there"), queue=queue)
        await cluster.alike()
        committed = before.log.end
        others = [name for name in cluster.names if name != leader]
        for name in others:
            cluster.mute(name)
        for number, queue in enumerate(queues * 3):
            message = Message("Topic", SECRET + b"%d" % number, keys="secret", tags="secret")
            tasks.append(asyncio.create_task(producer.send(message, queue=queue)))
        await eventually(lambda: min(cluster.members[name].store.log.end for name in cluster.names) > committed, 5)
        await asyncio.sleep(0.5)
        wrong = []
        for name in cluster.names:
            store = cluster.members[name].store
            wrong += [
                f"{name}: {text}"
                for text in await shown(
                    client, f"{cluster.addresses[name]}:10911", [*more, *asks(committed, store.log.end)]
                )
            ]
        assert "SEND_OK" not in {task.result().send_status.name for task in tasks if task.done()}
        for name in others:
            await cluster.kill(name)
            await cluster.begin(name)
        cluster.isolate(leader)
        await eventually(lambda: cluster.leader() not in (None, leader), 60)
        cluster.simulation.net.heal()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
    return wrong


@in_virtual_time
async def test_nobody_shows_what_no_majority_has() -> None:
    async with GroupCluster(seed=21, settings={"raftElectionTimeout": "10000"}) as cluster:
        assert await look(cluster) == []


@in_virtual_time
async def test_spark_reads_nothing_that_no_majority_has() -> None:
    async with GroupCluster(seed=22, settings={"raftElectionTimeout": "10000"}) as cluster:
        assert await look(cluster, spark_asks()) == []


# -- planted bugs


def everything_is_shown(patch: pytest.MonkeyPatch) -> None:
    """What was appended is visible."""

    def appended(self: GroupDurability, end: int, touched: list[Queue]) -> None:
        self.appended = self.visible = end
        for queue in touched:
            queue.visible = queue.next

    patch.setattr(GroupDurability, "on_appended", appended)


def keys_are_found(patch: pytest.MonkeyPatch) -> None:
    """A record is read wherever in the log it is."""
    at = Messages.at

    async def anywhere(self: Messages, offset: int) -> bytes | None:
        durability = self._durability
        visible, durability.visible = durability.visible, self._log.end
        try:
            return await at(self, offset)
        finally:
            durability.visible = visible

    patch.setattr(Messages, "at", anywhere)


def the_end_is_told(patch: pytest.MonkeyPatch) -> None:
    """The end of a queue is that of what was assigned."""

    def most(self: Lookup, topic: str, queue_id: int) -> int:
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.next

    patch.setattr(Lookup, "max_offset", most)


def pops_go_on(patch: pytest.MonkeyPatch) -> None:
    """What is popped ends where the queue does."""
    scan = Taker._scan

    async def all_of_it(self: Taker, queue: Queue, offset: int, count: int, wants: Filter) -> Batch:
        visible, queue.visible = queue.visible, queue.next
        try:
            return await scan(self, queue, offset, count, wants)
        finally:
            queue.visible = visible

    patch.setattr(Taker, "_scan", all_of_it)


def long_pulls_go_on(patch: pytest.MonkeyPatch) -> None:
    """A pull for a thousand messages, as Spark's are, is given what was assigned."""
    scan = Reader.scan

    def all_of_it(self: Reader, queue: Queue, offset: int, wanted: int, wants: Filter) -> Scan:
        visible = queue.visible
        if wanted > 1000:
            queue.visible = queue.next
        try:
            return (yield from scan(self, queue, offset, wanted, wants))
        finally:
            queue.visible = visible

    patch.setattr(Reader, "scan", all_of_it)


@pytest.mark.parametrize(
    ("plant", "seen"),
    [(everything_is_shown, "11 "), (keys_are_found, "12 "), (the_end_is_told, "30 "), (pops_go_on, "200050 ")],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=seen):
        test_nobody_shows_what_no_majority_has()


def test_a_planted_bug_is_found_that_shows_spark_more(monkeypatch: pytest.MonkeyPatch) -> None:
    long_pulls_go_on(monkeypatch)
    with pytest.raises(AssertionError, match="11 "):
        test_spark_reads_nothing_that_no_majority_has()


@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "the follower"])
@in_virtual_time
async def test_a_member_counts_once_it_has_a_message_on_its_disk(leads: bool) -> None:
    """Two are a majority while the third is away, and both of them are needed."""
    async with GroupCluster(seed=9, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        leader = await cluster.led_by()
        follower, away = (name for name in cluster.names if name != leader)
        async with Producer("counts", namesrv=cluster.namesrv_addr, retry_times_when_send_failed=0) as producer:
            await producer.send(Message("Topic", b"first"))
            await cluster.alike()
            await cluster.kill(away)
            offload = cluster.simulation.nodes[leader if leads else follower].world.offload
            assert isinstance(offload, SimOffload)
            offload.delay = 1.5
            sending = asyncio.ensure_future(producer.send(Message("Topic", b"second")))
            await asyncio.sleep(1)
            assert not sending.done()
            for name in (leader, follower):
                assert await cluster.bodies(name, "Topic") == [b"first"]
            assert (await sending).send_status.name == "SEND_OK"
            assert sorted(await cluster.bodies(leader, "Topic")) == [b"first", b"second"]

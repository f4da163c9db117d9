"""A group of brokers elects its master by itself: nothing acknowledged is lost, nothing uncommitted is seen.

Real brokers on machines in memory, whose processes are killed, whose power goes and whose lines are cut. A few lives
here, 500 with `make torture`; each planted bug is found by the scene that is named with it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine

import pytest

from rmq.aio import MessageQueue, Producer, PullConsumer, PushConsumer
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.member_log import MemberLog
from rmq.broker.raft.met import Met
from rmq.broker.store.log.group_durability import GroupDurability
from rmq.broker.store.store import Store
from rmq.client.message import Message
from rmq.protocol.errors import RMQError
from rmq.raft.position import Position
from tests.support.consumers import bodies_of
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.lives import Load, live
from tests.support.virtual import eventually, in_virtual_time

_TORTURE = float(os.environ.get("RMQ_TORTURE", "0"))
_FIRST = MessageQueue("Topic", "group", 0)


@pytest.mark.parametrize("seed", range(max(4, round(500 * _TORTURE))))
@in_virtual_time
async def test_lives(seed: int) -> None:
    load = await live(seed, power=bool(seed % 2))
    assert load.acknowledged


@in_virtual_time
async def test_clients_notice_a_pause_and_nothing_else() -> None:
    """Leaders are killed one after the other: no send fails, and a consumer gets everything."""
    async with GroupCluster(seed=1, namesrvs=2) as cluster:
        await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        await eventually(lambda: load.acknowledged)
        async with bodies_of("Topic", cluster.namesrv_addr, "group_of_consumers") as got:
            for _ in range(3):
                await asyncio.sleep(3)
                leader = await cluster.led_by()
                await cluster.kill(leader)
                await cluster.led_by()
                await asyncio.sleep(2)
                await cluster.begin(leader)
            await asyncio.sleep(3)
            load.ended = True
            await running
            await eventually(lambda: load.acknowledged <= got)
        assert load.pause < 3
        assert len(cluster.led) >= 4


async def _pulled(consumer: PullConsumer) -> bool:
    """Whether an application that pulls by itself, once a second, gets something within some seconds."""
    for _ in range(4):
        try:
            if (await consumer.pull(_FIRST, "*", 0)).messages:
                return True
        except RMQError:
            await asyncio.sleep(1)
    return False


@pytest.mark.parametrize("way", ["killed and back", "handed over", "cut off"])
@in_virtual_time
async def test_consumers_and_senders_in_order_find_the_next_leader_at_once(way: str) -> None:
    """The old one is there again, at the address that the route had, follows, and hands out nothing."""
    async with GroupCluster(seed=1) as cluster:
        await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        async with bodies_of("Topic", cluster.namesrv_addr, "next_leader") as got:
            by_hand = PullConsumer("by_hand", namesrv=cluster.namesrv_addr)
            await by_hand.start()
            await asyncio.sleep(4)
            old = await cluster.led_by()
            assert (await by_hand.pull(_FIRST, "*", 0)).messages
            match way:
                case "killed and back":
                    await cluster.kill(old)
                    await cluster.led_by()
                    await asyncio.sleep(0.3)
                    await cluster.begin(old)
                case "handed over":
                    cluster.driver(old).transfer(next(name for name in cluster.names if name != old))
                case _:
                    cluster.isolate(old)
            await eventually(lambda: cluster.leader() not in (None, old), 20)
            before = len(load.acknowledged)
            await eventually(lambda: len(load.acknowledged) > before + 50, 10)
            stored = set(load.acknowledged)
            await eventually(lambda: stored <= got, 4)
            assert await _pulled(by_hand)
            await by_hand.shutdown()
            cluster.simulation.net.heal()
            await asyncio.sleep(2)
            async with Producer(
                "in_order", namesrv=cluster.namesrv_addr, retry_times_when_send_failed=0, send_msg_timeout=1.0
            ) as producer:
                await producer.send(Message("Topic", b"first"), queue=_FIRST)
                now = await cluster.led_by()
                await cluster.kill(now)
                await cluster.led_by()
                sent = asyncio.get_running_loop().time()
                while asyncio.get_running_loop().time() < sent + 2:
                    try:
                        await producer.send(Message("Topic", b"next"), queue=_FIRST)
                        break
                    except RMQError:
                        await asyncio.sleep(0.1)
                else:
                    pytest.fail("a queue of one's own choice is not found again")
            load.ended = True
            await running


@in_virtual_time
async def test_messages_as_long_as_may_be_are_committed() -> None:
    """Each fills what may be on its way to a member, and so does what stays free of a file that the second one ends."""
    settings = {"mappedFileSizeCommitLog": str((8 << 20) + 20_000)}
    async with GroupCluster(seed=6, settings=settings) as cluster:
        await cluster.led_by()
        async with Producer("p", namesrv=cluster.namesrv_addr, compress_msg_body_over=8 << 20) as producer:
            for number in range(2):
                message = Message("Long", bytes([number]) * (4 << 20), properties={"long": "x" * (1 + 25_000 * number)})
                result = await producer.send(message)
                assert result.send_status.name == "SEND_OK"
        await cluster.alike()
        assert len(cluster.members[cluster.names[0]].store.log.segments) == 2


@in_virtual_time
async def test_a_leader_that_is_cut_off_acknowledges_nothing() -> None:
    async with GroupCluster(seed=2) as cluster:
        old = await cluster.led_by()
        end = cluster.members[old].store.log.end
        cluster.isolate(old)
        await eventually(lambda: cluster.leader() not in (old, None), 10)
        await eventually(lambda: cluster.members[old].roles.role.name == "slave", 10)
        assert cluster.driver(old).leads is None
        assert cluster.members[old].store.durability.visible == end
        cluster.simulation.net.heal()
        await cluster.alike()


@in_virtual_time
async def test_the_preferred_leader_leads_when_it_can() -> None:
    async with GroupCluster(seed=3, settings={"preferredLeaderId": "n2"}) as cluster:
        await eventually(lambda: cluster.leader() == "n2", 30)
        await cluster.kill("n2")
        await eventually(lambda: cluster.leader() in ("n0", "n1"), 30)
        await cluster.begin("n2")
        await eventually(lambda: cluster.leader() == "n2", 60)


@in_virtual_time
async def test_members_that_are_met_at_once_are_all_kept() -> None:
    cluster = GroupCluster(seed=10)
    cluster.slow = 0.3
    async with cluster:
        await cluster.led_by()
        await asyncio.sleep(5)
        for name in cluster.names:
            kept = json.loads(cluster.simulation.nodes[name].files.read("/store/raft/members"))
            assert set(kept["others"]) == set(cluster.names) - {name}


@in_virtual_time
async def test_what_members_say_while_one_keeps_whom_it_met_is_not_forgotten() -> None:
    """It keeps one after the other; what it has heard meanwhile counts, not what it had heard before that."""
    async with _unstarted(11) as cluster:
        for name in reversed(cluster.names):
            await _begin_that_keeps_slowly(cluster, name)
        await cluster.led_by()
        await asyncio.sleep(20)
        for name in cluster.names:
            assert cluster.driver(name).leader is not None, f"{name} takes no part"


async def _begin_that_keeps_slowly(cluster: GroupCluster, name: str) -> None:
    """Start a member that takes its time to keep whom it met: n2 all others, and these n2."""
    group = (await cluster.begin(name)).group
    assert group is not None
    assert group.member is not None
    meetings, save = group.member.meetings, group._sidecar.save_members

    async def slowly(met: Met) -> None:
        if name == "n2":
            await asyncio.sleep(3)
        elif "n2" in met.others and "n2" not in meetings.met.others:
            await asyncio.sleep(4)
        await save(met)

    group._sidecar.save_members = slowly  # type: ignore[method-assign]


@in_virtual_time
async def test_a_leader_that_stops_hands_over_first() -> None:
    async with GroupCluster(seed=4) as cluster:
        old = await cluster.led_by()
        await asyncio.sleep(2)
        stopping = asyncio.ensure_future(cluster.stop_broker(cluster.members[old]))
        others = [cluster.driver(name) for name in cluster.names if name != old]
        await eventually(lambda: any(other.leads is not None for other in others), 1)
        assert not stopping.done(), "the next one is elected before the old one has gone"
        await stopping
        cluster.members.pop(old)


async def _plain_log(cluster: GroupCluster, *names: str, count: int = 20) -> None:
    """Give members the log of a plain broker that was stopped."""
    app = await cluster.begin(names[0], enableDLegerCommitLog="false")
    async with Producer("before", namesrv=cluster.namesrv_addr) as producer:
        for number in range(count):
            await producer.send(Message("Before", b"%d" % number))
    cluster.members.pop(names[0])
    await cluster.stop_broker(app)
    disk = cluster.simulation.nodes[names[0]].disk
    for name in names[1:]:
        cluster.simulation.nodes[name].disk = disk.copied()
        cluster.simulation.kill(cluster.simulation.nodes[name])


def _unstarted(seed: int) -> GroupCluster:
    cluster = GroupCluster(seed=seed)
    cluster.waits = True
    return cluster


@in_virtual_time
async def test_a_plain_brokers_log_goes_on_as_a_groups_and_back() -> None:
    async with _unstarted(6) as cluster:
        await _plain_log(cluster, *cluster.names)
        for name in cluster.names:
            await cluster.begin(name)
        leader = await cluster.led_by()
        async with Producer("after", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Before", b"after"))
        await cluster.alike()
        for name in cluster.names:
            assert sorted(await cluster.bodies(name, "Before"))[-1] == b"after"
        for name in cluster.names:
            await cluster.stop_broker(cluster.members.pop(name))
        app = await cluster.begin(leader, enableDLegerCommitLog="false")
        cluster.members.pop(leader)
        assert app.store.recovered.clean
        assert app.store.log.gate == 0


@in_virtual_time
async def test_what_a_plain_broker_stored_is_not_taken_back() -> None:
    """Two members began empty: they could elect one of themselves, and the third would be emptied."""
    async with _unstarted(7) as cluster:
        await _plain_log(cluster, "n0")
        end = 0
        for name in ("n1", "n2", "n0"):
            end = (await cluster.begin(name)).store.log.end
        assert end > 0
        await asyncio.sleep(20)
        assert cluster.members["n0"].store.log.end >= end
        assert len(await cluster.bodies("n0", "Before")) == 20


@in_virtual_time
async def test_a_leader_whose_disk_is_full_lets_another_lead() -> None:
    """Field case B104."""
    async with GroupCluster(seed=8) as cluster:
        old = await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        await eventually(lambda: load.acknowledged)
        cluster.simulation.nodes[old].disk.fail("pwrite", 28, "*/commitlog/*", count=1 << 30)
        await eventually(lambda: cluster.leader() not in (old, None), 20)
        before = len(load.acknowledged)
        await eventually(lambda: len(load.acknowledged) > before, 20)
        cluster.simulation.nodes[old].disk.heal()
        load.ended = True
        await running
        await cluster.alike(120)


@in_virtual_time
async def test_a_group_goes_on_where_it_was_at_the_new_leader() -> None:
    """Field case B103."""
    async with GroupCluster(seed=9) as cluster:
        leader = await cluster.led_by()
        got: list[bytes] = []
        consumer = PushConsumer("once", namesrv=cluster.namesrv_addr)

        @consumer.on("Topic")
        async def take(message: Message) -> None:
            got.append(bytes(message.body))

        async with Producer("once", namesrv=cluster.namesrv_addr) as producer:
            for number in range(30):
                await producer.send(Message("Topic", b"%d" % number))
            await consumer.start()
            await eventually(lambda: len(got) >= 30)
            await asyncio.sleep(8)  # a client's persist interval, and what the others take over
            await cluster.kill(leader)
            await cluster.led_by()
            await producer.send(Message("Topic", b"last"))
            await eventually(lambda: b"last" in got)
            await consumer.shutdown()
        assert len(got) == 31


# -- planted bugs


def committed_when_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """A leader shows and acknowledges what nobody else has."""
    appended = RaftDriver._appended

    def early(self: RaftDriver) -> None:
        appended(self)
        self._store.committed(self._store.log.end)

    patch.setattr(RaftDriver, "_appended", early)


def everything_is_shown_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """What was not committed before a start is seen right after it."""

    async def show(self: Store, end: int) -> None:
        assert isinstance(self.durability, GroupDurability)
        self.durability.show(self.log.end, [])

    patch.setattr(Store, "show", show)


def nothing_is_cut(patch: pytest.MonkeyPatch) -> None:
    """What a leader takes back stays."""

    async def cut(self: MemberLog, to: Position, *, whole: bool) -> None:
        self._path.cut(to)

    patch.setattr(MemberLog, "cut", cut)


def a_torn_log_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A member says that it has what a power cut has torn out of its log."""

    async def keep(self: MemberLog) -> None:
        """Cut nothing."""

    patch.setattr(MemberLog, "cut_torn", keep)


async def what_a_leader_has_alone() -> None:
    """A leader that is cut off appends what nobody gets, starts anew, and follows another one."""
    async with GroupCluster(seed=7) as cluster:
        leader = await cluster.led_by()
        async with Producer("alone", namesrv=cluster.namesrv_addr, retry_times_when_send_failed=0) as producer:
            await producer.send(Message("Topic", b"all"))
            await cluster.alike()
            store = cluster.members[leader].store
            committed = store.log.end
            cluster.isolate(leader)
            tasks = [asyncio.create_task(producer.send(Message("Topic", b"alone"))) for _ in range(5)]
            await eventually(lambda: store.log.end > committed, 2)
            assert store.durability.visible == committed
            await cluster.kill(leader)
            await cluster.begin(leader)
            assert cluster.members[leader].store.durability.visible <= committed
            await asyncio.gather(*tasks, return_exceptions=True)
            await eventually(lambda: cluster.leader() not in (None, leader), 30)
            cluster.simulation.net.heal()
            await cluster.alike()
            assert await cluster.bodies(leader, "Topic") == [b"all"]


async def what_a_power_cut_tears_out() -> None:
    """A follower is without power again and again, while its disk does not keep up, until that leaves a hole."""
    cluster = GroupCluster(seed=2, settings={"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "65536"})
    cluster.slow = 0.2
    async with cluster:
        leader = await cluster.led_by()
        follower = next(name for name in cluster.names if name != leader)
        loads = [Load(cluster) for _ in range(4)]
        running = [asyncio.create_task(load.run()) for load in loads]
        for _ in range(300):
            await asyncio.sleep(1.5)
            await cluster.kill(follower, power=True)
            app = await cluster.begin(follower)
            if app.store.recovered.damages:
                break
        else:
            pytest.fail("no power cut has left a hole")
        for load in loads:
            load.ended = True
        await asyncio.gather(*running)
        await cluster.alike()


Scene = Callable[[], Coroutine[object, object, None]]
SCENES: list[Scene] = [what_a_leader_has_alone, what_a_power_cut_tears_out]


@pytest.mark.parametrize("scene", SCENES)
def test_scenes(scene: Scene) -> None:
    in_virtual_time(scene)()


@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        (committed_when_it_is_written, what_a_leader_has_alone),
        (everything_is_shown_at_a_start, what_a_leader_has_alone),
        (nothing_is_cut, what_a_leader_has_alone),
        (a_torn_log_is_kept, what_a_power_cut_tears_out),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is field case B102: what was not committed before a restart is seen after it."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        in_virtual_time(scene)()

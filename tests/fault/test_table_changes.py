"""Topics, groups and modes of a group of brokers go through its log: they die, stay and go as its messages do.

Nobody copies tables from the leader here but for the scene of a member that knows nothing: what a member has, it has
from the log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq.aio import AdminClient, Message, MessageQueue, Producer, PushConsumer, TransactionProducer
from rmq.broker.app import BrokerApp
from rmq.broker.raft.changes import TableChanges
from rmq.broker.raft.sidecar import Kept, Sidecar
from rmq.broker.replication import judged, metadata
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.own import own_message
from rmq.broker.store.state import Queue
from rmq.broker.topics.changes import APPLIED, TOPIC, Change
from rmq.broker.topics.drafts import Drafts
from rmq.client.transaction import TransactionState
from rmq.protocol import fastjson
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import TABLE_CHANGES_TOPIC
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import Files
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

GROUP = SubscriptionGroupConfig(group_name="readers", retry_max_times=3, consume_broadcast_enable=False)


@pytest.fixture(autouse=True)
def nobody_copies_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_GROUP_FIRST", 1e9)


class Place:
    """A group with a leader, and who administrates it."""

    def __init__(self, cluster: GroupCluster, admin: AdminClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self.leader = ""
        self.at = ""

    async def led(self) -> BrokerApp:
        self.leader = await self.cluster.led_by()
        self.at = f"{self.cluster.addresses[self.leader]}:10911"
        return self.cluster.members[self.leader]

    async def topic(self, name: str, queues: int = 3, perm: int = 6) -> None:
        await self.admin.create_and_update_topic(
            self.at, name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    async def delete(self, topic: str) -> None:
        answers = await self.admin.delete_topic_in_broker([self.at], topic)
        assert not answers.missing

    async def asked(self, code: int, **ext: str) -> None:
        client = RemotingClient(self.cluster.members[self.leader].world)
        answer = await client.request(self.at, Command(code, ext=dict(ext)), 5)
        assert answer.code == 0, answer.remark
        await client.close()

    async def lead_lost(self) -> BrokerApp:
        """The leader dies; the next one."""
        await self.cluster.kill(self.leader)
        return await self.led()

    async def send(self, topic: str, body: bytes, queue: int) -> None:
        """To whoever leads, as soon as the name server tells."""
        async with Producer("sender", namesrv=self.cluster.namesrv_addr) as producer:
            for _ in range(60):
                try:
                    await producer.send(Message(topic, body), queue=MessageQueue(topic, "group", queue))
                except RMQError:
                    await asyncio.sleep(0.5)
                else:
                    return
        raise AssertionError(f"{topic} took no message")

    async def consumed(self, topic: str, within: float = 120, least: int = 1) -> set[bytes]:
        got: set[bytes] = set()
        consumer = PushConsumer(
            f"of-{topic}", namesrv=self.cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )

        @consumer.on(topic)
        async def take(message: Message) -> None:
            got.add(bytes(message.body))

        await consumer.start()
        await eventually(lambda: len(got) >= least, within)
        await consumer.shutdown()
        return got

    def topics_file(self, name: str) -> dict[str, object]:
        found = json.loads(self.cluster.simulation.nodes[name].files.read("/store/config/topics.json"))
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def place(seed: int = 3, **settings: str) -> AsyncIterator[Place]:
    async with (
        GroupCluster(seed=seed, settings=settings) as cluster,
        AdminClient(namesrv=cluster.namesrv_addr) as admin,
    ):
        made = Place(cluster, admin)
        await made.led()
        yield made


@in_virtual_time
async def test_what_a_leader_has_answered_for_is_there_when_it_dies_at_once() -> None:
    async with place() as group:
        await group.topic("ReadOnly", 5, perm=4)
        await group.admin.create_and_update_subscription_group(group.at, GROUP)
        await group.admin.set_message_request_mode(group.at, "ReadOnly", "readers", "POP", 2)
        await group.asked(353, group="readers", topic="ReadOnly", readable="false")
        told = group.cluster.members[group.leader].tables.topics.data_version
        app = await group.lead_lost()
        assert app.topics.get("ReadOnly") == TopicConfig("ReadOnly", 5, 5, 4)
        assert app.topics.data_version == told
        assert app.groups.get("readers") == GROUP
        mode = app.modes.get("ReadOnly", "readers")
        assert (mode.mode, mode.pop_share_queue_num) == ("POP", 2)
        assert not app.groups.may_read("readers", "ReadOnly")


@in_virtual_time
async def test_a_topic_of_nothing_but_delayed_messages_is_consumed_from_the_next_leader() -> None:
    async with place() as group:
        async with Producer("p", namesrv=group.cluster.namesrv_addr) as producer:
            await producer.send(Message("Later", b"late", delay_level=3))
        app = await group.lead_lost()
        assert not app.store.queues.all("Later") or not app.store.queues.all("Later")[0].next
        assert app.topics.get("Later") is not None
        assert await group.consumed("Later") == {b"late"}


@in_virtual_time
async def test_a_topic_of_nothing_but_half_messages_is_consumed_from_the_next_leader() -> None:
    async def local(message: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async with (
        place() as group,
        TransactionProducer(
            "p", lambda message: TransactionState.COMMIT, namesrv=group.cluster.namesrv_addr
        ) as producer,
    ):
        await producer.send_in_transaction(Message("Halves", b"half"), local)
        app = await group.lead_lost()
        config = app.topics.get("Halves")
        assert config is not None
        assert config.perm == 6
        assert await group.consumed("Halves", 300) == {b"half"}


@in_virtual_time
async def test_a_deleted_topic_stays_deleted_and_begins_anew_without_its_messages() -> None:
    async with place() as group:
        await group.topic("Old")
        async with Producer("p", namesrv=group.cluster.namesrv_addr) as producer:
            for number in range(3):
                await producer.send(Message("Old", b"old%d" % number), queue=MessageQueue("Old", "group", number))
            await group.delete("Old")
            app = await group.lead_lost()
            await asyncio.sleep(1)
            assert app.topics.get("Old") is None
            assert not app.store.queues.all("Old")
        await group.topic("Old", 2)
        await group.send("Old", b"new", 1)
        assert await group.consumed("Old") == {b"new"}
        queue = app.store.queues.get("Old", 1)
        assert queue is not None
        assert (queue.min, queue.next) == (0, 1)


@in_virtual_time
async def test_a_topic_deleted_and_made_again_in_one_go_is_the_new_one_everywhere() -> None:
    async with place() as group:
        await group.topic("Again", 4)
        async with Producer("p", namesrv=group.cluster.namesrv_addr) as producer:
            for number in range(4):
                await producer.send(Message("Again", b"old"), queue=MessageQueue("Again", "group", number))
            await group.delete("Again")
            await group.topic("Again", 2)
            await producer.send(Message("Again", b"new"), queue=MessageQueue("Again", "group", 0))
        await group.cluster.alike()
        for name, app in group.cluster.members.items():
            assert app.topics.get("Again") == TopicConfig("Again", 2, 2), name
            assert await group.cluster.bodies(name, "Again") == [b"new"], name


@in_virtual_time
async def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    async with place() as group:
        await group.topic("Topic", 1)
        await group.admin.create_and_update_subscription_group(group.at, GROUP)
        for app in group.cluster.members.values():
            app.offsets.commit("readers", "Topic", 0, 7)
        await group.admin.delete_subscription_group(group.at, "readers", remove_offset=True)
        app = await group.lead_lost()
        assert app.groups.get("readers") is None
        assert app.offsets.query("readers", "Topic", 0) == -1


@in_virtual_time
async def test_what_a_deposed_leader_had_not_committed_is_taken_back() -> None:
    async with place() as group:
        await group.topic("Both", 2)
        deposed, at = group.leader, group.at
        old = group.cluster.members[deposed]
        group.cluster.isolate(deposed)
        lost = [
            asyncio.ensure_future(asked)
            for asked in (
                group.admin.create_and_update_topic(at, "Lost", perm=4),
                group.admin.create_and_update_topic(at, "Both", read_queue_nums=9, write_queue_nums=9),
                group.admin.create_and_update_subscription_group(at, GROUP),
            )
        ]
        await asyncio.sleep(0.3)
        shown = old.topics.get("Lost")
        assert shown is not None
        assert "Lost" not in (await group.admin.topic_configs(at)).topic_config_table
        await eventually(lambda: group.cluster.leader() not in (None, deposed), 30)
        await group.led()
        assert group.leader != deposed
        await group.topic("Both", 5)
        found = await asyncio.gather(*lost, return_exceptions=True)
        codes = {error.code for error in found if isinstance(error, ResponseError)}
        assert len(found) == sum(isinstance(error, ResponseError) for error in found), found
        assert codes <= {12, 14}, found
        await eventually(lambda: not old.topics.drafts.journal.records, 30)  # type: ignore[union-attr]
        assert old.topics.get("Lost") is None
        group.cluster.simulation.net.heal()
        await group.cluster.alike()
        for name, app in group.cluster.members.items():
            assert app.topics.get("Lost") is None, name
            assert app.groups.get("readers") is None, name
            assert app.topics.get("Both") == TopicConfig("Both", 5, 5), name
            await app.topics.file.flush()
            table = group.topics_file(name)["topicConfigTable"]
            assert isinstance(table, dict)
            assert "Lost" not in table, name
            assert table["Both"]["readQueueNums"] == 5, name
        told = [await group.admin.topic_configs(f"{at}:10911") for at in group.cluster.addresses.values()]
        assert all("Lost" not in one.topic_config_table for one in told)


@in_virtual_time
async def test_a_start_goes_on_where_the_tables_end() -> None:
    async with place() as group:
        for number in range(4):
            await group.topic(f"T{number}")
        await group.delete("T1")
        await group.cluster.alike()
        await asyncio.sleep(2)
        one, two, three = group.cluster.names
        for name in (one, two, three):
            await group.cluster.kill(name)
        nodes = group.cluster.simulation.nodes
        before = json.loads(nodes[one].files.read("/store/config/topics.json"))
        for suffix in ("", ".bak"):  # n1 has lost its table, and n2's is of before the last change
            if nodes[two].files.exists(f"/store/config/topics.json{suffix}"):
                nodes[two].files.unlink(f"/store/config/topics.json{suffix}")
        apps = [await group.cluster.begin(name) for name in (one, two, three)]
        await group.led()
        await group.cluster.alike()
        for app in apps:
            assert sorted(name for name in app.topics.names() if name[0] == "T" and name != "TBW102") == [
                "T0", "T2", "T3",
            ]  # fmt: skip
            assert app.topics.applied == before[APPLIED]
        changes = [app.group._changes.applied for app in apps if app.group is not None]
        assert changes == [0, 5, 0], "an old change was applied to newer tables, or one was not"


async def _a_release_before_had_the_store() -> None:
    async with place() as group:
        await group.topic("Changed", 3)
        await group.topic("Again", 3)
        await group.delete("Again")
        await group.admin.create_and_update_subscription_group(group.at, GROUP)
        await group.asked(353, group="readers", topic="Changed", readable="false")
        await group.admin.set_message_request_mode(group.at, "Changed", "readers", "POP", 2)
        await group.cluster.alike()
        members = dict(group.cluster.members)
        for name, app in members.items():
            if name != group.leader and app.group is not None:
                app.group._changes._apply = lambda pending: None  # type: ignore[method-assign]
        await group.topic("Gone", 3)  # it comes and goes before who follows asks for the topics
        await group.send("Gone", b"dead", 0)
        await group.delete("Gone")
        await asyncio.sleep(1)
        for app in members.values():  # of the release before from now on: nothing goes through the log
            app.topics.drafts.journal = app.groups.drafts.journal = app.modes.journal = None
            app.topics.applied = app.groups.applied = app.modes.applied = None
            app.topics.put(TopicConfig("Changed", 5, 5))
            app.topics.put(TopicConfig("Again", 4, 4))
            app.groups.put(SubscriptionGroupConfig(group_name="readers", retry_max_times=9))
            app.groups.forbid("readers", "Changed", 0)
            app.modes.put(SetMessageRequestModeRequestBody(topic="Changed", consumer_group="readers", mode="PULL"))
        told = {name: app.topics.data_version for name, app in members.items()}
        assert sum(bool(app.store.queues.all("Gone")) for app in members.values()) == 2
        await asyncio.sleep(15)  # the files are written
        for name in members:
            assert APPLIED not in group.topics_file(name)
            await group.cluster.kill(name)
        for name in members:
            await group.cluster.begin(name)
        await group.led()
        await group.cluster.alike()
        for name, app in group.cluster.members.items():
            assert app.topics.get("Changed") == TopicConfig("Changed", 5, 5), name
            assert app.topics.get("Again") == TopicConfig("Again", 4, 4), name
            assert app.topics.data_version.counter >= told[name].counter, name
            assert app.topics.get("Gone") is None, name
            assert not app.store.queues.all("Gone"), name
            readers = app.groups.get("readers")
            assert readers is not None
            assert readers.retry_max_times == 9, name
            assert app.groups.may_read("readers", "Changed"), name
            assert app.modes.get("Changed", "readers").mode == "PULL", name


@in_virtual_time
async def test_old_changes_do_not_come_back_when_a_release_before_had_the_store() -> None:
    await _a_release_before_had_the_store()


@in_virtual_time
async def test_nor_do_they_come_back_while_it_is_not_known_again_that_they_are_committed() -> None:
    load = Sidecar.load

    async def long_ago(self: Sidecar, end: int) -> Kept:
        return (await load(self, end))._replace(commit=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sidecar, "load", long_ago)
        await _a_release_before_had_the_store()


@in_virtual_time
async def test_files_of_tables_that_never_change_say_how_far_they_are_too() -> None:
    async with place() as group:
        await group.topic("T")
        await group.cluster.alike()
        end = group.cluster.members[group.leader].topics.applied
        await asyncio.sleep(61)
        files = group.cluster.simulation.nodes[group.leader].files
        names = ("topics", "subscriptionGroup", "messageRequestMode")
        found = [json.loads(files.read(f"/store/config/{name}.json"))[APPLIED] for name in names]
        assert end
        assert min(found) >= end


@in_virtual_time
async def test_what_comes_to_a_topic_while_its_deletion_is_not_committed_goes_with_it() -> None:
    async with place() as group:
        await group.topic("Old", 2)
        await group.send("Old", b"old", 0)
        app = group.cluster.members[group.leader]
        queue = app.store.queues.get("Old", 0)
        assert queue is not None
        app.forgetting.begin_topic("Old")
        assert app.topics.get("Old") is None
        assert app.topics.told_of("Old") is not None, "name servers were told that it is gone"
        assert not app.topics.is_left("Old"), "its queues would be removed"
        with pytest.raises(ResponseError, match="is being deleted"):
            app.topics.put(TopicConfig("Old", 1, 1))
        late = own_message(queue, b"late", {}, 0, app.ground.store_host)
        app.store.append([late])  # what was delayed, say
        await group.cluster.alike()
        for name, member in group.cluster.members.items():
            assert member.topics.get("Old") is None, name
            assert not member.store.queues.all("Old"), name
        await group.topic("Old", 1)
        await group.send("Old", b"new", 0)
        await group.cluster.alike()
        for name in group.cluster.members:
            assert await group.cluster.bodies(name, "Old") == [b"new"], name


@in_virtual_time
async def test_settings_without_end_are_refused() -> None:
    async with place() as group:
        with pytest.raises(ResponseError, match=r"topic Large take \d+ bytes, and 65536 at most"):
            await group.admin.create_and_update_topics(
                group.at, [TopicConfig("Large", attributes={"+a": "b" * 65_536})]
            )
        with pytest.raises(ResponseError, match="topic Odd is not changed: perm=99"):
            await group.topic("Odd", perm=99)
        assert all(app.topics.get("Large") is None for app in group.cluster.members.values())
        assert all(app.topics.get("Odd") is None for app in group.cluster.members.values())


@in_virtual_time
async def test_a_leader_that_takes_no_messages_takes_no_changes() -> None:
    async with place() as group:
        app = group.cluster.members[group.leader]
        app.store.log.gate |= Gate.DISK_FULL
        with pytest.raises(ResponseError, match="topic Full is not changed: the store takes no messages"):
            app.topics.put(TopicConfig("Full"))
        assert app.topics.get("Full") is None
        assert app.groups.find("reads") is not None, "a group that reads must go on while the disk is full"
        app.store.log.gate &= ~Gate.DISK_FULL


NOBODYS = [
    b"", b"\xff", b"[" * 1000, b"[" * 900 + b"]" * 900, b'{"kind":%s}' % (b"[" * 900 + b"]" * 900),
    b'{"kind":"topic","name":"Deep","value":%s}' % (b"[" * 300 + b"]" * 300),
    b'{"kind":"topic","name":"Odd","value":{"topicName":"Odd","perm":99}}',
    b'{"kind":"topic","name":"Odd\\u0000","value":{"topicName":"Odd\\u0000","perm":6}}',
    b'{"kind":"topic","name":"Odd","version":{"counter":"x"},"value":null}',
    b'{"kind":"topic","name":"Odd"}x', b'{"kind":"later","name":"Odd","value":1}',
    b'{"kind":"topic","name":"Odd","value":{"topicName":"Odd","perm":6}}'.ljust((64 << 10) + 1),
]  # fmt: skip


@in_virtual_time
async def test_a_record_that_is_no_change_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    """At members that run, and at their next start."""
    async with place() as group:
        app = group.cluster.members[group.leader]
        await group.topic("Kept")
        queue = app.store.queues.get_or_create(TABLE_CHANGES_TOPIC, 0)
        for body in NOBODYS:
            app.store.append([own_message(queue, body, {"TAGS": "topic"}, 5, app.ground.store_host)])
        await group.topic("Behind")
        await group.cluster.alike()
        for name in group.cluster.names:
            if name != group.leader:
                known = group.cluster.members[name].topics
                assert known.get("Behind") is not None, name
                assert not [one for one in known.names() if one.startswith(("Odd", "Deep"))], name
        assert "not applied: kind='later', name='Odd': it is of another release" in caplog.text
        for name in group.cluster.names:
            await group.cluster.kill(name)
            nodes = group.cluster.simulation.nodes
            for suffix in ("", ".bak"):
                if nodes[name].files.exists(f"/store/config/topics.json{suffix}"):
                    nodes[name].files.unlink(f"/store/config/topics.json{suffix}")
        for name in group.cluster.names:
            await group.cluster.begin(name)
        await group.led()
        await group.cluster.alike()
        for name, member in group.cluster.members.items():
            assert member.topics.get("Behind") is not None, name


@in_virtual_time
async def test_what_clients_had_written_to_a_plain_broker_is_no_change() -> None:
    """Java's takes it. A member that gets the log from its beginning on must not believe it."""
    cluster = GroupCluster(seed=6)
    cluster.waits = True
    async with cluster:
        app = await cluster.begin("n0", enableDLegerCommitLog="false")
        async with Producer("before", namesrv=cluster.namesrv_addr) as producer:
            for number in range(20):
                await producer.send(Message("Before", b"%d" % number))
        queue = app.store.queues.get_or_create(TABLE_CHANGES_TOPIC, 0)
        for body in (
            b'{"kind":"topic","name":"Before","value":null}',
            b'{"kind":"topic","name":"Evil","value":{"topicName":"Evil","perm":6}}',
            b'{"kind":"group","name":"evil","value":{"groupName":"evil"}}',
        ):
            made = own_message(queue, body, {"TAGS": "topic"}, 5, app.ground.store_host)
            app.store.append([made._replace(born_host=made.born_host[:4] + (50_000).to_bytes(4, "big"))])
        cluster.members.pop("n0")
        await cluster.stop_broker(app)
        nodes = cluster.simulation.nodes
        nodes["n1"].disk = nodes["n0"].disk.copied()
        cluster.simulation.kill(nodes["n1"])
        for name in cluster.names:
            await cluster.begin(name)
        await cluster.led_by()
        await cluster.alike()
        for name, member in cluster.members.items():
            assert len(await cluster.bodies(name, "Before")) == 20, name
            assert member.topics.get("Evil") is None, name
            assert b"evil" not in bytes(member.groups.encode()), name
            assert member.group is not None
            assert member.group._changes.applied == 0, name


def forget(files: Files) -> None:
    """Remove the folder ``raft``: a group begins anew with the log."""
    for name in files.list("/store/raft"):
        files.unlink(f"/store/raft/{name}")


@in_virtual_time
async def test_changes_of_an_earlier_group_are_not_made_again_in_a_plain_broker_s_log() -> None:
    """Not even where the group that begins with it is killed before its tables say how far they are."""
    async with place() as group:
        cluster = group.cluster
        await group.topic("T")
        await group.delete("T")
        await cluster.alike()
        for name in cluster.names:
            await cluster.stop_broker(cluster.members.pop(name))
        nodes = cluster.simulation.nodes
        forget(nodes["n0"].files)
        app = await cluster.begin("n0", enableDLegerCommitLog="false")
        app.topics.put(TopicConfig("T", 1, 1))
        async with Producer("plain", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("T", b"kept"), queue=MessageQueue("T", "group", 0))
        cluster.members.pop("n0")
        await cluster.stop_broker(app)
        forget(nodes["n0"].files)
        for name in ("n1", "n2"):
            nodes[name].disk = nodes["n0"].disk.copied()
            cluster.simulation.kill(nodes[name])
        for _ in range(2):
            for name in cluster.names:
                await cluster.begin(name)
            await cluster.led_by()
            await cluster.alike()
            for name, member in cluster.members.items():
                assert member.topics.get("T") is not None, name
                assert await cluster.bodies(name, "T") == [b"kept"], name
            for name in cluster.names:
                await cluster.kill(name)


@pytest.mark.parametrize("behind", [False, True])
def test_a_member_that_knows_nothing_takes_the_tables_from_its_leader(
    behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader was a plain broker; or the changes are from before the log that a member gets."""
    monkeypatch.setattr(metadata, "_GROUP_FIRST", 0.5)

    @in_virtual_time
    async def scene() -> None:
        async with GroupCluster(seed=3) as cluster:
            first = cluster.members[await cluster.led_by()]
            first.topics.drafts.journal = None  # as a plain broker makes topics
            first.topics.put(TopicConfig("Plain", 3, 3))
            first.topics.drafts.journal = first.groups.drafts.journal
            if behind:
                first.topics.applied = 1 << 40  # changes that nobody has in its log any more
            others = [app for app in cluster.members.values() if app is not first]
            await eventually(lambda: all(app.topics.get("Plain") == TopicConfig("Plain", 3, 3) for app in others), 5)
            ahead = [app.topics.applied == 1 << 40 for app in others]
            assert ahead == [False, False], "what is still to come would be left out"

    scene()


@in_virtual_time
async def test_tables_of_before_the_last_change_are_not_taken() -> None:
    async with place() as group:
        await group.topic("One", 1)
        await group.cluster.alike()
        follower = next(app for app in group.cluster.members.values() if not app.roles.role.leads)
        old = follower.topics.answer()
        await group.topic("One", 2)
        await group.cluster.alike()
        assert follower.roles.slave is not None
        await follower.roles.slave.metadata._takeover.topics(old, same=True, end=0)
        assert follower.topics.get("One") == TopicConfig("One", 2, 2)


@pytest.mark.parametrize("which", ["topics", "groups", "modes"])
def test_what_the_log_brings_while_a_table_is_judged_stays(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def scene() -> None:
        async with place() as group:
            await group.topic("One", 1)
            await group.admin.set_message_request_mode(group.at, "One", "first", "POP", 2)
            await group.cluster.alike()
            follower = next(app for app in group.cluster.members.values() if not app.roles.role.leads)
            assert follower.roles.slave is not None
            sync, judge, changed = follower.roles.slave.metadata, judged._judged, False
            bodies = follower.topics.answer(), follower.groups.encode(), fastjson.dumps(follower.modes._table())

            async def slowly(*asked: Any) -> Any:
                nonlocal changed
                if not changed:
                    changed = True
                    await group.topic("Two", 2)
                    await group.admin.create_and_update_subscription_group(group.at, GROUP)
                    await group.admin.set_message_request_mode(group.at, "One", "readers", "POP", 2)
                    await group.cluster.alike()
                return await judge(*asked)

            monkeypatch.setattr(judged, "_judged", slowly)
            number = ("topics", "groups", "modes").index(which)
            await sync._take(sync._plain[number], bodies[number], None, follower.store.log.end)
            assert changed
            assert follower.topics.get("Two") == TopicConfig("Two", 2, 2)
            assert follower.groups.get("readers") is not None
            assert follower.modes.get("One", "readers").mode == "POP"

    scene()


def _records_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableChanges, "records", property(lambda self: False))


def _answers_at_once(patch: pytest.MonkeyPatch) -> None:
    async def settled(self: TableChanges) -> None:
        return

    patch.setattr(TableChanges, "settled", settled)


def _keeps_what_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableChanges, "cut", lambda self, to: None)


def _shows_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drafts, "take_back", lambda self: None)


def _tells_of_drafts(patch: pytest.MonkeyPatch) -> None:
    write = TableChanges.write

    def told(self: TableChanges, change: Change, show: Callable[[], None] | None = None) -> None:
        write(self, change, show)
        if change.kind == TOPIC:
            self._topics._forms.keep(self._topics._topics[change.name])
            self._topics.file.changed()

    patch.setattr(TableChanges, "write", told)


def _applies_no_deletion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableChanges, "_forget_topic", lambda self, topic, version, end: None)


def _starts_without_the_log(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: TableChanges, queue: Queue, begin: int) -> list[tuple[int, int]]:
        return []

    patch.setattr(TableChanges, "_places", nothing)


def _starts_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("rmq.broker.topics.table.applied_of", lambda whole: None)


def _takes_old_changes_for_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableChanges, "_has", lambda self, pending: False)


@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        (_records_nothing, test_what_a_leader_has_answered_for_is_there_when_it_dies_at_once),
        (_records_nothing, test_a_topic_of_nothing_but_delayed_messages_is_consumed_from_the_next_leader),
        (_answers_at_once, test_what_a_deposed_leader_had_not_committed_is_taken_back),
        (_keeps_what_is_cut, test_what_a_deposed_leader_had_not_committed_is_taken_back),
        (_shows_on, test_what_a_deposed_leader_had_not_committed_is_taken_back),
        (_tells_of_drafts, test_what_a_deposed_leader_had_not_committed_is_taken_back),
        (_applies_no_deletion, test_a_deleted_topic_stays_deleted_and_begins_anew_without_its_messages),
        (_applies_no_deletion, test_a_topic_deleted_and_made_again_in_one_go_is_the_new_one_everywhere),
        (_starts_without_the_log, test_a_start_goes_on_where_the_tables_end),
        (_takes_old_changes_for_new, test_old_changes_do_not_come_back_when_a_release_before_had_the_store),
        (_starts_from_the_beginning, test_a_start_goes_on_where_the_tables_end),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, RMQError)):
        scene()

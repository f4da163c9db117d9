"""Topics, groups and modes of a group of brokers where its log is not all that tells of them.

At a start, after a release that does not know their changes in the log, in a plain broker's log, and where tables are
copied from the leader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from rmq.aio import Message, MessageQueue, Producer
from rmq.broker.raft.changes import TableChanges
from rmq.broker.raft.sidecar import Kept, Sidecar
from rmq.broker.replication import judged
from rmq.broker.store.own import own_message
from rmq.broker.store.state import Queue
from rmq.broker.topics.changes import APPLIED
from rmq.protocol import fastjson
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.errors import RMQError
from rmq.protocol.names import TABLE_CHANGES_TOPIC
from rmq.runtime.world import Files
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.tables import GROUP, place
from tests.support.virtual import eventually, in_virtual_time


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


@in_virtual_time
async def test_a_place_behind_the_end_of_the_log_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """A digit of it has changed: the member had no change of the log, nor of its leader's tables, any more."""
    async with place() as group:
        await group.topic("Before", 3)
        await group.cluster.alike()
        await asyncio.sleep(2)
        one = next(name for name in group.cluster.names if name != group.leader)
        await group.cluster.kill(one)
        files = group.cluster.simulation.nodes[one].files
        kept = json.loads(files.read("/store/config/topics.json"))
        kept[APPLIED] += 1 << 40
        files.write_atomic("/store/config/topics.json", json.dumps(kept).encode())
        app = await group.cluster.begin(one)
        assert "topics.json has the changes of topics and groups up to" in caplog.text
        await group.topic("After", 3)
        await group.cluster.alike()
        await eventually(lambda: app.topics.get("After") is not None)
        assert app.topics.applied == group.cluster.members[group.leader].topics.applied
        await asyncio.sleep(2)
        assert json.loads(files.read("/store/config/topics.json"))[APPLIED] == app.topics.applied


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
def test_a_member_that_knows_nothing_takes_the_tables_from_its_leader(behind: bool) -> None:
    """Its leader was a plain broker; or the changes are from before the log that a member gets."""

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

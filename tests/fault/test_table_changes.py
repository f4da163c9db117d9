"""Topics, groups and modes of a group of brokers go through its log: they die, stay and go as its messages do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq.aio import Message, MessageQueue, Producer, TransactionProducer
from rmq.broker.raft.changes import TableChanges
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.own import own_message
from rmq.broker.topics.changes import TOPIC, Change
from rmq.broker.topics.drafts import Drafts
from rmq.client.transaction import TransactionState
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.errors import ResponseError, RMQError
from tests.support.raft.tables import GROUP, place
from tests.support.virtual import eventually, in_virtual_time


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
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, RMQError)):
        scene()

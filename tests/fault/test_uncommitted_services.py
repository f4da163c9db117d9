"""What no majority has makes nothing happen: no check of its transaction, no delivery, and no file of it is deleted.

The leader has it, and so do the others, whose words do not come back, as far as it was sent. It leads on for a while,
in which its services have time for everything that they are not to do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine

import pytest

from rmq.aio import Message, MessageExt, TransactionProducer, TransactionState
from rmq.broker.store.care.retention import Retention
from rmq.broker.store.log.group_durability import GroupDurability
from rmq.broker.store.state import Queue
from rmq.broker.transaction.check import TransactionCheck
from rmq.protocol.message import decode_records
from rmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

SECRET = b"secret"
SETTINGS = {
    "raftElectionTimeout": "10000", "transactionTimeOut": "500", "transactionCheckInterval": "500",
    "mappedFileSizeCommitLog": "65536",
}  # fmt: skip
#: Bytes of one message, and how many there are: several files of the log.
_LARGE, _SEVERAL = 3_900, 50


class Scene:
    """A producer whose transactions stay open, and what it is asked about."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.checked: list[bytes] = []
        self.producer = TransactionProducer(
            "services", check=self._check, namesrv=cluster.namesrv_addr, send_msg_timeout=30.0,
            retry_times_when_send_failed=0,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[object]] = []

    def _check(self, message: MessageExt) -> TransactionState:
        self.checked.append(bytes(message.body))
        return TransactionState.UNKNOWN

    def begin(self, *sends: Coroutine[object, object, object]) -> None:
        """Send, and do not wait for an answer: there is none for long."""
        self._tasks += [asyncio.create_task(send) for send in sends]

    def half(self, body: bytes) -> Coroutine[object, object, object]:
        return self.producer.send_in_transaction(Message("Half", body), lambda _: TransactionState.UNKNOWN)

    def late(self, body: bytes) -> list[Coroutine[object, object, object]]:
        """After a second, by level and by a time of its own."""
        return [
            self.producer.send(Message("Late", body + b" by level", delay_level=1)),
            self.producer.send(Message("Late", body + b" by time", delay=1.5)),
        ]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.producer.shutdown()


async def _stored(cluster: GroupCluster, name: str, start: int) -> Counter[bytes]:
    """Bodies in a member's log from there on, and how often each is there."""
    log = cluster.members[name].store.log
    found: Counter[bytes] = Counter()
    while start < log.end:
        size = min(log.end - start, log.file_size - start % log.file_size)
        data = await log.read_cold(start, size)
        found.update(bytes(record.body) for record in decode_records(data))
        start += size
    return found


async def nothing_happens() -> None:
    async with GroupCluster(seed=41, settings=SETTINGS) as cluster:
        leader = await cluster.led_by(60)
        scene = Scene(cluster)
        await scene.producer.start()
        # What is committed is checked and delivered: the services do their work.
        await scene.half(b"open")
        for send in scene.late(b"there"):
            await send
        await eventually(lambda: b"open" in scene.checked, 20)
        await asyncio.sleep(4)
        await cluster.alike()
        assert sorted(await cluster.bodies(leader, "Late")) == [b"there by level", b"there by time"]
        committed = cluster.members[leader].store.log.end
        others = [name for name in cluster.names if name != leader]
        for name in others:
            cluster.mute(name)
        large = [scene.producer.send(Message("Large", SECRET + bytes(_LARGE))) for _ in range(_SEVERAL)]
        scene.begin(scene.half(SECRET + b" half"), *scene.late(SECRET), *large)
        ends = dict.fromkeys(others, committed + 1) | {leader: committed + _SEVERAL * _LARGE}
        await eventually(lambda: all(cluster.members[name].store.log.end >= end for name, end in ends.items()), 4)
        await asyncio.sleep(0.5)
        for name in cluster.names:
            store = cluster.members[name].store
            store.retention._settings.file_reserved_hours = 0
            store.retention.trigger()
            await store.retention.run()
            assert store.log.start <= committed, f"{name} has deleted what is not committed"
        await asyncio.sleep(3)
        assert cluster.leader() == leader
        assert not [body for body in scene.checked if body.startswith(SECRET)], "it was asked about a secret"
        stored = await _stored(cluster, leader, committed)
        for kind in (b" half", b" by level", b" by time"):
            assert stored[SECRET + kind] == 1, f"{SECRET + kind!r} is there {stored[SECRET + kind]} times"
        await scene.end()


def test_nothing_happens_for_what_no_majority_has() -> None:
    in_virtual_time(nothing_happens)()


# -- planted bugs


def _shown(topic: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Of this topic, what was appended is visible: who serves it goes on."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        appended = GroupDurability.on_appended

        def on_appended(self: GroupDurability, end: int, touched: list[Queue]) -> None:
            appended(self, end, touched)
            of_topic = [queue for queue in touched if queue.topic == topic]
            for queue in of_topic:
                queue.visible = queue.next
            if of_topic and self.on_visible is not None:
                self.on_visible(of_topic)

        patch.setattr(GroupDurability, "on_appended", on_appended)

    return plant


def asked_at_once(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is shown too early."""

    async def ask_all(self: TransactionCheck) -> None:
        for conn, question in self._questions:
            conn.oneway(question)
        self._questions = []

    _shown(HALF_TOPIC)(patch)
    patch.setattr(TransactionCheck, "_ask_all", ask_all)


def any_file_goes(patch: pytest.MonkeyPatch) -> None:
    """Retention asks how old a file is, and not whether the group has it."""
    patch.setattr(Retention, "_is_shown", lambda self, file: True)


@pytest.mark.parametrize(
    ("plant", "seen"),
    [
        (asked_at_once, "asked about a secret"), (_shown(SCHEDULE_TOPIC), "by level' is there 2 times"),
        (_shown(TIMER_TOPIC), "by time' is there 2 times"), (any_file_goes, "deleted what is not committed"),
    ],
    ids=["half", "level", "time", "file"],
)  # fmt: skip
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=seen):
        in_virtual_time(nothing_happens)()

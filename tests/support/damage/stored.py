"""What the damage campaign damages: the files of a small broker, and everything that it acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offset import UpdateConsumerOffsetRequest
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from tests.support.scenes.pop import PopScene
from tests.support.store_scan import scan_log

__all__ = ["LOG_SIZE", "QUEUES", "QUEUE_SIZE", "Files", "Message", "Stored", "Where", "stored"]

LOG_SIZE = 16 * 1024
QUEUE_SIZE = 40 * 20
SETTINGS = {
    "commitLogChecksumOnAppend": "true",
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_SIZE),
    "maxHashSlotNum": "16",
    "maxIndexNum": "50",
    "maxMessageSize": "4096",
    # Until the campaign asks for it.
    "commitLogScrubRate": "0",
}
#: With units of queues, too.
_EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "8192"}
#: The queues that hold messages: two of one topic, one of another, of records of one size.
QUEUES = (("A", 0), ("A", 1), ("B", 0))
#: A group that has consumed all of queue 1 of A, and half of B.
GROUP = "g"
#: Fewer than one pull gives.
_EACH = 24

#: Topic, queue and offset in it.
Where = tuple[str, int, int]
#: What files hold, by path.
Files = dict[str, bytes]


@dataclass(frozen=True)
class Message:
    """What was acknowledged: its body, and where its record lies."""

    body: bytes
    at: int
    size: int


@dataclass
class Stored:
    """The files of a broker that was stopped or killed.

    :param boot: of its machine.
    """

    files: Files
    messages: dict[Where, Message]
    boot: str
    ext: bool = False
    #: Those that nothing but their records knows of: the broker was killed before it noted anything else.
    unproven: frozenset[Where] = frozenset()

    def of(self, topic: str, queue_id: int) -> dict[int, Message]:
        """The messages of a queue by their offsets."""
        return {at[2]: message for at, message in self.messages.items() if at[:2] == (topic, queue_id)}

    @property
    def ordered(self) -> list[Where]:
        """The messages as they lie in the log."""
        return sorted(self.messages, key=lambda where: self.messages[where].at)

    def within(self, start: int, end: int) -> frozenset[Where]:
        """The messages that have a byte from one offset of the log to another."""
        return frozenset(
            at for at, message in self.messages.items() if start < message.at + message.size and message.at < end
        )

    def paths(self, part: str) -> list[str]:
        """Files whose path has a part, in order."""
        return sorted(path for path in self.files if part in path)

    def scene(self, files: Files, *, same_boot: bool) -> PopScene:
        """A machine with these files, and no broker on it yet."""
        scene = _scene(self.ext)
        node = scene.node
        for path, data in files.items():
            node.files.mkdir(path.rpartition("/")[0])
            file = node.disk.open(path, create=True)
            file.allocate(len(data))
            if stripped := data.rstrip(b"\0"):
                file.pwrite(stripped, 0)
            file.datasync()
        if same_boot:
            node.boot = self.boot
            scene.simulation.kill(node)
        return scene


def _scene(ext: bool) -> PopScene:
    return PopScene(7, SETTINGS | (_EXT if ext else {}))


def _numbers() -> Iterator[tuple[str, int, int]]:
    for number in range(_EACH):
        for topic, queue_id in QUEUES:
            yield topic, queue_id, number


async def _files_of_all_kinds(scene: PopScene) -> None:
    """A deleted topic, messages that have waited and some that wait, and a pass of the scrub: each leaves a file."""
    for name in ("Gone", "Late"):
        await scene.topic(name, 1)
    await scene.send("gone", topic="Gone")
    assert (await scene.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="Gone"))).code == 0
    await scene.send("delayed", topic="Late", properties="DELAY\x011")
    await scene.send("timed", topic="Late", properties="TIMER_DELAY_SEC\x012")
    await scene.send("waits", topic="Late", properties="TIMER_DELAY_SEC\x01900")
    await asyncio.sleep(10)
    scene.app.store.settings.scrub_rate_mib = 100
    await scene.app.store.scrub.run()
    scene.app.store.settings.scrub_rate_mib = 0


async def _filled(*, clean: bool, ext: bool) -> Stored:
    scene = _scene(ext)
    await scene.start()
    await _files_of_all_kinds(scene)
    await scene.topic("A", 2)
    await scene.topic("B", 1)
    await scene.topic("Z", 1)  # the backup of the table knows the others
    bodies: dict[Where, bytes] = {}
    for topic, queue_id, number in _numbers():
        body = f"{topic}{queue_id}-{number:03d} " * 30
        await scene.send(body, topic=topic, queue_id=queue_id, properties=f"KEYS\x01k{number}\x02TAGS\x01t{number % 3}")
        bodies[topic, queue_id, number] = body.encode()
        if number == _EACH // 2:
            await asyncio.sleep(0.1)
    for queue, offset in ((("A", 1), _EACH), (("B", 0), _EACH // 2)):
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=queue[0], queue_id=queue[1], commit_offset=offset
        )
        assert (await scene.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
    await asyncio.sleep(75)  # the checkpoint says then that queues have them
    if clean:
        await scene.app.stop()
    else:
        # What came since is in the page cache, and in no checkpoint.
        for queue in QUEUES:
            body = f"{queue[0]}{queue[1]}-{_EACH:03d} " * 30
            await scene.send(body, topic=queue[0], queue_id=queue[1], properties=f"KEYS\x01k{_EACH}\x02TAGS\x01t1")
            bodies[*queue, _EACH] = body.encode()
        old, boot = scene.app, scene.node.boot
        scene.simulation.kill(scene.node)
        await scene._drop(old)
        scene.node.boot = boot
    await scene.client.close()
    files = SimFiles(scene.node.disk)
    records = scan_log(files, "/store/commitlog", LOG_SIZE).records
    there = {(record.topic, record.queue_id, record.queue_offset): record for record in records}
    messages = {at: Message(body, there[at].offset, there[at].size) for at, body in bodies.items()}
    read = {path: files.read(path) for path, inode in scene.node.disk._entries.items() if inode is not None}
    unproven = frozenset() if clean else frozenset((*queue, _EACH) for queue in QUEUES)
    return Stored(read, messages, scene.node.boot, ext, unproven)


def stored(*, clean: bool, ext: bool = False) -> Stored:
    """Fill a broker and stop it, or kill it.

    :param ext: its queues have units.
    """
    made: list[Stored] = []

    async def main() -> None:
        made.append(await _filled(clean=clean, ext=ext))

    run(main())
    return made[0]

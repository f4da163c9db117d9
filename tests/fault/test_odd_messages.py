"""Whatever clients send to a group, all members have the same queues and keys, told of or read in the log.

One member is told of nothing. Leaders are killed, cut off and relieved meanwhile; then the stores are stopped, compared
byte for byte, and looked at as ``mqadmin store verify`` and ``rebuild`` do.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from rmq.broker.app import BrokerApp
from rmq.broker.raft.found import committed
from rmq.broker.schedule.timing import may_have
from rmq.broker.store.index.file import INDEX_ENTRY
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.protocol.names import HALF_TOPIC, TIMER_TOPIC
from rmq.protocol.properties import decode
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import Files, World
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

_TORTURE = float(os.environ.get("RMQ_TORTURE", "0"))
_TOPICS = ("A", "B-_1", "MQ_INST_1%T", "L" * 127, "%RETRY%g", "%LMQ%light")
#: Properties as no client makes them, most of them: names and values repeated, empty, cut off, and of every language.
_TEXTS = (
    "", "TAGS\1a\2TAGS\1b\2", "XTAGS\1q\2TAGS\1b\2", "\2\2TAGS\1x\2", "TAGS\1\2", "TAGS\2", "\1\2\1\2",
    "TAGS\1AaAa\2KEYS\1AaAa BBBB\2", "KEYS\1schlüssel 钥匙 😀\2TAGS\1标签\2", "UNIQ_KEY\1ü\2TAGS\1😀\2",
    "KEYS\1a a  a b\2UNIQ_KEY\1a\2", "KEYS\1a\2KEYS\1b\2UNIQ_KEY\1u\2UNIQ_KEY\1v\2", "xKEYS\1c\2KEYS\1 \2",
    "KEYS\1\2UNIQ_KEY\1\2", f"KEYS\1{' '.join(map(str, range(1000)))}\2", f"p\1{'x' * 30_000}\2KEYS\1{'k' * 999}\2",
    "INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2KEYS\1m\2", "INNER_MULTI_DISPATCH\1no light queue,,\2", "REAL_TOPIC\1A\2",
    "DELAY\0011\2KEYS\1d\2", "DELAY\0013\2", "DELAY\00118\2", "DELAY\001many\2", "TIMER_DELAY_SEC\0012\2KEYS\1t\2",
    "TIMER_DELAY_MS\1150\2TAGS\1z\2", "TRAN_MSG\1true\2PGROUP\1p\2KEYS\1half\2", "WAIT\1false\2KEYS\1w\2",
)  # fmt: skip
_FIELDS = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "consumeRetryTimes", "batch",
)  # fmt: skip
_COMMIT, _ROLLBACK = 8, 12
_CODES = {TIMER_TOPIC: may_have}


class Odd:
    """Sends, pops, sends back and ends transactions, many at a time, and keeps what was acknowledged."""

    def __init__(self, cluster: GroupCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.client = RemotingClient(cluster.simulation.node("odd").world)
        #: Bodies that were acknowledged; of them, those that are in their topic in the end, and those that never are.
        self.stored: set[bytes] = set()
        self.shown: set[tuple[str, bytes]] = set()
        self.hidden: set[tuple[str, bytes]] = set()
        self.codes: Counter[int] = Counter()
        self._halves: list[tuple[str, bytes, dict[str, str | None]]] = []
        self._places: list[tuple[str, int]] = []
        self._count = 0

    async def ask(self, code: int, ext: dict[str, str | None], body: bytes = b"") -> Command | None:
        """Ask who leads; None where nobody answers."""
        at = f"{self.cluster.addresses[await self.cluster.led_by(60)]}:10911"
        try:
            answer = await self.client.request(at, Command(code, ext=ext, body=body), 5)
        except RMQError:
            return None
        self.codes[answer.code] += 1
        return answer

    def _header(self, topic: str, sys_flag: int, text: str, *, joined: bool = False) -> dict[str, str | None]:
        queue = self.random.choice((0, 1, 2, 3, -1))
        values = ("p", topic, "TBW102", "4", queue, sys_flag, 1, -1, text, 0, "false", 16, str(joined).lower())
        return dict(zip("abcdefghijklm", map(str, values), strict=True))

    async def send(self, size: int | None = None) -> None:
        random = self.random
        text, topic = random.choice(_TEXTS), random.choice(_TOPICS)
        if random.random() < 0.3:
            text += random.choice(_TEXTS)
        table = decode(text)
        half = table.get("TRAN_MSG") == "true"
        self._count += 1
        body = b"%06d" % self._count + random.randbytes(random.choice((1, 100, 3000)) if size is None else size - 6)
        ext = self._header(topic, 4 if half else 0, text)
        answer = await self.ask(310, ext, body)
        if answer is None or answer.code != 0 or table.get("WAIT") == "false":
            return
        said = answer.ext or {}
        offset = int((said["msgId"] or "")[-16:], 16)
        self.stored.add(body)
        self._places.append((topic, offset))
        if half:
            end = {"producerGroup": "p", "tranStateTableOffset": said["queueOffset"], "commitLogOffset": str(offset)}
            self._halves.append((topic, body, {**end, "fromTransactionCheck": "false", "msgId": "m"}))
        elif table.get("DELAY", "1") in "13":
            self.shown.add((topic, body))

    async def batch(self) -> None:
        random = self.random
        bodies = [random.randbytes(random.choice((1, 50, 700))) for _ in range(random.choice((2, 20, 120)))]
        items = [(0, body, {"KEYS": f"batch {at}", "TAGS": f"T{at % 3}"}) for at, body in enumerate(bodies)]
        answer = await self.ask(320, self._header(random.choice(_TOPICS[:4]), 0, "", joined=True), batch.encode(items))
        if answer is not None and answer.code == 0:
            self.stored.update(bodies)

    async def end(self) -> None:
        if not self._halves:
            return
        topic, body, ext = self._halves.pop()
        end = self.random.choice((_COMMIT, _ROLLBACK))
        self.hidden.add((topic, body))
        await self.ask(37, {**ext, "commitOrRollback": str(end)})  # success promises nothing: checks find what is lost
        if end == _COMMIT:
            self.hidden.remove((topic, body))

    async def pop(self) -> None:
        ext = {
            "consumerGroup": "popping", "topic": self.random.choice(_TOPICS[:3]), "queueId": "-1", "maxMsgNums": "8",
            "invisibleTime": "10000", "pollTime": "0", "bornTime": str(self.cluster.world.clock.now_ms()),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
        }  # fmt: skip
        await self.ask(200050, {**ext})

    async def send_back(self) -> None:
        if self._places:
            topic, offset = self.random.choice(self._places)
            level = self.random.choice(("-1", "0", "1", "3"))
            ext = {"offset": str(offset), "group": "back", "delayLevel": level, "originTopic": topic}
            await self.ask(36, {**ext, "originMsgId": "m", "unitMode": "false", "maxReconsumeTimes": "16"})

    async def burst(self, count: int = 50) -> None:
        """Many at once: a leader stores them in a few appends."""
        kinds: tuple[Callable[[], object], ...] = (self.batch, self.end, self.end, self.pop, self.send_back)
        chosen = [self.send if self.random.random() < 0.8 else self.random.choice(kinds) for _ in range(count)]
        await asyncio.gather(*(one() for one in chosen))  # type: ignore[call-overload]


async def _fault(cluster: GroupCluster, odd: Odd, number: int) -> None:
    """The leader goes, with requests under way, and comes back."""
    leader = await cluster.led_by(60)
    running = asyncio.create_task(odd.burst())
    await asyncio.sleep(0)
    match number % 3:
        case 0:
            await cluster.kill(leader)
        case 1:
            cluster.isolate(leader)
        case _:
            await eventually(cluster.driver(leader).heir)  # others that were cut off are there again
            cluster.driver(leader).transfer(cluster.driver(leader).heir() or "")
    await running
    await eventually(lambda: cluster.leader() not in (None, leader))
    await odd.burst()
    cluster.simulation.net.heal()
    if leader not in cluster.members:
        await cluster.begin(leader)


async def _keys(app: BrokerApp) -> dict[int, set[int]]:
    """Hashes of the keys that the index has of each message, by commit-log offset."""
    found: dict[int, set[int]] = {}
    index = app.store.index
    assert index is not None
    for file in index.files:
        for number in range(1, file.count):
            value, offset, _, _ = INDEX_ENTRY.unpack(file.buffered(number) or await index.read_entries(file, number, 1))
            found.setdefault(offset, set()).add(value)
    return found


def _queue_files(files: Files, folder: str = "/store/consumequeue") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.list(folder):
        path = f"{folder}/{name}"
        if files.is_dir(path):
            found |= _queue_files(files, path) if name != TIMER_TOPIC else {}
        else:
            found[path] = files.read(path)
    return found


async def _looked_at(world: World, settings: StoreSettings) -> dict[str, bytes]:
    """Look at a store, make its queues anew, and look again; the bytes of its queues, which are the same."""
    found = _queue_files(world.files)
    for _ in range(2):
        async with StoppedStore(world, settings) as store:
            seen = await verify(store, codes=_CODES, committed=committed(world.files, "/store"))
            assert not seen.findings.damages
        await rebuild(world, settings)
    assert _queue_files(world.files) == found
    return found


@pytest.mark.parametrize("seed", range(max(2, round(40 * _TORTURE))))
@in_virtual_time
async def test_members_have_the_same_of_odd_messages(seed: int) -> None:
    light = "true" if seed % 2 else "false"
    settings = {
        "mappedFileSizeCommitLog": str(9 << 20), "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "1000",
        "maxIndexNum": "4000", "enableLmq": light, "enableMultiDispatch": light, "commitLogScrubInterval": "0",
    }  # fmt: skip
    deaf = f"n{seed % 3}"
    async with GroupCluster(seed=seed, settings=settings) as cluster:
        odd = Odd(cluster, seed)
        await cluster.led_by()
        for number in range(3):
            cluster.members[deaf].store.dispatcher.told.add = lambda told: None  # type: ignore[method-assign]
            await odd.burst()
            await _fault(cluster, odd, number + seed)
        for size in (4 << 20, (4 << 20) - 1):
            await odd.send(size)
        await asyncio.sleep(90)  # delays, tries and several checks of the log are over
        await cluster.alike()
        assert odd.codes[0] > 200
        apps = list(cluster.members.values())
        keys = [await _keys(app) for app in apps]
        assert keys[0] == keys[1] == keys[2]
        assert light == "true" or sum(bool(app.store.dispatcher.told.put_bytes) for app in apps) >= 1
        assert not any(app.store.damaged.parts or app.store.scrub.unreadable for app in apps)
        assert not any(app.store.index_scrub is None or app.store.index_scrub.mended for app in apps)
        topics = {topic for topic, _ in odd.shown | odd.hidden}
        bodies = {(topic, body) for topic in topics for body in await cluster.bodies(deaf, topic)}
        assert odd.shown <= bodies
        assert not odd.hidden & bodies
        everywhere = {queue.topic for queue in apps[0].store.queues} | {HALF_TOPIC}
        assert odd.stored <= {body for topic in everywhere for body in await cluster.bodies(deaf, topic)}
        made = apps[0].settings.store_settings()
        await odd.client.close()
        for name in cluster.names:
            await cluster.stop_broker(cluster.members.pop(name))
        trees = [await _looked_at(cluster.simulation.nodes[name].world, made) for name in cluster.names]
        paths = {path for tree in trees for path in tree}
        # A file that is there for what comes next has nothing yet, and need not be anywhere else.
        assert {path for path in paths if len({tree.get(path, b"").rstrip(b"\0") for tree in trees}) > 1} == set()

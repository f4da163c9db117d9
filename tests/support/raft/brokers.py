"""A group of three real brokers in virtual time, whose machines die, lose power and are cut off."""

from __future__ import annotations

import asyncio
import json

from rmq.broker.app import BrokerApp
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.message import decode_records
from rmq.protocol.names import TIMER_TOPIC
from rmq.testing.simcluster import SimCluster, unheard
from rmq.testing.simdisk import SimDisk
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import SimOffload
from tests.support.virtual import eventually

__all__ = ["GroupCluster"]

_PORT = 40911


class GroupCluster(SimCluster):
    """Name servers and a group of brokers ``n0``, ``n1`` ...; :attr:`members` has those that run."""

    def __init__(
        self,
        *,
        size: int = 3,
        seed: int = 0,
        namesrvs: int = 1,
        settings: dict[str, str] | None = None,
        loop: SimLoop | None = None,
    ) -> None:
        super().__init__(brokers=0, namesrvs=namesrvs, seed=seed, settings=settings, loop=loop)
        self.names = [f"n{number}" for number in range(size)]
        self.members: dict[str, BrokerApp] = {}
        self.addresses = {name: self._machine(name)[1] for name in self.names}
        #: Members are begun by the test.
        self.waits = False
        #: Seconds that a disk takes, on average.
        self.slow = 0.0
        #: Term -> who led in it, as the brokers said.
        self.led: dict[int, str] = {}
        #: Topic, queue and index -> where the message lies, and its size, as any member has shown.
        self.shown: dict[tuple[str, int, int], bytes] = {}
        self._wiped: set[str] = set()
        self._seen: dict[BrokerApp, dict[tuple[str, int], int]] = {}

    async def start(self) -> None:
        await super().start()
        for name in () if self.waits else self.names:
            await self.begin(name)

    async def begin(self, name: str, **settings: str) -> BrokerApp:
        """Start a member, with what is on its disk."""
        peers = ";".join(f"{one}-{at}:{_PORT}" for one, at in self.addresses.items())
        made = {
            "brokerName": "group",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "group",
            "dLegerPeers": peers,
            "dLegerSelfId": name,
            "storePathRootDir": "/store",
            **settings,
        }
        offload = self.simulation.nodes[name].world.offload
        assert isinstance(offload, SimOffload)
        if self.slow:
            offload.delay = lambda: self.simulation.random.expovariate(1 / self.slow)
        app = self.members[name] = await self._start(name, made)
        if app.group is None:
            return app
        driver = self.driver(name)
        if app.store._telling is not None:
            app.store._telling.fewest = 1  # of every append the others are told

        def look() -> None:
            if driver.leads is not None:
                assert self.led.setdefault(driver.leads, name) == name, f"two led in term {driver.leads}"

        driver.on_change.append(look)
        return app

    async def kill(self, name: str, *, power: bool = False, disk: bool = False) -> None:
        """kill -9, or the power goes: then what was not synced may be lost. Or the disk goes, too."""
        app = self.members.pop(name)
        node = self.simulation.nodes[name]
        left = node.disk.copied()
        if power:
            left.power_cut(self.simulation.random)
        for pipe in self.simulation.net.pipes_of(node.address):
            pipe.abort()
        self.simulation.net.kill(node.address)
        self.brokers.remove(app)
        if app.group is not None and app.group.driver is not None:
            app.group.driver.leads = None  # a dead leader hands nothing over
        with unheard():
            await app.stop()  # on a disk and a network of which nobody sees anything any more
        node.disk = SimDisk(node.clock.now_ms) if disk else left
        if disk:
            self._wiped.add(name)
        self.simulation.kill(node)

    def isolate(self, name: str) -> None:
        """Nobody of the group hears a member, nor it them."""
        for other in self.names:
            if other != name:
                self.simulation.net.cut(self.addresses[name], self.addresses[other])

    def mute(self, name: str) -> None:
        """A member's words do not come back any more: nobody knows what it has."""
        group = self.members[name].group
        assert group is not None
        group._say = lambda to, message: None  # type: ignore[method-assign]
        self.driver(name)._send = lambda to, message: None

    async def watch(self) -> None:
        """Look, again and again, at what members show: what was shown once is never anything else, anywhere."""
        while True:
            await asyncio.sleep(0.05)
            for app in list(self.members.values()):
                seen = self._seen.setdefault(app, {})
                for queue in list(app.store.queues):
                    await self._look(app, queue, seen)

    async def _look(self, app: BrokerApp, queue: Queue, seen: dict[tuple[str, int], int]) -> None:
        key = (queue.topic, queue.id)
        index = max(seen.get(key, 0), queue.min)
        data = await app.store.queues.entries_cold(queue, index, queue.visible - index)
        for at in range(0, len(data), 20):
            place = data[at : at + 12]
            known = self.shown.setdefault((*key, index), place)
            assert known == place, f"{key} had {known.hex()} at {index}, and has {place.hex()}"
            index += 1
        seen[key] = index

    def driver(self, name: str) -> RaftDriver:
        """What carries out what a member's node says."""
        group = self.members[name].group
        assert group is not None
        assert group.driver is not None
        return group.driver

    def whole(self) -> set[str]:
        """Those that have their disks: what a member that lost it is to get back it has, or its machine is off."""
        for name in self._wiped & set(self.members):
            kept = json.loads(self.simulation.nodes[name].files.read("/store/raft/members"))
            if kept["returned"] and not self.driver(name).returning:
                self._wiped.remove(name)
        return set(self.names) - self._wiped

    def leader(self) -> str | None:
        """The member that takes messages; of two, the newer."""
        leading = [name for name in self.members if self.driver(name).takes_messages]
        return max(leading, key=lambda name: self.driver(name).leads or 0, default=None)

    async def led_by(self, within: float = 30.0) -> str:
        """Wait for a leader; its name."""
        await eventually(self.leader, within)
        leader = self.leader()
        assert leader is not None
        return leader

    async def bodies(self, name: str, topic: str) -> list[bytes]:
        """What a member shows of a topic."""
        queues = [queue.id for queue in self.members[name].store.queues if queue.topic == topic]
        return [body for number in queues for body in await self.of_queue(name, topic, number)]

    async def of_queue(self, name: str, topic: str, number: int) -> list[bytes]:
        """What a member shows of a queue, in its order."""
        store = self.members[name].store
        found = []
        for queue in [queue for queue in store.queues if (queue.topic, queue.id) == (topic, number)]:
            data = await store.queues.entries_cold(queue, queue.min, queue.visible - queue.min)
            spans = [
                (int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big"))
                for at in range(0, len(data), 20)
            ]
            records = await store.log.read_many_cold(spans) if spans else []
            found += [record.body for record in decode_records(b"".join(records))]
        return found

    async def alike(self, within: float = 30.0) -> None:
        """Wait until every member has the same log, committed and in queues."""

        def same() -> bool:
            stores = [app.store for app in self.members.values()]
            return len({store.log.end for store in stores}) == 1 and all(
                store.durability.visible == store.log.end and store.dispatcher.done for store in stores
            )

        try:
            await eventually(same, within)
        except AssertionError:
            raise AssertionError(f"not alike within {within} s: {self.states()}") from None
        first = max(app.store.log.start for app in self.members.values())
        logs = {name: await _bytes(app.store, first) for name, app in self.members.items()}
        assert len(set(logs.values())) == 1, f"logs differ: {self.states()}"
        await self._same_queues([app.store for app in self.members.values()])

    async def _same_queues(self, stores: list[Store]) -> None:
        """Every member has the same entries, as far as its queues go back."""
        names = {(queue.topic, queue.id) for store in stores for queue in store.queues if queue.next > queue.min}
        for name in sorted(names):
            queues = [store.queues.get(*name) for store in stores]
            ends = {queue.next if queue is not None else -1 for queue in queues}
            assert len(ends) == 1, f"{name} ends at {ends}"
            first = max(queue.min for queue in queues if queue is not None)
            found = set()
            for store, queue in zip(stores, queues, strict=True):
                data, index = b"", first
                while queue is not None and index < queue.next:
                    piece = await store.queues.entries_cold(queue, index, queue.next - index)
                    data, index = data + piece, index + len(piece) // 20
                if (
                    name[0] == TIMER_TOPIC
                ):  # a leader says there when it is due, as it was told; others see it in the log
                    data = b"".join(data[at : at + 12] for at in range(0, len(data), 20))
                found.add(data)
            assert len(found) == 1, f"{name} has other entries at another member"

    def states(self) -> dict[str, object]:
        """How every member is, for who reads a failure."""
        found: dict[str, object] = {}
        for name, app in self.members.items():
            store, driver = app.store, app.group and app.group.driver
            node = driver and driver.node
            found[name] = (
                store.log.end, store.durability.visible, store.dispatcher.position, store.dispatcher.limit,
                driver and (driver.leads, driver.serves, driver.leader, driver.parted, driver.failures.count),
                node and (node.term, node.commit, node.path.last), store.log.gate_reason(), app.roles.role.name,
            )  # fmt: skip
        return found


async def _bytes(store: Store, start: int) -> bytes:
    log, found = store.log, []
    while start < log.end:
        size = min(log.end - start, log.file_size - start % log.file_size)
        found.append(await log.read_cold(start, size))
        start += size
    return b"".join(found)

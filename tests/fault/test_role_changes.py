"""A broker changes its role again and again while it is asked for everything: nothing is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.roles.role import FOR_MASTERS, Role
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, StoreError
from rmq.protocol.ids import decode_offset_msg_id
from rmq.protocol.message import decode_record, decode_records
from rmq.remoting.router import Router
from rmq.runtime.tasks import TaskOwner
from rmq.testing.simfiles import SimFile
from tests.support.held import held_by
from tests.support.kills.campaign import amount
from tests.support.raw_peer import pull, send
from tests.support.scenes.pop import PopScene, given, pop_scene
from tests.support.virtual import eventually, in_virtual_time

SETTINGS = {
    "metricsExporterType": "PROM",
    "slaveReadEnable": "true",
    "transactionCheckInterval": "5000",
    "transactionTimeOut": "6000",
}
MASTER, SLAVE = Role.master(), Role.slave(3)


class Load:
    """Clients that use everything and take no refusal for an answer."""

    def __init__(self, scene: PopScene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.ended = False
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        #: Bodies that were acknowledged as stored, by the topic where they are to be found.
        self.stored: dict[str, set[str]] = {"Plain": set(), "Late": set(), "Ended": set(), "Popped": set()}
        self.acknowledged: set[str] = set()

    async def run(self) -> None:
        work = (self._plain, self._late, self._transaction, self._pop_them, self._pull, self._admin)
        await asyncio.gather(*(self._again(what) for what in work))

    async def _again(self, what: Callable[[str], Awaitable[None]]) -> None:
        number = 0
        while not self.ended:
            await what(f"{self.name}-{number}")
            number += 1
            await asyncio.sleep(0.05)

    async def _until_taken(self, command: Command) -> Command:
        """Ask until it is served: a refusal says that nothing was done."""
        while True:
            again = Command(command.code, ext=dict(command.ext or {}), body=command.body)
            answer = await self.scene.client.request(self.scene.addr, again, 60)
            if answer.code == 0:
                self.accepted[RequestCode(command.code).name] += 1
                return answer
            assert answer.code in (1, 11, 14), f"{command.code}: {answer.code} {answer.remark}"
            self.refused[answer.code] += 1
            await asyncio.sleep(0.03)

    async def _send(self, topic: str, key: str, more: str = "", flag: str = "0") -> Command:
        command = send(topic, key.encode(), props=f"UNIQ_KEY\x01{topic}{key}\x02{more}")
        assert command.ext is not None
        command.ext["f"] = flag
        return await self._until_taken(command)

    async def _plain(self, key: str) -> None:
        await self._send("Plain", key)
        self.stored["Plain"].add(key)

    async def _late(self, key: str) -> None:
        for number, how in enumerate(("DELAY\x011\x02", "TIMER_DELAY_MS\x01300\x02", "TIMER_DELAY_SEC\x012\x02")):
            await self._send("Late", f"{key}-{number}", how)
            self.stored["Late"].add(f"{key}-{number}")

    async def _transaction(self, key: str) -> None:
        half = await self._send("Ended", key, "TRAN_MSG\x01true\x02PGROUP\x01pg\x02", "4")
        assert half.ext is not None
        _, _, offset = decode_offset_msg_id(half.ext["msgId"] or "")
        end = {
            "producerGroup": "pg", "tranStateTableOffset": half.ext["queueOffset"] or "",
            "commitLogOffset": str(offset), "commitOrRollback": "8", "fromTransactionCheck": "false",
        }  # fmt: skip
        await self._until_taken(Command(37, ext=end))
        self.stored["Ended"].add(key)

    async def _pop_them(self, key: str) -> None:
        await self._send("Popped", key)
        self.stored["Popped"].add(key)
        answer = await self.scene.pop_answer(topic="Popped", poll_time=200, invisible_time=1000, max_msg_nums=4)
        if answer.code == 14:
            self.refused[14] += 1
            return
        if answer.code != 0:
            return
        for message in given(answer, "Popped"):
            if message.offset % 3 and not await self.scene.ack(message):
                self.acknowledged.add(message.body)

    async def _pull(self, key: str) -> None:
        """A pull that is parked: a change of the role leaves it where it is."""
        answer = await self.scene.client.request(self.scene.addr, pull("g", "Quiet", hold_ms=500), 60)
        assert answer.code == 19, answer.remark

    async def _admin(self, key: str) -> None:
        answer = await self.scene.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert answer.code == 0
        await self.scene.app.metrics.page({})
        await asyncio.sleep(0.2)


async def found_bodies(scene: PopScene, topic: str) -> list[str]:
    """The bodies in the queue of a topic."""
    queue = scene.app.store.queues.get(topic, 0)
    if queue is None:
        return []
    data = await scene.app.store.queues.entries_cold(queue, 0, queue.next)
    spans = [(int.from_bytes(data[i : i + 8], "big"), int.from_bytes(data[i + 8 : i + 12], "big"))
             for i in range(0, len(data), 20)]  # fmt: skip
    records = await scene.app.store.log.read_many_cold(spans)
    return [record.body.decode() for record in decode_records(b"".join(records))]


def running() -> Counter[str]:
    """Names of tasks, and how many owners of tasks there are that may still start some."""
    gc.collect()
    owners = [one.name for one in gc.get_objects() if isinstance(one, TaskOwner) and not one.closed]
    names = [task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-")]
    return Counter({f"task {name}": count for name, count in Counter(names).items()}) + Counter(
        {f"owner {name}": count for name, count in Counter(owners).items()}
    )


def open_files() -> Counter[str]:
    """Files that are open, by path; how many of log and index there are is the messages' matter."""
    paths = [one.path for one in gc.get_objects() if isinstance(one, SimFile) and not one._closed]
    return Counter(path for path in paths if not path.startswith(("/store/commitlog/", "/store/index/")))


#: What is as large as the messages or the answers are many, or bounded by itself.
OF_MESSAGES = (
    "MemoryTail.", "Queue.", "(IndexFile)", "IndexFiles.", "_Known.", "(SharedFile)", "SharedFile.", "(Histogram)",
    "Histogram.", "CallLatency.", "_Window._", "Rates._samples", "BrokerStats._put_times", "Versions._history",
    "(DataVersion)", "Checksums._held", "KeyHasher._shares",
)  # fmt: skip


def held(scene: PopScene) -> dict[str, int]:
    return {name: size for name, size in held_by(scene.app).items() if not name.startswith(OF_MESSAGES)}


async def changed(scene: PopScene, times: int, load: Load) -> None:
    """Change the role under a load, and have everything come that is under way."""
    working = asyncio.create_task(load.run())
    random = scene.simulation.random
    for _ in range(times):
        await asyncio.sleep(random.random() * 0.4)
        await scene.app.roles.become(SLAVE if random.random() < 0.6 else MASTER)
    await scene.app.roles.become(MASTER)
    load.ended = True
    await working
    await asyncio.sleep(400)  # delayed, given back and counted out


@in_virtual_time
async def test_a_hundred_changes_lose_nothing_and_leave_nothing() -> None:
    async with pop_scene(**SETTINGS) as scene:
        for topic in ("Plain", "Late", "Ended", "Popped", "Quiet"):
            await scene.topic(topic)
        loads = [Load(scene, "first"), Load(scene, "then")]
        await changed(scene, 10, loads[0])
        before = running(), open_files(), held(scene)
        await changed(scene, amount(100, 2000), loads[1])
        after = running(), open_files(), held(scene)
        assert after[0] == before[0]
        assert after[1] == before[1]
        assert {name: size for name, size in after[2].items() if size > before[2].get(name, 0)} == {}
        assert loads[1].refused[14] > 10, "some were refused on the way"
        assert loads[1].refused[11] > 0
        assert min(len(bodies) for bodies in loads[1].stored.values()) > 50
        for topic in ("Plain", "Late", "Ended", "Popped"):
            there = Counter(await found_bodies(scene, topic))
            wanted = loads[0].stored[topic] | loads[1].stored[topic]
            assert wanted - there.keys() == set(), topic
            assert [body for body in wanted if there[body] > 1] == [], f"{topic}: none came twice"
        # What was popped and not acknowledged comes again; what was acknowledged does not.
        again = {given.body for _ in range(40) for given in await scene.pop(topic="Popped")}
        popped = loads[0].acknowledged | loads[1].acknowledged
        assert len(popped) > 20
        assert popped & again == set()
        assert popped | again >= loads[0].stored["Popped"] | loads[1].stored["Popped"]


def test_a_slave_has_an_id_of_its_own() -> None:
    assert (MASTER.broker_id, SLAVE.broker_id) == (0, 3)
    for number in (0, -1):
        with pytest.raises(ConfigError, match="a slave has an id above 0"):
            Role.slave(number)


@in_virtual_time
async def test_what_a_slave_refuses_and_what_it_serves() -> None:
    async with pop_scene(transactionCheckInterval="1000", transactionTimeOut="1000", slaveReadEnable="true") as scene:
        await scene.topic()
        await scene.send("a", "b")
        half = send("T", b"c", props="TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02")
        assert half.ext is not None
        half.ext["f"] = "4"
        assert (await scene.client.request(scene.addr, half, 60)).code == 0
        await scene.send("late", properties="DELAY\x011\x02")
        served = scene.app.codes
        assert scene.app.roles.master is not None
        assert set(Router(scene.app.roles.master.handlers).codes()) < FOR_MASTERS.keys()
        await scene.app.roles.become(SLAVE)
        assert scene.app.codes == served, "none is unknown"
        for code, refusal in FOR_MASTERS.items():
            answer = await scene.ask(code)
            assert (answer.code, answer.remark) == refusal, code
        answer = await scene.client.request(scene.addr, send("T"), 60)
        assert answer.code == 14
        assert "messages are put to the slave" in (answer.remark or "")
        end = scene.app.store.log.end
        assert scene.app.store.log.gate_reason() == "this broker is a slave"
        # Nothing writes: no delivery, no check, no event about an offset that is not here (yet).
        committing = pull("g", "T", 1)
        assert committing.ext is not None
        committing.ext |= {"sysFlag": "5", "commitOffset": "1"}
        found = await scene.client.request(scene.addr, committing, 60)
        assert (found.code, found.ext and found.ext["suggestWhichBrokerId"]) == (0, "0")
        assert scene.app.offsets.query("g", "T", 0) == -1
        beyond = await scene.client.request(scene.addr, pull("g", "T", 9), 60)
        assert (beyond.code, beyond.ext and beyond.ext["nextBeginOffset"]) == (20, "9")
        await asyncio.sleep(100)
        assert scene.app.store.log.end == end
        assert {name.partition(".")[0] for name in scene.app.observer.services.running} == {
            "broker",
            "store",
            "stats",
            "registration",
            "slave",
            "metadata",
        }
        # What a consumer says itself is taken.
        commit = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "2"}
        assert (await scene.client.request(scene.addr, Command(15, ext=dict(commit)), 60)).code == 0
        assert scene.app.offsets.query("g", "T", 0) == 2
        status = await scene.ask(RequestCode.GET_BROKER_HA_STATUS)
        told = HARuntimeInfo.decode(status.body)
        assert (told.master, told.ha_client_runtime_info.max_offset) == (False, end)
        await scene.app.roles.become(MASTER)
        await eventually(lambda: scene.app.store.queues.get_or_create("T", 0).visible == 3, within=5)
        assert await found_bodies(scene, "T") == ["a", "b", "late"]
        assert (await scene.client.request(scene.addr, pull("g", "T", 9), 60)).code == 21
        assert HARuntimeInfo.decode((await scene.ask(RequestCode.GET_BROKER_HA_STATUS)).body).master


@in_virtual_time
async def test_whether_sends_wait_for_a_slave_is_what_the_new_role_says() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        for role, code in (("SLAVE", 14), ("SYNC_MASTER", 11), ("ASYNC_MASTER", 0)):
            scene.app.settings.broker_role, scene.app.settings.broker_id = role, int(role == "SLAVE")
            await scene.app.roles.become(Role.of(scene.app.settings))
            assert (await scene.client.request(scene.addr, send("T"), 60)).code == code, role
        assert len(await found_bodies(scene, "T")) == 2


@in_virtual_time
async def test_what_an_ended_role_was_asked_writes_nothing() -> None:
    """The end of a transaction that was read from the disk while the role changed would be written behind its back."""
    async with pop_scene() as scene:
        await scene.topic()
        half = send("T", b"c", props="TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02")
        assert half.ext is not None
        half.ext["f"] = "4"
        stored = await scene.client.request(scene.addr, half, 60)
        assert stored.ext is not None
        _, _, offset = decode_offset_msg_id(stored.ext["msgId"] or "")
        end = {
            "producerGroup": "pg", "tranStateTableOffset": stored.ext["queueOffset"] or "",
            "commitLogOffset": str(offset), "commitOrRollback": "8", "fromTransactionCheck": "false",
        }  # fmt: skip
        old = scene.app.roles.master
        assert old is not None
        read = scene.app.store.messages.at
        go_on = asyncio.Event()

        async def slow(at: int) -> bytes | None:
            scene.app.store.messages.at = read  # type: ignore[method-assign]
            data = await read(at)
            await go_on.wait()
            return data

        scene.app.store.messages.at = slow  # type: ignore[method-assign]
        late = asyncio.create_task(scene.client.request(scene.addr, Command(37, ext=dict(end)), 60))
        await asyncio.sleep(0.1)
        await scene.app.roles.become(MASTER)
        assert (await scene.client.request(scene.addr, Command(37, ext=dict(end)), 60)).code == 0
        go_on.set()
        answer = await late
        assert (answer.code, answer.remark) == (14, "Service not available now.")
        assert await found_bodies(scene, "T") == ["c"]
        with pytest.raises(StoreError, match="has ended"):
            old.timers.take_back([0])
        with pytest.raises(StoreError, match="closed"):
            old.pop.state.journal.write([("s",)])
        with pytest.raises(StoreError, match="ended"):
            old.check.settle(decode_record((await read(offset)) or b""), 0, [])


@in_virtual_time
async def test_a_role_that_cannot_begin_leaves_none_until_one_can() -> None:
    async with pop_scene(flushDelayOffsetInterval="100", metricsExporterType="PROM", slaveReadEnable="true") as scene:
        await scene.topic()
        await scene.send("late", properties="DELAY\x011\x02")
        await asyncio.sleep(30)
        await scene.app.roles.become(SLAVE)
        path = "/store/config/delayOffset.json"
        kept = scene.node.files.read(path)
        for name in (path, path + ".bak"):
            scene.node.files.write_atomic(name, b"junk")
        await asyncio.sleep(0.1)  # what it was told of is written
        before = running()
        with pytest.raises(StoreError, match="delayOffset"):
            await scene.app.roles.become(MASTER)
        gone = {
            "owner file delayOffset.json", "owner file followed.json", "owner slave", "owner metadata",
            "task slave.follow", "task metadata.progress", "task metadata.tables", "task metadata.new topics",
        }  # fmt: skip
        assert running() == {name: count for name, count in before.items() if name not in gone}
        assert (scene.app.roles.role, scene.app.roles.master) == (SLAVE, None)
        assert "could not become master" in (scene.app._missing() or "")
        assert (await scene.client.request(scene.addr, send("T"), 60)).code == 14
        assert (await scene.ask(RequestCode.POP_MESSAGE)).code == 14
        assert (await scene.client.request(scene.addr, pull("g", "T"), 60)).code == 0
        scene.node.files.write_atomic(path, kept)
        await scene.app.roles.become(MASTER)
        assert scene.app._missing() is None
        await scene.send("a")
        assert await found_bodies(scene, "T") == ["late", "a"]


@in_virtual_time
async def test_a_change_and_a_stop_at_a_time_end_both() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        changing = asyncio.create_task(scene.app.roles.become(SLAVE))
        await asyncio.sleep(0)
        assert await scene.app.stop() == []
        await changing
        with pytest.raises(RuntimeError, match="the broker stops"):
            await scene.app.roles.become(MASTER)
        await scene.start()
        assert scene.app.store.recovered.clean
        assert [given.body for given in await scene.pop()] == ["a"]


@in_virtual_time
async def test_name_servers_know_a_broker_by_its_role() -> None:
    async with pop_scene(namesrvAddr="10.0.0.3:9876") as scene:
        node = scene.simulation.node("namesrv")
        settings = NamesrvSettings(
            listen_port=9876, bind_address=node.address, kv_config_path="/kv.json", config_store_path="/n.properties"
        )
        async with NamesrvApp(node.world, settings) as namesrv:

            def ids() -> dict[int, str]:
                route = namesrv.routes.route("T")
                return {} if route is None else route.broker_datas[0].broker_addrs

            await scene.topic()
            await eventually(lambda: ids() == {0: scene.addr})
            await scene.app.roles.become(SLAVE)
            await eventually(lambda: ids() == {3: scene.addr}, within=1)
            await scene.app.roles.become(MASTER)
            await eventually(lambda: ids() == {0: scene.addr}, within=1)
            await scene.topic("U")
            await eventually(lambda: namesrv.routes.route("U") is not None, within=1)
            await scene.app.stop()
            assert ids() == {}
            await scene.start()

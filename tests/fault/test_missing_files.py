"""The oldest files of the commit log deleted by hand while the broker is stopped: what remains is where it was (I1, I3,
I4), minimum offsets follow, and the log says what is missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq.broker.store.store import Store
from rmq.protocol.command import Command
from rmq.protocol.errors import StoreError
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simfiles import SimCrash
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess
from tests.support.kills.load import pull, send_command
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, die, found_keys, opened, put, records, small
from tests.support.store_scan import check_store

#: Queue -> the part of the log that has messages of it: all of it, its ends, its beginning.
WHERE: dict[tuple[str, int], Callable[[int], bool]] = {
    ("T", 0): lambda file: True,
    ("T", 1): lambda file: True,
    ("Ends", 0): lambda file: file in (0, 4),
    ("Old", 0): lambda file: file == 0,
    ("Young", 3): lambda file: file == 4,
}


@dataclass
class Sent:
    """A message: its index in its queue, the file it is in, and its body."""

    index: int
    file: int
    body: bytes


async def five_files(machine: SimNode) -> tuple[Store, dict[tuple[str, int], list[Sent]]]:
    """A running store with queues that have messages here and there."""
    store = await opened(machine.world, small())
    sent: dict[tuple[str, int], list[Sent]] = {place: [] for place in WHERE}
    number = 0
    while store.log.end < 5 * LOG_SIZE - 2000:
        for place, there in WHERE.items():
            if there(store.log.end // LOG_SIZE):
                number += 1
                body = b"%d " % number + b"x" * (number * 37 % 900)
                ((index, offset),) = store.append(
                    [put(store.queues.get_or_create(*place), body, key=f"k{number}")]
                ).offsets
                sent[place].append(Sent(index, offset // LOG_SIZE, body))
    return store, sent


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("deleted", [1, 2])
@pytest.mark.parametrize("lost", ["", "consumequeue", "checkpoint", "index"])
@pytest.mark.parametrize("written", [True, False], ids=["written", "in_memory"])
def test_what_remains_is_where_it_was(
    clean: bool, deleted: int, lost: str, written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        simulation = Simulation(17)
        machine = simulation.node("a")
        store, sent = await five_files(machine)
        if written:
            await store.force()
        if clean:
            await store.stop()
        simulation.kill(machine)
        await die(store)
        files = machine.files
        for number in range(deleted):
            files.unlink(f"/store/commitlog/{number * LOG_SIZE:020d}")
        for path in [path for path, inode in machine.disk._entries.items() if inode is not None]:
            if lost and f"/{lost}" in path:
                files.unlink(path)

        for life in range(2):
            store = await opened(machine.world, small(), start=life == 0)
            assert store.log.start == deleted * LOG_SIZE
            assert not store.recovered.damages
            for place, messages in sent.items():
                queue = store.queues.get_or_create(*place)
                left = [message for message in messages if message.file >= deleted]
                found = {int.from_bytes(data[20:28], "big"): body for data, body in zip(
                    await records(store, queue), await bodies(store, queue), strict=True)}  # fmt: skip
                assert found == {message.index: message.body for message in left}, f"{place} after {deleted} files"
                if left:
                    assert (queue.min, queue.next) == (left[0].index, messages[-1].index + 1), place
                else:
                    # Its entries alone say where it ended; without them nobody can.
                    known = lost != "consumequeue" and (written or clean)
                    assert queue.min == queue.next == (len(messages) if known else 0), place
            keys = await found_keys(store, "T", ["k1", f"k{1 + sum(map(len, sent.values()))}"])
            assert set(keys.values()) == {0}
            if life == 0:
                queue = store.queues.get_or_create("T", 0)
                behind = sent["T", 0][-1].index + 1
                ((index, offset),) = store.append([put(queue, b"new")]).offsets
                assert index == behind
                sent["T", 0].append(Sent(index, offset // LOG_SIZE, b"new"))
            await store.stop()
        check_store(files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    run(main())
    told = [record.getMessage() for record in caplog.records if "began at offset" in record.getMessage()]
    if lost == "checkpoint":
        assert not told, "nobody knows"
        return
    names = " to ".join(dict.fromkeys([f"{0:020d}", f"{(deleted - 1) * LOG_SIZE:020d}"]))
    assert told == [
        f"the commit log began at offset 0 when it was last used, and begins at {deleted * LOG_SIZE} now: what was "
        f"between is missing ({names}), all other messages are where they were"
    ]


def test_files_that_retention_took_are_not_missing(caplog: pytest.LogCaptureFixture) -> None:
    """Killed at any moment around the deletion of files."""
    caplog.set_level(logging.WARNING)

    async def main(step: int) -> bool:
        simulation = Simulation(18)
        machine = simulation.node("a")
        store, _ = await five_files(machine)
        for file in store.log.segments[:3]:
            machine.disk._entries[file.path].mtime_ms = -(10**12)  # type: ignore[union-attr]
        calls = 0
        real = store.retention._offload

        async def counted(what: Callable[..., object], *arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls > step:
                machine.files.freeze()
            return await real(what, *arguments)

        store.retention._offload = counted  # type: ignore[assignment]
        store.retention.trigger()
        over = True
        try:
            await store.retention.run()
        except SimCrash:
            over = False
        simulation.kill(machine)
        await die(store)
        store = await opened(machine.world, small(), start=False)
        await store.abandon()
        return over

    step = 0
    over = False
    while not over:
        step += 1

        async def one(step: int = step) -> None:
            nonlocal over
            over = await main(step)

        run(one())
    assert step > 3
    assert "began at offset" not in caplog.text


@pytest.mark.parametrize("forced", [False, True], ids=["not_forced", "forced"])
def test_a_power_cut_may_take_the_names_of_files_and_not_of_later_ones(forced: bool) -> None:
    """Under ASYNC_FLUSH, the flush files behind: what is left is served. What had been forced must be there."""

    async def main() -> None:
        simulation = Simulation(22)
        machine = simulation.node("a")
        store, sent = await five_files(machine)
        if forced:
            await store.flusher.flush_all()
            await store.force()
        simulation.kill(machine)
        await die(store)
        machine.files.unlink(f"/store/commitlog/{2 * LOG_SIZE:020d}")
        machine.disk.open(f"/store/commitlog/{3 * LOG_SIZE:020d}").truncate(0)
        if forced:
            with pytest.raises(StoreError, match="a commit-log file is missing before it"):
                await opened(machine.world, small())
            return
        for _ in range(3):
            store = await opened(machine.world, small())
            for place, messages in sent.items():
                queue = store.queues.get_or_create(*place)
                left = [message.body for message in messages if message.file not in (2, 3)]
                assert await bodies(store, queue) == left, place
                assert queue.next == messages[-1].index + 1
            assert store.damaged.bytes >= 2 * LOG_SIZE - 3000
            simulation.kill(machine)
            await die(store)

    run(main())


async def test_a_real_broker_serves_what_remains(tmp_path: Path) -> None:
    """Killed by -9, the oldest file deleted, started again: a consumer gets the rest from the minimum on."""
    client = RemotingClient(World.real())
    try:
        async with BrokerProcess(tmp_path / "broker") as broker:
            address = await broker.start()
            files = broker.store / "commitlog"
            held: dict[int, list[str]] = {0: [], 1: []}
            number = 0
            while len(list(files.iterdir())) < 5:
                keys = [f"0.0.{number + n:06d}" for n in range(16)]
                number += 16
                answer = await client.request(address, send_command("T0", number // 16 % 2, keys), 30)
                assert answer.code == 0
                held[number // 16 % 2] += keys
            await broker.kill()
            (files / f"{0:020d}").unlink()
            address = await broker.start()
            for queue, keys in held.items():
                place: dict[str, str | None] = {"topic": "T0", "queueId": str(queue)}
                answer = await client.request(address, Command(31, ext=place), 30)
                first = at = int((answer.ext or {})["offset"] or 0)
                answer = await client.request(address, Command(30, ext=place), 30)
                assert int((answer.ext or {})["offset"] or 0) == len(keys)
                assert 0 < first < len(keys) // 2, "about a quarter of the messages is missing"
                found = []
                while True:
                    items, behind = await pull(client, address, "reader", "T0", queue, at)
                    found += [(offset, key) for offset, key, _ in items]
                    if behind <= at:
                        break
                    at = behind
                assert found == list(enumerate(keys))[first:]
            assert f"begins at {LOG_FILE_SIZE} now" in (broker.folder / "logs" / "broker.log").read_text()
            assert await broker.stop() == 0
    finally:
        await client.close()


def test_a_queue_of_which_nothing_is_left_goes_on_where_it_was() -> None:
    """Killed a moment after the file of its messages was full: its entries were written then, without waiting."""

    async def main() -> None:
        simulation = Simulation(19)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        old, other = store.queues.get_or_create("Old", 0), store.queues.get_or_create("T", 0)
        store.append([put(old, b"x" * 100) for _ in range(16)])
        while store.log.end < LOG_SIZE + 100:
            store.append([put(other, b"x" * 500)])
        await asyncio.sleep(0.1)
        simulation.kill(machine)
        await die(store)
        machine.files.unlink(f"/store/commitlog/{0:020d}")
        for _ in range(2):
            store = await opened(machine.world, small())
            old = store.queues.get_or_create("Old", 0)
            assert (old.min, old.next) == (16, 16)
            await store.stop()
        store = await opened(machine.world, small())
        old = store.queues.get_or_create("Old", 0)
        assert store.append([put(old, b"new")]).offsets[0][0] == 16
        await store.stop()

    run(main())

"""H01 and H02: a master and its slave as processes, killed, stopped, and joined by a wire that does its worst.

Nothing that was acknowledged is lost, logs are equal wherever both have them, and a slave goes on from where it is.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rmq.broker.replication.wire import HEADER_SIZE
from rmq.protocol.command import Command
from tests.support.history import Verdict, judge, read_histories
from tests.support.kills.campaign import LONG, amount
from tests.support.kills.killer import LOG_FILE_SIZE, OsTree
from tests.support.kills.load import Load, read_back, scan_back
from tests.support.kills.pair import ProcessPair, Way, process_pair

#: Kills of either, and of both at once; and stops.
WAYS = ("kill slave", "stop slave", "kill master", "stop master", "kill both")
CYCLES = amount(5, 100)
#: Seconds of a stop: longer than the silence after which either gives the other up.
STOPPED = 60.0 if LONG else 0.3


async def sends_go_on(pair: ProcessPair, load: Load, count: int) -> asyncio.Task[None]:
    """So many have been stored; the task goes on with it until it is cancelled, or the master is gone."""
    wanted = load.acknowledged + load.doubtful + count
    task = asyncio.create_task(load.run(pair.master.address, lambda: pair.silent))

    async def enough() -> bool:
        return load.acknowledged + load.doubtful >= wanted or task.done()

    pair.silent = False
    await pair.until(enough)
    return task


async def cycle(pair: ProcessPair, load: Load, way: str, rng: random.Random) -> None:
    """Send before a fault, through it and behind it; both have the same then."""
    sending = await sends_go_on(pair, load, 20)
    await asyncio.sleep(rng.random() * (3 if LONG else 0.05))
    struck = [broker for name, broker in (("slave", pair.slave), ("master", pair.master)) if name in way]
    struck = struck or [pair.slave, pair.master]
    if way.startswith("stop"):
        (broker,) = struck
        broker.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED)
        broker.signal(signal.SIGCONT)
    else:
        await asyncio.gather(*[broker.kill() for broker in struck])
        await asyncio.gather(*[broker.start() for broker in struck])
    if sending.done():  # with its master
        sending = await sends_go_on(pair, load, 20)
    pair.silent = True
    await sending
    await pair.caught_up()
    assert not (wrong := pair.differences()), f"{way}: {wrong}"


async def killed_and_stopped(folder: Path, cycles: int, seed: int = 1) -> Verdict:
    """The verdict over all lives of both, with what either gives to readers at the end."""
    rng = random.Random(seed)
    async with process_pair(folder) as pair:
        load = Load(folder / "history", seed=seed, producers=16 if LONG else 6, pause=0.004)
        before = 0.0
        for number in range(cycles):
            way = WAYS[number % len(WAYS)] if number < len(WAYS) else rng.choice(WAYS)
            await cycle(pair, load, way, rng)
            before = before or pair.resident_mib(pair.master)
            assert pair.resident_mib(pair.master) < before + 64, "I14: a master's memory is bounded"
        load.close()
        seen = [await read_back(pair.master.address, name="master")]
        assert await pair.slave.stop() == 0
        assert await pair.master.stop() == 0
        seen += [
            scan_back(OsTree(), str(broker.store / "commitlog"), LOG_FILE_SIZE) for broker in (pair.master, pair.slave)
        ]
    return judge(read_histories(folder / "history"), seen)


def test_h01_pairs_that_are_killed_and_stopped_lose_nothing_and_stay_equal(tmp_path: Path) -> None:
    asyncio.run(killed_and_stopped(tmp_path, CYCLES)).demand()


UNIT = 200
BODY = 2000
#: Bytes behind which connections end: every one of two units, and some of those behind them.
CUTS = range(1, 3000) if LONG else (*range(1, 2 * HEADER_SIZE + 4), *range(40, 2 * (UNIT + HEADER_SIZE), 9), 3000)
#: Bytes of connections that come as others: of a unit's head, of the record that the slave has, of a body behind it.
FLIPS = (*range(HEADER_SIZE), *range(20, 4000, 37)) if LONG else (3, 9, 11, 30, 1200, 3000)


@asynccontextmanager
async def sending(pair: ProcessPair) -> AsyncIterator[None]:
    """One message after the other."""
    over = False

    async def send() -> None:
        number = 0
        while not over:
            number += 1
            ext: dict[str, str | None] = {
                "a": "pg", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
                "i": f"KEYS\x01{number}\x02WAIT\x01false", "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            answer = await pair.client.request(
                pair.master.address, Command(310, ext=ext, body=b"%d" % number * BODY), 30
            )
            assert answer.code in (0, 11, 12), answer
            await asyncio.sleep(0.002)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        over = True
        await task


async def cut_everywhere(pair: ProcessPair) -> None:
    """A connection ends behind each byte; the next one goes on where the slave is."""
    wire = pair.wire
    wire.ways = [Way(cut=cut) for cut in CUTS]
    wire.cut()

    async def all_over() -> bool:
        return not wire.ways

    async with sending(pair):
        await pair.until(all_over, lambda: len(wire.ways))
    end = await pair.caught_up()
    assert wire.begun == sorted(wire.begun)
    assert wire.asked_again <= 5 * BODY, "asked for more than its newest record again"
    assert wire.acked <= end


async def split_and_gathered(pair: ProcessPair) -> None:
    """Byte by byte, and fifty units at once."""
    for way in (Way(piece=1), Way(gather=50 * (UNIT + HEADER_SIZE))):
        pair.wire.way = way
        pair.wire.cut()
        async with sending(pair):
            await asyncio.sleep(0.15)
        await pair.caught_up()
    pair.wire.way = Way()


async def flipped(pair: ProcessPair, flips: tuple[int, ...]) -> None:
    """A byte comes as another one: that connection ends, and what it brought is not kept."""
    for flip in flips:
        pair.wire.ways = [Way(flip=flip)]
        before = len(pair.wire.begun)
        pair.wire.cut()

        async def again() -> bool:
            return len(pair.wire.begun) >= before + 2  # noqa: B023

        async with sending(pair):
            try:
                await pair.until(again)
            except AssertionError as error:
                raise AssertionError(f"byte {flip}: {error}") from None
        await pair.caught_up()


async def joined_by_the_worst_wire(folder: Path) -> None:
    async with process_pair(folder, RMQ_HA_TRANSFER_BATCH_SIZE=str(UNIT), RMQ_HA_CHECK_CRC="true") as pair:
        for part in (cut_everywhere(pair), split_and_gathered(pair), flipped(pair, FLIPS)):
            await part
            assert not (wrong := pair.differences()), f"{part.__name__}: {wrong}"


def test_h02_a_wire_that_cuts_splits_gathers_and_flips_leaves_logs_equal(tmp_path: Path) -> None:
    asyncio.run(joined_by_the_worst_wire(tmp_path))


def test_h02_a_byte_that_nobody_compares_is_seen_here(tmp_path: Path) -> None:
    """Without haCheckCRC a body is taken as it comes."""

    async def main() -> None:
        async with process_pair(tmp_path, RMQ_HA_TRANSFER_BATCH_SIZE=str(UNIT)) as pair:
            pair.wire.ways = [Way(flip=150)]  # within the first body
            pair.wire.cut()
            async with sending(pair):
                await asyncio.sleep(0.3)
            await pair.caught_up()
            assert pair.differences()

    asyncio.run(main())

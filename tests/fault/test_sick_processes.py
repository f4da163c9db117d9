"""Members that are processes: disks that are full, slow or broken, and clocks that are set, one after the other.

The group goes on meanwhile, and the member comes back: what was acknowledged is in every log, in the place that was
said, nobody was given what is not, and a term had one leader. The same in virtual time is in ``test_sick_members.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kills.campaign import LONG, amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup

ROUNDS = amount(1, 25)
#: Of the disk of a member, in the long form, too.
_MIB = max(24, 8 * ROUNDS)
_HOUR = 3_600_000


async def _other(group: ProcessGroup, load: GroupLoad) -> str:
    leader = await group.leader()
    return next(name for name in group.names if name != leader)


async def full(group: ProcessGroup, load: GroupLoad, *, leads: bool) -> None:
    """No room for one byte: another one leads, and who follows is not waited for."""
    leader = await group.leader()
    name = leader if leads else await _other(group, load)
    with _filled(group, name):
        if leads:
            await group.leader(leader)
        await load.more()
        await asyncio.sleep(0.5)
        await load.more()
    await group.leader()
    await load.more()


@contextlib.contextmanager
def _filled(group: ProcessGroup, name: str) -> Iterator[None]:
    """Somebody else's file takes all that is left; where no disk of its own could be made, writes say so."""
    store = group.store(name)
    if not store.is_mount():
        group.sickness[name].error = errno.ENOSPC
        yield
        group.sickness[name].error = 0
        return
    with open(store / "other", "wb", buffering=0) as other, contextlib.suppress(OSError):
        while True:
            other.write(bytes(1 << 16) if _free(store) > 1 << 16 else bytes(4096))
    yield
    (store / "other").unlink()


def _free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


async def slow(group: ProcessGroup, load: GroupLoad, *, leads: bool) -> None:
    """Each flush takes a third of a second longer."""
    name = await group.leader() if leads else await _other(group, load)
    group.sickness[name].flush = 0.3
    await load.more(9)
    group.sickness[name].flush = 0.0
    await load.more()


async def broken(group: ProcessGroup, load: GroupLoad, *, leads: bool) -> None:
    """A flush fails: nobody knows what is on that disk any more, and the member takes part again after a start."""
    leader = await group.leader()
    name = leader if leads else await _other(group, load)
    group.sickness[name].broken = errno.EIO
    if leads:
        await group.leader(leader)
    await load.more()
    await asyncio.sleep(0.5)
    await load.more()
    await group.kill(name)
    group.sickness[name].broken = 0
    await group.begin(name)
    await load.more()


async def clocks(group: ProcessGroup, load: GroupLoad) -> None:
    """An hour forth and back, at each member in turn: nobody else leads for that.

    Where a member stood still meanwhile, others may have wanted to lead for that reason: so it is done again.
    """
    for _ in range(10):
        stalls = group.stalls()
        await load.more()
        if await _same_leader_after_all(group, load):
            return
        assert group.stalls() > stalls, f"another one leads, and no member stood still: {group.terms()}"
    pytest.fail("the machine stands still again and again")


async def _same_leader_after_all(group: ProcessGroup, load: GroupLoad) -> bool:
    leader, terms = await group.leader(), group.terms()
    for name in group.names:
        for wrong in (_HOUR, -_HOUR, 0):
            group.sickness[name].clock = wrong
            await load.more(10)
    return await group.leader() == leader and group.terms() == terms


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Callable[[ProcessGroup], None]]:
    """Gives members disks of their own, where this user may."""
    mounted: list[Path] = []

    def mount(group: ProcessGroup) -> None:
        for name in group.names:
            store = group.store(name)
            store.mkdir(parents=True)
            words = ["mount", "-t", "tmpfs", "-o", f"size={_MIB}m", "tmpfs", str(store)]
            if os.geteuid() == 0 and subprocess.run(words, check=False, capture_output=True).returncode == 0:
                mounted.append(store)

    yield mount
    for store in mounted:
        subprocess.run(["umount", "-l", str(store)], check=True)


@contextlib.asynccontextmanager
async def _scene(group: ProcessGroup) -> AsyncIterator[GroupLoad]:
    async with group, GroupLoad(group, late=True) as load:
        yield load


async def test_sick_disks_and_clocks_that_are_set_lose_nothing(
    tmp_path: Path, disks: Callable[[ProcessGroup], None], say: Callable[[str], None]
) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH", "raftElectionTimeout": "2000", "loopStallWarnMills": "1000"}
    group = ProcessGroup(tmp_path, sick=True, settings=settings)
    disks(group)
    async with _scene(group) as load:
        for _ in range(ROUNDS):
            await full(group, load, leads=True)
            await full(group, load, leads=False)
            await slow(group, load, leads=True)
            await slow(group, load, leads=False)
            await broken(group, load, leads=True)
            if LONG:
                await broken(group, load, leads=False)
            await clocks(group, load)
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"sick members: {dict(verdict.counts)}")
    verdict.demand()
    assert verdict.counts["terms with a leader"] > 1

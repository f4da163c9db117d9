"""S09, B009: a disk with no room at all, and one that gets room again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from rmq.broker.store.start import checkpoint
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simloop import run
from tests.support.faults.os_calls import Rule
from tests.support.kills.killer import BrokerProcess, digest_of
from tests.support.kills.load import read_back, send_command
from tests.support.scenes.pop import PopScene, pop_scene

SMALL_FILES = {"mappedFileSizeCommitLog": str(64 << 10), "mappedFileSizeConsumeQueue": "4000"}
PATIENCE = 60.0


def ratios_in(remark: str | None) -> list[float]:
    """The used shares that a refusal tells."""
    found = re.search(r"\[CL: +([\d.]+) CQ: +([\d.]+) INDEX: +([\d.]+)\]", remark or "")
    assert found, remark
    return [float(text) for text in found.groups()]


# -- on a real file system


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose store is a disk of 12 MiB of its own."""
    made = BrokerProcess(tmp_path / "broker")
    made.store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(made.store)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small disk; the same in virtual time is below")
    yield made
    subprocess.run(["umount", "-l", str(made.store)], check=True)


def fill(broker: BrokerProcess) -> Path:
    """Somebody else's file takes every byte that is left."""
    path = broker.store / "other"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with pytest.raises(OSError, match="No space left on device"):
        _write_on(fd)
    os.close(fd)
    return path


def _write_on(fd: int) -> None:
    while True:
        os.write(fd, bytes(4096))


async def sends(client: RemotingClient, address: str, first: int, count: int) -> list[Command]:
    """Answers, up to the first refusal."""
    found = []
    for number in range(first, first + count):
        found.append(await client.request(address, send_command("T0", 0, [f"0.0.{number:06d}"]), 30))
        if found[-1].code:
            break
    return found


async def resumed(client: RemotingClient, address: str, number: int) -> None:
    """Wait until a message is taken again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            (answer,) = await sends(client, address, number, 1)
            if answer.code == 0:
                return
            await asyncio.sleep(0.1)


async def held(address: str) -> int:
    return sum(len(found) for found in (await read_back(address)).places.values())


def kept(store: Path) -> dict[str, str]:
    """What no start may change: all but checksums beside the bodies, and the times at which files of the log were
    changed, which the checkpoint has.

    A start changes that of the newest file, whose rest it makes zeros anew, and the note has to follow it: with the
    older time the next start would not take the file for the one that was left.
    """
    noted = bytearray((store / "checkpoint").read_bytes())
    noted[checkpoint._FILES_AT :] = bytes(len(noted) - checkpoint._FILES_AT)
    stored = {path: digest for path, digest in digest_of(store).items() if not path.startswith("checksums")}
    return {**stored, "checkpoint": noted.hex()}


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_b009_a_store_on_a_full_disk_is_read_and_takes_messages_once_there_is_room(
    broker: BrokerProcess, killed: bool
) -> None:
    client = RemotingClient(World.real())
    try:
        address = await broker.start()
        assert [answer.code for answer in await sends(client, address, 0, 200)] == [0] * 200
        assert await held(address) == 200
        if killed:
            await broker.kill()
        else:
            assert await broker.stop() == 0
        other = fill(broker)
        before = kept(broker.store)

        address = await broker.start()
        assert await held(address) == 200
        (refusal,) = await sends(client, address, 200, 1)
        assert refusal.code == 14
        assert ratios_in(refusal.remark) == [1.0, 1.0, 1.0]
        # What recovery made anew has no room at times: then the stop is not a clean one, and says so.
        assert await broker.stop() in ((0, 1) if killed else (0,))
        if not killed:  # else recovery makes room for it, at times, when it cuts the log
            assert "broker.pid cannot be written (No space left on device)" in broker.errors
            assert kept(broker.store) == before, "a store that was clean is not what it was"

        address = await broker.start()
        other.unlink()
        await resumed(client, address, 200)
        assert await held(address) == 201
        assert await broker.stop() == 0
        assert not (broker.store / "abort").exists()
    finally:
        await client.close()
        if broker.running:
            await broker.kill()


async def test_s09_a_disk_that_fills_up_is_told_as_full_and_resumes_without_a_restart(broker: BrokerProcess) -> None:
    client = RemotingClient(World.real())
    try:
        address = await broker.start()
        other = fill(broker)
        os.truncate(other, other.stat().st_size - (1 << 20))
        answers = await sends(client, address, 0, 5000)
        taken = len(answers) - 1
        assert taken > 10
        assert [answer.code for answer in answers] == [0] * taken + [14], "full is 14 from the first refusal on"
        assert max(ratios_in(answers[-1].remark)) == 1.0, "the refusal tells how full the disk is now"
        assert await held(address) == taken
        other.unlink()
        await resumed(client, address, taken)
        assert await held(address) == taken + 1
        assert await broker.stop() == 0
        assert not (broker.store / "abort").exists()
    finally:
        await client.close()
        if broker.running:
            await broker.kill()


@pytest.mark.parametrize("point", ["recover:checkpoint.write.before", "recover:abort.create.before"])
async def test_a_disk_with_no_room_for_what_a_start_must_write_is_one_line(tmp_path: Path, point: str) -> None:
    """File systems that never write in place, or have no inodes left."""
    async with BrokerProcess(tmp_path / "broker") as broker:
        await broker.start()
        assert await broker.stop() == 0
        before = digest_of(broker.store)
        with pytest.raises(AssertionError, match="the broker ended with 1"):
            await broker.start(Rule(point, "errno:ENOSPC", count=-1))
        (line,) = [text for text in broker.errors.splitlines() if not text.startswith("warning: ")]
        name = point.partition(":")[2].partition(".")[0]
        assert line == (
            f"mqbroker: the store in {broker.store} cannot be used: {broker.store / name}: No space left on device: "
            "free space on that disk"
        )
        assert digest_of(broker.store) == before, "the store was modified"


# -- in virtual time


async def send(scene: PopScene, number: int) -> Command:
    return await scene.client.request(scene.addr, send_command("T0", 0, [f"0.0.{number:06d}"]), 30)


async def filled(scene: PopScene) -> tuple[int, Command]:
    """Send until it is refused: how many were taken, and the refusal."""
    number = 0
    while not (answer := await send(scene, number)).code:
        number += 1
    return number, answer


def test_s09_refusals_tell_the_disk_as_it_is_and_end_a_second_after_there_is_room() -> None:
    async def main() -> None:
        async with pop_scene(1, **SMALL_FILES) as scene:
            assert (await send(scene, 0)).code == 0
            disk = scene.node.disk
            disk.capacity = disk.used + (200 << 10)
            taken, refusal = await filled(scene)
            assert taken > 20
            assert refusal.code == 14
            told = max(ratios_in(refusal.remark))
            assert told > 0.9
            disk.capacity = disk.used * 100 // 92
            await asyncio.sleep(3)
            refusal = await send(scene, taken)
            now = max(ratios_in(refusal.remark))
            assert (refusal.code, now) == (14, scene.node.files.usage("/store").ratio)
            assert now < told
            disk.capacity = disk.used * 2
            await asyncio.sleep(1.5)
            assert (await send(scene, taken)).code == 0

    run(main())


def test_a_ratio_changed_while_running_is_looked_at_within_seconds_of_a_start() -> None:
    """Long before anything is deleted for the first time."""

    async def main() -> None:
        async with pop_scene(1, **SMALL_FILES) as scene:
            assert (await send(scene, 0)).code == 0
            scene.node.disk.capacity = 4 * scene.node.disk.used
            await scene.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"diskSpaceWarningLevelRatio=10")
            await asyncio.sleep(10.5)
            assert (await send(scene, 1)).code == 14
            await scene.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"diskSpaceWarningLevelRatio=90")
            await asyncio.sleep(1.5)
            assert (await send(scene, 1)).code == 0

    run(main())


def test_a_disk_that_does_not_say_how_full_it_is_takes_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with pop_scene(1, **SMALL_FILES) as scene:
            files = scene.node.files
            usage, files.usage = files.usage, stale  # type: ignore[method-assign]
            await asyncio.sleep(300)
            assert (await send(scene, 0)).code == 0
            files.usage = usage  # type: ignore[method-assign]
            await asyncio.sleep(11)

    def stale(path: str) -> NoReturn:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    caplog.set_level(logging.INFO)
    run(main())
    told = [line for line in caplog.messages if line.startswith("looking how full")]
    assert 3 < len(told) < 8
    assert "works again" in told[-1]
    assert "Traceback" not in caplog.text


def test_s09_a_quota_is_tried_again_more_and_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """The disk does not look full: only a send can tell that there is room again."""

    async def main() -> None:
        async with pop_scene(1, **SMALL_FILES) as scene:
            assert (await send(scene, 0)).code == 0
            scene.node.disk.fail("pwrite", errno.EDQUOT, "*/commitlog/*", count=-1)
            for _ in range(600):
                assert (await send(scene, 1)).code == 14
                await asyncio.sleep(0.5)
            refused = [record for record in caplog.records if "messages are refused" in record.getMessage()]
            assert 3 < len(refused) < 20, "300 s of a full quota"
            scene.node.disk.heal()
            await asyncio.sleep(31)
            assert (await send(scene, 1)).code == 0

    run(main())


def test_b009_the_three_ratios_are_settings(caplog: pytest.LogCaptureFixture) -> None:
    """The field case's 50, 70 and 80 %: expired files go, then any, then messages are refused."""

    async def main() -> None:
        ratios = {
            "diskMaxUsedSpaceRatio": "50", "diskSpaceCleanForciblyRatio": "70", "diskSpaceWarningLevelRatio": "80",
            "fileReservedTime": "1", "cleanResourceInterval": "1000", "deleteWhen": "99",
        }  # fmt: skip
        async with pop_scene(1, **SMALL_FILES, **ratios) as scene:
            disk = scene.node.disk
            disk.capacity = 2 << 20
            log = scene.app.store.log
            number = 0

            async def grow(share: float) -> None:
                nonlocal number
                while disk.used < share * (2 << 20):
                    answer = await send(scene, number)
                    assert answer.code == 0, answer.remark
                    number += 1

            await grow(0.45)
            await asyncio.sleep(3700)  # a file is too old after an hour
            assert log.start == 0, "everything is too old, but half of the disk is free"
            await grow(0.52)
            await asyncio.sleep(10)
            assert log.start > 0, "expired files go at any hour beyond 50 %"
            assert len(log.segments) > 1, "what is new is kept"
            await grow(0.68)
            await asyncio.sleep(10)
            assert "before their time" not in caplog.text
            await grow(0.72)
            await asyncio.sleep(10)
            assert "before their time" in caplog.text, "any file goes beyond 70 %"
            assert disk.used < 0.72 * (2 << 20)

            scene.node.files.mkdir("/other")
            other = scene.node.disk.open("/other/file", create=True)
            written = 0
            while disk.used < 0.82 * (2 << 20):
                room = (2 << 20) * 85 // 100 - disk.used
                other.pwrite(bytes(room), written)
                written += room
                await asyncio.sleep(5)
            assert len(log.segments) == 1, "the file that is written to is never deleted"
            answer = await send(scene, number)
            assert (answer.code, min(ratios_in(answer.remark)) > 0.8) == (14, True)
            other.truncate(0)
            await asyncio.sleep(1.5)
            assert (await send(scene, number)).code == 0

    run(main())

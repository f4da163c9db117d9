"""S08, S12: a broker in virtual time whose disk fills up step by step, or has a region that cannot be read (B009)."""

from __future__ import annotations

import asyncio
import errno

import pytest

from rmq.protocol.command import Command
from rmq.testing.simloop import run
from tests.support.kills.load import parse_body
from tests.support.scenes.pop import PopScene, pop_scene

LOG_SIZE = 64 << 10
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": "4000",
    "cleanResourceInterval": "1000",
    "deleteWhen": "99",
}


async def send(scene: PopScene, number: int) -> int:
    ext: dict[str, str | None] = {
        "a": "p", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": f"UNIQ_KEY\x01{number:06d}", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return (await scene.client.request(scene.addr, Command(310, ext=ext, body=b"%06d" % number * 160), 30)).code


async def pulled(scene: PopScene, offset: int) -> tuple[int, int, list[str]]:
    """Code, next offset, unique keys."""
    ext: dict[str, str | None] = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "8",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    answer = await scene.client.request(scene.addr, Command(11, ext=ext), 30)
    keys = [key for _, key, _ in parse_body(answer.body)] if answer.code == 0 else []
    return answer.code, int((answer.ext or {}).get("nextBeginOffset") or -1), keys


async def bound(scene: PopScene, code: int) -> int:
    answer = await scene.client.request(scene.addr, Command(code, ext={"topic": "T", "queueId": "0"}), 30)
    return int((answer.ext or {})["offset"] or 0)


def test_s12_b009_three_steps_of_a_filling_disk(caplog: pytest.LogCaptureFixture) -> None:
    """Expired files, then the oldest ones, then no more messages; readers are told; space opens it again."""

    async def main() -> None:
        async with pop_scene(**SETTINGS) as scene:
            disk = scene.node.disk
            disk.capacity = 2 << 20
            number = 0

            def used() -> float:
                return disk.used / (2 << 20)

            async def fill(share: float) -> None:
                nonlocal number
                while used() < share:
                    assert await send(scene, number) == 0, f"refused at {used():.2f}"
                    number += 1

            await fill(0.74)
            await asyncio.sleep(70)
            assert await bound(scene, 31) == 0, "nothing is old enough, and 85 % are not used"
            await fill(0.86)
            await asyncio.sleep(10)
            first = await bound(scene, 31)
            assert 0 < first < number, "the oldest files make space"
            assert used() < 0.86
            # A group far behind goes on at the minimum, not at the maximum.
            code, following, _ = await pulled(scene, 0)
            assert (code, following) == (21, first)
            code, _, keys = await pulled(scene, first)
            assert (code, keys[0]) == (0, f"{first:06d}")
            deleted = scene.app.store.retention.deleted_files
            assert deleted > 0
            lost = [r for r in caplog.records if r.levelname == "WARNING" and "to make space" in r.getMessage()]
            assert len(lost) == deleted, "every file of messages that were not old enough is named"

            scene.node.files.mkdir("/other")
            other = scene.node.disk.open("/other/file", create=True)
            written = 0
            while used() < 0.92 or len(scene.app.store.log.segments) > 1:
                room = (2 << 20) - disk.used - 8192
                other.pwrite(bytes(room), written)
                written += room
                await asyncio.sleep(2)
            assert await send(scene, number) == 14
            segments = scene.app.store.log.segments
            assert len(segments) == 1, "the file that is written to is never deleted"
            last = await bound(scene, 30) - 1
            assert last == number - 1
            code, _, keys = await pulled(scene, last)
            assert (code, keys) == (0, [f"{last:06d}"])

            other.truncate(0)
            await asyncio.sleep(3)
            assert await send(scene, number) == 0, "it opens again by itself"
            code, _, keys = await pulled(scene, number)
            assert (code, keys) == (0, [f"{number:06d}"])

    run(main())


def test_s08_only_pulls_of_the_unreadable_region_fail() -> None:
    async def main() -> None:
        async with pop_scene(**SETTINGS) as scene:
            for number in range(250):
                assert await send(scene, number) == 0
            assert len(scene.app.store.log.segments) > 3
            await scene.restart()  # what was appended lately is in memory, too
            scene.node.disk.evict("*")
            scene.node.disk.fail("pread", errno.EIO, f"*/commitlog/{LOG_SIZE:020d}", count=-1)
            codes = {}
            for number in range(0, 250, 5):
                code, _, keys = await pulled(scene, number)
                codes[number] = code
                if code == 0:
                    assert keys[0] == f"{number:06d}"
            hit = [number for number, code in codes.items() if code]
            assert hit, "the scene proves nothing: the region was not read"
            assert hit == list(range(hit[0], hit[-1] + 1, 5)), "one region, one run of offsets"
            assert codes[0] == codes[245] == 0
            assert await send(scene, 250) == 0
            scene.node.disk.heal()
            for number in hit:
                assert (await pulled(scene, number))[0] == 0

    run(main())

"""S08: a broker with delayed, timed, half and popped messages starts over every place of its disk that is bad."""

from __future__ import annotations

import asyncio
import errno

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.runtime.backed_file import DamagedFile
from rmq.testing.simloop import run
from tests.support.scenes.pop import PopScene, pop_scene

PAGE = 4096
LOG_SIZE = 16 << 10
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": "800",
    "maxHashSlotNum": "16",
    "maxIndexNum": "50",
}


async def send(scene: PopScene, number: int, *marks: str) -> int:
    properties = "\x02".join((f"UNIQ_KEY\x01{number:06d}", f"KEYS\x01k{number}", *marks))
    ext: dict[str, str | None] = {
        "a": "p", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "4" if "TRAN_MSG\x01true" in marks else "0",
        "g": "1", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return (await scene.client.request(scene.addr, Command(310, ext=ext, body=b"%06d" % number * 20), 30)).code


async def served(scene: PopScene, offset: int) -> int:
    ext: dict[str, str | None] = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return (await scene.client.request(scene.addr, Command(11, ext=ext), 30)).code


async def used(scene: PopScene) -> None:
    """Messages of every kind, more of them in every file of the log; some are given to a group and not acknowledged."""
    number = 0
    while len(scene.app.store.log.segments) < 4:
        assert await send(scene, number) == 0
        assert await send(scene, number + 1, "DELAY\x015") == 0
        assert await send(scene, number + 2, "TIMER_DELAY_SEC\x01600") == 0
        assert await send(scene, number + 3, "TRAN_MSG\x01true", "PGROUP\x01p") == 0
        number += 4
        if number % 20 == 0:
            await scene.pop(max_msg_nums=2)
            await asyncio.sleep(2)


def test_s08_every_page_of_the_commit_log() -> None:
    async def main() -> None:
        async with pop_scene(**SETTINGS) as scene:
            await used(scene)
            newest = scene.app.store.log.segments[-1].start
            for at in range(0, newest, PAGE):
                path = f"*/commitlog/{at - at % LOG_SIZE:020d}"
                scene.node.disk.fail_at(path, at % LOG_SIZE, at % LOG_SIZE + PAGE)
                await (scene.restart() if at // PAGE % 2 else scene.kill())
                assert await send(scene, at) == 0
                queue = scene.app.store.queues.get_or_create("T", 0)
                assert await served(scene, queue.visible - 1) == ResponseCode.SUCCESS
                scene.node.disk.heal()
                assert await served(scene, queue.min) == ResponseCode.SUCCESS

    run(main())


def test_s08_every_file_of_a_store() -> None:
    async def main() -> None:
        async with pop_scene(**SETTINGS) as scene:
            await used(scene)
            await asyncio.sleep(70)
            await scene.restart()
            files = scene.node.files
            paths = sorted(path for path, inode in scene.node.disk._entries.items() if inode is not None)
            for path in paths:
                # Whether one that holds nothing is there is all that a start asks.
                if "/commitlog/" in path or path in ("/store/lock", "/store/abort") or not files.exists(path):
                    continue
                for action in ("open", "pread"):
                    await scene.app.stop()
                    scene.node.disk.fail(action, errno.EIO, path)
                    try:
                        await scene.start()
                    except DamagedFile:
                        assert not files.exists(path + ".bak"), "the one thing that nothing can be made of again"
                        scene.node.disk.heal()
                        await scene.start()
                    scene.node.disk.heal()
                    assert await send(scene, 7) == 0
                    queue = scene.app.store.queues.get_or_create("T", 0)
                    assert await served(scene, queue.min) == ResponseCode.SUCCESS

    run(main())

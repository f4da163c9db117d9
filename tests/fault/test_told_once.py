"""S10: a disk that takes nothing for a while is told of at once, then a line a minute, and its end once."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import re
from collections import Counter

import pytest

from rmq.testing.simloop import run
from tests.support.scenes.pop import pop_scene

SMALL = {"mappedFileSizeCommitLog": str(64 << 10), "mappedFileSizeConsumeQueue": "4000"}
MINUTES = 5


def kinds(messages: list[str]) -> Counter[str]:
    """How often each thing was told, whatever the numbers in it."""
    return Counter(re.sub(r"( still)? fails.*", " fails", line) for line in messages if " fails" in line)


@pytest.mark.parametrize("fault", ["read-only", "EIO"])
def test_each_thing_that_cannot_be_written_is_a_line_a_minute(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with pop_scene(7, **SMALL) as scene:
            disk = scene.node.disk
            await scene.topic()
            await scene.send(*"abc", properties="KEYS\x01k")
            await scene.send("later", properties="DELAY\x011")
            assert len(await scene.pop()) == 3
            caplog.clear()
            if fault == "read-only":
                disk.read_only = True
            else:
                for action, part in itertools.product(
                    ("open", "pwrite", "rename"), ("consumequeue", "index", "config")
                ):
                    disk.fail(action, errno.EIO, f"*/{part}/*", count=-1)
            for number in range(MINUTES * 60):
                await scene.topic(f"N{number}")
                await asyncio.sleep(1)
            told = kinds(caplog.messages)
            assert told["writing consume queues fails"] > 1
            assert told["writing the index fails"] > 1
            assert max(told.values()) <= MINUTES + 1, told
            others = [line for line in caplog.messages if " fails" not in line and "N" not in line]
            assert len(others) < 10 * MINUTES, others
            assert "Traceback" not in caplog.text
            caplog.clear()
            disk.heal()
            disk.read_only = False
            await asyncio.sleep(60)
            again = Counter(line.partition(" works again")[0] for line in caplog.messages if " works again" in line)
            assert set(again.values()) == {1}, again
            assert {"writing consume queues", "writing the index"} <= set(again)
            await asyncio.sleep(100)
            assert " fails" not in "".join(caplog.messages)

    run(main())

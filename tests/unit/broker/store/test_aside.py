"""What is set aside: told once with its place, tried again in growing pauses, bounded."""

from __future__ import annotations

import asyncio
import errno
import logging
import os

import pytest

from rmq.broker.store import aside
from rmq.broker.store.aside import SetAside
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

log = logging.getLogger("rmq.test")
EIO = OSError(errno.EIO, os.strerror(errno.EIO), "/store/commitlog/0")


def made() -> SetAside[int]:
    return SetAside(Simulation(1).node("a").world.clock, log, "delivering a message")


def test_an_item_is_told_once_and_tried_in_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        held = made()
        assert held.pause() is None
        held.failed(7, "T-0 at 7", EIO)
        tries: list[float] = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        while len(tries) < 9:
            pause = held.pause()
            assert pause is not None
            await asyncio.sleep(pause)
            for item in held.due():
                tries.append(round(loop.time() - began))
                held.failed(item, "T-0 at 7", EIO)
        assert tries == [1, 3, 7, 15, 31, 63, 123, 183, 243]
        held.done(7)
        assert (len(held), held.pause(), held.due()) == (0, None, [])

    run(main())
    with caplog.at_level(logging.INFO):
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
            "delivering a message fails for T-0 at 7: /store/commitlog/0: Input/output error: check that disk; "
            "it is tried again, and the others go on"
        ]


def test_a_try_that_is_cut_short_comes_again() -> None:
    async def main() -> None:
        held = made()
        held.failed(7, "T-0 at 7", EIO)
        await asyncio.sleep(1.1)
        assert held.due() == [7]
        assert held.due() == []
        await asyncio.sleep(1.1)
        assert held.due() == [7]
        held.later(7, 100)
        await asyncio.sleep(99)
        assert held.due() == []
        await asyncio.sleep(1.1)
        assert held.due() == [7]

    run(main())


def test_thousands_fill_no_log_and_have_an_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "_MOST", 500)

    async def main() -> None:
        held = made()
        for number in range(500):
            assert not held.full
            held.failed(number, f"T-0 at {number}", KeyError("x") if number % 2 else EIO)
        assert held.full
        held.done(3)
        assert not held.full
        assert 3 not in held
        assert len(list(held)) == 499

    run(main())
    assert len(caplog.records) <= 21

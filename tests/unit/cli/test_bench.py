"""What `rmq bench` counts, and when it ends."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from rmq.cli.bench.figures import Counts, Latencies, summary
from rmq.cli.bench.running import Bench
from rmq.protocol.errors import ConnectFailed, NotFound
from tests.support.virtual import in_virtual_time, one_world


def test_percentiles_are_right_to_a_fiftieth() -> None:
    chance = random.Random(1)
    times = sorted(chance.lognormvariate(1, 1.5) for _ in range(20_000))
    found = Latencies()
    for ms in times:
        found.add(ms)
    for share in (50.0, 90.0, 99.0, 99.9, 100.0):
        exact = times[max(0, int(len(times) * share / 100) - 1)]
        assert found.percentile(share) == pytest.approx(exact, rel=0.021)
    assert found.mean == pytest.approx(sum(times) / len(times))
    assert found.percentile(100) == found.most == times[-1]
    assert len(found.counts) < 1_000


def test_nothing_and_less_than_nothing() -> None:
    found = Latencies()
    assert found.table() == {"mean": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "p99.9": 0.0, "max": 0.0}
    found.add(-5.0)  # the sender's clock is ahead
    found.add(0.0)
    assert (found.count, found.most, found.percentile(99)) == (2, 0.0, 0.0)


def test_errors_are_counted_by_what_they_say_and_a_few_kinds_kept() -> None:
    counts = Counts()
    for number in range(40):
        counts.fail(ConnectFailed(f"broker-{number} refuses\nmore"), 2)
    counts.fail(ConnectFailed("broker-3 refuses"))
    assert counts.failed == 81
    assert counts.why["broker-3 refuses"] == 3
    assert counts.why["other errors"] == 48
    assert summary("producer", counts, 2.0, 10)["errors"] == counts.why


def made(**given: object) -> Bench:
    settings = {"quantity": None, "seconds": None, "interval": 1.0, "json": True, "size": 1 << 20, **given}
    return Bench(one_world(), "producer", **settings)  # type: ignore[arg-type]


@in_virtual_time
async def test_a_quantity_is_sent_and_no_message_more(capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[int] = []

    async def send(count: int) -> None:
        await asyncio.sleep(0.1)
        sent.append(count)

    assert await made(quantity=25).run(send, 4, 3) == 0
    assert sum(sent) == 25
    out, _ = capsys.readouterr()
    told = json.loads(out)
    assert (told["messages"], told["failed"], told["kind"]) == (25, 0, "producer")
    # One call by itself, then three at a time: 4 + 12 + 9.
    assert told["seconds"] == pytest.approx(0.3)
    assert told["perSecond"] == pytest.approx(83.3)
    assert told["mibPerSecond"] == pytest.approx(83.333)
    assert told["ms"]["p99"] == pytest.approx(100, rel=0.03)


@in_virtual_time
async def test_what_fails_is_counted_and_the_next_comes(capsys: pytest.CaptureFixture[str]) -> None:
    calls = 0

    async def send(count: int) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        if calls % 2 == 0:
            raise ConnectFailed("nobody there") if calls % 4 else ValueError("not ours")

    bench = made(seconds=2.0, json=False, interval=0.5)
    assert await bench.run(send, 1, 1) == 1
    assert bench.all.done > 50
    assert bench.all.failed == bench.all.why["nobody there"] + bench.all.why["not ours"] > 50
    out = capsys.readouterr().out
    assert out.count("| Send Failed: ") in (3, 4)
    assert "failed: nobody there" in out.splitlines()[-1] + out.splitlines()[-2]


@in_virtual_time
async def test_where_nothing_works_it_ends_at_once() -> None:
    async def send(count: int) -> None:
        raise NotFound("the topic T does not exist")

    with pytest.raises(NotFound):
        await made(seconds=60.0).run(send, 1, 64)


@in_virtual_time
async def test_what_was_measured_is_told_when_it_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    async def send(count: int) -> None:
        await asyncio.sleep(0.1)

    running = asyncio.create_task(made(interval=60.0).run(send, 1, 1))
    await asyncio.sleep(1.05)
    running.cancel()
    assert await running == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 10

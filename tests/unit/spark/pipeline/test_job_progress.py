"""What a running job tells: figures, screen, metrics, report, pace and its one line when it fails; without Spark."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmq.protocol.errors import RMQError
from rmq.remoting.metrics import render
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.running.pace import paced
from rmq.spark.pipeline.running.report import Cause, Dead, Report, Unread, page, to_json
from rmq.spark.pipeline.running.runner import _metrics, reason
from rmq.spark.pipeline.running.screen import Screen
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.pipeline.running.watch import BatchFigures, Watch
from tests.support.spark.memory import MemoryCluster

OFFSETS = {"A": {"b": {"0": 7, "1": 3}}, "B": {"b": {"0": 1}}}
PROGRESS = {
    "batchId": 12,
    "numInputRows": 300,
    "durationMs": {"triggerExecution": 1_500, "addBatch": 1_000},
    "sources": [
        {
            "endOffset": json.dumps(OFFSETS),
            "latestOffset": json.dumps({"A": {"b": {"0": 9, "1": 3}}, "B": {"b": {"0": 5}}, "@asOf": 1}),
        }
    ],
    "observedMetrics": {"rmq_pipeline": {"unreadable": 2}},
    "stateOperators": [{"numRowsDroppedByWatermark": 3}],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_figures_of_a_batch() -> None:
    batch = BatchFigures.of(PROGRESS)
    assert (batch.number, batch.rows, batch.seconds, batch.rate) == (12, 300, 1.5, 200.0)
    assert batch.lag == {"A": 2, "B": 4}
    assert batch.counts == {"unreadable": 2, "late": 3}
    assert BatchFigures(0, 5, 0.0).rate == 0.0


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    watch = Watch("orders", "windows", Screen(out))
    watch.batch(BatchFigures.of(PROGRESS))
    watch.say("7 small files joined", compacted=7)
    assert out.getvalue().splitlines() == [
        "orders: batch 12: 300 rows in 1.50 s, 200 rows/s; lag A 2, B 4; since the start late 3, unreadable 2",
        "orders: 7 small files joined",
    ]


def test_a_terminal_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    watch = Watch("orders", "windows", Screen(out))
    watch.batch(BatchFigures(1, 10, 1.0))
    first = out.getvalue()
    assert first.splitlines() == [
        "orders (windows)",
        "  batch 1: 10 rows in 1.00 s, 10 rows/s",
        "  10 rows in 1 batch, 1.0 s",
    ]
    watch.batch(BatchFigures(2, 10, 1.0, {"a-topic-with-a-very-long-name-indeed": 1}))
    redrawn = out.getvalue()[len(first) :]
    assert redrawn.startswith("\x1b[3A\x1b[J")
    assert all(len(line) <= 39 for line in redrawn.removeprefix("\x1b[3A\x1b[J").splitlines())
    before = out.getvalue()
    watch.say("something to keep")
    assert out.getvalue()[len(before) :].startswith("\x1b[4A\x1b[Jorders: something to keep\n")


async def test_metrics() -> None:
    watch = Watch("orders", "windows")
    watch.batch(BatchFigures.of(PROGRESS))
    watch.batch(BatchFigures.of(PROGRESS))
    lines = b"".join(await render(watch.families())).decode().splitlines()
    own = '{job="orders",kind="windows"'
    assert f"rmq_pipeline_rows_total{own}}} 600" in lines
    assert f"rmq_pipeline_unreadable_total{own}}} 4" in lines
    assert f'rmq_pipeline_lag_messages{own},topic="B"}} 4' in lines
    assert f"rmq_pipeline_rows_per_second{own}}} 200.0" in lines


def test_a_port_that_is_taken_is_said_in_the_job_files_words() -> None:
    job = catalog.of("j.yaml", document.parse("j.yaml", catalog.sample("archive"), {}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        job.metrics.port = taken.getsockname()[1]
        serving = _metrics(job, Watch("orders", "archive"))
        with pytest.raises(RMQError, match=r"Address already in use: .* another port under metrics"), serving:
            pass


def test_a_failure_is_its_own_line_out_of_many() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted.\n  Traceback (most recent call last):\n"
        "rmq.protocol.errors.ConfigError: the topic X does not exist: create it\n\tat org.apache.spark.Foo(Foo.scala:1)"
    )
    assert reason(Exception(text)) == "the topic X does not exist: create it"
    assert reason(Exception("pyspark.errors.exceptions.base.PySparkValueError: [X] wrong\n\tat a.b")) == "[X] wrong"
    assert (
        reason(Exception("[TABLE_OR_VIEW_NOT_FOUND] no such table\nJVM stack"))
        == "[TABLE_OR_VIEW_NOT_FOUND] no such table"
    )
    assert reason(KeyError()) == "KeyError"


def test_rows_are_handed_on_at_the_rate_that_is_allowed() -> None:
    pa = pytest.importorskip("pyarrow")
    clock = MemoryCluster()
    begin = clock.monotonic()
    batches = [pa.record_batch({"n": list(range(at, at + 250))}) for at in range(0, 1000, 250)]
    moments = []
    rows = []
    for batch in paced(100, clock)(iter(batches)):
        moments.append((len(rows), clock.monotonic() - begin))
        rows += batch.column(0).to_pylist()
    assert rows == list(range(1000))
    assert all(handed <= seconds * 100 + 1e-6 for handed, seconds in moments)
    assert moments[-1][1] == pytest.approx(9.9, abs=0.2)


def test_the_first_signal_asks_and_the_second_insists() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_taken_back_from_whoever_took_them() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark does with a handler of its own
        stop.listen()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        stop.listen()  # a second one still insists
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_report_shows_what_messages_hold_and_runs_none_of_it(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    evil = "<script>alert(1)</script>"
    cause = Cause("Orders", evil, "10.0.0.1", 3, at, at + timedelta(hours=1))
    dead = Dead("payers", 3, at, at + timedelta(hours=1), 16, [cause], [(evil, 2)], [(at, 3)], [f"client-{evil}"])
    report = Report(at, "127.0.0.1:9876", None, None, [dead], [evil], [Unread(evil, ["b"], True, 0)])
    text = page(report, {"Over time": b"\x89PNG"})
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 6
    assert not re.search(r"(src|href)=.?(http|//)", text), "nothing is loaded from elsewhere"
    assert "<h1>3 dead letters of 1 consumer groups</h1>" in text
    assert "1 consumer<" in text
    written = json.loads(to_json(report))
    assert (written["groups"][0]["first"], written["groups"][0]["bars"]) == (
        "2026-03-01T12:00:00Z",
        [["2026-03-01T12:00:00Z", 3]],
    )


def test_charts_are_images_and_sum_up_what_is_too_much() -> None:
    pytest.importorskip("matplotlib")
    from rmq.spark.pipeline.running import charts

    at = datetime(2026, 3, 1, tzinfo=UTC)
    series = {f"group-{n}": [(at + timedelta(hours=h), n + h) for h in range(n % 3 + 1)] for n in range(20)}
    for image in (charts.stacked("t", series, 3600, "n"), charts.bars("t", {"a": 1, "b": 2}, "n")):
        assert image.startswith(b"\x89PNG")

"""The ready jobs on Spark itself against a broker: what goes in comes out once, also when they die in between."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

import rmq
import rmq.spark
from rmq.aio import AdminClient
from rmq.protocol.errors import ResponseError, RMQError
from rmq.spark.source.readers import LIMITS
from rmq.testing.cluster import BlockingCluster, Cluster
from tests.support.spark.jobs import Bench, counted

pytestmark = pytest.mark.timeout(600)

HEAD = "cluster:\n  nameServer: {namesrv}\ncheckpoint: {folder}/checkpoint\n"
ARCHIVE = "job: archive\n" + HEAD + (
    "source:\n  topics: [Events]\n  startingOffsets: earliest\ntrigger: once\npath: {folder}/archive\neventTime: $.at\n"
    "compaction:\n  minFiles: 2\n"
)  # fmt: skip
WINDOWS = "job: windows\n" + HEAD + (
    "source:\n  topics: [Orders]\n  startingOffsets: earliest\ntrigger: once\n"
    "fields:\n  at: timestamp\n  ms: epochMillis\n  n: long\n  amount: decimal(10,2)\n  customer.city: string\n"
    "eventTime: at\nwindow: 10m\nwatermark: 1m\ngroupBy: [customer.city]\n"
    "aggregates:\n  orders: count\n  revenue: sum(amount)\n  total: sum(n)\nto:\n  topic: Totals\n  tags: t\n"
)  # fmt: skip
MORNING = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def bench(cluster: BlockingCluster, spark: Any, tmp_path: Path) -> Bench:
    return Bench(cluster, spark, tmp_path)


def at(minutes: float) -> str:
    return (MORNING + timedelta(minutes=minutes)).isoformat()


def places(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter((row["topic"], row["brokerName"], row["queueId"], row["offset"]) for row in rows)


def of_the_archive(files: Any, *paths: str) -> bool:
    """Not of a checkpoint, where a job shows every few seconds that it is at work."""
    return files.root.endswith("/archive")


async def stored(cluster: Cluster, topic: str, count: int) -> None:
    """Wait until a topic holds so many messages."""
    found = 0
    async with asyncio.timeout(300), AdminClient(namesrv=cluster.namesrv_addr) as admin:
        while found < count:
            try:
                offsets = (await admin.topic_stats(topic)).offset_table.values()
            except ResponseError:  # nobody has sent to it yet
                offsets = []
            found = sum(each.max_offset - each.min_offset for each in offsets)
            await asyncio.sleep(0.02)


def test_archive(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmq.spark.pipeline.running.files import Files

    bench.create("Events")
    bench.send("Events", [{"n": n, "at": at(n * 20)} for n in range(6)])
    # Folders are in UTC whatever time zone the session has.
    bench.spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    out = bench.run(ARCHIVE)
    bench.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert "job: batch 0: 6 rows in " in out
    folders = sorted(path.parent.relative_to(bench.folder / "archive") for path in bench.folder.rglob("*.parquet"))
    assert {str(folder) for folder in folders} == {f"topic=Events/date=2026-03-01/hour={hour}" for hour in (10, 11)}
    rows = bench.spark.read.parquet(f"{bench.folder}/archive").collect()
    assert places(rows) == places(bench.rows("Events"))
    assert {(json.loads(bytes(row["value"]))["n"], row["hour"]) for row in rows} == {(n, 10 + n // 3) for n in range(6)}

    # Dies with one file of the batch moved: what the manifest lists is finished by the next start, once.
    bench.send("Events", [{"n": n, "at": at(n * 20)} for n in range(6, 12)] + ["no time in here"])
    gone: dict[str, Any] = {"error": OSError("the machine went away"), "counts": of_the_archive}
    monkeypatch.setattr(Files, "move", counted(Files.move, fail_at=3, **gone))
    with pytest.raises(RMQError, match=r"the job job failed: .*the machine went away"):
        bench.run(ARCHIVE)
    monkeypatch.undo()
    assert 0 < sum(places(bench.spark.read.parquet(f"{bench.folder}/archive").collect()).values()) - 6 < 7
    once = rmq.spark.read_archive(bench.spark, f"{bench.folder}/archive")
    assert places(once.collect()) == places(bench.rows("Events"))
    # ... and before anything was listed: it is written anew.
    bench.run(ARCHIVE)
    bench.send("Events", [{"n": 12, "at": at(0)}, {"n": 13, "at": at(1)}])
    # Times that no calendar has end nothing: they count as the time of sending.
    bench.send(
        "Events", [{"n": 0, "at": when} for when in (2**63 - 1, -(2**63), 10**40, "12:30", "9999-12-31T23:59-01:00")]
    )
    monkeypatch.setattr(Files, "write", counted(Files.write, fail_at=1, **gone))
    with pytest.raises(RMQError, match="the machine went away"):
        bench.run(ARCHIVE)
    monkeypatch.undo()
    out = bench.run(ARCHIVE)
    assert "since the start undated 5" in out
    assert re.search(r"job: \d+ small files joined", out)
    assert places(bench.spark.read.parquet(f"{bench.folder}/archive").collect()) == places(bench.rows("Events"))
    # Files of an hour were joined into one.
    hour = bench.folder / "archive/topic=Events/date=2026-03-01/hour=10"
    assert len(list(hour.glob("*.parquet"))) == 1


def test_a_second_run_on_a_checkpoint_is_refused(bench: Bench) -> None:
    """It would sweep what the first one is writing: a batch would be in the archive without its files."""
    from rmq.runtime.dial import RealDial
    from rmq.spark.pipeline.running.claim import claimed
    from rmq.spark.pipeline.running.files import Files

    bench.create("Alone")
    bench.send("Alone", [{"at": at(0)}])
    text = ARCHIVE.replace("[Events]", "[Alone]")
    with (
        claimed(Files(bench.spark, f"{bench.folder}/checkpoint"), RealDial(), print, lambda: None),
        pytest.raises(RMQError, match=r"/checkpoint is the checkpoint of a run that is at work .*end the other"),
    ):
        bench.run(text)
    assert "done: 1 rows in 1 batch" in bench.run(text)


def test_joining_files_that_dies_in_between_neither_loses_nor_repeats(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmq.spark.pipeline.running.files import Files

    text = ARCHIVE.replace("topics: [Events]", "topics: [Joined]\n  minPartitions: 2")
    bench.create("Joined")
    bench.send("Joined", [{"at": at(n)} for n in range(4)])
    removed = Files.delete

    def refused(files: Files, path: str) -> None:
        if path.endswith(".parquet"):
            raise OSError("the machine went away")
        removed(files, path)

    monkeypatch.setattr(Files, "delete", refused)
    bench.run(text)  # the job itself goes on
    monkeypatch.undo()
    doubled = places(bench.spark.read.parquet(f"{bench.folder}/archive").collect())
    assert sum(doubled.values()) > 4
    once = rmq.spark.read_archive(bench.spark, f"{bench.folder}/archive")
    assert places(once.collect()) == places(bench.rows("Joined"))
    assert once.where("hour = 10 and date = date'2026-03-01' and topic = 'Joined'").count() == 4
    old = rmq.spark.read_archive(bench.spark, f"{bench.folder}/archive")
    bench.run(text)  # nothing new: what was cut off is finished all the same
    assert places(bench.spark.read.parquet(f"{bench.folder}/archive").collect()) == places(bench.rows("Joined"))
    assert places(old.collect()) == places(bench.rows("Joined"))
    # A frame whose files are gone fails, also where a session is to leave them out.
    for path in Path(bench.folder, "archive").rglob("hour=10/*.parquet"):
        path.unlink()
    bench.spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            old.collect()
    finally:
        bench.spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(RMQError, match=r"/archive has no files of an archive: give the path of the job archive"):
        rmq.spark.read_archive(bench.spark, f"{bench.folder}/archive")


def test_an_archive_whose_checkpoint_was_put_back_loses_nothing_in_silence(bench: Bench) -> None:
    bench.create("Back")
    text = ARCHIVE.replace("[Events]", "[Back]")
    bench.send("Back", [{"at": at(n)} for n in range(3)])
    bench.run(text)
    for log in ("offsets", "commits"):
        for path in (bench.folder / "checkpoint" / log).iterdir():
            path.unlink()
    bench.create("Back", queues=4)  # what comes into new queues is not lost either
    bench.send("Back", [{"at": at(n)} for n in range(8)])
    with pytest.raises(
        RMQError, match=r"batch 0 is not the one that the archive has: .*/batch-0\.json: nothing is lost"
    ):
        bench.run(text)
    (manifest,) = bench.folder.glob("archive/_rmq/*/batch-0.json")
    start = json.dumps(json.loads(manifest.read_text())["upTo"])
    text = text.replace("startingOffsets: earliest", f"startingOffsets: '{start}'")
    bench.run(text.replace("/checkpoint", "/another"))
    assert places(bench.spark.read.parquet(f"{bench.folder}/archive").collect()) == places(bench.rows("Back"))


def test_groups_that_differ_have_keys_that_differ(bench: Bench) -> None:
    from rmq.spark.pipeline.running.windows import group_key

    texts = [
        "x",
        "x/y",
        "y/z",
        "z",
        "-",
        "%2D",
        "%",
        "",
        "n w",
        "n_w",
        "n+w",
        "n%20w",
        "n\tw",
        "\x01",
        "\u5317 \u4eac",
        None,
    ]
    pairs = [(one, other) for one in texts for other in texts]
    rows = bench.spark.createDataFrame(pairs, "a string, b string")
    keys = [row[0] for row in rows.select(group_key(["a", "b"], {"a": "string", "b": "string"})).collect()]
    assert len(set(keys)) == len(pairs)
    assert not [key for key in keys if " " in key or "\x01" in key or key.count("/") != 1]
    assert keys[:4] == ["x/x", "x/x%2Fy", "x/y%2Fz", "x/z"]
    # Two moments that have one name, where clocks are set back.
    bench.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        moments = bench.spark.range(1761435000, 1761438601, 3600).selectExpr("timestamp_seconds(id) AS t")
        assert len({row[0] for row in moments.select(group_key(["t"], {"t": "timestamp"})).collect()}) == 2
    finally:
        bench.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_topics_that_are_numbers_are_replayed_by_their_names(bench: Bench) -> None:
    bench.create("007", "7", "FromNumbers")
    for topic, count in (("007", 2), ("7", 3)):
        bench.send(topic, [{"at": at(n)} for n in range(count)])
    bench.run(ARCHIVE.replace("[Events]", "['007', '7']"))
    text = "job: replay\n" + HEAD.replace("/checkpoint", "/replayed") + (
        "from:\n  archive: {folder}/archive\n  archivedTopics: ['007']\n  start: 2026-03-01\n  end: 2026-03-02\n"
        "to:\n  topic: FromNumbers\n"
    )  # fmt: skip
    bench.run(text)
    assert [row["properties"]["RMQ_REPLAY_TOPIC"] for row in bench.rows("FromNumbers")] == ["007"] * 2


def test_windows(bench: Bench) -> None:
    # What closes the last windows when nothing more comes; other tests have no use for it.
    bench.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    bench.create("Orders", "Totals", "Later")
    orders = [
        {"at": at(minute), "ms": 2**63 - 1, "n": 9 * 10**18, "amount": 10.25 + minute, "customer": {"city": city}}
        for minute in range(0, 20, 5)
        for city in ("Ber lin", "Oslo")
    ]
    bench.send("Orders", [*orders, "no JSON", {"amount": 1}, {"at": at(1), "amount": "x", "customer": {}}])
    # A clock far ahead closes no windows.
    bench.send("Orders", [{"at": (datetime.now(UTC) + timedelta(days=2)).isoformat(), "customer": {"city": "Oslo"}}])
    bench.send("Orders", [{"at": at(60), "amount": 0, "customer": {"city": "Oslo"}}])
    if not LIMITS:
        with pytest.raises(RMQError, match=r"trigger: once needs Spark 4\.2 or newer for windows in the mode append"):
            bench.run(WINDOWS)
        bench.run(WINDOWS + "mode: update\n")
        assert len(bench.results("Totals")) == 5
        return
    out = bench.run(WINDOWS)
    assert "since the start ahead 1, unreadable 3" in out
    expected = [
        {"windowStart": start, "windowEnd": end, "customer.city": city, "orders": 2, "revenue": revenue}
        | {"total": 18 * 10**18}
        for start, end, revenue in (
            ("2026-03-01T10:00:00Z", "2026-03-01T10:10:00Z", 25.5),
            ("2026-03-01T10:10:00Z", "2026-03-01T10:20:00Z", 45.5),
        )
        for city in ("Ber lin", "Oslo")
    ]
    assert sorted(bench.results("Totals"), key=json.dumps) == sorted(expected, key=json.dumps)
    assert {row["keys"] for row in bench.rows("Totals")} == {
        f"{city}/2026-03-01T10:{minute}0:00Z" for city in ("Ber%20lin", "Oslo") for minute in (0, 1)
    }
    # A second start goes on: what is late is counted, a window that was sent is not sent again.
    # Spark counts late events of one task, window and group once.
    bench.send("Orders", [{"at": at(minute), "amount": 1, "customer": {"city": "Oslo"}} for minute in range(3)])
    bench.send("Orders", [{"at": at(120), "amount": 1, "customer": {"city": "Oslo"}}])
    out = bench.run(WINDOWS)
    assert "late 1" in out
    assert [row["windowStart"] for row in bench.results("Totals")[4:]] == ["2026-03-01T11:00:00Z"]
    # mode: update sends each window as it changes, without waiting for the watermark.
    bench.run(WINDOWS.replace("/checkpoint", "/other").replace("Totals", "Later") + "mode: update\n")
    assert len(bench.results("Later")) == 6


def test_windows_fail_on_what_cannot_be_read_when_told_so(bench: Bench) -> None:
    bench.create("Broken", "Totals")
    bench.send("Broken", ["no JSON"])
    with pytest.raises(RMQError, match=r"a body cannot be read \(onUnreadable: fail\): no JSON"):
        bench.run(WINDOWS.replace("Orders", "Broken") + "onUnreadable: fail\nmode: update\n")


def test_replay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmq.spark.pipeline.running import replay

    bench.create("Past", "Again", "FromArchive", queues=3)
    bench.send("Past", [{"n": n, "at": at(n)} for n in range(15)], tags="a", keys="k1 k2")
    between = datetime.now(UTC)
    bench.send("Past", [{"n": n, "at": at(n)} for n in range(15, 30)], tags="a", keys="k1 k2")
    bench.send("Past", [{"n": 99}], tags="b")
    begin = between - timedelta(days=20)
    text = "job: replay\n" + HEAD + (
        f"from:\n  topic: Past\n  start: {begin.isoformat()}\n  end: {(between + timedelta(days=20)).isoformat()}\n"
        "  tags: [a]\n  keys: k2\nto:\n  topic: Again\n  maxRate: 100000\nslice: 20s\n"
    )  # fmt: skip
    monkeypatch.setattr(replay, "SETTLED", timedelta(0))
    # Killed after the first slice with messages, one of 86,400, was sent: it is not sent again.
    whole = replay._send
    monkeypatch.setattr(replay, "_send", counted(whole, fail_at=2, error=OSError("the machine went away")))
    with pytest.raises(RMQError, match="the machine went away"):
        bench.run(text)
    monkeypatch.setattr(replay, "_send", whole)
    out = bench.run(text)
    assert re.search(r"1\d messages before \S+Z were sent by an earlier run", out)
    assert "the rest of the range is still to come: run the job again then" in out
    # ... also when it is one that was still to come before.
    bench.send("Past", [{"n": 30, "at": at(30)}], tags="a", keys="k2 k1")
    assert "done: 1 rows in 1 batch, " in bench.run(text)
    again = bench.rows("Again")
    assert sorted(json.loads(bytes(row["value"]))["n"] for row in again) == list(range(31))
    source = {(row["brokerName"], row["queueId"], row["offset"]): bytes(row["value"]) for row in bench.rows("Past")}
    by_queue: dict[tuple[str, int], list[int]] = {}
    for row in again:
        properties = row["properties"]
        origin = (
            properties["RMQ_REPLAY_BROKER"],
            int(properties["RMQ_REPLAY_QUEUE"]),
            int(properties["RMQ_REPLAY_OFFSET"]),
        )
        assert source[origin] == bytes(row["value"])
        assert (properties["RMQ_REPLAY_TOPIC"], row["tags"], row["keys"]) == ("Past", "a", row["keys"])
        by_queue.setdefault(origin[:2], []).append((row["queueId"], row["offset"], origin[2]))
    for found in by_queue.values():
        assert len({queue for queue, _, _ in found}) == 1  # together ...
        assert [offset for _, _, offset in sorted(found)] == sorted(offset for _, _, offset in found)  # ... in order
    with pytest.raises(RMQError, match="is that of another replay: give this one its own folder"):
        bench.run(text.replace("Again", "Other"))

    port = bench.namesrv.rpartition(":")[2]
    itself = text.replace("topic: Again", f"nameServer: localhost:{port}").replace("/checkpoint", "/itself")
    with pytest.raises(RMQError, match="has the same brokers: the topic Past would be sent into itself"):
        bench.run(itself)

    bench.run(ARCHIVE.replace("Events", "Past").replace("/checkpoint", "/archiving"))
    out = bench.run(
        "job: replay\n" + HEAD.replace("/checkpoint", "/second")
        + f"from:\n  archive: {{folder}}/archive\n  start: {at(5)}\n  end: {at(15)}\nto:\n  topic: FromArchive\n"
    )  # fmt: skip
    assert sorted(row["n"] for row in bench.results("FromArchive")) == list(range(5, 15))
    assert "done: 10 rows in 1 batch" in out


def test_dead_letters(bench: Bench) -> None:
    bench.create("Payments")
    with rmq.AdminClient(namesrv=bench.namesrv) as admin:  # as old Java brokers make them
        admin.create_and_update_topic(
            bench.cluster.broker_addr, "%DLQ%shut", read_queue_nums=1, write_queue_nums=1, perm=2
        )
    bench.send("%DLQ%shut", ["x", "y"])
    bench.send("Payments", ["a", "b", "c"], tags="<b>", keys="key-1")

    consumer = rmq.PushConsumer(
        "payers", namesrv=bench.namesrv, consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )

    @consumer.on("Payments")
    def give_up(messages: list[rmq.MessageExt], context: rmq.ConsumeContext) -> rmq.ConsumeResult:
        context.delay_level_when_next_consume = -1
        return rmq.ConsumeResult.RECONSUME_LATER

    text = (
        "job: dead-letters\ncluster:\n  nameServer: {namesrv}\nsince: 1h\nreport: {folder}/report\n"
        "groups: [payers, nobody, shut]\n"
    )
    with consumer:
        bench.cluster.call(lambda cluster: stored(cluster, "%DLQ%payers", 3))
        out = bench.run(text)
    assert "payers gave up on 3 messages since " in out
    assert "2 dead letters of shut on broker-0 may not be read: open them with mqadmin updateTopic -t %DLQ%shut" in out
    report = json.loads((bench.folder / "report/report.json").read_text())
    (dead,), (shut,) = report["groups"], report["unread"]
    assert (shut["group"], shut["messages"]) == ("shut", 2)
    assert (dead["group"], dead["count"], report["quiet"]) == ("payers", 3, ["nobody"])
    assert [(cause["topic"], cause["tag"], cause["count"]) for cause in dead["causes"]] == [("Payments", "<b>", 3)]
    assert dead["keys"] == [["key-1", 3]]
    assert sum(count for _, count in dead["bars"]) == 3
    assert len(dead["consumers"]) == 1
    page = (bench.folder / "report/report.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("data:image/png;base64,") == 2
    for name in ("dead-letters-over-time", "dead-letters-by-group"):
        assert (bench.folder / f"report/{name}.png").read_bytes().startswith(b"\x89PNG")

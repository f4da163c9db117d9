"""Job files: what is wrong is said by line, all of it at once, with what is allowed and the nearest right word."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmq.protocol.errors import ConfigError
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.archive import Archive
from rmq.spark.pipeline.document import Problems
from rmq.spark.pipeline.job import ONCE, Job
from rmq.spark.pipeline.replay import Replay
from rmq.spark.pipeline.windows import Aggregate, Windows

ROOT = Path(__file__).parents[4]
FILE = "jobs/orders.v2.yaml"
HEAD = "cluster:\n  nameServer: 127.0.0.1:9876\n"
ARCHIVE = "job: archive\n" + HEAD + "source:\n  topics: [A, B]\ncheckpoint: c\npath: p\n"
WINDOWS = (
    "job: windows\n" + HEAD + "source:\n  topics: A\ncheckpoint: c\nfields:\n  at: timestamp\n  amount: double\n"
    "  city: string\neventTime: at\nwindow: 5m\naggregates:\n  orders: count\n  sum: sum(amount)\nto:\n  topic: R\n"
)
REPLAY = (
    "job: replay\n" + HEAD + "from:\n  topic: A\n  start: 2026-03-01\n  end: 2026-03-02T01:00:00+01:00\n"
    "to:\n  topic: B\ncheckpoint: c\n"
)
#: Anchors of ten of the ones before: a hundred million values in ten lines.
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


def load(text: str, **env: str) -> Job:
    return catalog.of(FILE, document.parse(FILE, text, env))


def problems(text: str, **env: str) -> list[str]:
    with pytest.raises(Problems) as raised:
        load(text, **env)
    return [line.removeprefix(FILE + ":") for line in raised.value.lines]


@pytest.mark.parametrize("name", catalog.JOBS)
def test_a_sample_is_a_job(name: str) -> None:
    text = catalog.sample(name)
    assert load(text).job == name
    # Every line that is commented out stands for a key that exists, with a value of its kind, in its section.
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not re.match(r" *#\w", line):
            continue
        shown = [*lines]
        for index in range(number, -1, -1):  # with the names of the sections that it is in
            if re.match(r" *#?\w+:$", lines[index]) and (index != number) and _depth(lines[index]) < _depth(line):
                shown[index] = lines[index].replace("#", "", 1)
                if _depth(lines[index]) == 0:
                    break
        shown[number] = line.replace("#", "", 1)
        if line.endswith(":"):
            shown[number + 1] = re.sub(r"#(?=\S)", "", lines[number + 1])
        try:
            load("\n".join(shown), **dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x"))
        except Problems as error:
            # Keys that exclude or need another are right by themselves.
            excused = re.search(
                r"exclude each other|needs|not after|give topic or archive|is for|cannot be read", str(error)
            )
            if not excused:
                raise AssertionError(line) from error


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


@pytest.mark.parametrize("path", sorted((ROOT / "conf/pipeline").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sample_files_are_what_the_command_prints(path: Path) -> None:
    assert path.read_text() == catalog.sample(path.stem), (
        f"rmq pipeline example {path.stem} > conf/pipeline/{path.name}"
    )


def test_there_is_a_sample_file_of_each_job() -> None:
    assert {path.stem for path in (ROOT / "conf/pipeline").glob("*.yaml")} == set(catalog.JOBS)


def test_values_are_read() -> None:
    job = load(ARCHIVE + "trigger: 5 minutes\ncompaction:\n  targetSize: 64mb\n  enabled: false\nmetrics:\n  port: 0\n")
    assert isinstance(job, Archive)
    assert (job.trigger, job.compaction.target_size, job.compaction.enabled) == (300.0, 64 << 20, False)
    assert (job.compaction.every, job.event_time, job.metrics.port, job.metrics.host) == (
        600.0,
        "bornTimestamp",
        0,
        "127.0.0.1",
    )
    assert job.title() == "orders-v2"
    assert job.source_options() == {"nameServer": "127.0.0.1:9876", "topic": "A,B", "groupId": "orders-v2"}
    once = load(ARCHIVE + "trigger: once\nname: mine\n")
    assert isinstance(once, Archive)
    assert (once.trigger, once.title()) == (ONCE, "mine")
    windows = load(WINDOWS)
    assert isinstance(windows, Windows)
    assert windows.aggregates == {"orders": Aggregate("count", None), "sum": Aggregate("sum", "amount")}
    replay = load(REPLAY)
    assert isinstance(replay, Replay)
    assert (replay.from_.start, replay.from_.end) == (
        datetime(2026, 3, 1, tzinfo=UTC),
        datetime(2026, 3, 2, tzinfo=UTC),
    )


def test_secrets_come_from_the_environment_and_stay_out_of_messages() -> None:
    text = ARCHIVE.replace("9876\n", "9876\n  accessKey: ${AK}\n  secretKey: ${SK}\n")
    job = load(text, AK="me", SK="hidden")
    assert (job.cluster.access_key, job.cluster.secret_key) == ("me", "hidden")
    assert problems(text, SK="hidden") == ["4: ${AK}: the environment variable AK is not set"]
    alone = problems(ARCHIVE.replace("9876\n", "9876\n  secretKey: ${SK}\n"), SK="hidden")
    assert alone == ["4: cluster.secretKey: the option secretKey needs the option accessKey beside it"]


def test_values_have_defaults_and_mappings_are_merged() -> None:
    text = ARCHIVE + "trigger: ${EVERY:-5s}\ncompaction: &rules\n  every: 1m\n  minFiles: 9\n"
    for env, seconds in (({}, 5.0), ({"EVERY": ""}, 5.0), ({"EVERY": "7s"}, 7.0)):
        job = load(text, **env)
        assert isinstance(job, Archive)
        assert job.trigger == seconds
    table = document.parse(FILE, "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n", {})
    merged = table.entries[2].value
    assert isinstance(merged, document.Table)
    assert {entry.key: entry.value.text for entry in merged.entries if isinstance(entry.value, document.Scalar)} == {
        "x": "3",
        "y": "1",
        "z": "2",
    }


def test_everything_wrong_is_said_at_once_by_line() -> None:
    text = (
        ARCHIVE.replace("path: p", "pathh: p") + "trigger: 10 minuets\ncompresion: zstd\ncompression: zstandard\n"
        "compaction:\n  minFiles: 1\n  every: [1s]\nmetrics: 9\n"
    )
    assert problems(text) == [
        "1: path: missing: a folder is expected",
        "7: pathh: there is no such key: did you mean path?",
        "8: trigger: '10 minuets': a duration such as 10s, or once is expected",
        "9: compresion: there is no such key: did you mean compression?",
        "10: compression: 'zstandard': one of zstd, snappy, gzip, none is expected: did you mean zstd?",
        "12: compaction.minFiles: '1': a whole number from 2 to 100000 is expected",
        "13: compaction.every: a duration (a number with ms, s, m, h or d, such as 10s) is expected",
        "14: metrics: a mapping with port, host is expected",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: a job is a mapping of keys to values, beginning with job: NAME"),
        ("- a\n", "1: a job is a mapping of keys to values, beginning with job: NAME"),
        ("a: 1\n", "1: job: missing: one of archive, windows, dead-letters, replay is expected"),
        (
            "# x\njob: archiv\n",
            "2: job: 'archiv': one of archive, windows, dead-letters, replay is expected: did you mean archive?",
        ),
        ("job: archive\na: [\n", "3: not YAML: expected the node content, but found '<stream end>'"),
        ("job: archive\nname: a\nname: b\n", "3: name: given twice, first in line 2"),
        ("job: archive\nname: \0\n", "2: not YAML: unacceptable character #x0000: special characters are not allowed"),
        ("a: " + "[" * 2000, "1: not a job: lists or mappings within each other, hundreds deep"),
        ("job: archive\nx: &a\n  y: *a\n", "2: an anchor that holds itself"),
        ("job: archive\n\tname: x\n", "2: not YAML: a tab: indent with blanks"),
        ("job: archive\n---\njob: replay\n", "2: not YAML: expected a single document in the stream, but found anoth"),
        (BOMB, "1: not a job: more than 100,000 values, with anchors put in"),
        ("job: ${JOB NAME}\n", "1: ${JOB NAME}: ${NAME} or ${NAME:-default} is expected"),
        ("job: archive\n<<: archive\n", "2: <<: the anchor of a mapping is expected"),
        (ARCHIVE.replace("[A, B]", "['a b']"), "5: source.topics: 'a b': The specified topic[a b] contains"),
        (ARCHIVE.replace("[A, B]", "[]"), "5: source.topics: a list, each a topic's name, is expected"),
        (
            ARCHIVE.replace("topics: [A, B]", "startingOffsets: latest"),
            "4: source: the option topic is missing: name one or several topics, or give topicPattern",
        ),
        (ARCHIVE.replace("127.0.0.1:9876", "host"), "3: cluster.nameServer: the option nameServer is 'host': give "),
        (
            ARCHIVE.replace("[A, B]", "[A]\n  startingOffsets: yesterday"),
            "6: source.startingOffsets: the option startingOffsets is 'yesterday': give earliest, latest, group ",
        ),
        (ARCHIVE + "eventTime: createdAt\n", "8: eventTime: 'createdAt': bornTimestamp (sent), timestamp"),
        (ARCHIVE + "trigger: 99999999999999d\n", "8: trigger: '99999999999999d': at most 36500d is expected"),
        (ARCHIVE + f"trigger: {'9' * 400}s\n", "8: trigger: '9999"),
        (ARCHIVE + "compaction:\n  closedFor: 36501d\n", "9: compaction.closedFor: '36501d': at most 36500d is exp"),
        (ARCHIVE.replace("topics: [A, B]", "topics: A\n  maxTriggerDelay: 36501d"), "6: source.maxTriggerDelay: the "),
        (REPLAY + "slice: 36501d\n", "11: slice: '36501d': at most 36500d is expected"),
        (REPLAY.replace("end: 2026-03-02T01:00:00+01:00", "end: 9999-12-31T23:59-01:00"), "7: from.end: '9999-12-31"),
        (REPLAY.replace("end: 2026-03-02T01:00:00+01:00", "end: 999999999999999"), "7: from.end: '99999999999999"),
        (ARCHIVE.replace("checkpoint: c", "checkpoint: p"), "6: checkpoint: the same folder as path: give a folder of"),
        (ARCHIVE.replace("checkpoint: c", "checkpoint: ./q/../p/"), "6: checkpoint: the same folder as path: "),
        (ARCHIVE.replace("checkpoint: c", "checkpoint: p/c"), "6: checkpoint: a folder in path, whose readers would "),
        (
            ARCHIVE.replace("checkpoint: c", "checkpoint: s3a://b/p/").replace("path: p", "path: s3a://b/p"),
            "6: checkpoint: the same folder as path: ",
        ),
        (
            ARCHIVE.replace("checkpoint: c", "checkpoint: /a/p").replace("path: p", "path: file:///a/p"),
            "6: checkpoint: the same folder as path: ",
        ),
        (ARCHIVE.replace("path: p", "path: p/[a]"), "7: path: 'p/[a]': '[' makes it a pattern for Spark, which would"),
        (REPLAY.replace("topic: A", "archive: a*"), "5: from.archive: 'a*': '*' makes it a pattern for Spark, which "),
        (REPLAY.replace("topic: A", "archive: c"), "10: checkpoint: the same folder as from.archive: "),
        (WINDOWS.replace("eventTime: at", "eventTime: att"), "11: eventTime: 'att' is not declared under fields: did"),
        (WINDOWS.replace("eventTime: at", "eventTime: city"), "11: eventTime: city is a string: one of timestamp, "),
        (WINDOWS.replace("double", "dubble"), "9: fields.amount: 'dubble': one of string, boolean, int, "),
        (WINDOWS.replace("sum(amount)", "sum(city)"), "13: aggregates: sum: sum of city, which is a string: a number"),
        (WINDOWS.replace("sum(amount)", "summ(amount)"), "15: aggregates.sum: 'summ(amount)': one of count, sum("),
        (WINDOWS.replace("sum(amount)", "sum"), "15: aggregates.sum: 'sum': which field? write sum(FIELD)"),
        (WINDOWS.replace("window: 5m", "window: 0s"), "12: window: '0s': at least 1 s is expected"),
        (WINDOWS + "slide: 6m\n", "18: slide: longer than the window: events in between would be in none"),
        (WINDOWS + "slide: 1500ms\n", "18: slide: whole seconds are expected"),
        (WINDOWS.replace("  city:", "  City.name: string\n  City:"), "7: fields: City.name and City: one is an "),
        (WINDOWS.replace("  city:", "  Amount:"), "7: fields: amount and Amount: Spark takes them for one name"),
        (WINDOWS.replace("orders:", "windowstart:"), "13: aggregates: windowStart and windowstart: Spark takes "),
        (WINDOWS + "groupBy: [city, city]\n", "18: groupBy: city and city: Spark takes them for one name"),
        (
            WINDOWS.replace("orders:", "City:") + "groupBy: [city]\n",
            "13: aggregates: city and City: Spark takes them for one name",
        ),
        (WINDOWS.replace("  city:", "  a b:"), "10: fields.a b: a name of letters, digits and _ is expected; "),
        (REPLAY.replace("2026-03-02T01:00:00+01:00", "2026-03-01"), "7: from.end: not after start"),
        (REPLAY.replace("topic: B", "topic: A"), "9: to.topic: the topic would be sent into itself: "),
        (REPLAY.replace("  topic: A\n", ""), "4: from: give topic or archive, one of them"),
        (REPLAY.replace("topic: A", "archive: a\n  pullBatchSize: 9"), "6: from.pullBatchSize: is for topics, not "),
        ("job: dead-letters\n" + HEAD + "report: r\nsince: 1h\nuntil: 2h\n", "6: until: not after since"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_line(text: str, expected: str) -> None:
    found = problems(text)
    assert len(found) == 1, found
    assert found[0].startswith(expected), found


@pytest.mark.parametrize("checkpoint", ["p/_checkpoint", "pp", "s3a://b/p", "."])
def test_folders_of_a_job_may_lie_beside_each_other(checkpoint: str) -> None:
    load(ARCHIVE.replace("checkpoint: c", f"checkpoint: {checkpoint}"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory: give a job file that can be read"):
        catalog.load(str(tmp_path / "none.yaml"), {})
    (tmp_path / "latin.yaml").write_bytes(b"job: archive\nname: \xe9\n")
    with pytest.raises(Problems, match=r"latin\.yaml:2: not UTF-8"):
        catalog.load(str(tmp_path / "latin.yaml"), {})


def test_the_command_says_what_is_wrong_without_spark(tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.yaml", tmp_path / "right.yaml"
    wrong.write_text(ARCHIVE + "pathh: p\n")
    right.write_text(ARCHIVE)
    program = (
        "import sys\nfrom rmq.cli.command import invoke\nfrom rmq.cli.rmq import command\n"
        "before = [name for name in sys.modules if name.startswith(('rmq.spark', 'yaml', 'pyspark'))]\n"
        f"codes = [invoke(command, 'rmq', ['pipeline', *args]) for args in (['check', {str(wrong)!r}], "
        f"['check', {str(right)!r}], ['example', 'archiv'], ['example'])]\n"
        "print(codes, before, [name for name in sys.modules if name.partition('.')[0] in ('pyspark', 'pyarrow')])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert ran.stderr.splitlines() == [
        f"{wrong}:8: pathh: there is no such key: did you mean path?",
        "rmq: archiv: one of archive, windows, dead-letters, replay is expected: did you mean archive?",
    ]
    assert ran.stdout.splitlines()[0] == f"{right}: a job archive called right, nothing wrong with it"
    assert ran.stdout.splitlines()[-1] == "[2, 0, 2, 0] [] []"

"""What is missing is said in one line: Java, pyspark, and an Arrow that loads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.errors import ConfigError, RMQError
from rmq.spark import launch
from rmq.spark.launch import require_java, session
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.job import Job
from rmq.spark.pipeline.running import runner

ROOT = Path(__file__).parents[3]
#: What Spark does to find sources, and then to make one.
LOOK_UP = """
import pickle, pkgutil, importlib
import rmq.spark
found = {}
for info in pkgutil.iter_modules():
    if info.name == "pyspark_rocketmq":
        module = importlib.import_module(info.name)
        if hasattr(module, "DefaultSource"):
            found[module.DefaultSource.name()] = pickle.dumps(module.DefaultSource)
print("found", *found)
for each in found.values():
    try:
        made = pickle.loads(each)({"nameServer": "127.0.0.1:9876", "topic": "t"})
        print("made", type(made).__name__, made.name())
    except Exception as error:
        print(type(error).__name__, error)
"""


def java(folder: Path, script: str) -> str:
    """A program called java in a folder of its own."""
    program = folder / "bin" / "java"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"1.8.0_402\"' >&2", "and {java} is Java 8: set JAVA_HOME"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "and {java} is Java 11: set JAVA_HOME"),
        ("echo 'No Java runtime present' >&2; exit 1", "and {java} -version says nothing: check JAVA_HOME"),
    ],
)
def test_a_java_that_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = java(tmp_path, script)
    with pytest.raises(ConfigError) as error:
        require_java()
    assert str(error.value) == "Spark needs Java 17 or newer, " + said.format(java=program)


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"^Spark needs Java 17 or newer, and there is no java: install"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"bin/java cannot be run \(No such file or directory\): check JAVA_HOME$"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    java(tmp_path, "echo 'openjdk version \"21\" 2023-09-19' >&2")
    require_java()


def test_a_java_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **how: Any) -> None:
        raise subprocess.TimeoutExpired(command, how["timeout"])

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigError, match=r"bin/java cannot be run \(no answer in 60 s\): check JAVA_HOME$"):
        require_java()


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        subprocess.check_output([sys.executable, "-m", "rmq.cli.rmq", "pipeline", "example", "archive"], text=True)
    )
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "rmq.cli.rmq", "pipeline", "run", str(job)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[0].endswith(
        "Spark needs Java 17 or newer, and there is no java: install one, or set JAVA_HOME"
    )
    assert len(ran.stderr.splitlines()) == 1


class Session:
    """What stands for Spark: a builder that notes what it is told, and the session it makes."""

    def __init__(self) -> None:
        self.builder = self.dataSource = self.sparkContext = self._jsc = self
        self.told: dict[str, str] = {}
        self.sources: list[str] = []
        self.stopped = False

    def appName(self, name: str) -> Session:
        return self.config("app", name)

    def master(self, name: str) -> Session:
        return self.config("master", name)

    def config(self, name: str, value: str) -> Session:
        self.told[name] = value
        return self

    def getOrCreate(self) -> Session:
        return self

    def register(self, source: Any) -> None:
        self.sources.append(source.name())

    def stop(self) -> None:
        self.stopped = True

    def sc(self) -> Session:
        return self

    def isStopped(self) -> bool:
        return self.stopped


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A Spark that starts, with a Java for it."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    made = Session()
    monkeypatch.setattr("pyspark.sql.SparkSession", made)
    monkeypatch.setattr(launch, "require_java", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    return made


def test_a_session_knows_the_source_and_its_workers_this_python(
    started: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: object = session("shop")
    assert made is started
    assert started.told == {"app": "shop", "spark.sql.session.timeZone": "UTC"}
    assert started.sources == ["rocketmq"]
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/its/own/python")
    session("shop", master="local[2]", config={"spark.sql.session.timeZone": "Asia/Tokyo", "x": "1"})
    assert started.told == {"app": "shop", "master": "local[2]", "spark.sql.session.timeZone": "Asia/Tokyo", "x": "1"}
    assert os.environ["PYSPARK_PYTHON"] == "/opt/its/own/python", "whoever says which one to take is obeyed"


def test_a_master_that_is_none_is_named_before_java_starts(started: Session) -> None:
    with pytest.raises(
        ConfigError, match=r"^'lokal' is no master of Spark: give local\[2\], spark://host:7077, yarn or"
    ):
        session("shop", master="lokal")
    assert started.told == {}
    for master in ("local", "local[2,3]", "yarn", "spark://a:7077,b:7077", "k8s://https://a:6443"):
        session("shop", master=master)
        assert started.told["master"] == master


def test_a_session_is_not_begun_without_what_the_source_needs(
    started: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rmq.spark.sink.writers", None)
    with pytest.raises(ConfigError, match=r"the data source rocketmq cannot be loaded: .*: pip install 'rmq.spark.'$"):
        session("shop")
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match=r"^pyspark is not installed: pip install 'rmq\[spark\]'$"):
        session("shop")
    assert (started.told, started.sources) == ({}, [])


def job(more: str = "") -> Job:
    text = catalog.sample("archive") + more
    return catalog.of("orders.yaml", document.parse("orders.yaml", text, {}))


def test_a_job_starts_a_quiet_spark_and_ends_it(started: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are one line at the end: hundreds before it would hide that one."""
    ran: list[object] = []
    monkeypatch.setattr(runner, "run_in", lambda spark, *how: ran.append(spark))
    assert runner.run(job("spark:\n  master: local[7]\n  config:\n    spark.ui.enabled: 'false'\n")) == 0
    assert (ran, started.stopped) == ([started], True)
    wanted = {
        "app": "orders",
        "master": "local[7]",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",
        "spark.ui.enabled": "false",
    }
    assert {name: started.told.get(name) for name in wanted} == wanted
    runner.run(job("spark:\n  config:\n    spark.log.level: DEBUG\n"))
    assert started.told["spark.log.level"] == "DEBUG", "whoever looks for a fault says so"


def test_a_job_that_fails_ends_its_spark(started: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(spark: Any, job: Any, watch: Any) -> None:
        raise ValueError("Spark says\nmuch\nrmq.protocol.errors.ConfigError: no topic\nat java.lang")

    monkeypatch.setattr("rmq.spark.pipeline.running.archive.start", start)
    monkeypatch.setattr(runner, "_alone", lambda *how: nullcontext())  # no checkpoint to claim
    with pytest.raises(RMQError, match=r"^the job orders failed: no topic$"):
        runner.run(job(), io.StringIO())
    assert started.stopped


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Could not parse Master URL: "
            "'lokal'\n\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:1)\n\tat java.base",
            "Could not parse Master URL: 'lokal'",
        ),
        ("", "RuntimeError"),
    ],
)
def test_a_spark_that_does_not_start_is_one_line(
    started: Session, monkeypatch: pytest.MonkeyPatch, said: str, line: str
) -> None:
    def fail() -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(started, "getOrCreate", fail)
    with pytest.raises(RMQError) as error:
        runner.run(job())
    assert str(error.value) == f"Spark cannot be started for the job orders (keys spark.master, spark.config): {line}"


def test_a_java_that_ends_at_once(started: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    monkeypatch.setattr(started, "getOrCreate", fail)
    with pytest.raises(ConfigError, match=r"^Spark's Java ended as it started: what it says stands above \(memory and"):
        runner.run(job())
    assert not started.stopped


def look_up(folder: Path, **modules: str) -> list[str]:
    """What Spark finds, with modules of the given texts instead of the installed ones."""
    for name, text in modules.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
    path = [folder, ROOT / "rmq/spark/discovery", ROOT]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    ran = subprocess.run(
        [sys.executable, "-c", LOOK_UP], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_spark_finds_the_source(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert look_up(tmp_path) == ["found rocketmq", "made RocketMQDataSource rocketmq"]


def test_columns_are_told_without_loading_what_reads() -> None:
    """Spark starts a process for that with each query."""
    pytest.importorskip("pyspark")
    program = (
        "import sys\nimport pyspark.sql.datasource\nbefore = set(sys.modules)\n"
        "from rmq.spark.data_source import RocketMQDataSource\n"
        "print(len(RocketMQDataSource({'nameServer': 'a:1', 'topic': 't'}).schema().split(',')))\n"
        "loaded = set(sys.modules) - before\n"
        "print(loaded & {'pyarrow', 'numpy', 'rmq.spark.source.readers', 'rmq.spark.sink.writers'})\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True, timeout=60)
    assert printed.splitlines() == ["12", "set()"]  # a map's type has a comma of its own


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ModuleNotFoundError(\"No module named 'pyarrow'\")", "No module named 'pyarrow'"),
        ("raise ImportError('libarrow.so.2600: cannot\\nopen it')", "libarrow.so.2600: cannot open it"),
        ("raise ValueError('numpy.dtype size changed')", "numpy.dtype size changed"),
    ],
)
def test_an_arrow_that_does_not_load(tmp_path: Path, text: str, why: str) -> None:
    """Spark would only say that it finds no such source; now whoever asks for it is told."""
    pytest.importorskip("pyspark")
    assert look_up(tmp_path, pyarrow=text) == [
        "found rocketmq",
        f"ConfigError the data source rocketmq cannot be loaded: {why}: pip install 'rmq[spark]'",
    ]


def test_without_pyspark_there_is_nothing_to_find_and_no_error(tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'pyspark'\")"
    assert look_up(tmp_path, pyspark=missing) == ["found"]

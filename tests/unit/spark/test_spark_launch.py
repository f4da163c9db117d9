"""What is missing is said in one line: Java, pyspark, and an Arrow that loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.protocol.errors import ConfigError
from rmq.spark.launch import require_java

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
        "from rmq.spark.source import RocketMQDataSource\n"
        "print(len(RocketMQDataSource({'nameServer': 'a:1', 'topic': 't'}).schema().split(',')))\n"
        "loaded = set(sys.modules) - before\n"
        "print(loaded & {'pyarrow', 'numpy', 'rmq.spark.readers', 'rmq.spark.sink'})\n"
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

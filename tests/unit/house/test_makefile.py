"""``make`` says in one line what is missing before it does anything; the interpreter is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the Makefile and nothing installed."""
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def stand_in(clone: Path, script: str) -> str:
    path = clone / "python-stand-in"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def make(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(clone)}
    return subprocess.run(["make", *words], cwd=clone, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("target", ["run", "test"])
def test_an_old_interpreter_is_one_line(clone: Path, target: str) -> None:
    python = stand_in(clone, '[ "$1" = -V ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    ended = make(clone, target, f"PYTHON={python}")
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("make")]
    assert lines == [f"Python 3.11 or newer is needed; {python} is Python 3.9.2: give one with PYTHON=..."]
    assert not (clone / ".venv").exists()


def test_an_interpreter_without_venv_is_one_line(clone: Path) -> None:
    python = stand_in(clone, 'case "$2" in *ensurepip*) exit 1;; esac\nexit 0\n')
    ended = make(clone, "run", f"PYTHON={python}")
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1
    assert lines[0].startswith(f"the venv module of {python} is incomplete: install it")


def test_it_says_what_it_does(clone: Path) -> None:
    python = stand_in(
        clone,
        'if [ "$1" = -V ]; then echo Python 3.12.1; fi\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin"; for n in python rmq; do\n'
        '  printf "#!/bin/sh\\necho $n \\"\\$@\\"\\n" > "$3/bin/$n"; chmod +x "$3/bin/$n"; done; fi\nexit 0\n',
    )
    ended = make(clone, "run", f"PYTHON={python}", "PORT=19876")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        f"== making the virtual environment .venv with Python 3.12.1, {python}",
        "== installing rmq into .venv",
        "python -m pip install -q --disable-pip-version-check -e .[server]",
        "rmq dev --port 19876 --demo",
    ]
    again = make(clone, "test", f"PYTHON={python}", "PYTEST_ARGS=-k route")
    assert again.stdout.splitlines() == [
        "== installing rmq and its test tools into .venv",
        "python -m pip install -q --disable-pip-version-check -e .[test]",
        "== running the test suite",
        "python -m pytest -m not peers -n auto --dist loadfile --no-loadscope-reorder -k route",
    ]


def test_a_pipeline_without_java_is_one_line_before_anything_is_installed(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    for name in ("make", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    env = {"PATH": str(tools), "HOME": str(clone)}
    words = ["make", "pipeline", f"PYTHON={stand_in(clone, 'exit 0')}"]
    ended = subprocess.run(words, cwd=clone, env=env, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("make")]
    assert lines == ["Spark needs Java 17 or newer, and there is no java: install one, or set JAVA_HOME"]
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ("echo 1000", "echo 950", "python3"),  # not clearly faster
        ("echo 1000", "echo 700", "python3.11"),
        ("exit 1", "echo 900", "python3.11"),  # too old, or without venv
        ("echo 500", "exit 1", "python3"),
    ],
)
def test_the_fastest_interpreter_is_taken(tmp_path: Path, first: str, second: str, chosen: str) -> None:
    for name, script in (("python3", first), ("python3.11", second)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    found = subprocess.run(
        ["/bin/sh", ROOT / ".ci/find-python"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout == f"{chosen}\n"

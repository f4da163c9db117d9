"""The load program: compiled once for each of its texts, and run for one measurement at a time."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "load.c", FOLDER / "echo.c", FOLDER / "sign.c")
HEADER = FOLDER / "load.h"
FLAGS = ("-O2", "-Wall", "-Wextra")


class BenchmarkError(RuntimeError):
    """The benchmark cannot run, or a run went wrong; the text is the one line to show."""


def compile_load() -> Path:
    """The compiled load program, in the temporary folder under a name made of its source.

    :raises BenchmarkError: not Linux, no C compiler, or it does not compile.
    """
    if platform.system() != "Linux":
        raise BenchmarkError(f"benchmark: Linux is needed (epoll, /proc, CPU affinity), this is {platform.system()}")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchmarkError("benchmark: no C compiler found (cc, gcc or clang): install one, or name it with CC=...")
    text = b"".join(path.read_bytes() for path in (*SOURCES, HEADER))
    key = hashlib.sha256(text + compiler.encode() + " ".join(FLAGS).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"rmq-load-{os.getuid()}-{key}"
    if target.exists() and target.stat().st_uid == os.getuid():
        return target
    with tempfile.TemporaryDirectory(prefix="rmq-load-") as folder:
        built = Path(folder) / "load"
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(built), *map(str, SOURCES)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BenchmarkError(f"benchmark: {compiler} cannot compile the load program: {done.stderr.strip()[:500]}")
        shutil.move(built, target)
    return target


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. Times in microseconds; ``cpu_us`` is the server's CPU time for each counted answer."""

    count: int
    rate: float
    p50_us: float
    p99_us: float
    max_us: float
    cpu_us: float
    load_share: float
    acknowledged: int
    problem: str

    @property
    def per_core(self) -> float:
        """Answers for each second of the server's CPU time."""
        return 1e6 / self.cpu_us if self.cpu_us else 0.0


def run_load(
    program: Path,
    work: str,
    addr: str,
    *,
    connections: int = 1,
    in_flight: int = 1,
    body: int = 128,
    seconds: float = 3.0,
    warm: float = 0.5,
    messages: int = 0,
    topic: str = "BenchTopic",
    server_pid: int = 0,
    cpu: int | None = None,
    echo: bool = False,
    account: str = "",
) -> Result:
    """Run the load once.

    :param work: ``send`` or ``pull``.
    :param account: whose sends they are, ``KEY:SECRET``; empty for nobody's.
    :param messages: stop after so many acknowledged sends instead of by time.
    :param cpu: the core the load runs on; None leaves it to the kernel.
    :raises BenchmarkError: the program ended with an error (its own line is in the text).
    """
    host, _, port = addr.rpartition(":")
    words = [str(program), work, host, port, "--connections", str(connections), "--in-flight", str(in_flight)]
    words += ["--body", str(body), "--seconds", str(seconds), "--warm", str(warm), "--topic", topic]
    if messages:
        words += ["--messages", str(messages)]
    if server_pid:
        words += ["--server-pid", str(server_pid)]
    if cpu is not None:
        words += ["--cpu", str(cpu)]
    if echo:
        words.append("--echo")
    if account:
        words += ["--account", account]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds + warm + 60)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"benchmark: {work} {connections}x{in_flight} on {addr} did not end in time") from None
    if done.returncode:
        raise BenchmarkError(f"benchmark: {work} {connections}x{in_flight} on {addr}: {done.stderr.strip()[:600]}")
    return _read(json.loads(done.stdout))


def _read(line: dict[str, Any]) -> Result:
    count = line["count"]
    wrong = {name: line[name] for name in ("errors", "strays", "unanswered") if line[name]}
    problem = f"{wrong}, codes {line['codes']}, first: {line['first_error']}" if wrong else ""
    return Result(
        count=count,
        rate=line["rate"],
        p50_us=line["p50_us"],
        p99_us=line["p99_us"],
        max_us=line["max_us"],
        cpu_us=line["server_cpu_ns"] / count / 1e3 if count else 0.0,
        load_share=line["load_cpu_share"],
        acknowledged=line["acknowledged"],
        problem=problem,
    )


class EchoServer:
    """The load program as a server that gives frames back: what the machine can do at all."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program), "echo", "0"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if len(words) != 2:
            raise BenchmarkError("benchmark: the echo server did not start")
        self.addr = f"127.0.0.1:{words[1]}"
        self.pid = self._process.pid

    def __enter__(self) -> EchoServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

"""RocketMQ clients of every language as child processes, spoken to in JSON lines.

One process per client version runs all cells of a session: a JVM's start would take longer than a cell.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .jars import JAVA_OPENS
from .process import PATIENCE, kill_group, spawn
from .programs import PROGRAMS, go_program, java_program, node_program, python_program

# Short intervals, here and in the programs: what takes a client 20 or 30 s by default is noticed in a second. A queue
# that goes is unlocked after five: its listener may still be at work.
_JAVA_CLIENT = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.unlockDelayTimeMills=5000",
)


class ClientError(RuntimeError):
    """A client program answered with an error; the text is the client's own."""


def java_client(version: str, *options: str) -> Callable[[Path], list[str]]:
    """The command of a Java client in a folder; ``-Dpeer.account=KEY:SECRET`` is whom it signs as."""

    def command(folder: Path) -> list[str]:
        homes = [f"-Duser.home={folder}", f"-Drocketmq.client.localOffsetStoreDir={folder}/offsets"]
        account = next((option.partition("=")[2] for option in options if option.startswith("-Dpeer.account=")), None)
        if account is not None:  # mqadmin reads it from its installation
            key, _, secret = account.partition(":")
            (folder / "conf").mkdir(exist_ok=True)
            (folder / "conf" / "tools.yml").write_text(f"accessKey: {key}\nsecretKey: {secret}\n")
            homes.append(f"-Drocketmq.home.dir={folder}")
        classpath = java_program(version)
        return ["java", *_JAVA_CLIENT, *JAVA_OPENS, *homes, *options, "-cp", classpath, "peer.Peer"]

    return command


CLIENTS: dict[str, Callable[[Path], list[str]]] = {
    "java-4.5.2": java_client("4.5.2", "-Dcom.rocketmq.sendMessageWithVIPChannel=true"),
    "java-4.9.4": java_client("4.9.4"),
    "java-4.9.8": java_client("4.9.8"),
    "java-5.3.3": java_client("5.3.3"),
    "java-4.9.8-binary": java_client("4.9.8", "-Drocketmq.serialize.type=ROCKETMQ"),
    "java-4.9.8-tls": java_client("4.9.8", "-Dtls.enable=true", "-Dtls.test.mode.enable=true"),
    "java-4.9.8-account": java_client("4.9.8", "-Dpeer.account=ordinary:12345678"),
    "java-4.9.8-operator": java_client("4.9.8", "-Dpeer.account=operator:12345678"),
    "go": lambda folder: [str(go_program())],
    "node": lambda folder: ["node", str(node_program())],
    "python": lambda folder: [sys.executable, str(python_program())],
    "python-blocking": lambda folder: [sys.executable, str(python_program()), "--blocking"],
}


class Client:
    """A running client program. `call` sends one request and returns its answer; calls are served one at a time."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "client.out"
        env = dict(os.environ) | {"HOME": str(folder)}
        env["PYTHONPATH"] = os.pathsep.join([str(PROGRAMS.parents[2]), *filter(None, [env.get("PYTHONPATH")])])
        self.process: subprocess.Popen[bytes] = spawn(command, log=self.log, cwd=folder, env=env, pipes=True)
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._next = 0
        self._reader = threading.Thread(target=self._read, name=f"answers of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith(b"{"):
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def call(self, op: str, *, within: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        """Run one operation and return its answer.

        Arguments: op and its arguments as tests/interop/programs/README.md lists them; within is in seconds.
        Errors: ClientError with the client's own words, when it answered with an error, ended, or was silent too long.
        """
        with self._lock:
            self._next += 1
            request = {"id": self._next, "op": op, **arguments}
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(json.dumps(request).encode() + b"\n")
                self.process.stdin.flush()
            except OSError as error:
                raise ClientError(f"{self.name} has ended; its log:\n{self.tail()}") from error
            while True:
                try:
                    answer = self._answers.get(timeout=within)
                except queue.Empty:
                    raise ClientError(
                        f"{self.name}: no answer to {op} within {within:.0f} s; its log:\n{self.tail()}"
                    ) from None
                if answer is None:
                    self._answers.put(None)
                    raise ClientError(f"{self.name} ended during {op}; its log:\n{self.tail()}")
                if answer["id"] == self._next:
                    break
        if "error" in answer:
            raise ClientError(f"{self.name}: {op}: {answer['error']}\nthe end of its log:\n{self.tail()}")
        return answer

    def tail(self, lines: int = 30) -> str:
        """The last lines of the program's own output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """End the program and remove its folder. Safe to call twice."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it had ended before: what was still to be written has no reader
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass  # killed below
        kill_group(self.process)
        self._reader.join(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_client(name: str, *options: str) -> Client:
    """Start the client program `name` (one of CLIENTS), a JVM with more `options`.

    Errors: ToolMissing when its tools are not there.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"rmq-client-{name}-"))
    try:
        command = CLIENTS[name](folder)
        return Client(name, [command[0], *options, *command[1:]], folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise

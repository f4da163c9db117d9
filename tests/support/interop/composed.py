"""A compose file without Docker: network namespaces with its containers' addresses and commands.

What is not seen here is the image itself (tests/unit/house/test_packaging.py reads the Dockerfile).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.daemons import ROOT, environment

__all__ = ["Composed", "composed", "until"]

_PATIENCE = 60.0
#: Patient: the next leader of a group takes its time on a busy machine.
_SEND = """
import sys
from rmq import Message, Producer
with Producer("p", namesrv=sys.argv[1], send_msg_timeout=60) as producer:
    results = [producer.send(Message(sys.argv[2], b"%d" % number)) for number in range(int(sys.argv[3]))]
print(*sorted({f"{one.send_status.name}@{one.message_queue.broker_name}" for one in results}))
"""
_CONSUME = """
import sys, threading
from rmq import PushConsumer
consumer = PushConsumer("g", namesrv=sys.argv[1], consume_from_where="CONSUME_FROM_FIRST_OFFSET")
got, all_of_them = [], threading.Event()
@consumer.on(sys.argv[2])
def handle(message):
    got.append(message.body)
    if len(got) == int(sys.argv[3]):
        all_of_them.set()
consumer.start()
all_of_them.wait(60)
consumer.shutdown()
print(len(got))
"""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=20)


class Composed:
    """The services of a file, each in a namespace of its own, joined by a bridge in another one."""

    def __init__(self, folder: Path, file: str) -> None:
        compose: dict[str, Any] = yaml.safe_load((ROOT / "docker" / file).read_text())
        self.services = compose["services"]
        self.folder = folder
        self.addresses = {name: one["networks"]["rmq"]["ipv4_address"] for name, one in self.services.items()}
        self.namesrv = ";".join(f"{self.addresses[name]}:9876" for name in self.services if name.startswith("namesrv"))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Above those of the services, and not the gateway.
        self._all = {**self.addresses, "client": self.addresses["namesrv"].rpartition(".")[0] + ".200"}

    def _space(self, name: str) -> str:
        return f"rmqtest-{os.getpid()}-{name}"

    def build(self) -> None:
        """Make namespaces and wires."""
        switch = self._space("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for number, (name, address) in enumerate(self._all.items()):
            space, port = self._space(name), f"port{number}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for name in (*self._all, "switch"):
            ip("netns", "del", self._space(name), check=False)

    def _words(self, name: str, program: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(name), sys.executable, "-m", f"rmq.cli.{program}", *words]

    def up(self, name: str) -> None:
        """Start a service: its command, with the image's folder and the network's names as they are here."""
        service = self.services[name]
        program, *words = (self._here(word) for word in service["command"])
        home = self.folder / name
        home.mkdir(exist_ok=True)
        env = environment(home, RMQ_BIND_ADDRESS="", **service.get("environment", {}))
        with (home / "out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [*self._words(name, program), *words], env=env, cwd=home, stdout=out, stderr=out
            )

    def _here(self, word: str) -> str:
        word = word.replace("/opt/rmq", str(ROOT))
        for name, address in self.addresses.items():
            word = re.sub(rf"(^|;){name}:", rf"\g<1>{address}:", word)
        return word

    def kill(self, name: str) -> None:
        """As its machine goes."""
        self.processes[name].kill()
        self.processes[name].wait()

    def ask(self, program: str, *words: str, at: str = "client") -> str:
        """What a command prints at a machine; "" while it fails."""
        ended = subprocess.run(
            self._words(at, program, *words), env=environment(self.folder), capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        return ended.stdout if not ended.returncode else ""

    def send(self, topic: str, count: int) -> str:
        """Send so many messages from the client's machine; the statuses they had, each with its broker."""
        return self._run(_SEND, topic, count)

    def consumed(self, topic: str, count: int) -> int:
        """How many messages a new group gets there, which waits for so many."""
        return int(self._run(_CONSUME, topic, count))

    def _run(self, program: str, topic: str, count: int) -> str:
        words = ["ip", "netns", "exec", self._space("client"), sys.executable, "-c", program]
        words += [self.namesrv, topic, str(count)]
        ended = subprocess.run(words, env=environment(self.folder), capture_output=True, text=True, timeout=100)
        assert not ended.returncode, ended.stderr[-2000:]
        return ended.stdout.strip()


def until(true: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)


@contextmanager
def composed(folder: Path, file: str) -> Iterator[Composed]:
    """The services of a file of docker/, none of which runs yet; skips where there are no namespaces."""
    made = Composed(folder, file)
    if sys.platform != "linux" or os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and the command ip")
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr}")
        yield made
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.close()

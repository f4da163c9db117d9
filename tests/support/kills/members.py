"""A group whose members, each a process of its own, come, leave and are killed while messages come."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq import AdminClient, Message, Producer, RMQError
from tests.support.interop import fresh, until
from tests.support.kills.groups import Line, Look, lines_in, lines_of
from tests.support.peers import Client, Cluster, start_client
from tests.support.peers.process import PATIENCE, kill_group

__all__ = ["Churn"]

#: Milliseconds that a listener takes for a message.
WORK = 10


class Churn:
    """One topic, one group, its members and a producer.

    :param orderly: members consume in order. :param pop: they pop, and what they got is invisible for so many seconds.
    """

    def __init__(self, cluster: Cluster, seed: int, *, orderly: bool = False, pop: float = 0.0) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.topic, self.group = fresh("churn"), fresh("g-churn")
        self.orderly = orderly
        self.pop = pop
        self.folder = Path(tempfile.mkdtemp(prefix="rmq-churn-"))
        self.members: list[tuple[str, str, Client]] = []
        #: key -> (queue, offset, when it was acknowledged).
        self.sent: dict[str, tuple[str, int, int]] = {}
        self.looks: list[Look] = []
        self.killed = self.left = self.joined = 0
        self.admin = AdminClient(namesrv=cluster.namesrv)
        self.admin.start()
        self.queues = 4
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="churn", daemon=True)
        self.grow(0)
        if pop:
            self.admin.set_message_request_mode(cluster.broker_addr, self.topic, self.group)

    def grow(self, more: int) -> None:
        """Add queues to the topic."""
        self.queues += more
        self.admin.create_and_update_topic(
            self.cluster.broker_addr, self.topic, read_queue_nums=self.queues, write_queue_nums=self.queues
        )

    # -- messages -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def _produce(self) -> None:
        with Producer(fresh("p-churn"), namesrv=self.cluster.namesrv, poll_name_server_interval=1) as producer:
            for number in itertools.count():
                if self._over.wait(0.008):
                    return
                key = f"k{number}"
                try:
                    result = producer.send(Message(self.topic, key, keys=key))
                except RMQError:
                    continue  # nobody acknowledged it
                queue = result.message_queue
                place = f"{queue.broker_name}/{queue.queue_id}"
                self.sent[key] = (place, result.queue_offset, time.monotonic_ns())

    def look(self, *, last: bool = False) -> None:
        """Ask the broker where the group is."""
        begin = time.monotonic_ns()
        try:
            stats = self.admin.consume_stats(self.group)
        except RMQError:
            return  # it is away, or knows nothing of the group yet
        offsets = {
            f"{queue.broker_name}/{queue.queue_id}": one.consumer_offset
            for queue, one in stats.offset_table.items()
            if queue.topic == self.topic
        }
        self.looks.append(Look(begin, time.monotonic_ns(), offsets, last))

    # -- members ------------------------------------------------------------------------------------------------------

    def join(self, kind: str, start: Callable[[], Client] | None = None, **more: Any) -> None:
        """Start a member's process, and have it join."""
        handle = f"{kind}-{next(_numbers)}"
        client = start() if start is not None else start_client("java-4.9.4" if kind == "java" else kind)
        client.call(
            "subscribe", namesrv=self.cluster.namesrv, handle=handle, group=self.group, topic=self.topic,
            expression="*", model="clustering", orderly=self.orderly, fail=False, work=WORK,
            history=str(self.folder / f"{handle}.jsonl"),
            **({"pop": self.pop} if self.pop and not kind.startswith("java") else {}), **more,
        )  # fmt: skip
        self.members.append((kind, handle, client))
        self.joined += 1

    def leave(self, at: int) -> None:
        _, handle, client = self.members.pop(at)
        client.call("unsubscribe", handle=handle)
        client.close()
        self.left += 1

    def kill(self, at: int) -> None:
        """SIGKILL."""
        client = self.members.pop(at)[2]
        kill_group(client.process)
        client.close()
        self.killed += 1

    def kill_at_work(self, at: int) -> None:
        """SIGKILL while the member has a message in hand: it is stopped to look, and goes on where it has none."""
        _, handle, client = self.members[at]
        path = self.folder / f"{handle}.jsonl"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            os.killpg(client.process.pid, signal.SIGSTOP)
            kinds = Counter(line["kind"] for line in lines_in(path))
            if kinds["given"] > kinds["done"]:
                break
            os.killpg(client.process.pid, signal.SIGCONT)
            time.sleep(WORK / 1000 * self.random.random())
        self.kill(at)

    def rest(self, seconds: float) -> None:
        """Let messages come, and look at offsets meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.25)

    # -- the end ------------------------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        return lines_of(self.folder)

    def finish(self) -> list[Line]:
        """Send no more, wait until all is consumed, and have everybody leave."""
        self._over.set()
        self._thread.join()

        def missing() -> int:
            return len(self.sent.keys() - {line["key"] for line in self.lines() if line["kind"] == "done"})

        until(missing, lambda count: not count, pause=0.3)
        while self.members:
            self.leave(0)
        self.look(last=True)
        return self.lines()

    def close(self) -> None:
        self._over.set()
        for _, _, client in self.members:
            kill_group(client.process)
            client.close()
        self.admin.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


_numbers = itertools.count()

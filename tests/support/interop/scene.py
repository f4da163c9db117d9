"""The scene of a cell: a cluster, a client, and Apache's 4.9.8 client as administrator and independent reader."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rmq.protocol.errors import RequestTimeout
from tests.support.peers import Client, Cluster
from tests.support.peers.process import PATIENCE

from .rows import Row, contents, expected, rows_of

T = TypeVar("T")

COUNT = 1000

_numbers = itertools.count(1)


def fresh(*words: str) -> str:
    """A topic's or group's name that no other cell of the session uses."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", "-".join([*words, str(next(_numbers))]))


def until(ask: Callable[[], T], enough: Callable[[T], bool], pause: float = 0.1) -> T:
    """Ask again and again until the answer is enough; the last answer, also when it never is.

    Arguments: pause is what lies between two questions, in seconds. What servers and clients do after their answer has
    its time: Java's broker dispatches messages, clients share queues and commit offsets. A question that is not
    answered within its own time limit, by a JVM on a busy machine, is asked again as well.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            found = ask()
        except RequestTimeout:
            if time.monotonic() >= deadline:
                raise
        else:
            if enough(found) or time.monotonic() >= deadline:
                return found
        time.sleep(pause)


@dataclass
class Scene:
    """What a cell works with: the cluster, the client under test, and the reader (Java 4.9.8)."""

    cluster: Cluster
    client: Client
    reader: Client

    def topic(self, cell: str, queues: int = 4) -> str:
        """A new topic on every broker, known to the nameserver."""
        name = fresh(self.client.name, cell)
        self.reader.call("topic", namesrv=self.cluster.namesrv, topic=name, queues=queues)
        return name

    def retry_topic(self, group: str) -> None:
        """The group's retry topic beforehand, for a client that looks for new routes only every 30 s."""
        self.reader.call("topic", namesrv=self.cluster.namesrv, topic=f"%RETRY%{group}", queues=1)

    def group(self, cell: str, retries: int | None = None) -> str:
        """A new group's name; with `retries` it is also created, with that many retries."""
        name = fresh("g", self.client.name, cell)
        if retries is not None:
            self.reader.call("group", namesrv=self.cluster.namesrv, group=name, retries=retries)
        return name

    def produce(
        self,
        topic: str,
        mode: str,
        *,
        by: Client | None = None,
        tags: tuple[str, ...] = ("A",),
        prefix: str | None = None,
        number: str | None = None,
        count: int = COUNT,
    ) -> list[Row]:
        """`count` messages; checks that the program sent what it should have, and returns its rows.

        Their keys start with `prefix`, by default the topic's name; with `number` message i has a property of that name
        with the text i.
        """
        client = by or self.client
        prefix = prefix or topic
        extra: dict[str, Any] = {} if number is None else {"number": number}
        answer = client.call(
            "produce",
            namesrv=self.cluster.namesrv,
            group=fresh("p", client.name),
            topic=topic,
            prefix=prefix,
            count=count,
            mode=mode,
            tags=list(tags),
            **extra,
        )
        sent = rows_of(answer)
        assert len(sent) == count
        assert contents(sent) == expected(prefix, count)
        return sent

    def warm(self, topic: str, number: int, count: int) -> set[str]:
        """A few messages that the comparison leaves out; returns their keys."""
        prefix = f"warm-{number}"
        self.reader.call(
            "produce",
            namesrv=self.cluster.namesrv,
            group=fresh("p-warm"),
            topic=topic,
            prefix=prefix,
            count=count,
            mode="batch" if count > 50 else "sync",
            tags=["A"],
        )
        return {f"{prefix}-{i}" for i in range(count)}

    def read(self, topic: str, count: int) -> list[Row]:
        """Everything in a topic as Java 4.9.8's pull consumer reads it, as soon as there are `count` messages."""
        return self.pull(self.reader, topic, count)

    def pull(self, client: Client, topic: str, count: int) -> list[Row]:
        """Everything in a topic, by one client's pull consumer, as soon as there are `count` messages."""
        return self.asked(client, "pull", count, group=fresh("g-pull"), topic=topic)

    def asked(self, client: Client, op: str, count: int, **arguments: Any) -> list[Row]:
        """The rows of an operation that reads what is there now, as soon as there are `count`."""

        def ask() -> list[Row]:
            return rows_of(client.call(op, namesrv=self.cluster.namesrv, **arguments))

        return until(ask, lambda rows: len(rows) >= count, pause=0.3)

    def mqadmin(self, *words: str) -> str:
        """What Java 4.9.8's mqadmin prints."""
        output: str = self.reader.call("mqadmin", namesrv=self.cluster.namesrv, args=list(words))["output"]
        return output

    def consumed(self, member: Member, group: str) -> None:
        """Wait until the broker knows that a group has consumed all there is.

        A message that a listener has just been given is not consumed yet; a Java client tells the broker every 5 s.
        """

        def told() -> str:
            member.client.call("persist", handle=member.handle)
            return self.mqadmin("consumerProgress", "-g", group)

        output = until(told, lambda output: output.rstrip().endswith("Diff Total: 0"))
        assert output.rstrip().endswith("Diff Total: 0"), output

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        by: Client | None = None,
        expression: str = "*",
        model: str = "clustering",
        orderly: bool = False,
        fail: bool = False,
        max_reconsume: int | None = None,
        **more: Any,
    ) -> Member:
        """Start a push consumer in a client's process; `more`: what else it takes (sql, failures, suspend)."""
        client = by or self.client
        member = Member(client, fresh("member"))
        client.call(
            "subscribe",
            namesrv=self.cluster.namesrv,
            handle=member.handle,
            group=group,
            topic=topic,
            expression=expression,
            model=model,
            orderly=orderly,
            fail=fail,
            **({} if max_reconsume is None else {"maxReconsume": max_reconsume}),
            **more,
        )
        return member

    def settle(self, topic: str, members: list[Member]) -> None:
        """Return when the queues of a topic are shared for good.

        That is when twice in a row every member was given something of a warm round and no message came twice. A Go
        client looks for other members every 20 s.
        """
        clean = 0
        deadline = time.monotonic() + PATIENCE
        for number in itertools.count():
            if time.monotonic() > deadline:
                break
            keys = self.warm(topic, number, 16)
            for _ in range(10):
                got = [[key for key in member.keys(0.1) if key in keys] for member in members]
                if set().union(*got) == keys:
                    break
            clean = clean + 1 if all(got) and sum(map(len, got)) == len(keys) else 0
            if clean == 2:
                return
        raise AssertionError(f"{len(members)} members did not come to share the queues of {topic}")


def shares_of(members: list[Member], count: int) -> list[list[Row]]:
    """What each member of a group was given, as soon as they have `count` distinct messages together."""

    def ask() -> list[list[Row]]:
        return [member.received(0) for member in members]

    return until(ask, lambda shares: len({row.key for share in shares for row in share}) >= count)


@dataclass
class Member:
    """A push consumer in some client's process."""

    client: Client
    handle: str

    def raw(self, count: int, timeout: float) -> list[list[object]]:
        """Rows as they are, warming messages too; waits for `count` others, `timeout` seconds at most."""
        answer = self.client.call(
            "received", handle=self.handle, count=count, timeout=timeout, within=timeout + PATIENCE
        )
        rows: list[list[object]] = answer["rows"]
        return rows

    def keys(self, pause: float) -> list[str]:
        """The keys of all that arrived, warming messages too, after a pause in seconds."""
        return [str(row[0]) for row in self.raw(1 << 30, pause)]

    def received(self, count: int, timeout: float = PATIENCE) -> list[Row]:
        """What arrived, in order, as soon as there are `count` messages, after `timeout` seconds at the latest."""
        return rows_of({"rows": self.raw(count, timeout)})

    def stop(self) -> None:
        """Shut this consumer down."""
        self.client.call("unsubscribe", handle=self.handle)

"""A cluster with the same in it whatever its make: a topic with messages, a group that reads it, one that is away."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmq import AdminClient, Message, MessageQueue, Producer, PushConsumer
from tests.support.interop import until
from tests.support.parity.commands import Asked
from tests.support.parity.normal import normal
from tests.support.peers import Client, Cluster, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

__all__ = ["BROKER", "Stage"]

TOPIC, BROKER, QUEUES, COUNT = "T", "broker-a", 4, 12
#: The traces' topic is there from the start, and no message comes from a deleted topic in between.
_SETTINGS = {**FAST_RETRIES, "traceTopicEnable": "true", "brokerName": BROKER}

#: A member reads from the beginning, and tells how far it is at once.
_EARLY: dict[str, Any] = {
    "consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "persist_consumer_offset_interval": 0.2,
}  # fmt: skip


def _left(admin: AdminClient, group: str) -> int:
    """What a group has not consumed yet, as the broker knows."""
    queues = [one for queue, one in admin.consume_stats(group).offset_table.items() if queue.topic == TOPIC]
    return sum(one.broker_offset - one.consumer_offset for one in queues) if queues else -1


class Stage:
    """A running cluster that was seeded, its online producer and consumer, and the words of command lines.

    :param kind: of tests.support.peers.start_cluster.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(prefix="rmq-parity-"))
        self.cluster: Cluster = start_cluster(kind, properties=_SETTINGS)
        self._open: list[Any] = []
        try:
            self.words: Mapping[str, str] = self._seed()
        except BaseException:
            self.close()
            raise

    def _seed(self) -> dict[str, str]:
        where: dict[str, Any] = {"namesrv": self.cluster.namesrv}
        addr = self.cluster.broker_addr
        with AdminClient(**where) as admin:
            until(admin.cluster_info, lambda info: BROKER in info.broker_addr_table)
            for topic in (TOPIC, "Sent"):
                admin.create_and_update_topic(addr, topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            until(admin.topic_list, lambda known: {TOPIC, "Sent"} <= set(known.topic_list))
        seen: list[str] = []
        for group, expression in (("read", "*"), ("g", "*"), ("sql", "a > 1")):
            self._open.append(consumer := PushConsumer(group, **where, **_EARLY))
            consumer.subscribe(TOPIC, expression, sql=group == "sql")
            consumer.register_message_listener(lambda message: seen.append(message.keys))
            consumer.start()
        before = time.time_ns() // 1_000_000 - 60_000
        producer = Producer("online-producer", **where)
        producer.start()
        self._open.append(producer)
        results = []
        middle = 0
        for number in range(COUNT):
            if number == COUNT // 2:
                time.sleep(0.6)  # a time between both halves, nearer to the first: brokers of 4.9 look for the nearest
                middle = time.time_ns() // 1_000_000 - 450
            message = Message(
                TOPIC, f"body {number}".encode(), tags="TagA" if number % 3 else "TagB", keys=f"key-{number}",
                properties={"a": str(number)},
            )  # fmt: skip
            results.append(producer.send(message, queue=MessageQueue(TOPIC, BROKER, number % QUEUES)))
        until(lambda: len(seen), lambda count: count >= 3 * COUNT - 2)
        away = self._open.pop(0)
        away.shutdown()
        with Producer("tracing", enable_msg_trace=True, **where) as tracing:
            traced = tracing.send(Message("Sent", b"traced", tags="TagA", keys="traced"))
        with AdminClient(**where) as admin:
            for group in ("g", "read"):
                until(lambda: _left(admin, group), lambda left: left == 0)  # noqa: B023
        # Two seconds after the start; before that a Java broker may give no answer.
        with AdminClient(**where, mq_client_api_timeout=3) as admin:
            until(lambda: admin.broker_runtime_stats(addr)["putTps"].strip(), bool)
        fifth = results[5]
        assert fifth.offset_msg_id is not None
        return {
            "b": addr, "c": "DefaultCluster", "bn": BROKER, "id": fifth.offset_msg_id, "uid": fifth.msg_id,
            "unknown-id": fifth.offset_msg_id[:-8] + "00FFFFFF", "traced": traced.msg_id,
            "client": self._open[0].client_id,
            "before": str(before), "middle": str(middle), "after": str(before + 3_600_000), "tmp": str(self.folder),
        }  # fmt: skip

    def mqadmin(self, tools: Client, asked: Asked) -> str:
        """What a version's mqadmin prints for a command, and writes."""
        words = [word.format(**self.words) for word in asked.words.split()]
        printed: str = tools.call("mqadmin", namesrv=self.cluster.namesrv, args=words)["output"]
        for file in sorted(self.folder.iterdir()):
            printed += f"\n{file.name}\n{file.read_text()}"
            file.unlink()
        return printed

    def lines(self, tools: Client, asked: Asked) -> list[str]:
        """The same, as it is compared."""
        named = {self.words[name]: name for name in ("b", "id", "uid", "traced", "unknown-id", "client", "tmp")}
        host, _, port = self.words["b"].partition(":")
        named |= {f"{host}:{int(port) + 1}": "ha", self.cluster.namesrv: "namesrv"}
        return normal(self.mqadmin(tools, asked), named, sort=asked.sort, sizes="5.3.3" not in tools.name)

    def close(self) -> None:
        """Stop clients and daemons."""
        for client in self._open:
            client.shutdown()
        self.cluster.stop()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Job files for tests, run in the session of the tests against a cluster of their own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmq
from rmq.protocol.errors import RMQError
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.job import Job
from rmq.testing.cluster import BlockingCluster
from tests.support.spark.queries import TOO_BUSY


@dataclass
class Bench:
    """A cluster, a Spark session and a folder.

    :param spark: a SparkSession.
    """

    cluster: BlockingCluster
    spark: Any
    folder: Path

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv_addr

    def create(self, *topics: str, queues: int = 2) -> None:
        with rmq.AdminClient(namesrv=self.namesrv) as admin:
            for topic in topics:
                admin.create_and_update_topic(
                    self.cluster.broker_addr, topic, read_queue_nums=queues, write_queue_nums=queues
                )

    def send(self, topic: str, bodies: Sequence[object], **arguments: Any) -> None:
        """Send bodies: texts as they are, others as JSON."""
        with rmq.Producer("bench", namesrv=self.namesrv, send_msg_timeout=60) as producer:
            for body in bodies:
                text = body if isinstance(body, (str, bytes)) else json.dumps(body)
                producer.send(rmq.Message(topic, text, **arguments))

    def load(self, text: str, name: str = "job") -> Job:
        """A job of YAML, with {namesrv} and {folder} filled in."""
        filled = text.replace("{namesrv}", self.namesrv).replace("{folder}", str(self.folder))
        path = f"{name}.yaml"
        return catalog.of(path, document.parse(path, filled, {}))

    def run(self, text: str, name: str = "job") -> str:
        """Run a job to its end; what it printed. One that a busy machine kept from starting is started again."""
        from rmq.spark.pipeline.running.runner import run_in

        while True:
            out = io.StringIO()
            try:
                run_in(self.spark, self.load(text, name), out)
            except RMQError as error:
                if TOO_BUSY not in str(error) or ": batch " in out.getvalue():
                    raise
            else:
                return out.getvalue()

    def rows(self, topic: str, **options: str) -> list[Any]:
        """All that is in a topic."""
        named = {"nameServer": self.namesrv, "topic": topic} | options
        return list(self.spark.read.format("rocketmq").options(**named).load().collect())

    def results(self, topic: str) -> list[Mapping[str, Any]]:
        """The JSON objects in a topic."""
        return [json.loads(bytes(row["value"])) for row in self.rows(topic)]


def counted(
    call: Callable[..., Any], *, fail_at: int, error: Exception, counts: Callable[..., bool] = lambda *args: True
) -> Callable[..., Any]:
    """``call``, but its ``fail_at``-th use raises, of those whose arguments count."""
    uses = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal uses
        uses += counts(*args)
        if uses == fail_at:
            raise error
        return call(*args, **kwargs)

    return wrapped

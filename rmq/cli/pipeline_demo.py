"""The pipeline's example, end to end on this machine: orders into a broker, Spark over them, results, a chart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import rmq
import rmq.spark
from rmq.cli.dev.cluster import say
from rmq.protocol.errors import RMQError
from rmq.runtime.world import Random, World
from rmq.spark import require_java, session
from rmq.spark.pipeline import catalog
from rmq.spark.pipeline.running import charts
from rmq.spark.pipeline.running.runner import run_in
from rmq.spark.pipeline.running.stop import Stop
from rmq.testing.cluster import BlockingCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["demo"]

EVENTS, TOTALS = "OrderEvents", "OrderTotals"
CITIES = ("Berlin", "Lagos", "Lima", "Oslo", "Osaka")
#: The events are spread over this time before now.
SPAN = timedelta(hours=3)
WINDOW = timedelta(minutes=15)
#: One of so many is no JSON.
UNREADABLE = 5_000
_AT_ONCE = 100


def demo(folder: str, count: int, master: str) -> None:
    """Run the example.

    :param folder: for the store, the jobs, the archive and the results; made.
    :param count: orders.
    :param master: where Spark runs.
    :raises ConfigError: Java, pyspark or matplotlib is missing.
    :raises RMQError: a job failed, or the results are not those of the archive.
    """
    require_java()
    charts.require()
    config = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with BlockingCluster(os.path.join(folder, "cluster")) as cluster:
        say(f"== nameserver on {cluster.namesrv_addr}, broker on {cluster.broker_addr}, all files in {folder}")
        _send(cluster, count)
        say(f"== starting Spark ({master})")
        spark = session("rmq-pipeline-demo", master=master, config=config)
        try:
            spark.sparkContext.setLogLevel("ERROR")
            _Example(spark, cluster.namesrv_addr, folder).run()
        finally:
            spark.stop()
    say(f"== done; everything is in {folder}")


def _send(cluster: BlockingCluster, count: int) -> None:
    say(f"== sending {count:,} order events of the last {SPAN.total_seconds() / 3600:g} hours to {EVENTS}")
    with rmq.AdminClient(namesrv=cluster.namesrv_addr) as admin:
        for topic in (EVENTS, TOTALS):
            admin.create_and_update_topic(cluster.broker_addr, topic, read_queue_nums=4, write_queue_nums=4)
    with rmq.Producer("orders", namesrv=cluster.namesrv_addr) as producer:
        for batch in _batches(orders(count, datetime.now(UTC), World.real().random)):
            producer.send([rmq.Message(EVENTS, body, tags="created", keys=key) for key, body in batch])


def orders(count: int, until: datetime, random: Random) -> Iterator[tuple[str, str]]:
    """(key, body) of orders in the order of their time, a little shuffled; now and then one that is no JSON."""
    for number in range(count):
        key = f"order-{number}"
        if number % UNREADABLE == UNREADABLE - 1:
            yield key, "this is no JSON"
            continue
        at = until - SPAN * (1 - number / count) - timedelta(seconds=random.uniform(0, 60))
        order = {
            "orderId": key,
            "city": CITIES[min(int(random.expovariate(0.7)), len(CITIES) - 1)],
            "amount": round(random.lognormvariate(3, 0.6), 2),
            "createdAt": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        yield key, json.dumps(order)


def _batches(items: Iterator[Any]) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass
class _Example:
    spark: SparkSession
    namesrv: str
    folder: str

    def run(self) -> None:
        self._job("archive", {"eventTime": "$.createdAt", "compaction": {"minFiles": "2"}})
        self._job("windows", {"window": f"{WINDOW.total_seconds() / 60:g}m", "watermark": "2m"})
        totals = self._totals()
        self._compare(totals)
        self._tell(totals)

    def _job(self, name: str, given: dict[str, Any]) -> None:
        """Write a job file as a user would, and run it."""
        own: dict[str, Any] = {"checkpoint": self._path("checkpoints", name), "trigger": "once"}
        if name == "archive":
            own["path"] = self._path("archive")
        path = self._path("jobs", f"{name}.yaml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(catalog.sample(name, {"cluster": {"nameServer": self.namesrv}} | own | given))
        say(f"== rmq pipeline run {path}")
        stop = Stop()
        run_in(self.spark, catalog.load(path, {}), stop=stop)
        if stop.asked:
            raise KeyboardInterrupt

    def _path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def _totals(self) -> list[dict[str, Any]]:
        """The results in the topic, by window and city."""
        options = {"nameServer": self.namesrv, "topic": TOTALS, "columns": "value"}
        rows = self.spark.read.format("rocketmq").options(**options).load().collect()
        read = [json.loads(bytes(row["value"]), parse_float=Decimal) for row in rows]
        say(f"== the topic {TOTALS} holds {len(read)} results")
        return sorted(read, key=lambda one: (one["windowStart"], one["city"]))

    def _compare(self, totals: Sequence[dict[str, Any]]) -> None:
        """:raises RMQError: the totals are not what the archive says about the same windows."""
        from pyspark.sql import functions as sql

        archived = rmq.spark.read_archive(self.spark, self._path("archive"))
        last = max((one["windowEnd"] for one in totals), default="")
        body = sql.from_json(sql.col("value").cast("string"), "createdAt timestamp, amount decimal(12,2)")
        orders = archived.select(body.alias("order")).where(
            sql.col("order.createdAt") < sql.lit(last).cast("timestamp")
        )
        sums = sql.count(sql.lit(1)).alias("orders"), sql.sum("order.amount").alias("revenue")
        found = orders.agg(*sums).first()
        said = sum(one["orders"] for one in totals), sum(Decimal(one["revenue"]) for one in totals)
        if found is None or said != (found["orders"], found["revenue"]):
            raise RMQError(f"the topic {TOTALS} says {said} up to {last}, the archive says {found}")
        say(f"== the archive says the same up to {last}: {said[0]:,} orders, {said[1]:,} of revenue")
        say(f"   {archived.count():,} messages in {self._path('archive')}; the window that is still open comes later")

    def _tell(self, totals: Sequence[dict[str, Any]]) -> None:
        """The table and the chart."""
        say(f"   {'city':<10}{'orders':>10}{'revenue':>14}{'a window':>12}")
        series: dict[str, list[tuple[datetime, float]]] = {}
        for city in sorted({one["city"] for one in totals}):
            own = [one for one in totals if one["city"] == city]
            revenue = sum(Decimal(one["revenue"]) for one in own)
            say(f"   {city:<10}{sum(one['orders'] for one in own):>10,}{revenue:>14,.2f}{revenue / len(own):>12,.2f}")
            series[city] = [(datetime.fromisoformat(one["windowStart"]), float(one["revenue"])) for one in own]
        path = self._path("revenue.png")
        with open(path, "wb") as file:
            file.write(charts.stacked("Revenue by city", series, WINDOW.total_seconds(), "revenue"))
        with open(self._path("totals.json"), "w", encoding="utf-8") as out:
            json.dump(totals, out, default=float, indent=2)
        say(f"== the chart is {path}, the table {self._path('totals.json')}")

"""A Spark driver of its own for tests that kill it: reads a topic into Parquet files until it has all of it.

``python -m tests.support.spark.driver MASTER NAMESRV TOPIC FOLDER [SINK]``: checkpoint, output and gate are in the
folder; with a sink, a topic, it sends what names each message there instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rmq.spark
from rmq.spark.source.readers import LIMITS
from tests.spark.conftest import CONFIG
from tests.support.spark.gate import gate


def main(master: str, namesrv: str, topic: str, folder: Path, sink: str | None = None) -> None:
    spark = rmq.spark.session("driver", master=master, config={**CONFIG, "spark.local.dir": str(folder / "local")})
    given = {"nameServer": namesrv, "topic": topic, "startingOffsets": "earliest", "minPartitions": "2"}
    if LIMITS:
        given["maxOffsetsPerTrigger"] = "3000"
    frame = spark.readStream.format("rocketmq").options(**given, columns="topic,brokerName,queueId,offset,value").load()
    rows = frame.mapInArrow(gate(folder), frame.schema)
    if sink is None:
        writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    else:
        names = rows.selectExpr("concat(queueId, ' ', offset) AS value")
        writer = names.writeStream.format("rocketmq").options(nameServer=namesrv, topic=sink)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    print([each.numInputRows for each in query.recentProgress], flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])

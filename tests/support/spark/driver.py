"""A Spark driver of its own for tests that kill it: reads a topic into Parquet files until it has all of it.

``python -m tests.support.spark.driver MASTER NAMESRV TOPIC FOLDER``: checkpoint, output and gate are in the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rmq.spark
from rmq.spark.source.readers import LIMITS
from tests.spark.conftest import CONFIG
from tests.support.spark.gate import gate


def main(master: str, namesrv: str, topic: str, folder: Path) -> None:
    spark = rmq.spark.session("driver", master=master, config={**CONFIG, "spark.local.dir": str(folder / "local")})
    given = {"nameServer": namesrv, "topic": topic, "startingOffsets": "earliest", "minPartitions": "2"}
    if LIMITS:
        given["maxOffsetsPerTrigger"] = "3000"
    frame = spark.readStream.format("rocketmq").options(**given, columns="topic,brokerName,queueId,offset,value").load()
    writer = frame.mapInArrow(gate(folder), frame.schema).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(folder / "out"))
    query = writer.start()
    query.awaitTermination()
    print([each.numInputRows for each in query.recentProgress], flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))

"""What makes each JVM of Spark in the tests quick to start: the classes that all of them load."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.support.peers.classes import class_options
from tests.support.peers.process import kill_group, spawn

__all__ = ["spark_class_options"]

_ROOT = Path(__file__).parents[3]
#: Seconds, for some 25 of CPU; the test that waits for it is ended after minutes.
_PATIENCE = 180.0


def spark_class_options() -> tuple[str, ...]:
    """JVM options for drivers, executors and daemons that find their settings outside ``SPARK_CONF_DIR``."""

    def train(options: tuple[str, ...]) -> None:
        env = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)}
        env["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
        with tempfile.TemporaryDirectory(prefix="rmq-spark-classes-") as folder:
            command = [sys.executable, "-m", "tests.support.spark.classes", folder]
            process = spawn(command, log=Path(folder, "log"), cwd=Path(folder), env=env)
            try:
                assert process.wait(_PATIENCE) == 0, Path(folder, "log").read_text()[-3000:]
            finally:
                kill_group(process)

    return class_options("spark/classes", train, pyspark.__file__, pyspark.__version__)


def main(folder: str) -> None:
    """A little of what tests do, in a JVM that has ended when this returns."""
    import rmq.spark
    from tests.spark.conftest import CONFIG

    spark = rmq.spark.session("classes", master="local[1]", config={**CONFIG, "spark.local.dir": f"{folder}/local"})
    spark.range(100).selectExpr("id % 3 AS k", "cast(id AS string) AS v").write.parquet(f"{folder}/table")
    table = spark.read.parquet(f"{folder}/table")
    table.groupBy("k").count().collect()
    table.mapInArrow(lambda batches: batches, table.schema).collect()
    stream = spark.readStream.schema(table.schema).parquet(f"{folder}/table").writeStream.format("parquet")
    stream = stream.option("path", f"{folder}/copy").option("checkpointLocation", f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    main(sys.argv[1])

"""RocketMQ in Spark: the data source ``rocketmq`` for batches and streams, to read and to write.

::

    spark = rmq.spark.session("orders")
    orders = spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "orders").load()

Importing this needs neither pyspark nor pyarrow; names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.spark.data_source import RocketMQDataSource
    from rmq.spark.launch import register, require_java, session
    from rmq.spark.pipeline.running.snapshot import read_archive
    from rmq.spark.progress import lag
    from rmq.spark.sink.identity import deduplicate, identity

__all__ = [
    "RocketMQDataSource",
    "deduplicate",
    "identity",
    "lag",
    "read_archive",
    "register",
    "require_java",
    "session",
]

_HOME_OF = {
    "RocketMQDataSource": "rmq.spark.data_source",
    "deduplicate": "rmq.spark.sink.identity",
    "identity": "rmq.spark.sink.identity",
    "lag": "rmq.spark.progress",
    "read_archive": "rmq.spark.pipeline.running.snapshot",
    "register": "rmq.spark.launch",
    "require_java": "rmq.spark.launch",
    "session": "rmq.spark.launch",
}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""What Spark finds by itself: it looks into every package whose name begins with ``pyspark_``.

Installed as ``pyspark_rocketmq``. A package of that name that cannot be imported would hide those of others, too: where
pyspark or pyarrow is missing, this one only has nothing to offer.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rmq.spark.source import RocketMQDataSource
    except ImportError as error:
        raise AttributeError(f"the data source rocketmq cannot be loaded: {error}") from error
    return RocketMQDataSource

"""What Spark finds by itself: it looks into every package whose name begins with ``pyspark_``.

Installed as ``pyspark_rocketmq``. A package of that name that cannot be imported would hide those of others, too: this
one has nothing to offer without pyspark, and offers a source that says so where pyarrow does not load.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmq.protocol.errors import ConfigError
    from rmq.spark.launch import data_source

    try:
        return data_source()
    except ConfigError as error:
        try:
            return importlib.import_module("pyspark_rocketmq.unloaded").Unloaded
        except ImportError:
            raise AttributeError(str(error)) from error

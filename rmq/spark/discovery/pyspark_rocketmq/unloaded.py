"""Stands for the data source where it cannot be loaded: whoever asks for it is told why, instead of "not found"."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from rmq.spark.launch import data_source


class Unloaded(DataSource):
    """``rocketmq``, without what it needs. :raises ConfigError: what that is."""

    def __init__(self, options: dict[str, str]) -> None:
        data_source()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

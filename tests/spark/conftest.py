"""One Spark session for all tests of this folder, and brokers as processes of their own."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from rmq.protocol.errors import ConfigError
from tests.support.peers.cluster import Cluster, start_cluster
from tests.support.peers.patient import patient_clients
from tests.support.peers.tools import ToolMissing, skip_or_fail
from tests.support.spark.refusals import LARGEST

#: Small and quiet: tests run little data, and a UI and more shuffle partitions only cost time.
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


@pytest.fixture(scope="session", autouse=True)
def _spark_is_there() -> None:
    """Skip with the reason where Spark cannot run; in CI that is a failure."""
    from rmq.spark.launch import require_java

    try:
        if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
            raise ToolMissing("pyspark is not installed: pip install 'rmq[spark]'")
        require_java()
    except ToolMissing as error:
        skip_or_fail(error)
    except ConfigError as error:
        skip_or_fail(ToolMissing(str(error)))


@pytest.fixture(scope="session", autouse=True)
def _patient_clients() -> Iterator[None]:
    with patient_clients():
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_to_start(_spark_is_there: None) -> Iterator[None]:
    """The session here and each program that a test runs begin with Spark's classes loaded."""
    from tests.support.spark.classes import spark_class_options

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", " ".join(spark_class_options()))
        yield


@pytest.fixture(scope="session")
def spark(_quick_to_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the data source registered; the first test that asks pays for the JVM."""
    import rmq.spark

    folder = tmp_path_factory.mktemp("spark")
    # Spark takes relative paths from where its JVM was started; the workers still find the tests' own modules.
    here = os.getcwd()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    os.chdir(folder)
    with warnings.catch_warnings():
        # pyspark leaves what it opened for starting the JVM to the garbage collector.
        warnings.simplefilter("ignore")
        session = rmq.spark.session(
            "tests",
            master="local[2]",
            config={
                **CONFIG,
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "local"),
            },
        )
    os.chdir(here)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Our nameserver and broker, as processes."""
    limits = {
        "maxTransferCountOnMessageInMemory": "1024",
        "maxTransferBytesOnMessageInMemory": str(4 << 20),
        "maxMessageSize": str(LARGEST),
    }
    with start_cluster("ours", properties=limits) as made:
        yield made

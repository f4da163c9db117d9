"""Starting Spark with our data source, and one clear line when there is no Java for it."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmq.protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["data_source", "register", "require_java", "session"]

_LEAST_JAVA = 17
#: What Spark takes for a master; of another it says so in a stack trace of its Java.
_MASTER = re.compile(r"local|yarn|spark://|k8s://")
#: Begins the error of pyspark when its Java has ended instead of taking calls.
_JAVA_ENDED = "[JAVA_GATEWAY_EXITED]"


def require_java() -> None:
    """Make sure that Spark will find a Java it runs on.

    :raises ConfigError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError(
            f"Spark needs Java {_LEAST_JAVA} or newer, and there is no java: install one, or set JAVA_HOME"
        )
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else f"no answer in {error.timeout:g} s"
        raise ConfigError(
            f"Spark needs Java {_LEAST_JAVA} or newer, and {java} cannot be run ({why}): check JAVA_HOME"
        ) from None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if ran.returncode or found is None:
        raise ConfigError(f"Spark needs Java {_LEAST_JAVA} or newer, and {java} -version says nothing: check JAVA_HOME")
    if int(found[1]) < _LEAST_JAVA:
        raise ConfigError(f"Spark needs Java {_LEAST_JAVA} or newer, and {java} is Java {found[1]}: set JAVA_HOME")


def data_source() -> type[DataSource]:
    """The class of the data source. :raises ConfigError: what it needs is missing, or does not load."""
    try:
        for name in (
            "source.task",
            "source.readers",
            "sink.writers",
        ):  # the source loads them late, in processes that nobody looks at
            importlib.import_module(f"rmq.spark.{name}")
        from rmq.spark.data_source import RocketMQDataSource
    except Exception as error:  # an Arrow that does not fit its numpy raises what it likes
        why = " ".join(str(error).split())
        raise ConfigError(f"the data source rocketmq cannot be loaded: {why}: pip install 'rmq[spark]'") from None
    return RocketMQDataSource


def register(spark: SparkSession) -> None:
    """Make ``format("rocketmq")`` known to a session; needed only where ``pyspark_rocketmq`` is not installed.

    :raises ConfigError: the source cannot be loaded.
    """
    spark.dataSource.register(data_source())


def session(app_name: str, *, master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session with our data source.

    :param master: such as ``local[2]``; None: what spark-submit says, or local.
    :param config: Spark's own settings.
    :raises ConfigError: Java, pyspark or pyarrow is missing, there is no such master, or Java does not start.
    """
    require_java()
    if master is not None and not _MASTER.match(master):
        raise ConfigError(
            f"{master!r} is no master of Spark: give local[2], spark://host:7077, yarn or k8s://https://host"
        )
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("pyspark is not installed: pip install 'rmq[spark]'") from None
    data_source()
    # Workers otherwise take the first python3 of the PATH, whatever runs this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config("spark.sql.session.timeZone", "UTC")
    if master is not None:
        builder = builder.master(master)
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except Exception as error:
        if not str(error).startswith(_JAVA_ENDED):
            raise
        # Java's own words have gone to standard error.
        raise ConfigError(
            "Spark's Java ended as it started: what it says stands above (memory and options of the driver)"
        ) from error
    register(made)
    return made

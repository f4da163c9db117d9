"""What every job file has: the cluster, what is read, where progress is shown; the jobs add keys of their own."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from rmq.protocol.errors import ConfigError
from rmq.protocol.names import group_fault, topic_fault
from rmq.spark.options.checked import SourceOptions
from rmq.spark.pipeline.kinds import Duration, Flag, Kind, Many, Mapped, Text, Whole
from rmq.spark.pipeline.spec import Spec, key, maybe, section

__all__ = ["ONCE", "TOPIC_NAME", "Cluster", "Job", "Reading", "Source", "StreamJob", "folder_fault", "source_faults"]

_OPTION = re.compile(r"\boptions? (\w+)|^(\w+)=")


TOPIC_NAME = Text("a topic's name", topic_fault)


class Cluster(Spec):
    """The RocketMQ cluster."""

    name_server = key(Text("host:port;host:port"), "Name servers, separated by semicolons.", sample="127.0.0.1:9876")
    access_key = maybe(Text(), "Access key; ${NAME} takes it from the environment.", sample="${ROCKETMQ_ACCESS_KEY}")
    secret_key = maybe(Text(), "Secret key of it.", sample="${ROCKETMQ_SECRET_KEY}")
    security_token = maybe(Text(), "Token of temporary credentials.", sample="${ROCKETMQ_TOKEN}")
    credentials_file = maybe(
        Text(), "YAML with accessKey, secretKey and options of TLS instead.", sample="/etc/rocketmq/client.yml"
    )
    namespace = maybe(Text(), "Namespace put in front of topics and groups.", sample="shop")
    use_tls = maybe(Flag(), "Connect with TLS.", sample="true")
    tls_ca_file = maybe(
        Text(), "Certificates to trust; a path on every machine of Spark.", sample="/etc/rocketmq/ca.pem"
    )
    tls_cert_file = maybe(Text(), "Certificate to show, with its key below.", sample="/etc/rocketmq/client.pem")
    tls_key_file = maybe(Text(), "Key of the certificate.", sample="/etc/rocketmq/client.key")
    tls_key_password = maybe(Text(), "Password of the key.", sample="${ROCKETMQ_KEY_PASSWORD}")
    tls_server_name = maybe(
        Text(), "The name that certificates must have. Default: the address called.", sample="broker.example.com"
    )
    tls_verify = maybe(Flag(), "Check the server's certificate. Default: true.", sample="true")
    tls_check_hostname = maybe(Flag(), "Check the name in it, too. Default: true.", sample="true")

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        return _options(self)


class Reading(Spec):
    """How topics are read: options of the data source (docs/spark/read.md), none of them needed."""

    sub_expression = maybe(Text(), "Only messages with these tags.", sample="'created || paid'")
    sql92 = maybe(Text(), "Only messages whose properties meet a condition.", sample='"amount > 100"')
    fail_on_data_loss = maybe(
        Flag(),
        "Stop when messages to be read are gone (expired, topic made anew); false goes on without them.",
        sample="true",
    )
    min_partitions = maybe(Whole(1, 1_000_000), "At least so many tasks a batch.", sample="8")
    max_partitions = maybe(Whole(1, 1_000_000), "At most so many tasks a batch.", sample="16")
    pull_batch_size = maybe(Whole(1, 65_535), "Messages asked for at a time.", sample="1024")

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        return _options(self)


class Topics(Spec):
    topics = maybe(Many(TOPIC_NAME), "Topics to read.", sample="[OrderEvents]", shown=True)
    topic_pattern = maybe(
        Text("a regular expression"), "Or a pattern of whole names: new topics are read as well.", sample="'Order.*'"
    )
    starting_offsets = maybe(
        Text(),
        "Where a job without checkpoint begins: earliest, latest (default), group, or JSON of offsets.",
        sample="earliest",
        shown=True,
    )
    starting_timestamp = maybe(
        Text(), "Or the same as a time: messages stored from then on.", sample="2026-03-01T00:00:00Z"
    )
    max_offsets_per_trigger = maybe(Whole(1, 10**12), "Most messages a batch (Spark 4.2 and later).", sample="500000")
    min_offsets_per_trigger = maybe(
        Whole(1, 10**12), "Wait for so many, but not longer than the next key says.", sample="1000"
    )
    max_trigger_delay = maybe(Text("a duration"), "Longest wait for minOffsetsPerTrigger.", sample="1m")
    group_id = maybe(
        Text("a group's name", group_fault),
        "Consumer group whose offsets show the job's lag in mqadmin. Default: the job's name.",
        sample="pipeline",
    )


class Source(Reading, Topics):
    """What is read, and how: topics or topicPattern, and options of the data source (docs/spark/read.md)."""

    def options(self) -> dict[str, str]:
        found = super().options()
        if "topics" in found:
            found["topic"] = found.pop("topics")
        return found


class Metrics(Spec):
    """Figures for Prometheus, over HTTP."""

    port = maybe(
        Whole(0, 65_535),
        "Serve /metrics, /health/live and /health/ready on this port; 0 takes a free one.",
        sample="5559",
    )
    host = key(Text(), "Address they are served on.", default="127.0.0.1")


class SparkSettings(Spec):
    """Spark itself; spark-submit's own arguments go before these."""

    master = maybe(Text(), "Where to run. Default: what spark-submit says, else this machine.", sample="local[4]")
    config = maybe(Mapped(Text()), "Settings of the session.", sample='\nspark.sql.shuffle.partitions: "8"')


class Job(Spec):
    """Base of the jobs."""

    job = key(Text(), "Which of the ready jobs this is.")
    name = maybe(
        Text("a name", group_fault), "Name of the job in logs and metrics. Default: the file's.", sample="orders"
    )
    cluster = section(Cluster, required=True)
    metrics = section(Metrics, late=True)
    spark = section(SparkSettings, late=True)

    def title(self) -> str:
        return self.name or self.job

    def reading(self, reading: Reading, extra: dict[str, str], *, stream: bool) -> dict[str, str]:
        """All options of a read.

        :param extra: options that the job sets itself.
        """
        options = self.cluster.options() | reading.options() | extra
        if stream:
            options.setdefault("groupId", self.title())
        return options


#: The trigger for what there is now and no more.
ONCE = -1.0


class Trigger(Kind[float]):
    """Seconds between batches, or :data:`ONCE`."""

    def __init__(self) -> None:
        super().__init__("a duration such as 10s, or once")

    def value(self, text: str) -> float:
        return ONCE if text == "once" else Duration().value(text)

    def plain(self) -> dict[str, Any]:
        return {"anyOf": [{"const": "once"}, Duration().plain()]}


class StreamJob(Job):
    """Base of the jobs that run until they are stopped and go on where they were."""

    source = section(Source, required=True)
    checkpoint = key(
        Text("a folder"),
        "Where the job remembers how far it is, a folder of its own: any that Spark can write (s3a://, hdfs://).",
        sample="checkpoints/orders",
    )
    trigger = key(
        Trigger(),
        "How often a batch is made. once: what there is now and no more, then end (for cron).",
        default="10s",
    )

    def source_options(self) -> dict[str, str]:
        return self.reading(self.source, {}, stream=True)

    def faults(self) -> Iterator[tuple[str, str]]:
        yield from source_faults(self, self.source_options(), "source", self.source)


def folder_fault(checkpoint: str, other: str, name: str) -> str | None:
    """What is wrong with a checkpoint beside another folder of the job, or None.

    :param name: the key of the other folder.
    """
    ours, theirs = _normal(checkpoint), _normal(other)
    if ours == theirs:
        return f"the same folder as {name}: give a folder of its own"
    if ours.startswith(f"{theirs}/") and not ours[len(theirs) + 1 :].startswith(("_", ".")):
        return f"a folder in {name}, whose readers would take it for data: give a folder of its own"
    return None


def _normal(address: str) -> str:
    """A folder as it is written when it is written in one way."""
    scheme, colon, path = address.partition(":")
    if colon and scheme != "file" and "/" not in scheme:
        return f"{scheme}:{posixpath.normpath(path)}"
    return os.path.abspath(re.sub("^/+", "/", path) if colon and scheme == "file" else address)


def source_faults(job: Job, options: dict[str, str], name: str, reading: Reading) -> Iterator[tuple[str, str]]:
    """What the data source would say about its options, at the key it is about.

    :param name: the section that ``reading`` was read from.
    """
    try:
        SourceOptions.of(options)
    except ConfigError as error:
        found = _OPTION.search(str(error))
        option = (found[1] or found[2] or "") if found else ""
        where = "cluster" if job.cluster.given(option) else name
        yield f"{where}.{option}" if reading.given(option) or where == "cluster" else name, str(error)


def _options(spec: Spec) -> dict[str, str]:
    found = {}
    for attribute, line in spec.keys.items():
        value = getattr(spec, attribute)
        if value is not None:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            found[line.name] = text.lower() if isinstance(value, bool) else text
    return found

"""Options as readers and writers see them; what does not fit together is one line that names an option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq.protocol.errors import ConfigError, RMQError
from rmq.protocol.namespaces import wrap
from rmq.protocol.subscription import SQL92, TAG, build
from rmq.spark.options.positions import EARLIEST, LATEST, Position
from rmq.spark.options.table import BATCHES, READING, STREAMS, WRITING, Given, check_kind

__all__ = ["COLUMN_OPTIONS", "Endpoint", "SinkOptions", "SourceOptions", "Tls"]

#: Which columns there are; a schema says the same.
COLUMN_OPTIONS = ("columns", "includeProperties", "includeSystem")
_OF_TLS = (
    "tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPassword", "tlsServerName", "tlsVerify", "tlsCheckHostname",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS; paths are on the machine that connects."""

    verify: bool = True
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    check_host: bool = True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which cluster, as whom, how."""

    name_servers: tuple[str, ...]
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str | None = None
    tls: Tls | None = None

    @classmethod
    def of(cls, given: Given) -> Endpoint:
        if given["nameServer"] is None:
            raise ConfigError("the option nameServer is missing: give the name servers, such as 127.0.0.1:9876")
        given.needs("accessKey", "secretKey")
        given.needs("secretKey", "accessKey")
        given.needs("securityToken", "accessKey")
        given.needs("tlsCertFile", "tlsKeyFile")
        given.needs("tlsKeyFile", "tlsCertFile")
        given.needs("tlsKeyPassword", "tlsKeyFile")
        given.clash("credentialsFile", "accessKey", "an account has one place")
        keys = (given["accessKey"], given["secretKey"], given["securityToken"])
        tls = None
        if "credentialsFile" in given:
            keys, tls = _of_file(given["credentialsFile"])
        if given["useTLS"]:
            files = (given["tlsCaFile"], given["tlsCertFile"], given["tlsKeyFile"], given["tlsKeyPassword"])
            tls = Tls(given["tlsVerify"], *files, given["tlsServerName"], given["tlsCheckHostname"])
            for name in ("tlsCaFile", "tlsServerName"):
                if name in given and not tls.verify:
                    raise ConfigError(f"the option {name} does nothing with tlsVerify=false: give one of them")
        else:
            given.refuse(_OF_TLS, "needs useTLS=true beside it")
            tls = None if "useTLS" in given else tls
        return cls(given["nameServer"], *keys, given["namespace"], tls)

    def wrap(self, resource: str) -> str:
        """A topic's or group's name as the cluster knows it."""
        return wrap(self.namespace, resource)


def _of_file(path: str) -> tuple[tuple[str | None, str | None, str | None], Tls | None]:
    """Account and TLS of a credentials file, which is read where Spark plans; other machines are told what it says.

    :raises ConfigError: it cannot be used.
    """
    from rmq.auth.client_file import read_client_file
    from rmq.runtime.files import RealFiles

    found = read_client_file(RealFiles(), path)
    account, tls = found.account, found.tls
    keys = (account.access_key, account.secret_key, account.security_token) if account is not None else (None,) * 3
    if not tls or tls.get("useTLS") == "false":
        return keys, None
    if "tlsKeyPasswordFile" in tls:
        raise ConfigError(f"{path}: tlsKeyPasswordFile is not for Spark: give tlsKeyPassword")
    return keys, Tls(
        tls.get("tlsVerify") != "false",
        tls.get("tlsCaFile"),
        tls.get("tlsCertFile"),
        tls.get("tlsKeyFile"),
        tls.get("tlsKeyPassword"),
        tls.get("tlsServerName"),
        tls.get("tlsCheckHostname") != "false",
    )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, from where, in which portions."""

    endpoint: Endpoint
    topics: tuple[str, ...]
    topic_pattern: str | None
    group: str
    start: Position | None
    end: Position
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    include_properties: bool
    include_system: bool
    columns: tuple[str, ...]
    expression: str
    expression_type: str
    pull_batch_size: int
    pull_timeout: float
    commit: bool
    given: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options as Spark hands them over.

        :raises ConfigError: names the option that is unknown, missing, malformed or in conflict with another.
        """
        given = Given(options, READING)
        endpoint = Endpoint.of(given)
        given.clash("topic", "topicPattern", "name topics or a pattern for them")
        if "topic" not in given and "topicPattern" not in given:
            raise ConfigError("the option topic is missing: name one or several topics, or give topicPattern")
        given.clash("startingOffsets", "startingTimestamp", "a queue starts at one of them")
        given.clash("endingOffsets", "endingTimestamp", "a queue ends at one of them")
        given.clash("subExpression", "sql92", "a broker filters by tags or by a condition")
        given.clash("columns", "includeProperties", "columns names all there are")
        given.clash("columns", "includeSystem", "columns names all there are")
        given.needs("maxTriggerDelay", "minOffsetsPerTrigger")
        since, until = given["startingTimestamp"], given["endingTimestamp"]
        if since and until and since.time is not None and until.time is not None and since.time > until.time:
            raise ConfigError("the option startingTimestamp is later than endingTimestamp: nothing lies between")
        given.ascend("minOffsetsPerTrigger", "maxOffsetsPerTrigger")
        given.ascend("minPartitions", "maxPartitions")
        start, end = given["startingOffsets"] or since, until or given["endingOffsets"]
        if start is not None and start.group and "groupId" not in given:
            raise ConfigError("startingOffsets=group needs the option groupId: whose offsets are to be taken?")
        if start == Position(word=LATEST) and end == Position(word=EARLIEST):
            raise ConfigError("the option startingOffsets is latest and endingOffsets earliest: nothing lies between")
        if end.group:
            raise ConfigError("the option endingOffsets cannot be group: give latest or offsets as JSON")
        commit = given["commitOffsetsToBroker"]
        if commit and "groupId" not in given:
            raise ConfigError("commitOffsetsToBroker=true needs the option groupId: the group to report for")
        expression, kind = given["subExpression"], TAG
        if "sql92" in given:
            expression, kind = given["sql92"], SQL92
        try:
            build("topic", expression, kind)
        except RMQError as error:
            raise ConfigError(f"the option subExpression: {error}") from None
        return cls(
            endpoint=endpoint,
            topics=given["topic"] or (),
            topic_pattern=given["topicPattern"],
            group=given["groupId"],
            start=start,
            end=end,
            max_offsets=given["maxOffsetsPerTrigger"],
            min_offsets=given["minOffsetsPerTrigger"],
            max_delay=given["maxTriggerDelay"],
            min_partitions=given["minPartitions"],
            max_partitions=given["maxPartitions"],
            max_records=given["maxRecordsPerPartition"],
            fail_on_data_loss=given["failOnDataLoss"],
            include_properties=given["includeProperties"],
            include_system=given["includeSystem"],
            columns=given["columns"] or (),
            expression=expression,
            expression_type=kind,
            pull_batch_size=given["pullBatchSize"],
            pull_timeout=given["pullTimeoutMs"] / 1000,
            commit="groupId" in given if commit is None else commit,
            given=given.names,
        )

    def check_batch(self) -> None:
        """Refuse what a batch cannot do. :raises ConfigError: names the option."""
        check_kind(READING, self.given, BATCHES)

    def check_stream(self, *, limits: bool, version: str) -> None:
        """Refuse what a stream cannot do.

        :param limits: this Spark asks sources for portions (4.2 and later).
        :raises ConfigError: names the option.
        """
        check_kind(READING, self.given, STREAMS, old=not limits, version=version)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how."""

    endpoint: Endpoint
    topic: str | None
    group: str
    timeout: float
    retries: int
    batch_size: int
    max_body: int
    stamp: bool
    write_name: str | None
    given: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """:raises ConfigError: names the option that is unknown, missing or malformed."""
        given = Given(options, WRITING)
        topics = given["topic"]
        if topics is not None and len(topics) > 1:
            raise ConfigError("the option topic names several topics: rows choose theirs in a column topic")
        return cls(
            endpoint=Endpoint.of(given),
            topic=topics[0] if topics else None,
            group=given["producerGroup"],
            timeout=given["sendTimeoutMs"] / 1000,
            retries=given["retries"],
            batch_size=given["batchSize"],
            max_body=given["maxMessageSize"],
            stamp=given["dedupProperties"],
            write_name=given["writeName"],
            given=given.names,
        )

    def check_batch(self) -> None:
        """:raises ConfigError: names the option that is for streams."""
        check_kind(WRITING, self.given, BATCHES)

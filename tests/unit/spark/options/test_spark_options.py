"""Options of the data source: what they mean, and one line for every mistake, naming the option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.protocol.errors import ConfigError
from rmq.protocol.queue import MessageQueue
from rmq.spark.options.checked import SinkOptions, SourceOptions, Tls
from rmq.spark.options.positions import EARLIEST, LATEST, Position
from rmq.spark.options.table import CONNECTION, SINK, SOURCE, Option
from rmq.spark.options.values import duration

GIVEN = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def source(**more: str) -> SourceOptions:
    return SourceOptions.of({**GIVEN, **more})


def test_defaults() -> None:
    made = source()
    assert made.topics == ("orders",)
    assert (made.group, made.commit) == ("rmq_spark", False)
    assert made.fail_on_data_loss
    assert (made.expression, made.expression_type) == ("*", "TAG")
    assert (made.pull_batch_size, made.pull_timeout) == (1024, 60.0)


def test_names_of_the_scala_connector_keep_working() -> None:
    made = SourceOptions.of(
        {
            "nameserver": "a:9876;b:9876",
            "topic": "t",
            "group": "g",
            "subexpression": "TagA || TagB",
            "startingoffsets": '{"t":{"b":{"0":23,"1":-1,"2":-2}}}',
            "failondataloss": "false",
            "pullbatchsize": "32",
            "pulltimeout": "3000",
        }
    )
    assert made.endpoint.name_servers == ("a:9876", "b:9876")
    assert (made.group, made.commit, made.fail_on_data_loss) == ("g", True, False)
    assert made.start is not None
    assert made.start.queues == {
        MessageQueue("t", "b", 0): 23,
        MessageQueue("t", "b", 1): LATEST,
        MessageQueue("t", "b", 2): EARLIEST,
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"grupId": "g"}, "the option grupId is unknown: did you mean groupId?"),
        ({"zzz": "1"}, "the option zzz is unknown: reading is done without it"),
        ({"batchSize": "5"}, "the option batchSize is for writing: leave it out of what is for reading"),
        (
            {"path": "Orders"},
            r"the option path is 'Orders': give no path to load\(\): a topic is named by the option topic",
        ),
        ({"paths": '["a","b"]'}, r"the option paths is .*: give no path to load\(\)"),
        ({"checkpointLocation": "/cp"}, r"the option checkpointLocation is '/cp': give it to the writer of the stream"),
        ({"queryName": "q"}, r"the option queryName is 'q': give it to the writer of the stream \(writeStream\)"),
        ({"maxOffsetsPerTrigger": ""}, "maxOffsetsPerTrigger is '': give a whole number from 1"),
        ({"startingOffsets": " "}, "startingOffsets is ' ': give earliest, latest, group or JSON"),
        ({"failOnDataLoss": ""}, "failOnDataLoss is '': give true or false"),
        ({"groupId": ""}, "the option groupId is '': give a group's name"),
        ({"minPartitions": "2.5"}, "minPartitions is '2.5': give a whole number from 1"),
        ({"startingOffsets": '{"t":{"b":{"0":'}, 'the option startingOffsets is \'{"t":.*JSON such as'),
        ({"startingOffsets": '{"t":{"b":{"x":1}}}'}, "startingOffsets.*queue numbers as members, not 'x'"),
        (
            {"startingOffsets": '{"t":{"b":{"0":-3}}}'},
            r"startingOffsets.*-1 \(latest\) or -2.*queue 0 of t on b",
        ),
        (
            {"startingOffsets": '{"t":{"b":{"0":1}},"@others":"group"}'},
            "startingOffsets.*earliest or latest for @others, not 'group'",
        ),
        ({"startingOffsets": '{"t":{"b":{"0":1}},"@others":[]}'}, r"earliest or latest for @others, not \[\]"),
        ({"startingOffsets": '{"t":5}'}, "startingOffsets.*5 stands where members, a broker of t each, belong"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first': give earliest, latest, group or JSON"),
        ({"startingOffsets": "group"}, "startingOffsets=group needs the option groupId"),
        ({"endingOffsets": "group", "groupId": "g"}, "endingOffsets cannot be group"),
        (
            {"startingOffsets": "latest", "endingOffsets": "earliest"},
            "startingOffsets is latest and endingOffsets earl",
        ),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "startingOffsets and startingTimestamp exclude"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': give milliseconds since 1970"),
        ({"subExpression": "A", "sql92": "a > 1"}, "subExpression and sql92 exclude"),
        ({"topicPattern": "o.*"}, "topic and topicPattern exclude"),
        ({"columns": "offset", "includeSystem": "true"}, "columns and includeSystem exclude"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay needs the option minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"minOffsetsPerTrigger \(9\) is above"),
        ({"minPartitions": "9", "maxPartitions": "8"}, r"minPartitions \(9\) is above maxPartitions \(8\)"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0': give a whole number from 1"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes': give true or false"),
        ({"accessKey": "a"}, "accessKey needs the option secretKey"),
        ({"tlsCaFile": "/ca.pem"}, "tlsCaFile needs useTLS=true"),
        ({"useTLS": "true", "tlsKeyPassword": "p"}, "tlsKeyPassword needs the option tlsKeyFile"),
        ({"useTLS": "true", "tlsCaFile": "/ca", "tlsVerify": "false"}, "tlsCaFile does nothing with tlsVerify=false"),
        ({"commitOffsetsToBroker": "true"}, "commitOffsetsToBroker=true needs the option groupId"),
        ({"namesrv": "a:1"}, "nameServer and namesrv mean the same"),
        ({"startingOffsets": '{"t":{"b":{"0":1,"0":2}}}'}, "startingOffsets.*the member '0' is there twice"),
        ({"startingOffsets": '{"t":{"b":{"00":1}}}'}, "startingOffsets.*queue numbers as members, not '00'"),
        ({"startingOffsets": '{"t":{"b":{"0":true}}}'}, "startingOffsets.*an offset, -1 .*, not True"),
        ({"startingOffsets": "[" * 100_000}, "the option startingOffsets is .*maximum recursion depth"),
        ({"startingTimestamp": "9" * 5000}, "startingTimestamp is '9+': give milliseconds since 1970"),
        (
            {"startingTimestamp": "2026-03-02", "endingTimestamp": "2026-03-01"},
            "the option startingTimestamp is later than endingTimestamp",
        ),
        ({"columns": ","}, "the option columns is ',': give names of columns separated by commas, or legacy"),
        ({"columns": "offset,Offset"}, "the option columns .*: give each column once: offset is there several times"),
        ({"namespace": "a b"}, "the option namespace is 'a b': give a name of letters"),
        ({"namespace": "a%b"}, "the option namespace is 'a%b': give a name of letters"),
        ({"topic": "a b"}, "the option topic is 'a b': give a topic's name"),
        ({"topic": "%LMQ%x"}, "light queue"),
        ({"nameServer": "nowhere"}, "the option nameServer is 'nowhere': give a list of host:port"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_option(more: dict[str, str], said: str) -> None:
    """Field case B131."""
    with pytest.raises(ConfigError) as error:
        source(**more)
    assert re.search(said, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("left", "said"), [("topic", "nameServer is missing"), ("nameServer", "topic is missing")])
def test_what_is_missing_is_named(left: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SourceOptions.of({left: GIVEN[left]})


def test_secrets_stay_out_of_messages_and_representations() -> None:
    with pytest.raises(ConfigError) as error:
        source(accessKey="who", secretKey=" ")
    assert str(error.value) == "the option secretKey give a text that is not empty"
    made = source(accessKey="who", secretKey="s3cret", securityToken="t0ken")
    assert "s3cret" not in repr(made)
    assert "t0ken" not in repr(made)


def test_a_batch_and_a_stream_refuse_what_the_other_has() -> None:
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger is for streams"):
        source(maxOffsetsPerTrigger="5").check_batch()
    for name in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(ConfigError, match=f"the option {name} is for batches: a stream has no end"):
            source(**{name: "5" if name == "endingTimestamp" else "latest"}).check_stream(limits=True, version="4.3.0")
    source(groupId="g", commitOffsetsToBroker="false").check_batch()
    with pytest.raises(ConfigError, match="commitOffsetsToBroker is for streams: a batch reports no offsets"):
        source(groupId="g", commitOffsetsToBroker="true").check_batch()
    source(groupId="g").check_batch()
    with pytest.raises(ConfigError, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer; this is 4\.0\.1"):
        source(maxOffsetsPerTrigger="5").check_stream(limits=False, version="4.0.1")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"nameserver": "a:1", "topic": "t", "option.nameserver": "a:1", "owner": "root", "provider": "rocketmq"},
        {"path": "file:/wh/t", "option.topic": "t", "provider": "rocketmq"},
    ],
)
def test_tables_of_the_catalog_are_told_from_mistakes(given: dict[str, str]) -> None:
    """What Spark 4.0 to 4.3 hand over when a table is made, and nothing when it is queried."""
    for of in (SourceOptions.of, SinkOptions.of):
        with pytest.raises(
            ConfigError, match=r"^no options, .* make a view instead: CREATE TEMPORARY VIEW \.\.\. USING"
        ):
            of(given)


def test_a_batch_has_no_use_for_what_belongs_to_a_stream_and_its_writer() -> None:
    """Spark hands both to the sink of a stream; of a batch they are somebody's mistake."""
    for name in ("checkpointLocation", "queryName"):
        written = SinkOptions.of({**GIVEN, name: "x"})
        with pytest.raises(ConfigError, match=f"the option {name} is for streams: a batch has neither"):
            written.check_batch()
    SinkOptions.of(GIVEN).check_batch()


@pytest.mark.parametrize("blank", ["", " "])
def test_case_and_blanks_around_values_do_not_count(blank: str) -> None:
    """``topicPattern`` with a blank would match nothing, and nobody would say so."""
    given = {
        "NAMESERVER": "127.0.0.1:9876",
        "topicpattern": "o.*",
        "FAILONDATALOSS": "False",
        "useTls": "TRUE",
        "startingoffsets": "Earliest",
        "MINOFFSETSPERTRIGGER": "5",
        "maxTriggerDelay": "5M",
        "groupid": "g",
        "accessKey": "a",
        "secretKey": "s",
    }
    made = SourceOptions.of({name: f"{blank}{value}{blank}" for name, value in given.items()})
    assert made.endpoint.name_servers == ("127.0.0.1:9876",)
    assert (made.topic_pattern, made.fail_on_data_loss, made.start, made.min_offsets) == (
        "o.*",
        False,
        Position(word=EARLIEST),
        5,
    )
    assert (made.max_delay, made.group, made.endpoint.access_key, made.endpoint.secret_key) == (300.0, "g", "a", "s")
    assert made.endpoint.tls is not None


def test_servers_are_verified_unless_that_is_switched_off() -> None:
    assert source(useTLS="true").endpoint.tls == Tls(verify=True, check_host=True)
    assert source(useTLS="true", tlsVerify="false", tlsCheckHostname="false").endpoint.tls == Tls(
        False, check_host=False
    )


def test_a_file_says_who_comes_and_how(tmp_path: Path) -> None:
    file = tmp_path / "client.yml"
    file.write_text("accessKey: someone\nsecretKey: s3cret\ntlsCaFile: ca.pem\n")
    made = source(credentialsFile=str(file)).endpoint
    assert (made.access_key, made.secret_key) == ("someone", "s3cret")
    assert made.tls == Tls(ca=str(tmp_path / "ca.pem"))
    assert "s3cret" not in repr(made)
    assert source(credentialsFile=str(file), useTLS="false").endpoint.tls is None
    with pytest.raises(ConfigError, match="credentialsFile and accessKey exclude each other"):
        source(credentialsFile=str(file), accessKey="a", secretKey="b")
    with pytest.raises(ConfigError, match=r"none\.yml: the account to sign with cannot be read"):
        source(credentialsFile=str(tmp_path / "none.yml"))


def test_a_password_keeps_its_blanks() -> None:
    made = source(useTLS="true", tlsCertFile="c", tlsKeyFile="k", tlsKeyPassword=" p ")
    assert made.endpoint.tls is not None
    assert made.endpoint.tls.password == " p "


def test_times() -> None:
    one = source(startingTimestamp="2026-01-31T12:00:00+01:00").start
    assert one is not None
    assert one.time == 1769857200000
    same = source(startingTimestamp="1769857200000").start
    assert same == one
    each = source(endingTimestamp='{"orders":{"b":{"0":"2026-01-31T11:00:00"}}}').end
    assert each is not None
    assert each.queues == {MessageQueue("orders", "b", 0): 1769857200000}
    assert [duration(text) for text in ("500ms", "10s", "1.5m", "1h")] == [0.5, 10.0, 90.0, 3600.0]


def test_the_sink_names_its_own_mistakes() -> None:
    made = SinkOptions.of({**GIVEN, "retries": "5", "dedupProperties": "false"})
    assert (made.topic, made.retries, made.stamp, made.batch_size) == ("orders", 5, False, 64)
    assert (made.group, made.timeout, made.max_body) == ("rmq_spark_sink", 3.0, 4 << 20)
    with pytest.raises(
        ConfigError, match="the option startingOffsets is for reading: leave it out of what is for writ"
    ):
        SinkOptions.of({**GIVEN, "startingOffsets": "latest"})
    with pytest.raises(
        ConfigError, match=r"the option path is 'Orders': give no path to save\(\) and start\(\): a topic"
    ):
        SinkOptions.of({**GIVEN, "path": "Orders"})
    with pytest.raises(ConfigError, match="maxMessageSize is '16777216': give a whole number from 1 to 16515072"):
        SinkOptions.of({**GIVEN, "maxMessageSize": str(16 << 20)})
    with pytest.raises(ConfigError, match="several topics"):
        SinkOptions.of({"nameServer": "a:1", "topic": "a,b"})


PAGE = (Path(__file__).parents[4] / "docs/spark/options.md").read_text()


def described(title: str) -> Iterator[list[str]]:
    """The cells of the table below a title."""
    for line in PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize(
    ("title", "table"),
    [("The cluster, for reading and writing", CONNECTION), ("The source", SOURCE), ("The sink", SINK)],
)
def test_the_page_says_what_the_tables_say(title: str, table: tuple[Option, ...]) -> None:
    told = {cells[0]: cells[1:] for cells in described(title)}
    assert sorted(told) == sorted(f"`{option.name}`" for option in table)
    for option in table:
        also, values, default, where, meaning = told[f"`{option.name}`"]
        assert also == ", ".join(f"`{name}`" for name in option.also)
        since = f", Spark {option.since}" if option.since else ""
        assert where == f"{option.only or 'both'}{since}", option.name
        if option.default is not None:
            assert default == f"`{option.default}`", option.name
        assert option.default is not None or not re.fullmatch("`[^`]*`", default), f"{option.name} has no such default"
        assert values, option.name
        assert meaning, option.name


def test_bounds_on_the_page_are_those_of_the_tables() -> None:
    """What is just within them is taken, what is just beyond is not."""
    found = 0
    for title, table in (("The source", SOURCE), ("The sink", SINK)):
        told = {cells[0]: cells[2] for cells in described(title)}
        for option in table:
            if bounds := re.match(r"(\d+) to (\d+)\b", told[f"`{option.name}`"]):
                least, most = map(int, bounds.groups())
                assert (option.read(str(least)), option.read(str(most))) == (least, most)
                for wrong in (least - 1, most + 1):
                    with pytest.raises(ValueError, match=f"a whole number from {least} to {most}"):
                        option.read(str(wrong))
                found += 1
    assert found == 8

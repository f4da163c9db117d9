"""The words of a command line, the forms of an answer and the codes of failures: mqadmin without a cluster."""

from __future__ import annotations

import json

import click
import pytest

from rmq.cli.mqadmin.commands import COMMANDS, root
from rmq.cli.mqadmin.failures import classic, failure
from rmq.cli.mqadmin.grammar import AdminCommand
from rmq.cli.mqadmin.output import Output
from rmq.protocol.errors import ConnectFailed, NotFound, ResponseError, RMQError


@click.command(cls=AdminCommand)
@click.option("-t", "--topic", "topic")
@click.option("-c", "--clusterName", "cluster")
@click.option("--cut", "cut", is_flag=True)
@click.option("-o", "--order", "order", type=bool, default=False)
def taken(**given: object) -> dict[str, object]:
    return given


@pytest.mark.parametrize(
    "line",
    ["-t T", "-tT", "--topic T", "--topic=T", "-topic T", "-topic=T", "--top T", "--to=T"],
)
def test_a_topic_is_given_in_each_form(line: str) -> None:
    assert taken.main(line.split(), standalone_mode=False)["topic"] == "T"


def test_values_that_look_like_options_are_values() -> None:
    given = taken.main(["-topic", "-cut", "-c", "--topic", "--cut", "-o", "true"], standalone_mode=False)
    assert given == {"topic": "-cut", "cluster": "--topic", "cut": True, "order": True}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("-topik", "there is no option -topik: did you mean --topic?"),
        ("--tpic", "there is no option --tpic: did you mean --topic?"),
        ("--c", "there is no option --c: did you mean --clusterName or --cut?"),
        ("-zeal", "there is no option -zeal"),
    ],
)
def test_a_word_that_is_no_option_names_the_nearest(word: str, said: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        taken.main([word, "T"], standalone_mode=False)
    assert raised.value.format_message() == said


ROWS = [{"name": "a", "count": 1, "of": ["x", "y"]}, {"name": "b\x1b[31m", "count": 20, "of": []}]


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("classic", "lines of Java's\n"),
        ("table", "name       count  of\na              1  x, y\nb\\x1b[31m     20\n"),
        ("csv", 'name,count,of\na,1,"x, y"\nb,20,\n'),
        ("yaml", '- name: a\n  count: 1\n  of:\n  - x\n  - y\n- name: "b\\e[31m"\n  count: 20\n  of: []\n'),
    ],
)
def test_rows_in_each_form(form: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Output(form).rows(ROWS, lambda: ["lines of Java's"]) == 0
    assert capsys.readouterr() == (printed, "")


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_what_is_missing_ends_the_rows_and_is_a_code_of_its_own(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(form)
    out.failed("broker-b", "it does not answer")
    assert out.rows(ROWS[:1], list) == 4
    printed, said = capsys.readouterr()
    rows = json.loads(printed) if form == "json" else [json.loads(line) for line in printed.splitlines()]
    assert rows == [ROWS[0], {"missing": "broker-b", "why": "it does not answer"}]
    assert said == "mqadmin: broker-b is missing here: it does not answer\n"


@pytest.mark.parametrize(("form", "printed"), [("json", "[]\n"), ("ndjson", ""), ("csv", "\n")])
def test_a_stream_of_nothing_is_a_whole_document(form: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Output(form).stream():
        pass
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (ConnectFailed("connect to a:1 failed"), 5, "mqadmin clusterList"),
        (ConnectFailed("no name server answered (a:1)"), 5, "NAMESRV_ADDR"),
        (ResponseError(17, "no route", "a:1"), 3, "mqadmin topicList"),
        (ResponseError(1, "AclException: no"), 6, "ROCKETMQ_ACCESS_KEY"),
        (ResponseError(3, "unknown", "a:1"), 1, "is it the right kind of server"),
        (ResponseError(1, "something", "a:1"), 1, "code 1 from a:1: something"),
        (NotFound("there is no cluster C"), 3, "there is no cluster C"),
        (RMQError("refused"), 1, "refused"),
    ],
)
def test_a_failure_has_the_code_of_its_kind_and_says_what_to_do(error: RMQError, code: int, remedy: str) -> None:
    line, ended = failure(error)
    assert ended == code
    assert remedy in line


def test_javas_exit_codes_are_nought_but_for_a_wrong_command_line() -> None:
    assert [classic(code) for code in (0, 1, 2, 3, 4, 5, 6)] == [0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_all_commands_takes_the_place_of_one_of_its_own(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    names = [one.name for one in command.params]
    assert len(names) == len(set(names))
    words = [word for one in command.params for word in (*one.opts, *one.secondary_opts)]
    assert len(words) == len(set(words))


def test_many_reasons_are_counted_from_the_sixteenth_on(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("classic")
    for number in range(20):
        out.failed(f"broker-{number:02}", f"it was at 10.0.0.{number}:10911")
    assert out.rows([], list) == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 17
    assert lines[-1] == "mqadmin: 4 more are missing here: -o json names them"

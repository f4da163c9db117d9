"""Settings from every source, their errors, dumps, live updates and the reference page."""

from __future__ import annotations

import logging
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest

from rmq.config.reference import reference
from rmq.config.settings import Settings, setting
from rmq.config.sources import environment_name, parse_properties
from rmq.protocol.errors import ConfigError


class Role(Enum):
    ASYNC_MASTER = "async"
    SYNC_MASTER = "sync"


class Base(Settings):
    listen_port: int = setting(9876, key="listenPort", minimum=0, maximum=65535, important=True, doc="The port.")


class Example(Base):
    broker_name: str = setting("", key="brokerName", important=True, doc="Its name | and more.")
    namesrv_addr: str = setting("", key="namesrvAddr", env=("NAMESRV_ADDR",), live=True)
    delete_when: str = setting("04", key="deleteWhen", live=True)
    ratio: float = setting(0.5, key="ratio", live=True)
    trace_on: bool = setting(True, key="traceOn", live=True)
    role: Role = setting(Role.ASYNC_MASTER, key="brokerRole")
    commit_log: str | None = setting(None, key="storePathCommitLog")
    batch_push: bool = setting(False, key="enableBatchPush", printed="isEnableBatchPush", also=("isEnableBatchPush",))
    password: str = setting("", key="tls.server.keyPassword", secret=True)
    black: str = setting("configBlackList;brokerName", key="configBlackList")

    inert: ClassVar[dict[str, str]] = {
        "sendMessageThreadPoolNums": "there are no send threads",
        "serverSelectorThreads": "there are no send threads",
        "serverSocketSndBufSize": "sockets are the system's",
        "credentials": "nobody logs in",
    }
    inert_secrets = frozenset({"credentials"})


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.properties"


def load(path: Path, content: str | bytes, **arguments: dict[str, str]) -> Example:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Example.from_sources(file=str(path), **arguments)


def test_defaults() -> None:
    made = Example()
    assert (made.listen_port, made.delete_when, made.role, made.commit_log) == (9876, "04", Role.ASYNC_MASTER, None)
    assert made.origin("listenPort") == "default"
    assert Example(broker_name="b").broker_name == "b"
    with pytest.raises(TypeError, match="no setting nonsense"):
        Example(nonsense=1)
    with pytest.raises(ConfigError, match="at most 65535"):
        Example(listen_port=70_000)


def test_a_properties_file_as_java_reads_it(conf: Path) -> None:
    made = load(
        conf,
        b"# a comment\n! another\n"
        b"brokerName : caf\xe9 \\u4e2d\n"
        b"namesrvAddr = one:1;\\\n    two:2\n"
        b"listenPort 10911 \r\n"
        b"traceOn=FALSE\n"
        b"brokerRole=SYNC_MASTER\n"
        b"deleteWhen=04\n"
        b"ratio=1\n"
        b"storePathCommitLog=\n",
    )
    assert made.broker_name == "caf\xe9 \u4e2d"
    assert made.namesrv_addr == "one:1;two:2"
    assert made.listen_port == 10911
    assert made.trace_on is False
    assert made.role is Role.SYNC_MASTER
    assert made.ratio == 1.0
    assert made.commit_log is None
    assert made.origin("namesrvAddr") == f"{conf} line 4"
    assert made.origin("listenPort") == f"{conf} line 6"


def test_yaml_keeps_what_is_written(tmp_path: Path) -> None:
    made = load(
        tmp_path / "broker.yaml",
        "# comment\nbrokerName: caf\u00e9\ndeleteWhen: 04\nlistenPort: 10911\ntraceOn: false\n"
        "namesrvAddr: [one:1, two:2]\nstorePathCommitLog:\n",
    )
    assert (made.broker_name, made.delete_when, made.listen_port) == ("caf\u00e9", "04", 10911)
    assert (made.trace_on, made.namesrv_addr, made.commit_log) == (False, "one:1;two:2", None)
    assert made.origin("deleteWhen").endswith("broker.yaml line 3")


def test_later_sources_win(conf: Path) -> None:
    env = {"NAMESRV_ADDR": "env:1", "RMQ_LISTEN_PORT": "3", "RMQ_BROKER_NAME": "", "HOME": "/"}
    made = load(conf, "listenPort=2\nbrokerName=file\n", env=env)
    assert (made.listen_port, made.namesrv_addr, made.broker_name) == (3, "env:1", "file")
    made = load(conf, "listenPort=2\nnamesrvAddr=file:1\n", env=env, overrides={"listenPort": "4"})
    assert (made.listen_port, made.namesrv_addr) == (4, "file:1")
    assert made.origin("listenPort") == "command line"
    assert Example.from_sources(env=env).origin("namesrvAddr") == "environment variable NAMESRV_ADDR"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n\nbrokerNmae=x\n", "line 1: a is not a key"),
        ("\nbrokerNmae=x\n", "broker.properties line 2: brokerNmae is not a key; did you mean brokerName?"),
        ("brokername=x\n", "did you mean brokerName?"),
        ("sendMessageThreadPoolNum=1", "did you mean sendMessageThreadPoolNums?"),
        ("listenPort=98x\n", "broker.properties line 1: listenPort='98x': a whole number is expected"),
        ("listenPort=\n", "listenPort='': a whole number is expected"),
        ("listenPort=70000\n", "line 1: listenPort='70000': at most 65535 is expected"),
        ("listenPort=-1\n", "at least 0 is expected"),
        ("traceOn=yes\n", "traceOn='yes': true or false is expected"),
        ("ratio=nan\n", "ratio='nan': a number is expected"),
        ("brokerRole=KING\n", "brokerRole='KING': one of ASYNC_MASTER, SYNC_MASTER is expected"),
        ("brokerName=\\u12\n", "line 1: "),
    ],
)
def test_errors_name_the_place_the_key_and_the_remedy(conf: Path, content: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(conf, content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("brokerName: {a: b}\n", "line 1: brokerName: one value is expected"),
        ("- brokerName\n", "a mapping of keys to values is expected"),
        ("brokerName: [a\n", "not YAML"),
        ("listenPort:\n", "listenPort has no value: a whole number is expected"),
        ("x: 1\nlistenPrt: 1\n", "x is not a key"),
    ],
)
def test_errors_of_yaml(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "b.yml", content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Example.from_sources(file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="Is a directory"):
        Example.from_sources(file=str(tmp_path))
    with pytest.raises(ConfigError, match="it is longer than 1048576 bytes"):
        load(tmp_path / "big", b"x" * (2 << 20))


@pytest.mark.parametrize("name", ["b.properties", "b.yaml"])
def test_a_mark_at_the_head_says_that_the_file_is_utf8(tmp_path: Path, name: str) -> None:
    """Windows' editor writes one; the first key is what follows it."""
    sign = ": " if name.endswith("yaml") else "="
    text = f"\ufeffbrokerName{sign}caf\u00e9 \u4e2d\nlistenPort{sign}1\n"
    made = load(tmp_path / name, text.encode())
    assert (made.broker_name, made.listen_port) == ("caf\u00e9 \u4e2d", 1)
    assert made.origin("brokerName") == f"{tmp_path / name} line 1"
    assert Example().update("\ufefftraceOn=false") == ["traceOn"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.properties", "listenPort=1\n".encode("utf-16"), "b.properties: UTF-16: save it as UTF-8"),
        ("b.yaml", "listenPort: 1\n".encode("utf-16-be").join([b"\xfe\xff", b""]), "b.yaml: UTF-16: save it"),
        ("b.properties", b"\xef\xbb\xbflistenPort=1\nbrokerName=caf\xe9\n", "b.properties line 2: not UTF-8"),
        ("b.yaml", b"listenPort: 1\nbrokerName: caf\xe9\n", "b.yaml line 2: not UTF-8"),
        ("b.yaml", b"listenPort: 1\nbrokerName: a\x07b\n", "b.yaml line 2: not YAML: "),
        ("b.yaml", b"brokerName: " + b"[" * 50_000, "b.yaml line 1: "),
    ],
)
def test_a_file_in_another_form_is_one_clear_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / name, content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_blanks_around_a_value_do_not_count_whatever_its_type(tmp_path: Path) -> None:
    blanks = {
        "brokerName": "b", "listenPort": "1", "traceOn": "false", "ratio": "0.25", "brokerRole": "SYNC_MASTER",
        "storePathCommitLog": "/data/s1", "sendMessageThreadPoolNums": "4",
    }  # fmt: skip
    made = [
        load(tmp_path / "b.properties", "".join(f"{key}= \t{value} \t\n" for key, value in blanks.items())),
        load(tmp_path / "b.yaml", "".join(f'{key}: " {value} "\n' for key, value in blanks.items())),
        Example.from_sources(env={environment_name("RMQ_", key): f" {value} " for key, value in blanks.items()}),
        Example.from_sources(overrides={key: f" {value} " for key, value in blanks.items()}),
    ]
    for one in made:
        assert (one.broker_name, one.listen_port, one.trace_on, one.ratio) == ("b", 1, False, 0.25)
        assert (one.role, one.commit_log) == (Role.SYNC_MASTER, "/data/s1")
    assert "sendMessageThreadPoolNums=4\n" in made[0].dump()
    assert load(tmp_path / "b.properties", "storePathCommitLog= \n").commit_log is None
    one = Example()
    assert one.update("deleteWhen= 05 \nratio=1 \n") == ["deleteWhen", "ratio"]
    assert one.delete_when == "05"
    assert b"deleteWhen=05\n" in one.to_properties()


@pytest.mark.parametrize(
    ("value", "shown", "why"),
    [
        ("\\uD800", r"'\ud800'", "half a character"),
        ("a\\uDC00b", r"'a\udc00b'", "half a character"),
        ("a\\nlistenPort\\=1", r"'a\nlistenPort=1'", "without line ends and control characters"),
        ("a\\u0000b", r"'a\x00b'", "without line ends and control characters"),
        ("a\\u2028b", r"'a\u2028b'", "without line ends and control characters"),
        ("a\\u0085b", r"'a\x85b'", "without line ends and control characters"),
        ("x" * 4097, "...'", "at most 4096 bytes are expected"),
        ("\\u4e2d" * 1366, "...'", "at most 4096 bytes are expected"),
    ],
)
def test_a_text_that_cannot_be_written_everywhere_is_refused_before_it_is_applied(
    conf: Path, value: str, shown: str, why: str
) -> None:
    """One of them made a broker close the connection at getBrokerConfig and never start again."""
    for key in ("deleteWhen", "brokerName", "storePathCommitLog", "sendMessageThreadPoolNums"):
        with pytest.raises(ConfigError) as caught:
            load(conf, f"traceOn=true\n{key}={value}\n")
        assert str(caught.value).startswith(f"{conf} line 2: {key}='")
        assert shown in str(caught.value)
        assert why in str(caught.value)
    made = Example()
    for key in ("deleteWhen", "sendMessageThreadPoolNums"):
        with pytest.raises(ConfigError, match=f"^update line 2: {key}='.*{why}"):
            made.update(f"traceOn=false\n{key}={value}\n")
    assert (made.trace_on, made.delete_when) == (True, "04")
    assert made.to_properties() == b""


def test_a_whole_character_of_two_halves_is_taken(conf: Path) -> None:
    made = load(conf, "brokerName=\\uD83D\\uDE00\n")
    assert made.broker_name == "\U0001f600"
    assert load(conf, made.to_properties()).broker_name == "\U0001f600"


def test_a_variable_that_is_no_text_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable RMQ_BROKER_NAME: brokerName='caf\\udce9': "):
        Example.from_sources(env={"RMQ_BROKER_NAME": "caf\udce9"})


def test_an_error_from_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="environment variable RMQ_LISTEN_PORT: listenPort='x': a whole number"):
        Example.from_sources(env={"RMQ_LISTEN_PORT": "x"})


def test_known_keys_without_effect_are_said_once(conf: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    load(conf, "sendMessageThreadPoolNums=4\nsendMessageThreadPoolNums=5\n")
    load(conf, "serverSelectorThreads=4\nsendMessageThreadPoolNums=4\nserverSocketSndBufSize=1\n")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            "these settings have no effect here: sendMessageThreadPoolNums (there are no send threads)",
        ),
        (
            logging.WARNING,
            "these settings have no effect here: serverSelectorThreads, sendMessageThreadPoolNums (there are no send "
            "threads); serverSocketSndBufSize (sockets are the system's)",
        ),
    ]


def test_a_misspelt_variable_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    Example.from_sources(env={"RMQ_LISTEN_PROT": "1", "RMQ_SOMETHING_ELSE": "1", "LISTEN_PORT": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable RMQ_LISTEN_PROT has no effect; did you mean RMQ_LISTEN_PORT?"
    ]


def test_dumps(conf: Path) -> None:
    made = load(
        conf, b"brokerName=caf\xe9=1\ntls.server.keyPassword=secret\ncredentials=secret\nsendMessageThreadPoolNums=4\n"
    )
    lines = made.dump().splitlines()
    assert lines[-1] == "sendMessageThreadPoolNums=4"
    assert lines[0] == "listenPort=9876"
    assert "brokerName=caf\xe9=1" in lines
    assert "traceOn=true" in lines
    assert "ratio=0.5" in lines
    assert "brokerRole=ASYNC_MASTER" in lines
    assert "isEnableBatchPush=false" in lines
    assert not [line for line in lines if "storePathCommitLog" in line or "secret" in line]
    assert made.dump(important=True) == "listenPort=9876\nbrokerName=caf\xe9=1\n"


def test_a_live_update_is_all_or_nothing(conf: Path) -> None:
    made = load(conf, "brokerName=b\nsendMessageThreadPoolNums=4\n")
    told: list[list[str]] = []
    made.on_update.append(told.append)
    assert made.update("traceOn=false\ndeleteWhen=05\nnonsense=1\n") == ["traceOn", "deleteWhen"]
    assert (made.trace_on, made.delete_when) == (False, "05")
    assert told == [["traceOn", "deleteWhen"]]
    with pytest.raises(ConfigError, match="listenPort: cannot be changed while running"):
        made.update("deleteWhen=06\nlistenPort=1\n")
    with pytest.raises(ConfigError, match="ratio='x': a number is expected"):
        made.update("deleteWhen=06\nratio=x\n")
    with pytest.raises(ConfigError, match="brokerName: cannot be changed"):
        made.update("deleteWhen=06\nbrokerName=x\n")
    with pytest.raises(ConfigError, match="20000 characters: at most 16384 are taken"):
        made.update("deleteWhen=06\n" + "#" * 19_986)
    with pytest.raises(ConfigError, match="401 lines: at most 320 are taken"):
        made.forbidden("deleteWhen=06\n" + "k=\\\n" * 400)
    assert made.forbidden("deleteWhen=06\nbrokerName=x\nconfigBlackList=\n") == ["brokerName", "configBlackList"]
    assert made.delete_when == "05"
    assert made.update("listenPort=9876\n") == ["listenPort"]  # what it is already
    assert len(told) == 2


def test_what_was_set_is_written_back_and_reads_the_same(conf: Path) -> None:
    made = load(conf, b"brokerName=caf\xe9 \\u4e2d\nsendMessageThreadPoolNums=4\n")
    made.update("deleteWhen=05;06\n")
    again = load(conf, made.to_properties())
    assert (again.broker_name, again.delete_when, again.listen_port) == ("caf\xe9 \u4e2d", "05;06", 9876)
    assert b"sendMessageThreadPoolNums=4" in made.to_properties()


def test_tables_that_are_wrong_are_refused_when_defined() -> None:
    with pytest.raises(TypeError, match="declared twice"):

        class Twice(Base):
            other: int = setting(1, key="listenPort")

    with pytest.raises(TypeError, match="cannot be both"):

        class Both(Base):
            inert: ClassVar[dict[str, str]] = {"listenPort": "x"}

    with pytest.raises(TypeError, match="not a type a setting may have"):

        class Odd(Base):
            other: list[str] = setting([], key="other")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("brokerIP1", "RMQ_BROKER_IP1"),
        ("listenPort", "RMQ_LISTEN_PORT"),
        ("useTLS", "RMQ_USE_TLS"),
        ("tls.server.mode", "RMQ_TLS_SERVER_MODE"),
        ("haListenPort", "RMQ_HA_LISTEN_PORT"),
    ],
)
def test_names_of_variables(key: str, name: str) -> None:
    assert environment_name("RMQ_", key) == name


def test_places_count_lines_as_editors_do() -> None:
    content = "a=1\r\nb=2\rc=x\x85y\n\n# c\nd=4\\\n  5\ne=6"
    places = [(given.key, given.origin) for given in parse_properties(content, "f")]
    assert places == [("a", "f line 1"), ("b", "f line 2"), ("c", "f line 3"), ("d", "f line 6"), ("e", "f line 8")]


def test_the_reference_page_has_every_key() -> None:
    page = reference(Example, "Example settings")
    for line in Example.lines():
        assert f"| `{line.key}` |" in page
    assert "| `RMQ_BROKER_NAME` | Its name \\| and more. |" in page
    assert "| `sendMessageThreadPoolNums` | there are no send threads |" in page
    assert "ASYNC_MASTER, SYNC_MASTER" in page


def test_the_tables_of_the_daemons_load() -> None:
    from rmq.broker.settings import BrokerSettings
    from rmq.namesrv.settings import NamesrvSettings

    for kind in (BrokerSettings, NamesrvSettings):
        names = [environment_name(kind.env_prefix, line.key) for line in kind.lines()]
        assert len(set(names)) == len(names)
        made = kind.from_sources()
        content = "".join(f"{line.key}={made.get(line.key)}\n" for line in kind.lines() if line.live)
        made.update(content.replace("True", "true").replace("False", "false"))

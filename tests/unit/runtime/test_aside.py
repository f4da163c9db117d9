"""What an application hangs into logging: it never runs on the SDK's loop, and harms nobody."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmq.runtime import aside
from rmq.runtime.aside import finish_records, logger
from rmq.runtime.thread_bridge import ThreadBridge
from tests.support.daemons import PATIENCE

log = logger("rmq.test.aside")


class Handler(logging.Handler):
    """Does with each record what a test wants."""

    def __init__(self, what: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self.what = what

    def emit(self, record: logging.LogRecord) -> None:
        self.what(record)


@pytest.fixture(name="made")
def make_bridge() -> Iterator[ThreadBridge]:
    made = ThreadBridge()
    yield made
    made.exit()


@pytest.fixture(name="root", params=["", "rmq"])
def hang_in(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[logging.LogRecord], object]], None]]:
    """Hangs a handler into a logger until the end of the test."""
    target = logging.getLogger(request.param)
    hung: list[logging.Handler] = []

    def hang(what: Callable[[logging.LogRecord], object]) -> None:
        hung.append(Handler(what))
        target.addHandler(hung[-1])

    yield hang
    for handler in hung:
        target.removeHandler(handler)


async def speak(text: str) -> str:
    log.warning("heard %s", text)
    return text


def test_a_handler_may_wait_for_the_loop(made: ThreadBridge, root: Any) -> None:
    """The loop used to wait for the handler's lock, whose holder waited for the loop."""
    heard: list[str] = []

    def send(record: logging.LogRecord) -> None:
        if record.getMessage() in ("from the application", "heard one"):
            heard.append(record.getMessage() + ": " + made.run(speak("another"), PATIENCE))

    root(send)
    said = threading.Thread(target=log.warning, args=("from the application",), daemon=True)
    said.start()
    assert made.run(speak("one"), PATIENCE) == "one"
    said.join(PATIENCE)
    finish_records(PATIENCE)
    assert sorted(heard) == ["from the application: another", "heard one: another"]


def test_what_handlers_have_logged_when_records_are_finished_is_handed_on(
    made: ThreadBridge, root: Any, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def send(record: logging.LogRecord) -> None:
        if record.getMessage() == "heard one":
            go_on.wait(PATIENCE)
            made.run(speak("another"), PATIENCE)

    root(send)
    made.run(speak("one"), PATIENCE)
    finish_records(0)
    go_on.set()
    finish_records(PATIENCE)
    assert [record.getMessage() for record in caplog.records] == ["heard one", "heard another"]


def test_records_keep_their_time_thread_and_order(made: ThreadBridge, caplog: pytest.LogCaptureFixture) -> None:
    async def speak_often() -> None:
        for number in range(3):
            log.warning("%d", number)
        try:
            raise KeyError("why")
        except KeyError:
            log.exception("failed")

    made.run(speak_often())
    finish_records(PATIENCE)
    ours = [record for record in caplog.records if record.funcName == "speak_often"]
    assert [record.getMessage() for record in ours] == ["0", "1", "2", "failed"]
    assert {(record.threadName, record.thread) for record in ours} == {("rmq", made._thread.ident)}
    assert "KeyError: 'why'" in caplog.text


def test_what_raises_in_logging_ends_there(made: ThreadBridge, root: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(record: logging.LogRecord) -> None:
        raise OSError("the disk is full")

    root(fail)
    assert made.run(speak("one"), PATIENCE) == "one"
    log.warning("on the application's thread")
    finish_records(PATIENCE)
    told = capsys.readouterr().err
    for text in ("heard one", "on the application's thread"):
        assert f"rmq: a logging handler raised OSError('the disk is full') for rmq.test.aside: {text}" in told


def test_a_record_factory_and_a_filter_are_not_asked_on_the_loop(
    made: ThreadBridge, caplog: pytest.LogCaptureFixture
) -> None:
    before = logging.getLogRecordFactory()
    asked: list[str] = []

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        asked.append(threading.current_thread().name)
        record = before(*args, **kwargs)
        record.tenant = "blue"
        return record

    def remember(record: logging.LogRecord) -> bool:
        asked.append(threading.current_thread().name)
        return True

    log.addFilter(remember)
    logging.setLogRecordFactory(factory)
    try:
        made.run(speak("one"), PATIENCE)
        finish_records(PATIENCE)
    finally:
        logging.setLogRecordFactory(before)
        log.removeFilter(remember)
    assert asked
    assert set(asked) == {"rmq-log"}
    (record,) = [record for record in caplog.records if record.getMessage() == "heard one"]
    assert (record.tenant, record.threadName) == ("blue", "rmq")  # type: ignore[attr-defined]


def test_a_handler_that_never_returns_costs_a_bounded_number_of_records(
    made: ThreadBridge, root: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aside, "_MOST_WAITING", 5)
    go_on, began = threading.Event(), threading.Event()

    def block(record: logging.LogRecord) -> None:
        began.set()
        go_on.wait(PATIENCE)

    root(block)
    made.run(speak("the first"), PATIENCE)
    assert began.wait(PATIENCE)

    async def speak_much() -> None:
        for number in range(100):
            log.warning("%d", number)

    made.run(speak_much(), PATIENCE)
    go_on.set()
    finish_records(PATIENCE)
    assert "95 log records were left out: a handler did not return in time" in caplog.text


def test_every_logger_of_the_sdk_is_of_that_kind() -> None:
    import rmq.aio  # noqa: F401 - with all its modules

    logs = {
        name: module.log
        for name, module in sys.modules.items()
        if name.startswith(("rmq.client", "rmq.remoting")) and hasattr(module, "log")
    }
    assert "rmq.client.instance" in logs
    assert all(isinstance(log, aside._Aside) for log in logs.values()), logs

"""Log records of the SDK: what an application hangs into ``logging`` never runs on the SDK's loop thread.

A handler may send through a producer, wait for a lock or raise; so may a filter or a record factory. On the loop thread
a record is only made and queued; one thread hands the records on, in their order, with the time and the thread they
are of. On every other thread, an application's own loop among them, they are handed on at once, as always. Either way
what a handler raises ends there, with a line on standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["finish_records", "logger", "records_aside"]

#: Records that may wait for a handler that does not return; more are counted and left out.
_MOST_WAITING = 10_000

#: The threads that must not wait.
_loops: set[int] = set()


@contextlib.contextmanager
def records_aside() -> Iterator[None]:
    """In the block, records of the calling thread, which runs a loop, are handed on by another one."""
    # asyncio's own logger, which speaks on this thread, too: a filter is what it can be given.
    logging.getLogger("asyncio").addFilter(_not_aside)  # once, however often it is called
    _loops.add(threading.get_ident())
    try:
        yield
    finally:
        _loops.discard(threading.get_ident())


def logger(name: str) -> logging.Logger:
    """What ``logging.getLogger`` gives, made so that the application's handlers cannot harm the SDK."""
    made = logging.getLogger(name)
    kind = type(made)
    if not issubclass(kind, _Aside):
        # Of the class that the application may have set for all its loggers.
        made.__class__ = _kinds.get(kind) or _kinds.setdefault(kind, type(kind.__name__, (_Aside, kind), {}))
    return made


class _Aside(logging.Logger):
    def makeRecord(
        self,
        name: str,
        level: int,
        fn: str,
        lno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Any = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        if threading.get_ident() in _loops:  # the application's record factory is asked later
            return logging.LogRecord(name, level, fn, lno, msg, args, exc_info, func, sinfo)
        return super().makeRecord(name, level, fn, lno, msg, args, exc_info, func, extra, sinfo)

    def handle(self, record: logging.LogRecord) -> None:
        if _not_aside(record):
            try:
                super().handle(record)
            except Exception as error:
                _complain(record, error)


_kinds: dict[type[logging.Logger], type[logging.Logger]] = {}


def _not_aside(record: logging.LogRecord) -> bool:
    """Whether this thread may hand a record on itself; otherwise it is queued."""
    if threading.get_ident() not in _loops:
        return True
    _writer.put(record)
    return False


def _complain(record: logging.LogRecord, error: Exception) -> None:
    with contextlib.suppress(Exception):  # no standard error, or a message that cannot be made
        print(f"rmq: a logging handler raised {error!r} for {record.name}: {record.getMessage()}", file=sys.stderr)


class _Writer:
    """The thread that hands records on."""

    def __init__(self) -> None:
        self._records: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._left_out = 0

    def put(self, record: logging.LogRecord) -> None:
        if self._records.qsize() >= _MOST_WAITING:
            self._left_out += 1
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rmq-log", daemon=True)
            self._thread.start()
        self._records.put(record)

    def finish(self, seconds: float) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._records.put(None)
            thread.join(seconds)
            if not thread.is_alive():  # the next record starts another one
                self._thread = None

    def _run(self) -> None:
        ends = False
        while not (ends and self._records.empty()):
            record = self._records.get()
            if record is None:  # what handlers have logged meanwhile lies behind it
                ends = True
                continue
            try:
                logging.getLogger(record.name).handle(_by_factory(record))
            except Exception as error:  # asyncio's records, and factories
                _complain(record, error)
            left_out, self._left_out = self._left_out, 0
            if left_out:
                logger(__name__).warning("%d log records were left out: a handler did not return in time", left_out)


_writer = _Writer()


def _by_factory(record: logging.LogRecord) -> logging.LogRecord:
    """The record with what the application's factory adds to each."""
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        return record
    args = (record.args,) if isinstance(record.args, dict) else record.args
    made = factory(
        record.name,
        record.levelno,
        record.pathname,
        record.lineno,
        record.msg,
        args,
        record.exc_info,
        record.funcName,
        record.stack_info,
    )
    made.__dict__.update(record.__dict__)
    return made


def finish_records(seconds: float) -> None:
    """Hand on what waits and end the thread, within ``seconds``: the process ends."""
    _writer.finish(seconds)


def _after_fork_in_child() -> None:
    global _writer
    _loops.clear()
    _writer = _Writer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

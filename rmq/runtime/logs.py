"""Logging of the daemons: through a queue, to files, as conf/logging.yaml says.

The YAML is Python's dictConfig schema; ``${folder}`` and ``${daemon}`` in it are replaced. Every handler it names is
moved behind one queue, so that no write to a log file ever stalls the loop. Names that strangers choose stand in many
lines: what would end a line, move a terminal's cursor or not go into the file is written as an escape. The SDK never
calls this.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import logging.config
import logging.handlers
import os
import queue
import re
import sys
from typing import Any

import yaml

from rmq.config.bounded_yaml import bound_yaml
from rmq.protocol.errors import ConfigError
from rmq.runtime.named_file import read_named

__all__ = ["Logging", "configure", "hold"]

_DEFAULT: dict[str, Any] = {
    "version": 1,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s - %(message)s"}},
    "handlers": {
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "formatter": "line",
            "filename": "${folder}/${daemon}.log",
            "maxBytes": 67_108_864,
            "backupCount": 10,
            "encoding": "utf-8",
        }
    },
    "root": {"level": "INFO", "handlers": ["file"]},
}
_STDERR: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": _DEFAULT["formatters"],
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
}
#: Records that may wait for the writer; beyond it the newest are dropped and counted, the loop is never held up.
_WAITING = 50_000
_HELD_MOST = 1_000
#: Bytes of a logging configuration.
_LARGEST = 1 << 20
#: Characters of a message, its traceback apart.
_LONGEST = 8_192
#: Control characters but the tabulator, ends of lines, changes of direction, surrogates.
_ODD = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _plain(message: str) -> str:
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}... ({len(message) - _LONGEST} more characters)"
    return _ODD.sub(lambda odd: odd[0].encode("unicode_escape").decode(), message)


class _Queue(logging.handlers.QueueHandler):
    dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        record = copy.copy(record)
        record.msg, record.args = _plain(record.getMessage()), None
        prepared: logging.LogRecord = super().prepare(record)
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _FirstLines(logging.Handler):
    """Keeps the first lines of a process until it is known where they go."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.records) < _HELD_MOST:
            self.records.append(record)


def hold() -> None:
    """Keep what ``rmq`` logs from now on until :func:`configure`, which writes it first.

    Settings are read before it is known where the log goes, and reading them has things to say.
    """
    logger = logging.getLogger("rmq")
    if not any(isinstance(handler, _FirstLines) for handler in logger.handlers):
        logger.addHandler(_FirstLines())
        logger.setLevel(logging.INFO)


def _release() -> list[logging.LogRecord]:
    """What was held; nothing is held any more."""
    logger = logging.getLogger("rmq")
    records = []
    for handler in [h for h in logger.handlers if isinstance(h, _FirstLines)]:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        records += handler.records
    return records


class Logging:
    """What :func:`configure` set up; :meth:`stop` writes what waits and closes the files."""

    def __init__(self, listeners: list[logging.handlers.QueueListener], folder: str | None) -> None:
        self._listeners = listeners
        #: Where the log files are; None when the lines go to standard error.
        self.folder = folder

    def stop(self) -> None:
        for listener in self._listeners:
            listener.stop()
            for handler in listener.handlers:
                with contextlib.suppress(Exception):
                    handler.close()
        self._listeners.clear()
        for logger in _loggers():
            for handler in [h for h in logger.handlers if isinstance(h, _Queue)]:
                logger.removeHandler(handler)


def configure(path: str | None, *, folder: str, daemon: str, level: str | None = None) -> Logging:
    """Send the log of this process to files.

    :param path: a logging.yaml, or None for the built-in rule (``<folder>/<daemon>.log``, 64 MiB, 10 old ones).
    :param folder: where log files go; made when missing. When it cannot be written, the lines go to standard error
        and one line says so.
    :param daemon: ``broker`` or ``namesrv``; names the file.
    :param level: overrides the root level.
    :raises ConfigError: the YAML cannot be read or is no logging configuration, or there is no such level.
    """
    if level and level.upper() not in logging.getLevelNamesMapping():
        raise ConfigError(f"log level {level!r}: use DEBUG, INFO, WARNING, ERROR or CRITICAL (RMQ_LOG_LEVEL)")
    rules = _read(path) if path is not None else _DEFAULT
    held = _release()
    rules = _filled(rules, {"${folder}": folder, "${daemon}": daemon})
    rules.setdefault("version", 1)
    rules.setdefault("disable_existing_loggers", False)
    where: str | None = folder
    try:
        _make_folders(rules)
        logging.config.dictConfig(rules)
    except (OSError, ValueError, TypeError, AttributeError, ImportError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise ConfigError(f"{path or 'logging'}: {error}{f': {cause}' if cause else ''}") from error
        print(
            f"{daemon}: log files cannot be written in {folder} ({cause.strerror or cause}): logging to standard error",
            file=sys.stderr,
        )
        where = None
        logging.config.dictConfig(_filled(_STDERR, {}))
    if level:
        logging.getLogger().setLevel(level.upper())
    made = Logging(_behind_queue(), where)
    for record in held:
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    return made


def _read(path: str) -> dict[str, Any]:
    try:
        text = read_named(path, _LARGEST).decode("utf-8-sig")
        bound_yaml(path, text)
        rules = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give a logging configuration that can be read") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(rules, dict):
        raise ConfigError(f"{path}: not a logging configuration: a mapping in Python's dictConfig form is expected")
    return rules


def _filled(value: Any, words: dict[str, str]) -> Any:
    """A copy with the placeholders replaced in every text."""
    if isinstance(value, dict):
        return {key: _filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
        return os.path.expanduser(value) if value.startswith("~/") else value
    return value


def _make_folders(rules: dict[str, Any]) -> None:
    handlers = rules.get("handlers")
    for handler in handlers.values() if isinstance(handlers, dict) else ():
        name = handler.get("filename") if isinstance(handler, dict) else None
        if isinstance(name, str) and os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)


def _loggers() -> list[logging.Logger]:
    named = logging.getLogger().manager.loggerDict.values()
    return [logging.getLogger(), *(logger for logger in named if isinstance(logger, logging.Logger))]


def _behind_queue() -> list[logging.handlers.QueueListener]:
    """Put each logger's handlers behind a queue of its own, written by one thread per logger that has handlers."""
    listeners = []
    for logger in _loggers():
        handlers = [handler for handler in logger.handlers if not isinstance(handler, _Queue)]
        if not handlers:
            continue
        waiting: queue.Queue[logging.LogRecord] = queue.Queue(_WAITING)
        for handler in handlers:
            logger.removeHandler(handler)
        logger.addHandler(_Queue(waiting))
        listener = logging.handlers.QueueListener(waiting, *handlers, respect_handler_level=True)
        listener.start()
        listeners.append(listener)
    return listeners

"""What the two daemons have in common: logs, pid file, ready line, clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import click

from rmq.protocol.errors import RMQError
from rmq.runtime import logs, loop
from rmq.runtime.system import check_serves
from rmq.runtime.world import World

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.namesrv.settings import NamesrvSettings

__all__ = ["Daemon", "Early", "exposure", "home", "log_folder", "logging_rules", "pid_of", "serve"]

log = logging.getLogger(__name__)


class Daemon(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> list[str]:
        """What did not end as it should."""
        ...


def home() -> str | None:
    """The folder that holds conf/ (Java: ROCKETMQ_HOME), or None."""
    return os.environ.get("ROCKETMQ_HOME") or None


def log_folder() -> str:
    """Where log files go: RMQ_LOG_DIR, else where Java's go."""
    return os.environ.get("RMQ_LOG_DIR") or os.path.expanduser("~/logs/rocketmqlogs")


def logging_rules() -> str | None:
    """RMQ_LOGGING, else conf/logging.yaml of ROCKETMQ_HOME when it is there, else None: the built-in rule."""
    given = os.environ.get("RMQ_LOGGING")
    if given:
        return given
    folder = home()
    path = os.path.join(folder, "conf", "logging.yaml") if folder else ""
    return path if path and os.path.isfile(path) else None


def exposure(what: str, settings: BrokerSettings | NamesrvSettings) -> list[str]:
    """The line for a daemon that strangers can reach and use; nothing when it listens on loopback only."""
    bind_address = settings.bind_address
    if settings.acl_enable or bind_address == "localhost":
        return []
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(bind_address.strip("[]").partition("%")[0]).is_loopback:
            return []
    where = bind_address if bind_address not in ("", "0.0.0.0", "::") else "every interface"
    return [
        f"{what} listens on {where} without access control: whoever reaches the port can read, write and delete; "
        "set bindAddress=127.0.0.1 to keep it to this machine, or aclEnable (rmq secure init makes what that needs)"
    ]


def serve(
    name: str,
    make: Callable[[World], Daemon],
    ready: Callable[[], str],
    *,
    pid_file: Callable[[], str],
    warnings: Sequence[str],
    early: Early | None = None,
) -> int:
    """Run a daemon until SIGTERM, SIGINT or SIGHUP; the exit code.

    :param name: ``namesrv`` or ``broker``: names the log file.
    :param make: builds the daemon; called inside the loop.
    :param ready: the line for standard output, asked for once it serves.
    :param pid_file: where the process id is kept, asked for once it serves; removed at the end.
    :param warnings: lines to say at start, on standard error and in the log.
    :param early: what was logged while the settings were read.
    :raises RMQError, OSError, click.ClickException: it could not start, or did not stop as it should.
    """
    check_serves()
    logging_ = logs.configure(logging_rules(), folder=log_folder(), daemon=name, level=os.environ.get("RMQ_LOG_LEVEL"))
    aloud = _Aloud()
    logging.getLogger("rmq").addHandler(aloud)
    if early is not None:
        early.replay()
    try:
        return loop.run(_serve(make, ready, pid_file, warnings, aloud))
    except (RMQError, OSError, click.ClickException) as error:
        # Standard error gets it from who called; whoever finds the daemon gone looks into the log.
        logging.getLogger("rmq").removeHandler(aloud)
        log.critical("the %s ends: %s", name, error)
        raise
    except Exception as error:
        logging.getLogger("rmq").removeHandler(aloud)
        log.critical("the %s ends", name, exc_info=error)
        raise click.ClickException(
            f"it failed in a way nobody expected ({type(error).__name__}: {error}): the log of the {name} has more"
        ) from error
    finally:
        logging.getLogger("rmq").removeHandler(aloud)
        logging_.stop()


async def _serve(
    make: Callable[[World], Daemon],
    ready: Callable[[], str],
    pid_file: Callable[[], str],
    warnings: Sequence[str],
    aloud: _Aloud,
) -> None:
    world = World.real()
    for warning in warnings:
        log.warning("%s", warning)
    daemon = make(world)
    await daemon.start()
    loop.settle_memory()
    path = None
    try:
        path = pid_file()
        _note_pid(world, path)
        line = ready()
        log.info("%s", line)
        click.echo(line)
        sys.stdout.flush()
        logging.getLogger("rmq").removeHandler(aloud)
        await asyncio.Event().wait()
    finally:
        failed = await daemon.stop()
        if path is not None:
            with contextlib.suppress(OSError):
                world.files.unlink(path)
        if failed:
            raise click.ClickException(f"it did not stop cleanly: {', '.join(failed)} failed: the log says why")


def _note_pid(world: World, path: str) -> None:
    """Write the pid file. A daemon that can serve does so without: a full disk is no reason not to."""
    pid = world.identity.pid
    try:
        world.files.mkdir(os.path.dirname(path))
        world.files.write_atomic(path, b"%d\n" % pid)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s): mqshutdown will not find this process, end it with kill %d",
            path, error.strerror or error, pid,
        )  # fmt: skip


class Early(logging.Handler):
    """``with Early() as early``: keeps what is logged before it is known where logs go (Java keys without effect)."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._records: list[logging.LogRecord] = []
        self._level = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def replay(self) -> None:
        """Have it logged now."""
        for record in self._records:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        self._records.clear()

    def __enter__(self) -> Early:
        logger = logging.getLogger("rmq")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logger = logging.getLogger("rmq")
        logger.removeHandler(self)
        logger.setLevel(self._level)
        if error is not None:
            self.replay()


class _Aloud(logging.Handler):
    """Warnings on standard error, a line each, while the daemon starts; afterwards the log file is their place."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}", err=True)


def pid_of(path: str, program: str) -> int | None:
    """The process that a pid file names, when it is alive and runs ``program``; else None.

    :param program: ``mqbroker`` or ``mqnamesrv``: a word of the process's command line must end with it.
    """
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.read(32))
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65_536).decode(errors="replace").split("\0")
    except (OSError, ValueError):
        return None
    ours = any(word.rpartition("/")[2] in (program, f"rmq.cli.{program}") for word in words[:8])
    return pid if ours and pid > 1 else None

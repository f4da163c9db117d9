"""``python -m rmq.cli.mqbroker`` with faults: the same program, started through :mod:`tests.support.faults.os_calls`.

``RMQTEST_BUG`` names a bug of the table in ``tests/fault/test_planted_bugs.py`` to plant.

``RMQTEST_SICKNESS`` is the file by which a test makes its disk and its clock wrong
(:mod:`tests.support.faults.sickness`).

``RMQTEST_AGAIN`` is the pause of a slave between two tries to reach its master, seconds.

``RMQTEST_RULES`` holds the rules as JSON, ``RMQTEST_POINTS`` the file that gets a line for every point met first and
for a kill, ``RMQTEST_JOURNAL`` the file for what :mod:`tests.support.faults.power` needs to cut the power. Beside the
system calls there are points at ``run:store.append``, ``run:store.roll``, ``run:store.flushed`` and
``run:client.answer``, before and after each.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.app import BrokerApp
from rmq.broker.replication import slave_service
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.store import Store
from rmq.cli.mqbroker import main as program
from rmq.remoting.conn import Conn
from tests.support.faults.os_calls import FaultyOs, Points, Rule, install
from tests.support.faults.power import JournalOs
from tests.support.faults.sickness import Sickness, SickOs, plant_clock


def _record(path: str) -> Any:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def record(line: str) -> None:
        os.write(fd, f"{line}\n".encode())

    return record


def _around(owner: type, name: str, points: Points, what: str) -> None:
    real = getattr(owner, name)

    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        points.pass_by(f"{what}.before")
        result = real(self, *arguments, **named)
        points.pass_by(f"{what}.after")
        return result

    setattr(owner, name, watched)


def _phase(owner: type, name: str, points: Points, before: str, after: str) -> None:
    real = getattr(owner, name)

    async def watched(self: Any, *arguments: Any) -> Any:
        points.phase = before
        result = await real(self, *arguments)
        points.phase = after
        return result

    setattr(owner, name, watched)


def _watched(points: Points) -> FaultyOs | None:
    root = os.environ["RMQ_STORE_PATH_ROOT_DIR"]
    if journal := os.environ.get("RMQTEST_JOURNAL"):
        return JournalOs(points, root, journal)
    if page := os.environ.get("RMQTEST_SICKNESS"):
        sickness = Sickness(Path(page))
        plant_clock(sickness)
        return SickOs(points, sickness, root)
    return None


def main() -> None:
    rules = [Rule(**rule) for rule in json.loads(os.environ.get("RMQTEST_RULES", "[]"))]
    points = Points(rules)
    if path := os.environ.get("RMQTEST_POINTS"):
        points.record = _record(path)
    install(points, _watched(points))
    _around(Store, "append", points, "store.append")
    _around(CommitLog, "roll", points, "store.roll")
    _around(Durability, "on_flushed", points, "store.flushed")
    _around(Conn, "flush", points, "client.answer")
    _phase(Store, "load", points, "recover", "recover")
    _phase(Store, "start", points, "recover", "run")
    _phase(BrokerApp, "stop", points, "stop", "stop")

    if again := os.environ.get("RMQTEST_AGAIN"):
        slave_service._PAUSE = float(again)
    if bug := os.environ.get("RMQTEST_BUG"):
        getattr(import_module("tests.fault.test_planted_bugs"), bug)(pytest.MonkeyPatch())
    program()


if __name__ == "__main__":
    main()

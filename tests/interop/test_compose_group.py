"""``docker/compose-group.yaml`` without Docker: a group goes on without its leader and one of two name servers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.support.interop.composed import Composed, composed, until

_COUNT = 100


def test_a_group_goes_on_without_its_leader(tmp_path: Path) -> None:
    with composed(tmp_path, "compose-group.yaml") as made:
        _serve(made)


def _serve(made: Composed) -> None:
    for name in made.services:
        made.up(name)

    def sound() -> bool:
        told = made.ask("rmq", "doctor", "-n", made.namesrv)
        return "nothing is wrong" in told and sum(f"{address}:10911" in _list(made) for address in brokers) == 3

    brokers = [made.addresses[name] for name in ("n0", "n1", "n2")]
    until(sound)
    assert made.ask("mqadmin", "updateTopic", "--timeout", "60", "-n", made.namesrv, "-c", "RaftCluster", "-t", "Group")
    assert made.send("Group", _COUNT) == "SEND_OK@RaftNode00"
    leader = re.findall(r"RaftNode00 +0 +(\S+):10911", _list(made))[0]
    name = next(one for one, address in made.addresses.items() if address == leader)
    made.kill(name)
    made.kill("namesrv-b")
    assert made.send("Group", _COUNT) == "SEND_OK@RaftNode00"
    assert made.consumed("Group", 2 * _COUNT) == 2 * _COUNT
    made.up("namesrv-b")
    made.up(name)
    until(sound)
    for process in made.processes.values():
        process.send_signal(signal.SIGTERM)
    assert {name: process.wait(40) for name, process in made.processes.items()} == dict.fromkeys(made.services, 0)


def _list(made: Composed) -> str:
    return made.ask("mqadmin", "clusterList", "-n", made.namesrv)

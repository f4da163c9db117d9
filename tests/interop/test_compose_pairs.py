"""``docker/compose-pairs.yaml`` without Docker: two pairs serve, and one goes on without its master."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.interop.composed import Composed, composed, until

_COUNT = 100


def test_two_pairs_serve_and_one_goes_on_without_its_master(tmp_path: Path) -> None:
    with composed(tmp_path, "compose-pairs.yaml") as made:
        serve(made)


def serve(made: Composed) -> None:
    slaves = [name for name in made.services if name.endswith("-s")]
    for name in made.services.keys() - set(slaves):
        made.up(name)
    program, *words = made.services["namesrv"]["healthcheck"]["test"][1:]
    until(lambda: made.ask(program, *words, at="namesrv"))
    until(lambda: made.ask("mqadmin", "clusterList", "-n", made.namesrv).count("broker-") == 2)
    assert made.ask(
        "mqadmin", "updateTopic", "--timeout", "60", "-n", made.namesrv, "-c", "DefaultCluster", "-t", "Pairs"
    )
    # A slave asks its master for topics soon after its start, and every ten seconds.
    for name in slaves:
        made.up(name)

    def in_sync() -> bool:
        told = made.ask("mqadmin", "haStatus", "-n", made.namesrv, "-c", "DefaultCluster")
        return sum(line.split()[:2] == ["#InSyncSlaveNum", "1"] for line in told.splitlines()) == 2

    until(in_sync)
    assert made.send("Pairs", _COUNT) == "SEND_OK@broker-a SEND_OK@broker-b"
    until(lambda: any('"Pairs"' in file.read_text() for file in (made.folder / "broker-a-s").rglob("topics.json")))
    made.kill("broker-a")
    assert made.consumed("Pairs", _COUNT) == _COUNT
    made.up("broker-a")
    until(in_sync)
    assert made.send("Pairs", _COUNT) == "SEND_OK@broker-a SEND_OK@broker-b"
    for process in made.processes.values():
        process.send_signal(signal.SIGTERM)
    assert {name: process.wait(40) for name, process in made.processes.items()} == dict.fromkeys(made.services, 0)

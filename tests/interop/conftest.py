"""Clusters and clients for the interop tests: started when first asked for, kept for the session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.support.interop import Matrix, Scene
from tests.support.peers import Client, Cluster, ToolMissing, skip_or_fail, start_client, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

_MATRIX = Matrix()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/interop/" in item.path.as_posix():
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.timeout(600))  # the first one may resolve jars and start clusters


class Clusters:
    """Clusters by kind; the one that RMQ_INTEROP_CLUSTER names (ours without it) is the one under test."""

    def __init__(self) -> None:
        self._running: dict[str, Cluster] = {}

    @property
    def tested(self) -> str:
        """The kind that the matrix runs against."""
        return os.environ.get("RMQ_INTEROP_CLUSTER", "ours")

    def get(self, kind: str) -> Cluster:
        """A running cluster of a kind, with retries after a second."""
        if kind not in self._running:
            try:
                self._running[kind] = start_cluster(kind, properties=FAST_RETRIES)
            except ToolMissing as missing:
                skip_or_fail(missing)
        return self._running[kind]

    def running(self) -> list[Cluster]:
        """Those that were started."""
        return list(self._running.values())

    def stop(self) -> None:
        """Stop all."""
        for cluster in self._running.values():
            cluster.stop()


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """Clusters of any kind, one of each for the session."""
    all_of_them = Clusters()
    request.config.stash[_CLUSTERS] = all_of_them
    yield all_of_them
    all_of_them.stop()


_CLUSTERS = pytest.StashKey[Clusters]()


@pytest.fixture(scope="session")
def clients() -> Iterator[Callable[[str, str], Client]]:
    """A client program by name, and by role where one name runs twice."""
    running: dict[tuple[str, str], Client] = {}

    def get(name: str, role: str = "tested") -> Client:
        if (name, role) not in running:
            try:
                running[name, role] = start_client(name)
            except ToolMissing as missing:
                skip_or_fail(missing)
        return running[name, role]

    yield get
    for client in running.values():
        client.close()


@pytest.fixture
def scene(clusters: Clusters, clients: Callable[[str, str], Client]) -> Callable[[str, str], Scene]:
    """A scene for a client on a kind of cluster."""

    def make(kind: str, client: str) -> Scene:
        return Scene(clusters.get(kind), clients(client, "tested"), clients("java-4.9.8", "reader"))

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    where = getattr(item, "callspec", None)
    if report.when == "call" and where is not None and {"client", "cell"} <= where.params.keys():
        kind = where.params.get("kind") or os.environ.get("RMQ_INTEROP_CLUSTER", "ours")
        _MATRIX.note(kind, where.params["client"], where.params["cell"], report.outcome, report.duration)
    if report.failed and item.config.stash.get(_CLUSTERS, None) is not None:
        for cluster in item.config.stash[_CLUSTERS].running():
            report.sections.append((f"what the daemons of {cluster.kind} said", cluster.logs()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = list(_MATRIX.lines())
    if lines:
        terminalreporter.section("interop matrix")
        for line in lines:
            terminalreporter.write_line(line)

"""Clusters and clients for the interop tests: started when first asked for, kept for the session."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.support.interop import Clusters, Scene
from tests.support.peers import Client, ToolMissing, skip_or_fail, start_client
from tests.support.peers.patient import patient_clients

_CLUSTERS = pytest.StashKey[Clusters]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/interop/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(900))  # the first one may resolve jars and start clusters


@pytest.fixture(scope="session", autouse=True)
def _patient_clients() -> Iterator[None]:
    with patient_clients():
        yield


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """Clusters of any kind, one of each for the session."""
    all_of_them = Clusters()
    request.config.stash[_CLUSTERS] = all_of_them
    yield all_of_them
    all_of_them.stop()


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
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    where = getattr(item, "callspec", None)
    if report.when == "call" and where is not None and {"client", "cell"} <= where.params.keys():
        kind = where.params.get("kind") or Clusters.tested()
        # The process that prints the matrix may be another one: what it needs goes there with the report.
        report.user_properties.append(("cell", (kind, where.params["client"], where.params["cell"])))
    if report.failed and item.config.stash.get(_CLUSTERS, None) is not None:
        for cluster in item.config.stash[_CLUSTERS].running():
            report.sections.append((f"what the daemons of {cluster.kind} said", cluster.logs()))
    return report

"""Tiers, options and fixtures for the whole suite."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import open_files

_HERE = Path(__file__).parent
#: The folders whose tests need more than Python, `make test-peers`; all others are `make test`.
PEERS = frozenset({"interop", "perf", "spark"})
#: What of them shares what it starts, a Spark session or clusters and clients, and so stays in one process: a test is
#: of the first that its path begins with. A file of none of them is a unit by itself. They begin in this order, the
#: longest first, then the longest files, so that the processes end together.
GROUPS = {
    "Spark's machines": ("spark/test_spark_standalone",),
    "Spark": ("spark/",),
    "clients": (
        "interop/test_matrix", "interop/test_sdk", "interop/test_mixed", "interop/test_headers", "interop/test_begin",
        "interop/test_cluster", "interop/test_features", "interop/test_delay.", "interop/test_mqadmin",
        "interop/test_tra", "interop/test_tls", "interop/test_auto_batch", "interop/test_namespace",
        "interop/test_openm", "interop/test_tools",
    ),
}  # fmt: skip
LONGEST = (
    "interop/test_store_exchange.py", "interop/test_store_paths.py", "interop/test_answers.py", "interop/test_pop.py",
    "interop/test_ha_stream.py", "interop/test_consumequeue_ext.py", "interop/test_slaves.py",
    "interop/test_busy_answers.py", "interop/test_filter_data.py", "interop/test_topic_rules.py", "interop/test_lmq.py",
    "interop/test_delay_exchange.py", "interop/test_parity.py", "interop/test_dledger_import.py",
)  # fmt: skip

#: New objects between two searches for garbage: most tests end with fewer.
_YOUNG_OBJECTS = 20_000

# Nothing here says how long something may take: a busy machine failed tests that were right.
hypothesis.settings.register_profile("own", deadline=None)
# CI looks at the same examples every time: a run that fails there says something about the change, not about luck.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "own")
#: Contexts of whoever runs the tests are not meant by commands that name no cluster.
os.environ["RMQ_CONTEXTS"] = os.devnull


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-tool-skips",
        action="store_true",
        help="fail, instead of skip, a test whose tool (java, mvn, go, node, npm) is missing; CI=true does the same",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-tool-skips"):
        os.environ["RMQ_NO_TOOL_SKIPS"] = "1"
    # Of what is collected nothing is garbage, and to look for it again and again took a fifth of the time.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()


def _of_the_other_tier(top: str, config: pytest.Config) -> bool:
    """Whether a folder at the top has no test that the tier's ``-m`` selects."""
    return config.option.markexpr == ("not peers" if top in PEERS else "peers")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Reading the other tier, in each process, would cost seconds, and nothing of it is run."""
    if collection_path.parent == _HERE and collection_path.is_dir():
        return _of_the_other_tier(collection_path.name, config) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Begin, in each of several processes, with another share of the tests, and find the others' compiled.

    A fresh clone has none of them compiled, and compiling them with their asserts costs more than reading all of them.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [session.config.rootpath / arg for arg in session.config.args] != [_HERE]:
        return
    paths = [path.relative_to(_HERE) for path in sorted(_HERE.rglob("test_*.py"))]
    names = [path for path in paths if not _of_the_other_tier(path.parts[0], session.config)]
    for path in names[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection tries again, and tells
            importlib.import_module(".".join(("tests", *path.with_suffix("").parts)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate((*GROUPS, *LONGEST))}
    rank = {}
    for item in items:
        path = Path(os.path.relpath(item.path, _HERE))
        rank[item] = -1
        if path.parts[0] in PEERS:
            rank[item] = order.get(unit(path.as_posix()), len(order))
            item.add_marker(pytest.mark.peers)
    items.sort(key=rank.__getitem__)


def unit(path: str) -> str:
    """What a test with peers runs in one process with, by its path under tests: the group's name, or the path."""
    return next((name for name, begins in GROUPS.items() if path.startswith(begins)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With `--dist loadgroup` the groups above: xdist goes by marks, which pytest 9.2 made it lose without a word."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid.partition("::")[0].removeprefix("tests/"))

    return Units(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, since many tests wait for processes and disks; eight at most."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 7) + 1


@pytest.fixture(scope="session")
def _left_open() -> Iterator[list[str]]:
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        open_files.watch(patch, found)
        yield found


@pytest.fixture(autouse=True)
def no_file_is_left_open(_left_open: list[str]) -> Iterator[None]:
    """A store that ended has closed its files, in whatever test it was."""
    yield
    left = _left_open.copy()
    _left_open.clear()
    assert not left


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell what a test counted: at once with ``-s``, in the summary of the run, and in a report for JUnit."""

    def tell(text: str) -> None:
        print(text)
        # Not record_property(): it warns of --junitxml, and warnings are errors.
        request.node.user_properties.append(("said", text))

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, ())
        if hasattr(report, "user_properties")
    ]
    lines = [
        line
        for report in reports
        for name, text in report.user_properties
        if name == "said" and report.when == "call"
        for line in text.splitlines()
    ]
    if lines:
        terminalreporter.section("what was covered")
        for line in lines:
            terminalreporter.write_line(line)
    cells = [
        (cell, report)
        for report in reports
        for name, cell in report.user_properties
        if name == "cell" and report.when == "call"
    ]
    if cells:
        from tests.support.interop import Matrix  # brings clients and clusters with it

        matrix = Matrix()
        for cell, report in cells:
            matrix.note(*cell, report.outcome, report.duration)
        terminalreporter.section("interop matrix")
        for line in matrix.lines():
            terminalreporter.write_line(line)

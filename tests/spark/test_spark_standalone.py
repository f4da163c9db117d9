"""docs/spark/cluster.md word by word: spark-submit to two workers, whose Python has nothing of ours: it travels."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from tests.support.peers.cluster import Cluster, start_cluster
from tests.support.peers.tools import ToolMissing, skip_or_fail
from tests.support.spark.standalone import Standalone
from tests.support.spark.topics import fill, stored

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", (ROOT / "docs/spark/cluster.md").read_text())
PACK, SUBMIT, SUBMIT_JOB = (text for kind, text in BLOCKS if kind == "sh")
((PROGRAM, PRINTED),) = [(BLOCKS[n][1], BLOCKS[n + 1][1]) for n, (kind, _) in enumerate(BLOCKS) if kind == "python"]
# Without what nobody imports here, a third of it: each machine unpacks all of it for each job.
LEFT_OUT = (
    "pyarrow/include",
    "pyarrow/src",
    "libarrow_flight*",
    "libarrow_python_flight*",
    "libarrow_s3*",
    "tests",
    "pip",
)
#: Packs soon rather than small.
PACKING = {
    "GZIP": "-1",
    "TAR_OPTIONS": " ".join(f"--exclude=site-packages/*{name}" for name in LEFT_OUT),
}
MASTER, NAMESRV = "spark://127.0.0.1:7077", "127.0.0.1:9876"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """The cluster, and the environment packed as the page says, of this source tree."""
    made = Standalone(tmp_path_factory.mktemp("standalone"))
    source = made.folder / "source"
    shutil.copytree(ROOT / "rmq", source / "rmq", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    assert PACK.count(" install rmq ") == 1
    try:
        made.start()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in PACKING.items():
                patch.setitem(made.env, name, value)
            made.shell(PACK.replace(" install rmq ", f" install -q --disable-pip-version-check {source} "))
        yield made
    finally:
        made.stop()
        for path in ("jobs", "worker-1", "worker-2"):
            shutil.rmtree(made.folder / path)


@pytest.fixture(scope="module")
def java() -> Iterator[Cluster]:
    try:
        made = start_cluster("java-4.9.4")
    except ToolMissing as error:
        skip_or_fail(error)
    with made:
        yield made


def submit(standalone: Standalone, script: str, **files: str) -> str:
    for name, text in files.items():
        (standalone.jobs / name).write_text(text)
    assert script.count(MASTER) == 1
    return standalone.shell(script.replace(MASTER, standalone.url))


def test_two_workers_read_and_write_with_what_travels(standalone: Standalone, cluster: Cluster, java: Cluster) -> None:
    """The page's program, for our brokers and then, in the same application, for Java's."""
    needed = ("rmq", "pyspark_rocketmq", "pyarrow", "numpy", "orjson", "msgspec", "pyspark")
    assert standalone.missing(*needed) == list(needed), "the workers have nothing of it themselves"
    assert PROGRAM.count('"checkpoint"') == 1
    programs = [
        PROGRAM.replace(NAMESRV, each.namesrv).replace('"checkpoint"', f'"checkpoint-{each.kind}"')
        for each in (cluster, java)
    ]
    assert submit(standalone, SUBMIT, **{"orders.py": "\n".join(programs)}) == PRINTED * 2
    for each in (cluster, java):
        assert len(stored(each.namesrv, "ShopOrders")) == len(stored(each.namesrv, "ShopCopies")) == 1000
    read = standalone.records_read()
    assert sorted(read) == ["worker-1", "worker-2"]
    assert min(read.values()) > 0
    assert sum(read.values()) >= 4000, "two streams' and two batches'"


def test_a_ready_job(standalone: Standalone, cluster: Cluster) -> None:
    """``conf/pipeline/submit.py``, an archive of a topic."""
    fill(cluster.namesrv, "Archived", 200)
    shutil.copy(ROOT / "conf/pipeline/submit.py", standalone.jobs)
    job = (
        f"job: archive\ncluster:\n  nameServer: {cluster.namesrv}\nsource:\n  topics: [Archived]\n"
        f"  startingOffsets: earliest\n  minPartitions: 4\ncheckpoint: {standalone.jobs}/archiving\n"
        f"path: {standalone.jobs}/archive\ntrigger: once\n"
    )
    printed = submit(standalone, SUBMIT_JOB, **{"job.yaml": job})
    assert printed.splitlines()[-1].startswith("job: done: 200 rows in 1 batch,"), printed
    assert list(standalone.jobs.glob("archive/topic=Archived/*/*/*.parquet"))
    assert sorted(standalone.records_read()) == ["worker-1", "worker-2"]

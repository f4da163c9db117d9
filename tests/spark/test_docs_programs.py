"""The pages of docs/spark as they stand there: programs print what the page says they print, job files run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.errors import RMQError
from rmq.spark.pipeline import catalog, document
from rmq.testing.cluster import BlockingCluster
from tests.support.spark.jobs import Bench

pytestmark = pytest.mark.timeout(600)

DOCS = Path(__file__).parents[2] / "docs" / "spark"
ADDRESS = "127.0.0.1:9876"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = {path.stem: BLOCK.findall(path.read_text()) for path in sorted(DOCS.glob("*.md"))}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "page",
    # What is in cluster.md is submitted to one: test_spark_standalone.py.
    [name for name, blocks in PAGES.items() if "python" in dict(blocks) and name != "cluster"],
)
def test_programs(
    page: str, cluster: BlockingCluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""
    for kind, text in PAGES[page]:
        if kind == "python":
            out = io.StringIO()
            program = compile(text.replace(ADDRESS, cluster.namesrv_addr), f"{page}.md", "exec")
            with contextlib.redirect_stdout(out):
                # As a program of its own: what Spark's workers need of it travels with it.
                exec(program, {"__name__": "__main__"})
            printed = out.getvalue()
        elif kind == "text":
            assert printed == text


def test_job_files(cluster: BlockingCluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bench = Bench(cluster, spark, tmp_path)
    bench.create("Orders", "OrderTotals", "OrdersAgain")
    orders = [
        {"city": "Oslo", "amount": 1 + minute / 100, "createdAt": f"2026-03-01T12:{minute:02}:00Z"}
        for minute in range(60)
    ]
    bench.send("Orders", orders, tags="created")
    jobs = [text.replace(ADDRESS, cluster.namesrv_addr) for kind, text in PAGES["pipeline"] if kind == "yaml"]
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    printed = [bench.run(text) for text in jobs]
    assert [re.search(r"(?m)^job: (\S+)", text)[1] for text in jobs] == list(catalog.JOBS)  # type: ignore[index]
    assert sum(row["orders"] for row in bench.results("OrderTotals")) == 50
    assert sorted(bench.results("OrdersAgain"), key=lambda order: order["createdAt"]) == orders
    assert json.loads(Path("dead-letters/report.json").read_text())["groups"] == []
    assert all("job: done: " in out for out in printed)


def test_what_the_page_says_about_mistakes() -> None:
    (expected,) = [text for kind, text in PAGES["pipeline"] if kind == "text"]
    archive = next(text for kind, text in PAGES["pipeline"] if kind == "yaml")
    wrong = archive.replace("trigger: once ", "trigger: 10 minuets ") + "compresion: zstd\n"
    with pytest.raises(RMQError) as raised:
        catalog.of("job.yaml", document.parse("job.yaml", wrong, {}))
    without_lines = [line.partition(": ")[2] for line in expected.splitlines()]
    assert [line.partition(": ")[2] for line in getattr(raised.value, "lines", [])] == without_lines


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([\w./-]+)\)", path.read_text()):
        assert os.path.exists(path.parent / link), link


def test_every_page_is_in_the_list() -> None:
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (DOCS / "README.md").read_text())
    assert sorted([*listed, "README"]) == sorted(PAGES)

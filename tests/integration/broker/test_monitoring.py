"""conf/monitoring asks for metrics that there are, by labels that they have, in words that Prometheus reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq.testing.cluster import Cluster
from tests.support.boards import BOARDS, FOLDER, rendered
from tests.support.http_get import fetch
from tests.support.raw_peer import RawPeer, pull, send, subscribe

promql = pytest.importorskip("promql_parser", reason="needs promql-parser (extra dev)")

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
RULES = ("alerts.yml", "alerts-exporter.yml")

#: What Prometheus itself puts on every series.
SCRAPED = {"instance", "job"}
OF_BROKERS = {"cluster", "node_type", "node_id", "storage_type", "storage_medium"}
#: Labels of metrics that the broker below does not serve: it has no slave, no accounts, nothing that fails.
ELSEWHERE = {
    "rmq_messages_refused": {"reason"},
    "rmq_replica_behind_seconds": {"addr"},
    "rmq_slave_behind_seconds": set(),
    "rmq_slave_logs_differ_total": set(),
    "rmq_metadata_age_seconds": {"table"},
    "rmq_acl_refused_total": {"reason"},
    "rmq_acl_files_in_force": set(),
    "rmq_delayed_messages": {"level"},
    "rmq_group_leads": set(),
    "rmq_group_has_leader": set(),
    "rmq_group_stopped": set(),
    "rmq_group_member_connected": {"member"},
    "rmq_group_member_behind_bytes": {"member"},
    "rmq_group_elections_won_total": set(),
    "rmq_namesrv_brokers": set(),
    "rocketmq_group_retrydiff": {"group", "topic", "countOfOnlineConsumers", "msgModel"},
    "rocketmq_send_to_dlq_messages_total": {"consumer_group", "is_system"},
    "rocketmq_consumer_inflight_messages": {"topic", "consumer_group", "is_retry", "is_system"},
}  # fmt: skip


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in RULES:
        for group in yaml.safe_load((FOLDER / name).read_text())["groups"]:
            for rule in group["rules"]:
                yield f"{name} {rule['alert']}", rule


def lines() -> Iterator[tuple[str, str, str]]:
    """Where an expression stands, the expression, and the text that names its labels."""
    for where, rule in rules():
        yield where, rule["expr"], rule["annotations"]["summary"] + rule["annotations"]["description"]
    for name, board in BOARDS.items():
        for row in board["rows"].values():
            for panel in row:
                for legend, expression in panel["lines"].items():
                    yield f"{name} {panel['title']}", expression, legend


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    found: list[tuple[str, set[str]]] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.append((node.name, {matcher.name for matcher in node.matchers.matchers}))
        return True

    promql.walk(
        promql.parse(expression.replace("$node", ".*").replace("$group", ".*").replace("$cluster", ".*")), visit
    )
    return found


def kept(expression: str) -> set[str] | None:
    """The labels that the outermost sums leave, or None where they leave all."""
    grouped = [set(re.split(r",\s*", by)) for by in re.findall(r"\b(?:sum|max) by \(([^)]*)\)", expression)]
    return set.intersection(*grouped) if grouped else (set() if re.match(r"(sum|topk)\(", expression) else None)


async def served(folder: Path) -> dict[str, set[str]]:
    """Labels by metric, of a broker with traffic, read in both name sets."""
    labels: dict[str, set[str]] = {}
    observed = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    async with Cluster(folder, settings=observed) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            for topic in ("T", "%DLQ%G"):
                assert (await peer.ask(send(topic))).code == 0
            assert (await peer.ask(subscribe())).code == 0
            assert (await peer.ask(pull())).code == 0
            for queue in range(16):
                broker.offsets.commit("G", "T", queue, 0)
            address = broker.observer.address
            assert address is not None
            for query in ("", "?names=exporter"):
                _, text = await fetch(address, f"/metrics{query}")
                for name, inside in re.findall(r"^([a-z_0-9]+)\{(.*)\} ", text, re.MULTILINE):
                    labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    return labels


def told(labels: dict[str, set[str]], name: str) -> set[str]:
    """The labels of a metric; fails for one that is neither served nor explained."""
    if name in labels:
        return labels[name] | SCRAPED
    assert f"`{name}`" in PAGE.read_text(), f"{name} is nowhere in docs/metrics.md"
    if name in ELSEWHERE:
        return ELSEWHERE[name] | OF_BROKERS | SCRAPED
    return OF_BROKERS | SCRAPED


async def test_every_expression_asks_for_what_there_is(tmp_path: Path) -> None:
    labels = await served(tmp_path)
    for where, expression, text in lines():
        asked = selectors(expression)
        assert asked, where
        left = kept(expression)
        for name, matched in asked:
            there = told(labels, name)
            assert matched <= there, (where, name, matched - there)
            named = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)", text)) - {"value"}
            assert named <= (there if left is None else left), (where, name, named)
        for by in re.findall(r"\bby \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", by)) <= set.union(*(told(labels, name) for name, _ in asked)), (where, by)


@pytest.mark.parametrize("name", RULES)
def test_rules_are_what_prometheus_loads(name: str) -> None:
    document = yaml.safe_load((FOLDER / name).read_text())
    assert set(document) == {"groups"}
    alerts = []
    for group in document["groups"]:
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "description"}
            assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
            alerts.append(rule["alert"])
    assert len(alerts) == len(set(alerts))


@pytest.mark.parametrize("name", BOARDS)
def test_boards_are_written_as_their_tables_say(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert text == rendered(BOARDS[name]), "write them again: python -m tests.support.boards"
    board = json.loads(text)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            assert inner is not None
            assert selectors(inner[1])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells

"""Make Grafana's JSON of the boards in conf/monitoring/boards.yml: `python -m tests.support.boards` writes it again.

Where a panel stands and what Grafana wants around it follows from its place in the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

__all__ = ["BOARDS", "FOLDER", "rendered"]

FOLDER = Path(__file__).parents[2] / "conf" / "monitoring"

#: By the name of the file that Grafana imports.
BOARDS: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "boards.yml").read_text())

_WIDTH, _HEIGHT = 8, 8
_ACROSS = 24 // _WIDTH
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def _panel(number: int, panel: dict[str, Any], x: int, y: int) -> dict[str, object]:
    return {
        "id": number,
        "type": panel.get("kind", "timeseries"),
        "title": panel["title"],
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + which), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for which, (legend, expression) in enumerate(panel["lines"].items())
        ],
    }


def _panels(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, object]]:
    panels: list[dict[str, object]] = []
    y = 0
    for title, row in rows.items():
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}
        )
        y += 1
        for which, panel in enumerate(row):
            across, down = which % _ACROSS, which // _ACROSS
            panels.append(_panel(len(panels) + 1, panel, across * _WIDTH, y + down * _HEIGHT))
        y += -(-len(row) // _ACROSS) * _HEIGHT
    return panels


def _variable(name: str, query: str) -> dict[str, object]:
    every = {"multi": True, "includeAll": True, "allValue": ".*"}
    return {"name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, **every}


def rendered(board: dict[str, Any]) -> str:
    """The board as Grafana imports it: its source of data is chosen on top."""
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    whole = {
        "uid": board["uid"],
        "title": board["title"],
        "tags": ["rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *(_variable(*variable) for variable in board["variables"].items())]},
        "panels": _panels(board["rows"]),
    }
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    for name, board in BOARDS.items():
        (FOLDER / name).write_text(rendered(board))
        print(FOLDER / name)

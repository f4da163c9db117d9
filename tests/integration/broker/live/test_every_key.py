"""Every setting that request 25 takes while running has a test that sees what it does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from rmq.broker.settings import BrokerSettings
from tests.support.scenes.live import SEEN


def test_every_live_key_is_seen() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"tests.integration.broker.live.{path.stem}")
    assert {line.key for line in BrokerSettings.lines() if line.live} == SEEN

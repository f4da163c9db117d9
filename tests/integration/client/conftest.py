"""Listeners of both kinds for tests that are written once."""

from __future__ import annotations

import pytest

from tests.support.scenes.client import Kinds


@pytest.fixture(params=["coroutine", "plain"])
def listeners(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumers of the test's scenes have coroutine listeners, and then plain ones."""
    monkeypatch.setattr(Kinds, "now", getattr(Kinds, request.param))

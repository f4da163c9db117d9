"""The pytest plugin for applications, which may lack pytest-asyncio."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from rmq.testing import plugin


def test_blocking_tests_need_no_pytest_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest_asyncio", None)
    spec = importlib.util.spec_from_file_location("plugin_alone", plugin.__file__)
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.__all__ == ["rmq_cluster"]
    assert plugin.__all__ == ["rmq_aio_cluster", "rmq_cluster"]

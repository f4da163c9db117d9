"""Certificates made for the run."""

from __future__ import annotations

import pytest

from tests.support.certificates import Certificate, make_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A self-signed certificate for localhost."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """One that nobody trusts."""
    return make_certificate(tmp_path_factory.mktemp("tls-other"), "other")

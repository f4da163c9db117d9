"""Clients of our SDK in tests with other people's software: they wait as long as a JVM on a busy machine needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pytest

from rmq.client.settings import ClientSettings

#: Seconds, where a test says nothing of its own. A JVM that has just begun needs more than the three of an application.
PATIENT = {"mq_client_api_timeout": 60.0, "send_msg_timeout": 60.0, "consumer_pull_timeout": 60.0}


@contextmanager
def patient_clients() -> Iterator[None]:
    """Those that are made in this process meanwhile."""
    of = ClientSettings.of.__func__  # type: ignore[attr-defined]

    def patient(kind: type[ClientSettings], options: dict[str, Any]) -> ClientSettings:
        known = {field.name for field in fields(kind)}
        made: ClientSettings = of(kind, {**{name: PATIENT[name] for name in PATIENT if name in known}, **options})
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientSettings, "of", classmethod(patient))
        yield

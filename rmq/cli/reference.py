"""``python -m rmq.cli.reference FILE``: write the reference page of all settings from their tables."""

from __future__ import annotations

import sys

from rmq.broker.settings import BrokerSettings
from rmq.config.reference import reference
from rmq.namesrv.settings import NamesrvSettings

__all__ = ["page"]


def page() -> str:
    """docs/settings.md; a test compares it with the file."""
    namesrv = reference(NamesrvSettings, "Settings of the nameserver")
    broker = reference(BrokerSettings, "Settings of the broker")
    return (
        "<!-- Made by `make docs` from rmq/namesrv/settings.py and rmq/broker/settings.py: change those. -->\n\n"
        f"{namesrv}\n{broker}"
    )


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as target:
        target.write(page())

"""``mqadmin``: Java's administration commands by their names, letters and columns, with ``--json`` and exit codes."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    from rmq.cli.command import invoke
    from rmq.cli.mqadmin.commands import root

    sys.exit(invoke(root, "mqadmin"))

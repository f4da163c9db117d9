"""``mqadmin``: Java's administration commands by their names, letters and columns, and forms for programs."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    from rmq.cli.command import invoke
    from rmq.cli.mqadmin.commands import root
    from rmq.cli.mqadmin.failures import classic

    code = invoke(root, "mqadmin")
    asked = "--classic-exit" in sys.argv or os.environ.get("MQADMIN_CLASSIC_EXIT", "").lower() in ("1", "true")
    sys.exit(classic(code) if asked else code)

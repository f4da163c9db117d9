"""Parse Python among tests that have run."""

from __future__ import annotations

import ast
import gc

__all__ = ["parsed"]


def parsed(source: str | bytes) -> ast.Module:
    """A module's tree. What earlier tests have left may not end meanwhile: Python 3.11 cannot parse in a parse, which
    a task that nobody has awaited does, for its traceback.
    """
    looked = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if looked:
            gc.enable()

"""Functions of the C library that Python has none for; None where the library has no such thing, as on Windows."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["c_function"]


def c_function(name: str) -> Any:
    """The function of this name, or None. It sets ``ctypes.get_errno()``."""
    try:
        return getattr(ctypes.CDLL(None, use_errno=True), name, None)
    except (OSError, TypeError):  # Windows has no library of the process's own
        return None

"""What interop tests check: cells (one way of using a client) run by any client against any cluster."""

from .cells import CELLS, NO_CALL, PROMISED, run_cell
from .matrix import Matrix
from .rows import Row, expected, placed, rows_of
from .scene import Scene

__all__ = [
    "CELLS",
    "NO_CALL",
    "PROMISED",
    "Matrix",
    "Row",
    "Scene",
    "expected",
    "placed",
    "rows_of",
    "run_cell",
]

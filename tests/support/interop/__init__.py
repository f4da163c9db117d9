"""What interop tests check: cells (one way of using a client) run by any client against any cluster."""

from .cells import CELLS, NO_CALL, PROMISED, run_cell
from .clusters import Clusters
from .matrix import Matrix
from .rows import Row, assert_same, expected, placed, rows_of
from .scene import COUNT, Scene, fresh, shares_of, until

__all__ = [
    "CELLS",
    "COUNT",
    "NO_CALL",
    "PROMISED",
    "Clusters",
    "Matrix",
    "Row",
    "Scene",
    "assert_same",
    "expected",
    "fresh",
    "placed",
    "rows_of",
    "run_cell",
    "shares_of",
    "until",
]

"""Puts keys so that a message whose keys the index refuses costs its own keys alone.

Two kinds of refusal are told apart. Memory or a disk that is not there now is nobody's fault: the index has stopped,
and what comes from there on is read from the log again later. Anything else is about the message, and would be the
same each time: it is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from rmq.broker.store.index.index import Index
from rmq.protocol.errors import StoreError

__all__ = ["IndexStopped", "Refused", "put_all", "put_each"]

#: Told of a message (commit-log offset) whose keys are left out, and why.
Refused = Callable[[int, Exception], None]


class IndexStopped(StoreError):
    """The index takes no keys for now: it has none of messages behind commit-log offset ``offset``."""

    def __init__(self, offset: int, reason: Exception) -> None:
        super().__init__(f"it has no keys from {offset} on: {str(reason) or type(reason).__name__}")
        self.offset = offset


def put_all(index: Index, hashes: list[tuple[int, int]], stamp: int, refused: Refused) -> None:
    """:meth:`Index.put_many`, each message by itself where that fails.

    :raises IndexStopped: the index takes none of those that are left.
    """
    try:
        index.put_many(hashes, stamp)
    except Exception:
        put_each(index, hashes, stamp, refused)


def put_each(index: Index, hashes: list[tuple[int, int]], stamp: int, refused: Refused) -> None:
    """The same after :meth:`Index.put_many` has failed with them: finds which of them it was.

    :raises IndexStopped: the index takes none of those that are left.
    """
    for offset, keys in groupby(hashes, itemgetter(1)):
        if offset < index.end[1]:
            continue
        try:
            index.put_many(list(keys), stamp)
        except (OSError, MemoryError) as error:
            raise IndexStopped(offset, error) from error
        except Exception as error:
            refused(offset, error)

"""Whom a store tells what happens in it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["StoreEvents"]


class StoreEvents:
    """Lists of who is told, in turn; they do not raise and do not wait."""

    __slots__ = ("appended", "flush_failed", "flushed")

    def __init__(self) -> None:
        #: Messages were appended.
        self.appended: list[Callable[[], None]] = []
        #: The log is on disk up to this offset.
        self.flushed: list[Callable[[int], None]] = []
        #: Forcing the log to disk has failed, for good; told once.
        self.flush_failed: list[Callable[[], None]] = []

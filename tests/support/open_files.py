"""What a store leaves open: asked at each end of each store in the tests (``no_file_is_left_open`` in conftest.py).

A descriptor that is lost at each flush is seen by no other test: the broker that runs out of them does so after days.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.store import Store
from rmq.runtime.files import RealFiles
from rmq.runtime.world import Files
from rmq.testing.simfiles import SimFiles

__all__ = ["watch"]

_DESCRIPTORS = "/proc/self/fd"


def _open_below(files: Files, root: str) -> list[str]:
    """Paths of the process's open files below a folder; none where nobody knows."""
    names: list[str] = []
    if isinstance(files, SimFiles):
        names = files.opened
    elif isinstance(files, RealFiles) and os.path.isdir(_DESCRIPTORS):
        root = os.path.realpath(root)
        for number in os.listdir(_DESCRIPTORS):
            with contextlib.suppress(OSError):  # closed meanwhile, as that of the listing itself
                names.append(os.readlink(f"{_DESCRIPTORS}/{number}"))
    return [name for name in names if name.startswith(f"{root}/")]


def watch(patch: pytest.MonkeyPatch, found: list[str]) -> None:
    """Have every store that ends tell what it left open.

    :param found: where it is told: whoever stops a store may log its exceptions and go on.
    """

    def told(of: type[Any], name: str, *, begins: bool = False) -> None:
        real: Callable[..., Awaitable[Any]] = getattr(of, name)

        async def ended(self: Any, *args: Any) -> Any:
            before = here(self) if begins else []
            try:
                result = await real(self, *args)
            except BaseException:
                note(self, before)
                raise
            if not begins:
                note(self, before)
            return result

        def here(store: Any) -> list[str]:
            files = store.files if isinstance(store, StoppedStore) else store._world.files
            return _open_below(getattr(files, "_files", files), store.settings.root)

        def note(store: Any, before: list[str]) -> None:
            left = here(store)
            for known in before:
                left.remove(known)
            if left:
                found.append(f"{of.__name__}.{name} left open: {', '.join(left)}")

        patch.setattr(of, name, ended)

    told(Store, "stop")
    told(Store, "abandon")
    told(Store, "load", begins=True)
    told(StoppedStore, "__aenter__", begins=True)
    told(StoppedStore, "__aexit__")

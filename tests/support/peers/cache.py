"""The cache of what is resolved and compiled: built once, whole or not at all, safe under parallel runs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_DONE = ".complete"


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/rmq-interop`, else `~/.cache/rmq-interop`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "rmq-interop"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, built by `build(empty folder)` when it is not there yet.

    A folder counts only with its marker, written last; it is made beside its place and renamed, so a build that
    died leaves nothing that a later run would take for whole. Parallel runs wait for each other per folder.
    """
    target = cache_root() / name
    if (target / _DONE).exists():
        return target
    with _locked(target.with_name(target.name + ".lock")):
        if (target / _DONE).exists():
            return target
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            build(fresh)
            (fresh / _DONE).touch()
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return target


def content_key(*parts: str | Path) -> str:
    """A short key of texts and of files' (or whole folders') names and contents: equal sources, equal key."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode() + b"\0")
            continue
        files = [part] if part.is_file() else sorted(p for p in part.rglob("*") if p.is_file())
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

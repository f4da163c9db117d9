"""The store that the real Java 4.9.4 broker left, unpacked, and what a program of its own says is in it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from rmq.broker.store.settings import StoreSettings

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
MANIFEST: dict[str, Any] = json.loads((GOLDEN / "store-4.9.4.manifest.json").read_text())
#: What it was written with beside the file sizes, which can be seen.
INDEX_OPTIONS = ("-o", "maxHashSlotNum=50", "-o", "maxIndexNum=200")


def unpack(folder: Path) -> Path:
    """The store's root below ``folder``."""
    with tarfile.open(GOLDEN / "store-4.9.4.tar.xz") as archive:
        # Python before 3.11.4 has no filters and unpacks as it always did.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "store"


def golden_settings(root: Path) -> StoreSettings:
    return StoreSettings(
        str(root), commit_log_file_size=1_048_576, queue_file_size=6000, index_slots=50, index_entries=200
    )


def state_of(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything that can be changed in a tree: modification time, mode, content."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        info = path.lstat()
        found[str(path)] = (info.st_mtime_ns, info.st_mode, path.read_bytes() if path.is_file() else b"")
    return found

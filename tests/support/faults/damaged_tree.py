"""Damage to a store's real files, drawn by a seed: flipped bits to links in circles, and names of all kinds."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from pathlib import Path

__all__ = ["damage", "derived", "log_of", "state_of_links"]

_NAMES = (
    b"\xff\xfe", "٣".encode(), b"a\nb\x1b[31m", "标签😀".encode(), b"00", b"-1", b"4294967296", b" ", b"x" * 250,
    b"99999999999999999999", b"09223372036854775807", b"00000000000000000123", b"00000000000000016384",
    b"00000000000016384000", b"20260101000000000", b"99999999999999999", b"lost+found",
)  # fmt: skip


def state_of_links(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a root, links as links; what is in ``lock`` does not count."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            if os.path.islink(path):
                found[path] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[path] = ("directory",)
            elif name != "lock":
                data = Path(path).read_bytes()
                found[path] = ("file", len(data), hashlib.sha256(data).digest())
    return found


def log_of(root: Path) -> dict[str, bytes]:
    """Commit-log files that have anything, without the zeros that end them."""
    folder = root / "commitlog"
    files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    return {path.name: data for path in files if (data := path.read_bytes().rstrip(b"\0"))}


def derived(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Queue files by name, and index files without their times, by which they are named, too."""
    queues = root / "consumequeue"
    return (
        {str(path.relative_to(queues)): path.read_bytes() for path in queues.rglob("*") if path.is_file()},
        [path.read_bytes()[16:] for path in sorted((root / "index").iterdir())],
    )


class _Damage:
    def __init__(self, root: Path, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def _file(self) -> Path:
        folder = self._rng.choice(("commitlog", "consumequeue", "index", "."))
        return self._rng.choice(sorted(path for path in (self._root / folder).rglob("*") if path.is_file()))

    def _directory(self) -> Path:
        return self._rng.choice(sorted(path for path in self._root.rglob("*") if path.is_dir()))

    def bits(self) -> None:
        path = self._file()
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0")) or len(data)
        for _ in range(self._rng.choice((1, 1, 8))):
            data[self._rng.randrange(used)] ^= 1 << self._rng.randrange(8)
        path.write_bytes(data)

    def part(self) -> None:
        path = self._file()
        data = bytearray(path.read_bytes())
        at, size = self._rng.randrange(len(data)), self._rng.choice((1, 20, 512, 4096, len(data)))
        size = len(data[at : at + size])
        data[at : at + size] = self._rng.choice((bytes(size), self._rng.randbytes(size)))
        path.write_bytes(data)

    def length(self) -> None:
        path = self._file()
        size = path.stat().st_size
        os.truncate(path, self._rng.choice((0, 1, size // 2, size - 1, size + 1, size * 2)))

    def gone(self) -> None:
        self._file().unlink()

    def directory_gone(self) -> None:
        shutil.rmtree(self._directory())

    def swapped(self) -> None:
        one, other = self._file(), self._file()
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)

    def directory_for_file(self) -> None:
        path = self._file()
        path.unlink()
        path.mkdir()

    def file_for_directory(self) -> None:
        path = self._directory()
        shutil.rmtree(path)
        path.write_bytes(self._rng.choice((b"", b"foreign", bytes(800))))

    def link(self) -> None:
        path = self._rng.choice((self._file, self._directory))()
        elsewhere = self._root.parent / f"elsewhere{self._rng.randrange(1 << 30)}"
        shutil.move(path, elsewhere)
        target = self._rng.choice((elsewhere, path, self._root / "nowhere", path.parent))
        path.symlink_to(os.path.relpath(target, path.parent))  # within a copy of the folder above the root

    def name(self) -> None:
        folder = os.fsencode(self._rng.choice((self._root, self._directory())))
        path = os.path.join(folder, self._rng.choice(_NAMES))
        if self._rng.random() < 0.3:
            os.makedirs(os.path.join(path, self._rng.choice((b"0", b"x", b"\xff"))))
        else:
            with open(path, "wb") as file:
                file.write(self._rng.choice((b"", b"foreign", self._file().read_bytes())))


def damage(root: Path, rng: random.Random) -> str:
    """Do one to three things to the store; which. Links lead no further than to the folder above the root."""
    done = []
    doer = _Damage(root, rng)
    kinds = [name for name in vars(_Damage) if not name.startswith("_")]
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice(kinds)
        try:
            getattr(doer, kind)()
        except (OSError, IndexError, ValueError):
            continue  # the one before has left nothing to do it to
        done.append(kind)
    return ", ".join(done)

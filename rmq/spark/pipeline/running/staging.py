"""Writing files to an archive so that a set of them is there once, whatever dies in between.

A set is written to a folder that readers do not see, then listed in a manifest (one rename: the moment from which it
counts), then moved file by file. Whoever finds a manifest finishes what it lists; what was written without one is
written anew. All of it lies in ``_rmq/QUERY`` of the archive, by the id of the query that owns it.

==============================  =========================================================================
``_rmq/QUERY/stage/NAME/``      files being written
``_rmq/QUERY/NAME.json``        ``{"moves": [[from, to], ...], "remove": [path, ...]}``, all below the root;
                                of a batch also ``"upTo"``, the offsets that it ends at
==============================  =========================================================================
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NotRequired, TypedDict

from rmq.protocol.errors import StoreError
from rmq.spark.options.positions import META
from rmq.spark.pipeline.running.files import Files

__all__ = ["HOME", "Manifest", "Staging", "manifests", "stage_of"]

HOME = "_rmq"
_BATCH = "batch-"
_JOINED = "joined-"
_MANIFEST = ".json"


class Manifest(TypedDict):
    """What a set is made of; paths are below the root of the archive."""

    moves: list[list[str]]
    remove: NotRequired[list[str]]
    upTo: NotRequired[Any]


def manifests(files: Files) -> list[tuple[str, str, Manifest]]:
    """(owner, name of the set, manifest) of everything that an archive's queries have put there and still know.

    :raises FileNotFoundError: one was there and is no more. :raises StoreError: one cannot be read.
    """
    return [(owner, name, _read(files, owner, name)) for owner in files.names(HOME) for name in _sets(files, owner)]


def stage_of(owner: str, name: str) -> str:
    """The folder in which the files of a set are written."""
    return f"{HOME}/{owner}/stage/{name}"


def _path(owner: str, name: str) -> str:
    return f"{HOME}/{owner}/{name}{_MANIFEST}"


def _sets(files: Files, owner: str) -> list[str]:
    """Names of the sets of a query that have a manifest."""
    names = files.names(f"{HOME}/{owner}")
    return [name.removesuffix(_MANIFEST) for name in names if name.endswith(_MANIFEST)]


def _read(files: Files, owner: str, name: str) -> Manifest:
    path = _path(owner, name)
    try:
        found: Manifest = json.loads(files.read(path))
        sound = all(len(move) == 2 for move in found["moves"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{files.full(path)} is damaged ({error}): put it back from a backup") from None
    if not sound:
        raise StoreError(f"{files.full(path)} is damaged (moves): put it back from a backup")
    return found


def _places(up_to: Any) -> Any:
    """The offsets of queues alone."""
    if not isinstance(up_to, dict):
        return up_to
    return {name: value for name, value in up_to.items() if not name.startswith(META)}


class Staging:
    """The sets of one query.

    :param owner: its id: batch numbers begin anew with every query.
    """

    def __init__(self, files: Files, owner: str) -> None:
        self._files = files
        self._owner = owner
        #: Begins the names of the files that the query has put into the archive.
        self.mark = f"{owner[:8]}-"
        self._home = f"{HOME}/{owner}"
        #: Something failed that may have left a manifest or files behind.
        self.unsettled = True

    def others(self) -> list[str]:
        """Ids of other queries that have written to this archive."""
        return [name for name in self._files.names(HOME) if name != self._owner]

    def batch(self, number: int, up_to: object, write: Callable[[str], object]) -> list[str]:
        """Write the files of a batch and move them into place, once: a batch that is there already stays as it is.

        :param up_to: the offsets that the batch ends at; None: not known.
        :param write: writes files, in folders of the archive, below the address it is given.
        :returns: the folders that files were moved to.
        :raises StoreError: the archive holds this batch, or a later one, with other messages.
        """
        before = [name for name in self._manifests() if name.startswith(_BATCH)]
        for there in before:
            self._check(there, number, up_to)
        name = f"{_BATCH}{number}"
        with self._unsettled():
            folders = self._publish(name, write, {"upTo": up_to})
            for there in before:  # batch n begins when those before it are committed: they are never asked for again
                if there != name:
                    self._forget(there)
        return folders

    def _check(self, there: str, number: int, up_to: object) -> None:
        """:raises StoreError: a checkpoint that was put back plans other batches than those that the archive holds."""
        held = int(there.removeprefix(_BATCH))
        known = self._manifest(there).get("upTo") if held == number else None
        differs = known is not None and up_to is not None and _places(known) != _places(up_to)
        if held > number or differs:
            raise StoreError(
                f"batch {number} is not the one that the archive has: the checkpoint was put back to an older state. "
                f"Put the newer one back, or begin with a new checkpoint and startingOffsets that are upTo in "
                f"{self._files.full(self._path(there))}: nothing is lost then, and nothing there twice"
            )

    def replace(self, name: str, write: Callable[[str], object], remove: Sequence[str]) -> None:
        """Write files that take the place of others.

        :param name: one that no set has had. :param remove: the others.
        """
        with self._unsettled():
            self._publish(f"{_JOINED}{name}", write, {"remove": list(remove)})
            self._forget(f"{_JOINED}{name}")

    @contextmanager
    def _unsettled(self) -> Iterator[None]:
        """What does not end well leaves something to be settled."""
        before, self.unsettled = self.unsettled, True
        yield
        self.unsettled = before

    def settle(self) -> None:
        """Finish what has a manifest, and drop files that none names."""
        manifests = self._manifests()
        for name in manifests:
            self._finish(name)
            if name.startswith(_JOINED):
                self._forget(name)
        for name in self._files.names(f"{self._home}/stage"):
            if name not in manifests:
                self._files.delete(self._stage(name))
        self.unsettled = False

    def _publish(self, name: str, write: Callable[[str], object], also: dict[str, Any]) -> list[str]:
        stage = self._stage(name)
        if not self._files.exists(self._path(name)):
            self._files.delete(stage)
            try:
                write(self._files.full(stage))
            except Exception:
                with suppress(Exception):  # what failed is told; the next start sweeps
                    self._files.delete(stage)
                raise
            moves = []
            for number, found in enumerate(sorted(self._files.walk(stage))):
                folder = posixpath.dirname(found.path[len(stage) + 1 :])
                ending = found.path.rpartition(".")[2]
                moves.append([found.path, f"{folder}/{self.mark}{name}-{number:04d}.{ending}"])
            self._files.write(self._path(name), json.dumps({"moves": moves, **also}))
        return self._finish(name)

    def _finish(self, name: str) -> list[str]:
        document = self._manifest(name)
        for source, target in document["moves"]:
            if self._files.exists(source):
                self._files.move(source, target)
        for path in document.get("remove", ()):
            self._files.delete(path)
        self._files.delete(self._stage(name))
        return sorted({posixpath.dirname(target) for _, target in document["moves"]})

    def _forget(self, name: str) -> None:
        """Drop the manifest of a set that will never be asked for again."""
        self._files.delete(self._path(name))

    def _manifests(self) -> list[str]:
        return _sets(self._files, self._owner)

    def _manifest(self, name: str) -> Manifest:
        return _read(self._files, self._owner, name)

    def _path(self, name: str) -> str:
        return _path(self._owner, name)

    def _stage(self, name: str) -> str:
        return stage_of(self._owner, name)

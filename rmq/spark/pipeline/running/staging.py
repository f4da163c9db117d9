"""Writing files to an archive so that a set of them is there once, whatever dies in between.

A set is written to a folder that readers do not see, then listed in a manifest (one rename: the moment from which it
counts), then moved file by file. Whoever finds a manifest finishes what it lists; what was written without one is
written anew. All of it lies in ``_rmq/QUERY`` of the archive, by the id of the query that owns it.

==============================  =========================================================================
``_rmq/QUERY/stage/NAME/``      files being written
``_rmq/QUERY/NAME.json``        ``{"moves": [[from, to], ...], "remove": [path, ...]}``, all below the root
==============================  =========================================================================
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Sequence

from rmq.spark.pipeline.running.files import Files

__all__ = ["HOME", "Staging"]

HOME = "_rmq"


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

    def others(self) -> list[str]:
        """Ids of other queries that have written to this archive."""
        return [name for name in self._files.names(HOME) if name != self._owner]

    def publish(self, name: str, write: Callable[[str], object], remove: Sequence[str] = ()) -> list[str]:
        """Write a set and move it into place, once: a set that is there already stays as it is.

        :param name: of the set, such as ``batch-7``.
        :param write: writes files, in folders of the archive, below the address it is given.
        :param remove: files that the set takes the place of.
        :returns: the folders that files were moved to.
        """
        manifest = f"{self._home}/{name}.json"
        if not self._files.exists(manifest):
            stage = f"{self._home}/stage/{name}"
            self._files.delete(stage)
            write(self._files.full(stage))
            moves = []
            for number, found in enumerate(sorted(self._files.walk(stage))):
                folder = posixpath.dirname(found.path[len(stage) + 1 :])
                ending = found.path.rpartition(".")[2]
                moves.append([found.path, f"{folder}/{self.mark}{name}-{number:04d}.{ending}"])
            self._files.write(manifest, json.dumps({"moves": moves, "remove": list(remove)}))
        return self._finish(name)

    def _finish(self, name: str) -> list[str]:
        document = json.loads(self._files.read(f"{self._home}/{name}.json"))
        for source, target in document["moves"]:
            if self._files.exists(source):
                self._files.move(source, target)
        for path in document["remove"]:
            self._files.delete(path)
        self._files.delete(f"{self._home}/stage/{name}")
        return sorted({posixpath.dirname(target) for _, target in document["moves"]})

    def forget(self, name: str) -> None:
        """Drop the manifest of a set that will never be asked for again."""
        self._files.delete(f"{self._home}/{name}.json")

    def recover(self, prefix: str) -> None:
        """Finish the sets whose name begins so and that have a manifest, and forget them."""
        for file in self._files.names(self._home):
            if file.startswith(prefix) and file.endswith(".json"):
                self._finish(file.removesuffix(".json"))
                self.forget(file.removesuffix(".json"))

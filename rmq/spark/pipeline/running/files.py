"""Files of an archive through Hadoop's file systems, which Spark has: local folders, hdfs://, s3a:// alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rmq.protocol.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "Found"]


class Found(NamedTuple):
    """A file below the root."""

    path: str
    size: int


class Files:
    """Files below a root; paths are relative to it, with ``/``.

    :param root: a folder or an address; made when it is not there.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._fs_package = jvm.org.apache.hadoop.fs
        self._jvm = jvm
        plain = self._fs_package.Path(root)
        self._fs = plain.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._fs.makeQualified(plain)
        self.root = str(self._root.toString())

    def full(self, path: str) -> str:
        """The address of a file, as Spark takes it."""
        return str(self._at(path).toString())

    def _at(self, path: str) -> Any:
        return self._fs_package.Path(self._root, path) if path else self._root

    def walk(self, folder: str = "") -> Iterator[Found]:
        """Every file below a folder, however deep, but those that Spark does not see (names with ``_`` or ``.``).

        :raises FileNotFoundError: a folder went away meanwhile.
        """
        where = self._at(folder)
        if not self._fs.exists(where):
            return
        above = len(self.root) + 1
        hidden_before = len(folder) + 1 if folder else 0
        with _told(folder):
            files = self._fs.listFiles(where, True)
            while files.hasNext():
                status = files.next()
                path = str(status.getPath().toString())[above:]
                if not any(part.startswith(("_", ".")) for part in path[hidden_before:].split("/")):
                    yield Found(path, int(status.getLen()))

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder. :raises FileNotFoundError: it went away meanwhile."""
        where = self._at(folder)
        if not self._fs.exists(where):
            return []
        with _told(folder):
            return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(where))

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._at(path)))

    def move(self, source: str, target: str) -> None:
        """Rename a file; the folder of the target is made, a target that is there already is replaced.

        :raises StoreError: the file system refused.
        """
        self._fs.mkdirs(self._at(target).getParent())
        if not self._fs.rename(self._at(source), self._at(target)):
            # An object store that died while it copied has left both.
            self._fs.delete(self._at(target), False)
            if not self._fs.rename(self._at(source), self._at(target)):
                raise StoreError(f"{self.full(source)} cannot be renamed to {self.full(target)}: check the permissions")

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; nothing where there is none."""
        self._fs.delete(self._at(path), True)

    def read(self, path: str) -> str:
        """The text of a small file. :raises FileNotFoundError: there is none."""
        with _told(path):
            stream = self._fs.open(self._at(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small file that is there whole or not at all."""
        temporary = self._at(path + ".tmp")
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self.move(path + ".tmp", path)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """:raises FileNotFoundError: Hadoop says so of a path."""
    try:
        yield
    except Exception as error:
        java: Any = getattr(error, "java_exception", None)
        if java is None or java.getClass().getName() != "java.io.FileNotFoundException":
            raise
        raise FileNotFoundError(f"{path} is not there any more") from error

"""Reading an archive while a job writes it: each message once, whatever moves or dies meanwhile.

A plain listing of the folders shows joined files beside those that they are joined of, and a batch half moved. What
counts is in the manifests of ``staging.py``: the files that one lists are read where they lie now, those that it
removes are not read. A folder is believed when it held the same files before and after the manifests were read: no
name of a file is used twice, so that nothing can have come and gone in between.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from rmq.protocol.errors import ConfigError, StoreError
from rmq.runtime.dial import RealDial
from rmq.spark.pipeline.kinds import pattern_fault
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.staging import Manifest, manifests, stage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["read_archive", "snapshot"]

#: What to do about files that do not go together.
_APART = "read its files apart with spark.read.parquet"
#: Looks at folders that change all the time, and seconds between two of them.
_LOOKS, _PAUSE = 50, 0.1


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The messages in an archive of the job ``archive``, each of them once, also while the job writes or joins files.

    The frame is of the files that there are at this call. When the job joins some of them before they are read, the
    query fails with Spark's ``FAILED_READ_FILE.FILE_NOT_EXIST``, and never leaves rows out: call this again then.

    :param spark: a session.
    :param path: the key ``path`` of the job.
    :returns: the columns of the archive, with ``topic`` (always text), ``date`` and ``hour``.
    :raises ConfigError: there is nothing at ``path``, or no archive, or ``path`` is a pattern for Spark.
    :raises StoreError: files come and go faster than they can be listed.
    """
    if fault := pattern_fault(path):
        raise ConfigError(f"{path}: {fault}")
    files = Files(spark, path)
    by_base = snapshot(files, RealDial().sleep)
    if not by_base:
        raise ConfigError(f"{files.root} has no files of an archive: give the path of the job archive, once it has run")
    parts = []
    for base, paths in by_base.items():
        # A file that went away is an error here whatever the session says: its rows would be missing.
        reader = spark.read.option("basePath", files.full(base)).option("ignoreMissingFiles", "false")
        parts.append((reader, [files.full(each) for each in paths]))
    try:
        schemas = [reader.option("mergeSchema", "true").parquet(*paths).schema for reader, paths in parts]
    except Exception as error:
        if "CANNOT_MERGE_SCHEMAS" not in str(error):
            raise
        raise ConfigError(f"{files.root}: a column has two types: {_APART}: {error}") from None
    schema = _named(schemas, files.root)
    frames = [reader.schema(schema).parquet(*paths) for reader, paths in parts]
    return reduce(DataFrame.unionByName, frames)


def _named(schemas: Iterable[StructType], root: str) -> StructType:
    """All columns of an archive: files of before a column was added do not have it.

    :raises ConfigError: a column of archives is missing, or one has two types.
    """
    columns: dict[str, StructField] = {}
    for each in (field for schema in schemas for field in schema):
        # Spark takes names of folders that are all numbers for numbers: 007 would be the topic 7.
        kind = StringType() if each.name == "topic" else each.dataType
        known = columns.setdefault(each.name, StructField(each.name, kind))
        if known.dataType != kind:
            raise ConfigError(
                f"{root}: the column {each.name} is {known.dataType.simpleString()} in some files and "
                f"{kind.simpleString()} in others: {_APART}"
            )
    missing = [name for name in ("eventTime", "topic", "date", "hour", "offset") if name not in columns]
    if missing:
        raise ConfigError(f"{root} has no column {missing[0]}: it is no archive of the job archive")
    folders = [columns.pop(name) for name in ("topic", "date", "hour")]
    return StructType([*columns.values(), *folders])


def snapshot(files: Files, sleep: Callable[[float], None]) -> dict[str, list[str]]:
    """The files to read, by the folder whose subfolders are columns: ``""``, and stages whose files are not moved yet.

    :param sleep: waits for seconds, between two looks at what changes.
    :raises StoreError: files come and go faster than they can be listed.
    """
    found: dict[str, list[str]] = {}
    before: dict[str, set[str]] | None = None
    unsure: Collection[str] | None = None
    for _ in range(_LOOKS):
        try:
            if before is None:
                before = _listed(files, [""])
            known = manifests(files)
            staged, gone = _of(files, known)
            after = _listed(files, [""] if unsure is None else unsure)
        except FileNotFoundError:  # what was listed a moment ago is finished
            continue
        folders = unsure if unsure is not None else {*before, *after, *staged}
        unsure = [folder for folder in folders if before.get(folder) != after.get(folder)]
        for folder in sorted(set(folders).difference(unsure)):
            for base, path in staged.get(folder, ()):
                found.setdefault(base, []).append(path)
            if there := sorted(before.get(folder, set()) - gone):
                found.setdefault("", []).extend(there)
        if not unsure:
            return dict(sorted(found.items()))
        before = after
        sleep(_PAUSE)
    raise StoreError(f"{files.root}: files come and go faster than they can be listed: try again")


def _listed(files: Files, folders: Iterable[str]) -> dict[str, set[str]]:
    """Files that every reader sees, by their folder."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for each in files.walk(folder):
            found.setdefault(posixpath.dirname(each.path), set()).add(each.path)
    return found


def _of(files: Files, known: Iterable[tuple[str, str, Manifest]]) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    """Files that are staged, by the folder that they belong to, with the stage; and files that do not count."""
    staged: dict[str, list[tuple[str, str]]] = {}
    gone: set[str] = set()
    for owner, name, manifest in known:
        gone.update(manifest.get("remove", ()))
        for source, target in manifest["moves"]:
            if files.exists(source):
                gone.add(target)  # an object store that died while it copied has left both
                staged.setdefault(posixpath.dirname(target), []).append((stage_of(owner, name), source))
    return staged, gone

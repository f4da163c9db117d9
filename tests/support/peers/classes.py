"""Classes that a JVM finds loaded and verified, in an archive made once: half of what it costs until it is ready."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .cache import cached, content_key

_FILE = "classes.jsa"
# A class that cannot be archived, and an archive that a JVM cannot use, are no news to who reads its output.
_SILENT = "-Xlog:cds*=off"


def class_options(name: str, train: Callable[[tuple[str, ...]], None], *key: str) -> tuple[str, ...]:
    """Options with which a JVM begins with the classes that another one of its class path had loaded as it ended.

    Arguments: name is the archive's folder in the cache; train runs such a JVM, with the options it is given, to a
    regular end; key is what the class path depends on. An archive is good for one java and one place of the jars. There
    are no options where it takes train too long to make one (subprocess.TimeoutExpired); the next run tries again.
    """
    home = os.environ.get("JAVA_HOME")
    place = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    made = str(place.stat().st_mtime_ns) if place.exists() else ""

    def build(folder: Path) -> None:
        train((f"-XX:ArchiveClassesAtExit={folder / _FILE}", _SILENT))

    try:
        file = cached(f"{name}-{content_key(str(place), made, *key)}", build) / _FILE
    except subprocess.TimeoutExpired:
        return ()
    return (f"-XX:SharedArchiveFile={file}", _SILENT) if file.exists() else ()

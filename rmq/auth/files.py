"""The files of accounts: which there are, what they say, and whether they have changed.

Java looks for ``conf/plain_acl.yml`` in the installation folder, or what ``rocketmq.acl.plain.file`` names, and for
every ``.yml`` and ``.yaml`` below ``conf/acl`` (protocol.md 6.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmq.auth.document import MOST_BYTES
from rmq.auth.plain_acl import PlainFile, parse_plain_acl
from rmq.auth.rules import Rules
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import Files

__all__ = ["AclFiles", "Known"]

_MOST_FILES = 256
_MOST_TOGETHER = 8 * MOST_BYTES
_DEEPEST = 8
#: What a mounted ConfigMap or Secret has its files in, besides links to them: each would be read twice.
_KUBERNETES = ".."


@dataclass(frozen=True, slots=True)
class Known:
    """What the files said when they were read."""

    contents: Mapping[str, bytes]
    files: tuple[PlainFile, ...]
    rules: Rules


class AclFiles:
    """Finds and reads them; every method may touch the disk.

    :param home: the installation folder.
    :param plain: the file of accounts, below it.
    """

    def __init__(self, files: Files, home: str, plain: str) -> None:
        self._files = files
        home = home.rstrip("/") or "/"
        self.plain = f"{home}/{plain.lstrip('/')}"
        self._folder = f"{home}/conf/acl"

    def paths(self) -> list[str]:
        """Every file that is there, that of plain_acl.yml first.

        :raises ConfigError: there are too many.
        """
        found = [self.plain] if self._files.exists(self.plain) else []
        folders = [(self._folder, 0)]
        while folders:
            folder, depth = folders.pop()
            for name in self._files.list(folder):
                path = f"{folder}/{name}"
                if name.startswith(_KUBERNETES):
                    continue
                if self._files.is_dir(path):
                    if depth < _DEEPEST and not self._files.is_link(path):
                        folders.append((path, depth + 1))
                elif name.endswith((".yml", ".yaml")) and path != self.plain:
                    found.append(path)
                if len(found) > _MOST_FILES:
                    raise ConfigError(f"{self._folder}: more than {_MOST_FILES} files of accounts: put them into fewer")
        return sorted(found, key=lambda path: (path != self.plain, path))

    def stamps(self) -> dict[str, object]:
        """What changes when a file does: cheap, asked again and again."""
        return {path: self._stamp(path) for path in self.paths()}

    def _stamp(self, path: str) -> object:
        stamp = self._files.identity(path)
        return self._files.read(path, MOST_BYTES) if stamp is None else stamp

    def read(self) -> dict[str, bytes]:
        """Every file's content.

        :raises ConfigError: they are too long together.
        """
        contents: dict[str, bytes] = {}
        size = 0
        for path in self.paths():
            size += self._files.size(path)
            if size > _MOST_TOGETHER:
                raise ConfigError(f"{path}: the files of accounts have more than {_MOST_TOGETHER} bytes together")
            contents[path] = self._files.read(path, MOST_BYTES)
        return contents

    def understand(self, contents: Mapping[str, bytes]) -> Known:
        """What contents say.

        :raises ConfigError: the file, the line and what to do.
        """
        if not contents:
            raise ConfigError(f"{self.plain}: there is no such file, nor one below {self._folder}: write one")
        files = tuple(parse_plain_acl(path, data) for path, data in contents.items())
        rules = Rules.of(files)
        if not any(not account.disabled for account in rules.accounts.values()):
            raise ConfigError(f"{next(iter(contents))}: there are no accounts: with none of them nobody could get in")
        return Known(contents, files, rules)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file as a whole: it is the old or the new one, whatever happens. A new one is its owner's to read."""
        self._files.write_atomic(path, data, private=True)

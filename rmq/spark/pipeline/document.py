"""A YAML file as a tree whose every part knows its line, and the list of what is wrong with it.

Only what a job file needs: mappings, lists, scalars kept as they are written (``04`` stays ``04``), anchors.
``${NAME}`` is taken from the environment, so that keys and passwords need not stand in the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from rmq.protocol.errors import ConfigError

__all__ = ["Entry", "Listing", "Node", "Problem", "Problems", "Scalar", "Table", "parse", "read"]

#: Larger than any job file; a mistaken path (a data file, a log) is refused at once.
_LARGEST = 1 << 20
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: its line, and what is wrong there and what to do."""

    line: int
    text: str


class Problems(ConfigError):
    """A job file that cannot be run.

    :param file: its path.
    :param problems: all that was found, by line.
    """

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.lines = [f"{file}:{one.line}: {one.text}" for one in sorted(problems)]
        super().__init__("; ".join(self.lines))


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts; ``text`` is None where YAML says null or nothing."""

    line: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value; ``line`` is the key's."""

    key: str
    line: int
    value: Node


@dataclass(frozen=True, slots=True)
class Table:
    line: int
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


Node = Scalar | Listing | Table


def read(path: str, env: Mapping[str, str]) -> Table:
    """The mapping that a file holds.

    :param env: where ``${NAME}`` is looked up.
    :raises Problems: not YAML, not a mapping, a key given twice, a variable that is not set.
    :raises ConfigError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {os.strerror(error.errno or 0)}: give a job file that can be read") from None
    if len(data) > _LARGEST:
        raise ConfigError(f"{path}: longer than {_LARGEST} bytes: not a job file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problems(path, [Problem(data[: error.start].count(b"\n") + 1, "not UTF-8")]) from None
    return parse(path, text, env)


def parse(path: str, text: str, env: Mapping[str, str]) -> Table:
    """:func:`read` of a text; ``path`` names it in problems."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line = mark.line if mark else text.count("\n", 0, getattr(error, "position", 0))
        raise Problems(path, [Problem(line + 1, f"not YAML: {said}")]) from None
    except RecursionError:
        raise Problems(path, [Problem(1, "not a job: lists or mappings within each other, hundreds deep")]) from None
    if not isinstance(root, yaml.MappingNode):
        line = root.start_mark.line + 1 if root is not None else 1
        raise Problems(path, [Problem(line, "a job is a mapping of keys to values, beginning with job: NAME")])
    tree = _Tree(env)
    table = tree.table(root)
    if tree.problems:
        raise Problems(path, tree.problems)
    return table


@dataclass
class _Tree:
    env: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    _above: list[yaml.Node] = field(default_factory=list)

    def node(self, node: yaml.Node) -> Node:
        line = node.start_mark.line + 1
        if any(node is one for one in self._above):
            self.problems.append(Problem(line, "an anchor that holds itself"))
            return Scalar(line, None)
        self._above.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.table(node)
            if isinstance(node, yaml.SequenceNode):
                return Listing(line, tuple(self.node(item) for item in node.value))
            null = node.tag == "tag:yaml.org,2002:null"
            return Scalar(line, None if null else self._filled(node.value, line))
        finally:
            self._above.pop()

    def table(self, node: yaml.MappingNode) -> Table:
        return Table(node.start_mark.line + 1, tuple(self._entries(node)))

    def _entries(self, node: yaml.MappingNode) -> Iterator[Entry]:
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(line, "a key is a text"))
            elif key.value in seen:
                self.problems.append(Problem(line, f"{key.value}: given twice, first in line {seen[key.value]}"))
            else:
                seen[key.value] = line
                yield Entry(key.value, line, self.node(value))

    def _filled(self, text: str, line: int) -> str:
        def found(match: re.Match[str]) -> str:
            value = self.env.get(match[1])
            if value is None:
                self.problems.append(Problem(line, f"{match[0]}: the environment variable {match[1]} is not set"))
            return value or ""

        return _VARIABLE.sub(found, text)

"""A YAML file as a tree whose every part knows its line, and the list of what is wrong with it.

Only what a job file needs: mappings, lists, scalars kept as they are written (``04`` stays ``04``), anchors, merge keys
(``<<: *common``). ``${NAME}`` is taken from the environment, so that keys and passwords need not stand in the file;
``${NAME:-10s}`` is ``10s`` where the variable is not set or empty, as in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from rmq.protocol.errors import ConfigError
from rmq.runtime.named_file import read_named

__all__ = ["Entry", "Listing", "Node", "Problem", "Problems", "Scalar", "Table", "parse", "read"]

#: Larger than any job file; a mistaken path (a data file, a log) is refused at once.
_LARGEST = 1 << 20
#: Values of a file with all its anchors put in; anchors within anchors make billions of them.
_MOST = 100_000
_VARIABLE = re.compile(r"\$\{(?:(\w+)(?::-([^}]*))?\}|([^}]*\}?))")
_MERGE = "tag:yaml.org,2002:merge"


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
        data = read_named(path, _LARGEST)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give a job file that can be read") from None
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
        if "'\\t'" in said:
            said = "a tab: indent with blanks"
        elif said.startswith("but "):
            said = f"{getattr(error, 'context', '')}, {said}"
        raise Problems(path, [Problem(line + 1, f"not YAML: {said}")]) from None
    except RecursionError:
        raise Problems(path, [Problem(1, "not a job: lists or mappings within each other, hundreds deep")]) from None
    if not isinstance(root, yaml.MappingNode):
        line = root.start_mark.line + 1 if root is not None else 1
        raise Problems(path, [Problem(line, "a job is a mapping of keys to values, beginning with job: NAME")])
    tree = _Tree(env)
    table = tree.table(root)
    if tree.count > _MOST:
        raise Problems(path, [Problem(1, f"not a job: more than {_MOST:,} values, with anchors put in")])
    if tree.problems:
        raise Problems(path, tree.problems)
    return table


@dataclass
class _Tree:
    env: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    _above: list[yaml.Node] = field(default_factory=list)

    def node(self, node: yaml.Node) -> Node:
        line = node.start_mark.line + 1
        self.count += 1
        if self.count > _MOST:
            return Scalar(line, None)
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
            self.count += len(node.value) // 100  # a long one, at the end of thousands of aliases
            return Scalar(line, None if null else self._filled(node.value, line))
        finally:
            self._above.pop()

    def table(self, node: yaml.MappingNode) -> Table:
        return Table(node.start_mark.line + 1, tuple(self._entries(node)))

    def _entries(self, node: yaml.MappingNode) -> Iterator[Entry]:
        seen: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(line, "a key is a text"))
            elif key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif key.value in seen:
                self.problems.append(Problem(line, f"{key.value}: given twice, first in line {seen[key.value]}"))
            else:
                seen[key.value] = line
                yield Entry(key.value, line, self.node(value))
        for each in merged:
            yield from self._merged(each, seen)

    def _merged(self, node: yaml.Node, seen: dict[str, int]) -> Iterator[Entry]:
        """What ``<<`` brings in: what the mapping itself, or one before, has stays."""
        other = self.node(node)
        if not isinstance(other, Table):
            self.problems.append(Problem(other.line, "<<: the anchor of a mapping is expected"))
            return
        for entry in other.entries:
            if entry.key not in seen:
                seen[entry.key] = entry.line
                yield entry

    def _filled(self, text: str, line: int) -> str:
        def found(match: re.Match[str]) -> str:
            name, instead, odd = match.groups()
            if odd is not None:
                self.problems.append(Problem(line, f"{match[0]}: ${{NAME}} or ${{NAME:-default}} is expected"))
                return ""
            value = self.env.get(name)
            if value is None and instead is None:
                self.problems.append(Problem(line, f"{match[0]}: the environment variable {name} is not set"))
            return value or instead or ""

        return _VARIABLE.sub(found, text)

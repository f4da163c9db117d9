"""One table of keys per section of a job file: reading, checking and the commented sample come from it.

::

    class Compaction(Spec):
        '''Joins small files of hours that are over.'''

        every = key(Duration(), "How often small files are looked for.", default="10m")
        target_size = key(Size(), "Size of a file made of small ones.", default="128MB")

An attribute ``target_size`` is the key ``targetSize``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from rmq.spark.pipeline.document import Node, Problem, Scalar, Table
from rmq.spark.pipeline.kinds import Kind, nearest

__all__ = ["Key", "Section", "Spec", "key", "maybe", "section"]

T = TypeVar("T")
S = TypeVar("S", bound="Spec")

_WIDTH = 110


class Key(Generic[T]):
    """One line of the table."""

    def __init__(
        self,
        kind: Kind[T],
        doc: str,
        default: str | None,
        sample: str | None,
        *,
        required: bool,
        late: bool = False,
        shown: bool = False,
    ) -> None:
        self.kind = kind
        self.doc = doc
        self.default = default
        self.sample = default if sample is None else sample
        self.required = required
        self.late = late
        self.shown = required or shown
        self.name = ""

    def absent(self) -> T | None:
        """The value where the file does not give one."""
        if self.default is not None:
            return self.kind.value(self.default)
        return self.kind.spec({}, 0) if isinstance(self.kind, Section) and not self.required else None


def key(kind: Kind[T], doc: str, *, default: str | None = None, sample: str | None = None) -> T:
    """A key with a default, or one that must be there.

    :param doc: for the sample: one or two sentences.
    :param default: as it would be written in the file.
    :param sample: what the sample shows, in YAML; default: the default.
    """
    return cast(T, Key(kind, doc, default, sample, required=default is None))


def maybe(kind: Kind[T], doc: str, *, sample: str, shown: bool = False) -> T | None:
    """A key that may be left out; None then.

    :param shown: the sample gives it all the same.
    """
    return cast("T | None", Key(kind, doc, None, sample, required=False, shown=shown))


def section(spec: type[S], *, required: bool = False, late: bool = False) -> S:
    """A mapping with keys of its own. Left out, it is all defaults, unless it is required.

    :param late: samples show it after the keys of subclasses.
    """
    return cast(S, Key(Section(spec), spec.__doc__ or "", None, None, required=required, late=late))


class Spec:
    """Base of the sections; see the module's docstring."""

    keys: ClassVar[dict[str, Key[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keys: dict[str, Key[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            keys.update(base.__dict__.get("keys", {}))
        for attribute, line in list(vars(cls).items()):
            if isinstance(line, Key):
                words = attribute.rstrip("_").split("_")
                line.name = words[0] + "".join(word.upper() if word == "tls" else word.title() for word in words[1:])
                keys[attribute] = line
                delattr(cls, attribute)
        cls.keys = dict(sorted(keys.items(), key=lambda item: item[1].late))

    def __init__(self, values: dict[str, Any], line: int) -> None:
        self._lines: dict[str, int] = {}
        self._line = line
        for attribute, declared in self.keys.items():
            value = values.get(attribute)
            setattr(self, attribute, declared.absent() if value is None else value)

    @classmethod
    def read(cls, node: Node, path: str, problems: list[Problem]) -> Self:
        """Read a section, noting everything that is wrong with it.

        :param path: of the section, such as ``source``; empty for the file itself.
        """
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        before = len(problems)
        by_name = {line.name: attribute for attribute, line in cls.keys.items()}
        # A section's name above keys that are all commented out is a section of defaults.
        if not isinstance(node, Table) and (not isinstance(node, Scalar) or node.text is not None):
            problems.append(Problem(node.line, f"{path}: a mapping with {', '.join(by_name)} is expected"))
        for entry in node.entries if isinstance(node, Table) else ():
            where = f"{path}.{entry.key}" if path else entry.key
            lines[entry.key] = entry.line
            attribute = by_name.get(entry.key)
            if attribute is None:
                near = nearest(entry.key, list(by_name)) or f": the keys here are {', '.join(by_name)}"
                problems.append(Problem(entry.line, f"{where}: there is no such key{near}"))
            else:
                values[attribute] = cls.keys[attribute].kind.read(entry.value, where, problems)
        for line in cls.keys.values():
            if line.required and line.name not in lines:
                where = f"{path}.{line.name}" if path else line.name
                problems.append(Problem(node.line, f"{where}: missing: {line.kind.words} is expected"))
        made = cls(values, node.line)
        made._lines = lines
        if len(problems) == before:
            problems += [
                Problem(made.line_of(name), f"{path}.{name}: {text}" if path else f"{name}: {text}")
                for name, text in made.faults()
            ]
        return made

    def line_of(self, path: str) -> int:
        """The line of a key (``checkpoint``, ``source.topics``); of the section when it is not given."""
        name, _, rest = path.partition(".")
        if rest:
            inner = next((getattr(self, attribute) for attribute, line in self.keys.items() if line.name == name), None)
            if isinstance(inner, Spec) and name in self._lines:
                return inner.line_of(rest)
        return self._lines.get(name, self._line)

    def given(self, name: str) -> bool:
        """Whether the file gives the key ``name``."""
        return name in self._lines

    def faults(self) -> Iterator[tuple[str, str]]:
        """(path of the key, what is wrong): rules over several keys, asked when each one by itself is right."""
        yield from ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The section as JSON Schema (draft 2020-12)."""
        properties = {}
        for line in cls.keys.values():
            told = {"description": " ".join(line.doc.split())} | line.kind.schema()
            properties[line.name] = told | ({} if line.default is None else {"default": line.default})
        required = [line.name for line in cls.keys.values() if line.required]
        # A section's name above keys that are all commented out is a section of defaults.
        kinds = "object" if required else ["object", "null"]
        return {"type": kinds, "properties": properties, "required": required, "additionalProperties": False}

    # -- the sample -----------------------------------------------------------------------------------------------

    @classmethod
    def sample(cls, indent: str = "", *, commented: bool = False, given: dict[str, Any] | None = None) -> str:
        """The section as YAML with a comment above each key; what may be left out is commented out, as ``#key: value``.

        :param commented: all of it may be left out.
        :param given: key to the YAML text of its value, or to such a mapping for a section: written instead of the
            default, and not commented out.
        """
        parts = []
        given = given or {}
        for line in cls.keys.values():
            instead = given.get(line.name)
            mark = "#" if (commented or not line.shown) and instead is None else ""
            text = textwrap.fill(
                " ".join(line.doc.split()), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
            )
            if isinstance(line.kind, Section):
                inner = line.kind.spec.sample(indent + "  ", commented=bool(mark), given=instead)
                parts.append(f"{text}\n{indent}{mark}{line.name}:\n{inner}")
            else:
                value = line.sample if instead is None else instead
                shown = textwrap.indent(f"{line.name}: {value}".replace(": \n", ":\n").replace("\n", "\n  "), indent)
                parts.append(text + "\n" + re.sub(r"(?m)^(\s*)(?=\S)", rf"\1{mark}", shown) + "\n")
        return ("" if indent else "\n").join(parts)


class Section(Kind[S]):
    """A value that is a section."""

    def __init__(self, spec: type[S]) -> None:
        super().__init__(f"a mapping with {', '.join(line.name for line in spec.keys.values() if line.required)}")
        self.spec = spec

    def read(self, node: Node, key: str, problems: list[Problem]) -> S | None:
        return self.spec.read(node, key, problems)

    def schema(self) -> dict[str, Any]:
        return self.spec.schema()

"""Where settings come from: .properties as Java reads them, YAML, environment variables. Each value knows its place."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from typing import NamedTuple

import javaproperties
import yaml

from rmq.config import values
from rmq.config.bounded_yaml import bound_yaml
from rmq.protocol.errors import ConfigError
from rmq.runtime.named_file import read_named

__all__ = ["LARGEST", "Given", "environment_name", "parse_properties", "parse_update", "read_file"]

#: Larger than any real configuration; a mistaken path (a log, a commit log) is refused at once.
LARGEST = 1 << 20
#: Characters and lines of an update over the wire: it is parsed on the loop, continued lines in quadratic time. All
#: settings together have about 4,000 and 160.
_LARGEST_UPDATE = 16_384
_MOST_LINES = 320
_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_GOES_ON = re.compile(r"\\[\r\n]")
_MOST_GOING_ON = 1_000
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")


class Given(NamedTuple):
    """A value and where it was found, such as ``conf/broker.properties line 3``."""

    key: str
    value: str | None
    origin: str

    def refused(self, expected: str) -> ConfigError:
        """The error for this value: where it is, the key, the value in quotes.

        :param expected: what is wrong, or what should stand there.
        """
        place = f"{self.origin}: " if self.origin not in ("default", "given") else ""
        return ConfigError(f"{place}{self.key}={values.shown(self.value)}: {expected}")


def environment_name(prefix: str, key: str) -> str:
    """The variable of a key: ``brokerIP1`` is ``RMQ_BROKER_IP1``."""
    return prefix + "_".join(word.upper() for word in _WORD.findall(key))


def read_file(path: str) -> list[Given]:
    """The keys of a configuration file: YAML by its name (.yaml, .yml), .properties otherwise.

    :raises ConfigError: it cannot be read or parsed; says which file, which line.
    """
    try:
        data = read_named(path, LARGEST)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give a configuration file that can be read") from None
    if data.startswith(_UTF16):
        raise ConfigError(f"{path}: UTF-16: save it as UTF-8")
    if path.lower().endswith((".yaml", ".yml")):
        return _parse_yaml(path, _decode(path, data, "utf-8-sig"))
    # Java reads them as ISO-8859-1 (store-and-broker.md 10.1); a mark at the head says that this one is not.
    return parse_properties(_decode(path, data, "utf-8-sig" if data.startswith(BOM_UTF8) else "iso-8859-1"), path)


def _decode(path: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(data[: error.start].decode("iso-8859-1"))) + 1
        raise ConfigError(f"{path} line {line}: not UTF-8") from None


def parse_properties(content: str, name: str) -> list[Given]:
    """The keys of a .properties text, in order; continuation lines and escapes as Java has them.

    :param name: the file, for the places.
    :raises ConfigError: a malformed ``\\uXXXX``, or more lines that go on in the next than an honest file has.
    """
    # Each is copied with all that went before it.
    if (going_on := len(_GOES_ON.findall(content))) > _MOST_GOING_ON:
        raise ConfigError(f"{name}: {going_on} lines end in a backslash: at most {_MOST_GOING_ON} are taken")
    found = []
    line = 1
    try:
        for part in javaproperties.parse(content):
            if isinstance(part, javaproperties.KeyValue):
                found.append(Given(part.key, part.value, f"{name} line {line}"))
            line += len(_LINE_END.findall(part.source))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{name} line {line}: {error}: \\u needs four hexadecimal digits") from None
    return found


def parse_update(content: str) -> list[Given]:
    """The keys of an update that came over the wire.

    :raises ConfigError: as :func:`parse_properties`; and it is longer than any honest one.
    """
    if len(content) > _LARGEST_UPDATE:
        raise ConfigError(f"an update of {len(content)} characters: at most {_LARGEST_UPDATE} are taken")
    lines = content.count("\n") + content.count("\r")
    if lines > _MOST_LINES:
        raise ConfigError(f"an update of {lines} lines: at most {_MOST_LINES} are taken")
    return parse_properties(content.removeprefix("\ufeff"), "update")


def _parse_yaml(path: str, content: str) -> list[Given]:
    """A flat mapping; scalars are taken as they are written (``04`` stays ``04``), lists are joined with ``;``."""
    try:
        bound_yaml(path, content)
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # A character that no YAML may have is told by its place in the text.
        before = content[: getattr(error, "position", 0)]
        line = mark.line + 1 if mark is not None else len(_LINE_END.findall(before)) + 1
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ConfigError(f"{path} line {line}: not YAML: {why}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not a configuration file: it is nested too deeply") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: a mapping of keys to values is expected")
    found = []
    for key, value in root.value:
        origin = f"{path} line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{origin}: a key is expected")
        if isinstance(value, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in value.value):
            found.append(Given(key.value, ";".join(item.value for item in value.value), origin))
        elif isinstance(value, yaml.ScalarNode):
            empty = value.tag == "tag:yaml.org,2002:null"
            found.append(Given(key.value, None if empty else value.value, origin))
        else:
            raise ConfigError(f"{origin}: {key.value}: one value is expected, keys are not nested")
    return found


def from_environment(env: Mapping[str, str], names: Mapping[str, str]) -> list[Given]:
    """The keys whose variable is set; an empty variable counts as not set.

    :param names: variable -> key.
    """
    return [
        Given(key, env[name], f"environment variable {name}") for name, key in names.items() if env.get(name, "") != ""
    ]

"""Writing, byte for byte what fastjson writes (protocol.md 4.1).

Three forms::

    dumps       compact; unquoted int keys, bare-object keys, control characters escaped, the rest raw UTF-8
    standard    compact strict JSON for routes: every key quoted and sorted, everything beyond ASCII escaped
    pretty      the metadata files of the store: tabs, one member a line (store-and-broker.md 1.4)

None as a member's value leaves the member out; in an array it is ``null``. Doubles have Java's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import orjson

from rmq.protocol.fastjson.keys import ObjectKey, Raw

__all__ = ["dumps", "java_double", "pretty", "quote", "quote_ascii", "standard"]

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
#: fastjson escapes C0, DEL, C1 and the two line separators; with upper-case digits.
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]+')
_ESCAPED = {
    char: _SHORT.get(char) or f"\\u{ord(char):04X}"
    for char in map(chr, [*range(0x20), *map(ord, '"\\\\'), *range(0x7F, 0xA0), 0x2028, 0x2029])
}
_SPECIAL_ASCII = re.compile(r'["\\/\x00-\x1f\x7f-\U0010ffff]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    """A run of them: a text may consist of nothing else."""
    return "".join([_ESCAPED[char] for char in match[0]])


def _escape_ascii(match: re.Match[str]) -> str:
    char = match[0]
    if char == "/":
        return "\\/"
    if ord(char) > 0xFFFF:
        code = ord(char) - 0x10000
        return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    return _SHORT.get(char) or f"\\u{ord(char):04X}"


def quote(text: str) -> str:
    """A text with its quotes, as fastjson writes it by default."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    # What has no place in UTF-8 becomes a question mark, as in Java.
    text = _SURROGATE.sub("?", text)
    return f'"{_SPECIAL.sub(_escape, text)}"'


def quote_ascii(text: str) -> str:
    """A text with its quotes, as fastjson writes it for browsers: ASCII only, the slash escaped too."""
    return f'"{_SPECIAL_ASCII.sub(_escape_ascii, text)}"'


def java_double(value: float) -> str:
    """A double's text in Java: ``0.0``, ``1.5``, ``1.0E10``; what is not a number is ``null`` in JSON."""
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    if 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else text + ".0"
    digits = Decimal(repr(value)).normalize().as_tuple()
    mantissa = "".join(map(str, digits.digits))
    exponent = int(digits.exponent) + len(mantissa) - 1
    sign = "-" if digits.sign else ""
    return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent}"


def _key(key: object) -> str:
    if isinstance(key, str):
        return quote(key)
    if key is None:
        return "null"
    if isinstance(key, ObjectKey):
        return "{" + ",".join(f"{quote(n)}:{_scalar(v)}" for n, v in key if v is not None) + "}"
    return str(int(key)) if isinstance(key, int) else _unwritable(key)


def _unwritable(value: object) -> str:
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Enum):
        return quote(value.name)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Decimal):
        return str(value)
    return _unwritable(value)


def _write(value: object, out: list[str]) -> None:
    # Exact types first: asking for abstract ones costs more than all the rest.
    if type(value) is dict:
        _write_members(value, out)
    elif type(value) is list:
        _write_items(value, out)
    elif isinstance(value, Raw):
        out.append(value.decode())
    elif isinstance(value, ObjectKey):
        _write_members(value.members, out)
    elif isinstance(value, (list, tuple, set, frozenset)):
        _write_items(value, out)
    elif isinstance(value, Mapping):
        _write_members(value, out)
    else:
        out.append(_scalar(value))


def _write_members(value: Mapping[Any, object], out: list[str]) -> None:
    opener = "{"
    for key, item in value.items():
        if item is None:
            continue
        kind = type(item)
        if kind is str:
            out.append(f"{opener}{_key(key)}:{quote(item)}")  # type: ignore[arg-type]
        elif kind is int:
            out.append(f"{opener}{_key(key)}:{item}")
        elif kind is bool:
            out.append(f"{opener}{_key(key)}:{'true' if item else 'false'}")
        else:
            out.append(f"{opener}{_key(key)}:")
            _write(item, out)
        opener = ","
    out.append("{}" if opener == "{" else "}")


def _write_items(value: Iterable[object], out: list[str]) -> None:
    opener = "["
    for item in value:
        out.append(opener)
        _write(item, out)
        opener = ","
    out.append("[]" if opener == "[" else "]")


def dumps(value: object) -> bytes:
    """Compact text.

    :param value: mappings (keys str, int, None or :class:`ObjectKey`), lists, tuples, sets, texts, numbers, enums
        (written by name), :class:`Raw`, None.
    :raises TypeError: anything else.
    """
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode()


def standard(value: object) -> bytes:
    """Strict JSON in the form a name server gives to clients that ask for it (protocol.md 4.4)."""
    out: list[str] = []
    _write_standard(value, out)
    return "".join(out).encode()


def _write_standard(value: object, out: list[str]) -> None:
    if isinstance(value, Mapping):
        opener = "{"
        for key in sorted(value, key=lambda k: (isinstance(k, str), k)):
            item = value[key]
            if item is None:
                continue
            out.append(f"{opener}{quote_ascii(key if isinstance(key, str) else _key(key))}:")
            _write_standard(item, out)
            opener = ","
        out.append("{}" if opener == "{" else "}")
    elif isinstance(value, (list, tuple)):
        opener = "["
        for item in value:
            out.append(opener)
            _write_standard(item, out)
            opener = ","
        out.append("[]" if opener == "[" else "]")
    elif isinstance(value, str):
        out.append(quote_ascii(value))
    else:
        out.append(_scalar(value))


def pretty(value: object) -> bytes:
    """The form of the store's metadata files: tabs, one member a line, maps with int keys on one line."""
    out: list[str] = []
    _write_pretty(value, "", out)
    return "".join(out).encode()


def _write_pretty(value: object, indent: str, out: list[str]) -> None:
    if isinstance(value, Mapping):
        items = [(k, v) for k, v in value.items() if v is not None]
        if not items:
            out.append("{}")
            return
        inner = indent + "\t"
        if all(isinstance(key, int) for key, _ in items):
            # fastjson's writer for maps breaks lines only before keys that are texts.
            line = ",".join(f"{_key(key)}:{_compact(item)}" for key, item in items)
            out.append(f"{{{line}\n{indent}}}")
            return
        out.append("{")
        opener = "\n"
        for key, item in items:
            out.append(f"{opener}{inner}{_key(key)}:")
            _write_pretty(item, inner, out)
            opener = ",\n"
        out.append(f"\n{indent}}}")
    elif isinstance(value, (list, tuple, set, frozenset)) and not isinstance(value, ObjectKey):
        _write_pretty_array(value, indent, out)
    else:
        _write(value, out)


def _write_pretty_array(value: Iterable[object], indent: str, out: list[str]) -> None:
    items = list(value)
    if not items:
        out.append("[]")
    elif all(isinstance(item, (int, float)) or item is None for item in items):
        out.append(_compact(items))
    else:
        inner = indent + "\t"
        opener = "[\n"
        for item in items:
            out.append(f"{opener}{inner}")
            _write_pretty(item, inner, out)
            opener = ",\n"
        out.append(f"\n{indent}]")


def _compact(value: object) -> str:
    out: list[str] = []
    _write(value, out)
    return "".join(out)


def ext_fields(ext: Mapping[str, str | None]) -> bytes:
    """The ext fields of a header: texts to texts, None left out. The warm path of every command sent as JSON."""
    try:
        text = orjson.dumps(ext)
    except TypeError:  # a lone surrogate
        return dumps(ext)
    # orjson differs from fastjson in null members, in upper-case escapes and in what it leaves raw; rare, so look for
    # any sign of it and then write slowly. (Searching a str is several times faster than searching bytes.)
    plain = text.decode()
    if not plain.isascii() or ":null" in plain or "\x7f" in plain:
        return dumps(ext)
    if 92 in text and ("\\u001" in plain or "\\u000b" in plain or "\\u000e" in plain or "\\u000f" in plain):
        return dumps(ext)
    return text

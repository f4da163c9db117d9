"""Reading: strict JSON with orjson, everything else that fastjson accepts with a parser of our own.

What the parser takes beyond JSON, as fastjson 1.2.69 was seen to (protocol.md 4.1, E3-E6, E11, A1-A5)::

    keys         'a'   a   12   null   {"brokerName":"b1","queueId":0,"topic":"T1"}
    strings      'a'   raw control characters   \\v  \\0..\\7  \\'  \\xHH
    numbers      +5   05   5.   5L  (suffixes B S L F D)   NaN and undefined as null
    separators   spare commas anywhere between members
    around       comments /* */ and //, a byte order mark, a final 0x1A or 0x00
    references   {"$ref":"$.path"} stands for the object at that path
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import orjson

from rmq.protocol.errors import ProtocolError
from rmq.protocol.fastjson.keys import ObjectKey
from rmq.protocol.fastjson.references import MAX_DEPTH, resolve

__all__ = ["Parser", "loads"]

#: Digits of a number; Java's widest is a long.
MAX_DIGITS = 400

_SPACE = re.compile(r"(?:[\s\ufeff\x08]+|//[^\n]*\n?|/\*(?:[^*]|\*(?!/))*\*/)*")
_GAP = re.compile(r"(?:[\s\ufeff\x08,]+|//[^\n]*\n?|/\*(?:[^*]|\*(?!/))*\*/)*")
_NUMBER = re.compile(r"([+-]?\d+)(\.\d*)?([eE][+-]?\d+)?[BSLFD]?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_DOUBLE = re.compile(r'"([^"\\]*)"')
_PIECE = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES = {
    "b": "\b", "t": "\t", "n": "\n", "f": "\f", "F": "\f", "r": "\r", "v": "\v", '"': '"', "'": "'", "\\": "\\",
    "/": "/", "0": "\0", "1": "\1", "2": "\2", "3": "\3", "4": "\4", "5": "\5", "6": "\6", "7": "\7",
}  # fmt: skip
_HEX = re.compile(r"[0-9A-Fa-f]+")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(data: bytes | bytearray | memoryview | str, *, limit: int | None = None) -> object:
    """Read a body as fastjson would.

    :param data: the text, or its UTF-8 bytes; bytes that are not UTF-8 are replaced as Java does.
    :param limit: refuse text that is not strict JSON beyond this many bytes: the tolerant parser is about a hundred
        times slower than orjson, and a peer must not stall the loop with it. None: no limit.
    :returns: None, bool, int, float, str, list or dict. Keys are str, int, None or :class:`ObjectKey`.
    :raises ProtocolError: not readable; says where.
    """
    if isinstance(data, (bytearray, memoryview)):
        data = bytes(data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    else:
        referring = '"$ref"' in data if isinstance(data, str) else b'"$ref"' in data
        return resolve(value) if referring else value
    if limit is not None and len(data) > limit:
        raise ProtocolError(f"not strict JSON, and {len(data)} bytes are more than the {limit} read leniently")
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    value = Parser(text).document()
    return resolve(value) if "$ref" in text else value


class Parser:
    """One pass over a text; linear, bounded in depth.

    :param exact: numbers come as :class:`Decimal` (fractions) or text-preserving ints, for values that end as text.
    """

    __slots__ = ("exact", "text", "types")

    def __init__(self, text: str, *, exact: bool = False, types: bool = True) -> None:
        self.text = text
        self.exact = exact
        #: False: a key ``@type`` is refused, as a build without autotype does.
        self.types = types

    def document(self) -> object:
        text = self.text.rstrip(" \t\r\n\x00\x1a")
        self.text = text
        at = self._space(0)
        if at == len(text):
            return None
        value, at = self._value(at, 0)
        at = self._space(at)
        if at != len(text):
            raise self._error("text after the end", at)
        return value

    def _error(self, what: str, at: int) -> ProtocolError:
        return ProtocolError(f"{what} at character {at}: {self.text[at : at + 24]!r}")

    def _space(self, at: int) -> int:
        if self.text[at : at + 1] not in " \t\r\n\f\b\v\ufeff/" and at < len(self.text):
            return at
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _gap(self, at: int) -> int:
        match = _GAP.match(self.text, at)
        return match.end() if match else at

    def _value(self, at: int, depth: int) -> tuple[object, int]:
        first = self.text[at : at + 1]
        if first == '"':
            match = _DOUBLE.match(self.text, at)
            return (match[1], match.end()) if match else self._string(at, first)
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        if first == "'":
            return self._string(at, first)
        if first in "+-0123456789" and first:
            return self._number(at)
        word = _WORD.match(self.text, at)
        if word is None or word[0] not in _WORDS:
            raise self._error("no value", at)
        return _WORDS[word[0]], word.end()

    def _number(self, at: int) -> tuple[int | float | Decimal, int]:
        match = _NUMBER.match(self.text, at)
        if match is None or match.end() - at > MAX_DIGITS:
            raise self._error("no number", at)
        whole, fraction, exponent = match.groups()
        if fraction in (None, ".") and exponent is None:
            return int(whole), match.end()
        if self.exact:
            try:
                return Decimal(f"{whole}{fraction or ''}{exponent or ''}"), match.end()
            except InvalidOperation:  # an exponent beyond all measure
                raise self._error("no number", at) from None
        return float(f"{whole}{fraction or ''}{exponent or ''}"), match.end()

    def _string(self, at: int, quote: str) -> tuple[str, int]:
        piece, text, start = _PIECE[quote], self.text, at
        parts: list[str] = []
        at += 1
        while True:
            match = piece.match(text, at)
            if match is None:  # pragma: no cover - the pattern matches the empty text
                raise self._error("no string", start)
            parts.append(match[0])
            at = match.end()
            if at >= len(text):
                raise self._error("a string without end", start)
            if text[at] == quote:
                whole = "".join(parts)
                if _SURROGATE.search(whole):
                    whole = whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                return whole, at + 1
            escape = text[at + 1 : at + 2]
            if escape in ("u", "x"):
                width = 4 if escape == "u" else 2
                digits = text[at + 2 : at + 2 + width]
                if len(digits) != width or not _HEX.fullmatch(digits):
                    raise self._error("a bad escape", at)
                parts.append(chr(int(digits, 16)))
                at += 2 + width
                continue
            plain = _ESCAPES.get(escape)
            if plain is None:
                raise self._error("a bad escape", at)
            parts.append(plain)
            at += 2

    def _array(self, at: int, depth: int) -> tuple[list[object], int]:
        if depth >= MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}", at)
        items: list[object] = []
        at = self._gap(at + 1)
        while True:
            if at >= len(self.text):
                raise self._error("an array without end", at)
            if self.text[at] == "]":
                return items, at + 1
            value, at = self._value(at, depth + 1)
            items.append(value)
            at = self._space(at)
            if self.text[at : at + 1] == ",":
                at = self._gap(at)
            elif self.text[at : at + 1] != "]":
                raise self._error("no comma", at)

    def _object(self, at: int, depth: int) -> tuple[dict[object, object], int]:
        if depth >= MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}", at)
        text, start = self.text, at
        members: dict[object, object] = {}
        at = self._gap(at + 1)
        while True:
            if at >= len(text):
                raise self._error("an object without end", start)
            if text[at] == "}":
                at += 1
                break
            key, at = self._key(at, depth)
            at = self._space(at)
            if text[at : at + 1] != ":":
                raise self._error("no colon", at)
            members[key], at = self._value(self._space(at + 1), depth + 1)
            at = self._space(at)
            if text[at : at + 1] == ",":
                at = self._gap(at)
            elif text[at : at + 1] != "}":
                raise self._error("no comma", at)
        return members, at

    def _key(self, at: int, depth: int) -> tuple[object, int]:
        first = self.text[at]
        if first in "\"'":
            match = _DOUBLE.match(self.text, at)
            key, at = (match[1], match.end()) if match else self._string(at, first)
            if key == "@type" and not self.types:
                raise self._error("a key @type", at)
            return key, at
        if first == "{":
            if self.exact:
                raise self._error("an object as key", at)
            value, at = self._object(at, depth + 1)
            members: dict[str, object] = {}
            for name, item in value.items():
                if not isinstance(name, str) or not (item is None or isinstance(item, (str, int, float))):
                    raise self._error("an object as key with members that are no plain values", at)
                members[name] = item
            return ObjectKey.of(members), at
        if first in "+-0123456789":
            match = _NUMBER.match(self.text, at)
            if match is None or match[2] or match[3] or match.end() - at > 20:
                raise self._error("no key", at)
            return int(match[1]), match.end()
        word = _WORD.match(self.text, at)
        if word is None:
            raise self._error("no key", at)
        if word[0] == "null":
            return None, word.end()
        return word[0], word.end()

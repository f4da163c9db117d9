"""Tokens of SQL92 filter expressions (store-and-broker.md 7.9)."""

from __future__ import annotations

import re
from typing import NamedTuple

from rmq.protocol.errors import ClientError

__all__ = ["ExpressionError", "Kind", "Token", "tokens"]


class ExpressionError(ClientError):
    """A filter expression that cannot be compiled: says what, and at which character (counted from 1)."""

    def __init__(self, what: str, text: str, at: int) -> None:
        self.what = what
        self.position = at + 1
        shown = text if len(text) <= 200 else text[:200] + "..."
        super().__init__(f"{what} at character {self.position} of: {shown}")


class Kind:
    """Kinds of tokens."""

    NAME = "a property"
    STRING = "a string"
    INTEGER = "an integer"
    FLOAT = "a number"
    WORD = "a keyword"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    kind: str
    #: Keywords in upper case; strings without their quotes.
    text: str
    #: Where it begins.
    at: int


WORDS = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
_SKIP = re.compile(r"(?:[ \t\r\n\f]+|--[^\r\n]*(?:\r\n|\r|\n)|/\*.*?\*/)*", re.DOTALL)
_INTEGER = re.compile(r"(?:0|[1-9]\d*)[lL]?", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_TOKEN = re.compile(
    r"(?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<integer>" + _INTEGER.pattern + r")"
    r"|(?P<string>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])",
    re.ASCII,
)


def tokens(text: str) -> list[Token]:
    """All tokens of an expression, an END last.

    :raises ExpressionError: a character that begins no token, a string or a comment without end.
    """
    found = []
    at = 0
    #: Up to here are digits that begin no number with a fraction or an exponent: each of 16,000 zeros is a token.
    whole = 0
    while True:
        if at < whole and (digits := _INTEGER.match(text, at)):
            found.append(Token(Kind.INTEGER, digits[0], at))
            at = digits.end()
            continue
        skipped = _SKIP.match(text, at)
        at = skipped.end() if skipped else at
        if at >= len(text):
            found.append(Token(Kind.END, "", len(text)))
            return found
        match = None if text.startswith(("--", "/*"), at) else _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(_complaint(text, at), text, at)
        value = match[0]
        group = match.lastgroup
        if group == "name":
            upper = value.upper()
            found.append(Token(Kind.WORD, upper, at) if upper in WORDS else Token(Kind.NAME, value, at))
        elif group == "string":
            found.append(Token(Kind.STRING, value[1:-1].replace("''", "'"), at))
        elif group == "integer":
            found.append(Token(Kind.INTEGER, value, at))
            if digits := _DIGITS.match(text, at):
                whole = digits.end()
        elif group == "float":
            found.append(Token(Kind.FLOAT, value, at))
        else:
            found.append(Token(Kind.SIGN, value, at))
        at = match.end()


def _complaint(text: str, at: int) -> str:
    if text.startswith("--", at):
        return "a comment that no line end closes"
    if text.startswith("/*", at):
        return "a comment without its */"
    if text[at] == "'":
        return "a string without its closing quote"
    if text.startswith("!=", at):
        return "unexpected '!=' (write <>)"
    return f"unexpected {text[at]!r}"

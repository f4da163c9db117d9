"""Changes to plain_acl.yml that leave the rest of the file as it is: comments, order, blank lines.

A change replaces, inserts or removes whole values and lines of the text. What comes out is read again and compared with
what was meant before anybody writes it: a file in a form that this does not know is refused, never spoilt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rmq.auth import document
from rmq.auth.document import Mapping, Node, Place, Scalar, parse_document
from rmq.auth.plain_acl import parse_plain_acl
from rmq.config.values import fault
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.errors import ConfigError

__all__ = ["put_account", "put_version", "put_white", "take_account"]

#: A key of an account to its new value.
Values = dict[str, "str | list[str]"]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_%.|-]*(=[A-Z|]+)?")
_NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def put_account(path: str, data: bytes, access_key: str, values: Values) -> bytes:
    """The file with an account changed, or added when it is not in it.

    :raises ConfigError: the file cannot be read, or not be changed by a program.
    """
    text = _Text(path, data)
    account = text.account(access_key)
    if account is not None:
        # Both go behind the last line: items of a list that is there before keys that are not.
        for key in sorted(values, key=lambda key: key not in account.values):
            text.put(account, key, values[key])
    else:
        lines = [f"accessKey: {_scalar(access_key)}"]
        for key, value in values.items():
            lines += _lines(key, value)
        text.add_item("accounts", ["- " + lines[0], *("  " + line for line in lines[1:])])
    return text.result()


def take_account(path: str, data: bytes, access_key: str) -> bytes:
    """The file without an account."""
    text = _Text(path, data)
    account = text.account(access_key)
    if account is None:
        raise ConfigError(f"{path}: there is no account {access_key}")
    text.cut_lines(account.start, _last(account))
    return text.result()


def put_white(path: str, data: bytes, addresses: Sequence[str]) -> bytes:
    """The file with these as its globalWhiteRemoteAddresses."""
    text = _Text(path, data)
    if text.root is None or "globalWhiteRemoteAddresses" not in text.root.keys:
        text.append(["globalWhiteRemoteAddresses:", *(f"- {_scalar(item)}" for item in addresses)])
    else:
        text.put(text.root, "globalWhiteRemoteAddresses", list(addresses), same=lambda item: item)
    return text.result()


def put_version(path: str, data: bytes, version: DataVersion) -> bytes:
    """The file with this dataVersion."""
    text = _Text(path, data)
    numbers = {"counter": str(version.counter), "timestamp": str(version.timestamp)}
    found = None if text.root is None else text.root.values.get("dataVersion")
    if isinstance(found, document.Sequence) and found.items and isinstance(found.items[0], Mapping):
        for key, number in numbers.items():
            text.put(found.items[0], key, number)
    else:
        text.append(["dataVersion:", f"- counter: {numbers['counter']}", f"  timestamp: {numbers['timestamp']}"])
    return text.result()


def _scalar(text: str) -> str:
    if why := fault(text):
        raise ConfigError(f"a value cannot be written: {why}")
    if (_PLAIN.fullmatch(text) and text.lower() not in _WORDS) or _NUMBER.fullmatch(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _flag_or_scalar(key: str, text: str) -> str:
    return text if key in ("admin", "broker", "disabled") else _scalar(text)


def _lines(key: str, value: str | list[str]) -> list[str]:
    if isinstance(value, str):
        return [f"{key}: {_flag_or_scalar(key, value)}"]
    return [f"{key}:", *(f"- {_scalar(item)}" for item in value)]


def _last(node: Node) -> Place:
    """Where what is written of a node ends: a block's own end is that of the comments behind it."""
    if isinstance(node, document.Sequence) and not node.flow and node.items:
        return _last(node.items[-1])
    if isinstance(node, Mapping) and not node.flow and node.values:
        key, value = list(node.values.items())[-1]
        return node.keys[key].end if isinstance(value, Scalar) and value.text is None else _last(value)
    return node.end


class _Text:
    """A file's text with the changes to it."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self.root = parse_document(path, data)
        self._text = data.decode("utf-8-sig")
        self._newline = "\r\n" if "\r\n" in self._text else "\n"
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        #: (from, to, new text), in order of making.
        self._changes: list[tuple[int, int, str]] = []

    def account(self, access_key: str) -> Mapping | None:
        accounts = None if self.root is None else self.root.values.get("accounts")
        for item in accounts.items if isinstance(accounts, document.Sequence) else ():
            if isinstance(item, Mapping):
                key = item.values.get("accessKey")
                if isinstance(key, Scalar) and key.text == access_key:
                    if item.flow:
                        raise self._unknown_form(item)
                    return item
        return None

    def put(self, mapping: Mapping, key: str, value: str | list[str], same: Callable[[str], str] | None = None) -> None:
        """Give a key of a map a value.

        :param same: what makes two items of a list the same one; what stands before its ``=``, unless given.
        """
        if mapping.flow:
            raise self._unknown_form(mapping)
        old = mapping.values.get(key)
        indent = " " * next(iter(mapping.keys.values())).start.column
        if old is None:
            self._insert_below(_last(mapping), [indent + line for line in _lines(key, value)])
        elif isinstance(value, str):
            if not isinstance(old, Scalar):
                raise self._unknown_form(old)
            written = _flag_or_scalar(key, value)
            if old.text is None:
                colon = self._text.index(":", self._at(mapping.keys[key].end)) + 1
                self._changes.append((colon, colon, f" {written}"))
            elif old.text != value:
                self._changes.append((self._at(old.start), self._at(old.end), written))
        elif isinstance(old, document.Sequence):
            self._put_items(old, value, same or (lambda item: item.partition("=")[0].strip()))
        elif isinstance(old, Scalar) and old.text is None:
            self._insert_below(mapping.keys[key].end, [f"{indent}- {_scalar(item)}" for item in value])
        else:
            raise self._unknown_form(old)

    def _put_items(self, old: document.Sequence, value: list[str], same: Callable[[str], str]) -> None:
        if old.flow:
            written = "[" + ", ".join(_scalar(item) for item in value) + "]"
            self._changes.append((self._at(old.start), self._at(old.end), written))
            return
        left = {same(item): item for item in value}
        for node in old.items:
            if not isinstance(node, Scalar):
                raise self._unknown_form(node)
            wanted = left.pop(same(node.text or ""), None)
            if wanted is None:
                self.cut_lines(node.start, node.end)
            elif wanted != node.text:
                self._changes.append((self._at(node.start), self._at(node.end), _scalar(wanted)))
        if left:
            indent = " " * old.start.column
            self._insert_below(_last(old), [f"{indent}- {_scalar(item)}" for item in left.values()])

    def add_item(self, key: str, lines: Sequence[str]) -> None:
        """Put an item behind the others of a list at the top of the file."""
        old = None if self.root is None else self.root.values.get(key)
        if isinstance(old, document.Sequence) and old.items:
            if old.flow:
                raise self._unknown_form(old)
            self._insert_below(_last(old), [" " * old.start.column + line for line in lines])
        elif self.root is None or old is None:
            self.append([f"{key}:", *lines])
        elif isinstance(old, Scalar) and old.text is None:
            self._insert_below(self.root.keys[key].end, lines)
        elif isinstance(old, document.Sequence):  # []
            self._changes.append((self._at(old.start), self._at(old.end), ""))
            self._insert_below(old.end, lines)
        else:
            raise self._unknown_form(old)

    def append(self, lines: Iterable[str]) -> None:
        """Put lines at the end of the file."""
        end = len(self._text)
        begin = "" if not self._text or self._text.endswith("\n") else self._newline
        self._changes.append((end, end, begin + "".join(line + self._newline for line in lines)))

    def cut_lines(self, start: Place, end: Place) -> None:
        """Take the lines from one place to another away."""
        last = end.line + 1 if end.line + 1 < len(self._starts) else len(self._starts) - 1
        self._changes.append((self._starts[start.line], self._starts[last], ""))

    def _insert_below(self, place: Place, lines: Sequence[str]) -> None:
        at = self._starts[min(place.line + 1, len(self._starts) - 1)]
        begin = "" if at == 0 or self._text[at - 1] == "\n" else self._newline
        self._changes.append((at, at, begin + "".join(line + self._newline for line in lines)))

    def _at(self, place: Place) -> int:
        return self._starts[place.line] + place.column

    def result(self) -> bytes:
        """The text with every change.

        :raises ConfigError: it cannot be read any more.
        """
        text = self._text
        for _, (low, high, new) in sorted(enumerate(self._changes), key=lambda one: (one[1][0], one[0]), reverse=True):
            text = text[:low] + new + text[high:]
        data = text.encode()
        parse_plain_acl(self._path, data)
        return data

    def _unknown_form(self, node: Node) -> ConfigError:
        return ConfigError(
            f"{self._path}:{node.line}: this is written in a form that no program changes (brackets): edit it, it "
            "is read again within seconds"
        )

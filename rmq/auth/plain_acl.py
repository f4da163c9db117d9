"""plain_acl.yml: accounts and white lists of 4.x access control (protocol.md 6.2; Java: PlainAccessData).

Keys of ours, which Java passes over: ``broker: true`` (the account may do what brokers ask of name servers and masters,
and nothing else besides what its lists say), ``disabled: true`` (it may do nothing), and shares of its own in place of
the settings': ``maxRequestsPerSecond``, ``maxBytesPerSecond`` and ``maxConnections``, 0 = no limit.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq.auth import document
from rmq.auth.addresses import NOBODY, AddressPattern, parse_pattern
from rmq.auth.document import Node, Scalar, parse_document
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.errors import ConfigError
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.permissions import DENY, PUB, SUB

__all__ = ["ACCOUNT_KEYS", "FILE_KEYS", "Account", "PlainFile", "parse_permission", "parse_plain_acl", "short_name"]

FILE_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
ACCOUNT_KEYS = (
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
    "groupPerms", "broker", "disabled", "maxRequestsPerSecond", "maxBytesPerSecond", "maxConnections",
)  # fmt: skip
#: Digits of a share: what is more is no limit that anybody meets.
_LONGEST_SHARE = 15
_PERMISSIONS: Mapping[str, int] = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_YES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
#: Java: a key or a secret has more characters.
_TOO_SHORT = 6


@dataclass(frozen=True, slots=True)
class Account:
    """One account; topics and groups have permission bits."""

    access_key: str
    secret_key: str = field(repr=False)
    white: AddressPattern = NOBODY
    admin: bool = False
    broker: bool = False
    disabled: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    #: What it may ask for, instead of what the daemon's settings say: requests and bytes a second, connections.
    requests: int | None = None
    bytes: int | None = None
    connections: int | None = None
    #: Where it stands.
    place: str = ""

    @property
    def listed(self) -> bool:
        """Whether it names topics or groups: then it has those alone, an administrator, too (as in Java)."""
        return bool(self.topics or self.groups)


@dataclass(frozen=True, slots=True)
class PlainFile:
    """What one file says."""

    path: str
    accounts: tuple[Account, ...] = ()
    white: tuple[AddressPattern, ...] = ()
    version: DataVersion | None = None
    #: What is odd in it and no error: ``file:line: ...``.
    notes: tuple[str, ...] = ()


def short_name(text: str) -> bool:
    """Whether an access key or a secret is too short to be one."""
    return len(text) <= _TOO_SHORT


def parse_permission(text: str) -> int | None:
    """``DENY``, ``PUB``, ``SUB``, ``PUB|SUB`` or ``SUB|PUB``; None for anything else."""
    return _PERMISSIONS.get(text.strip())


def parse_plain_acl(path: str, data: bytes) -> PlainFile:
    """Read one file.

    :raises ConfigError: names the file, the line, and what to do.
    """
    root = parse_document(path, data)
    if root is None:
        return PlainFile(path)
    reading = _Reading(path)
    for name, key in root.keys.items():
        if name not in FILE_KEYS:
            reading.unknown(key, name, FILE_KEYS)
    accounts: list[Account] = []
    for item in reading.items(root, "accounts"):
        if not isinstance(item, document.Mapping):
            raise reading.wrong(item, "an account is expected: `- accessKey: ...`")
        accounts.append(reading.account(item))
    white = tuple(reading.pattern(item) for item in reading.items(root, "globalWhiteRemoteAddresses"))
    return PlainFile(path, tuple(accounts), white, reading.version(root), tuple(reading.notes))


class _Reading:
    """One file that is being read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.notes: list[str] = []

    def wrong(self, node: Node, why: str) -> ConfigError:
        return ConfigError(f"{self._path}:{node.line}: {why}")

    def note(self, node: Node, what: str) -> None:
        self.notes.append(f"{self._path}:{node.line}: {what}")

    def unknown(self, key: Node, name: str, known: tuple[str, ...]) -> None:
        near = difflib.get_close_matches(name, known, 1)
        if near:
            raise self.wrong(key, f"there is no key {name[:64]}: is it {near[0]}?")
        self.note(key, f"the key {name[:64]} is not known here, and without effect")

    def items(self, mapping: document.Mapping, name: str) -> list[Node]:
        value = mapping.values.get(name)
        if value is None or (isinstance(value, Scalar) and value.text is None):
            return []
        if not isinstance(value, document.Sequence):
            raise self.wrong(value, f"{name} is a list: a line `- ...` for each of its items")
        return value.items

    def text(self, mapping: document.Mapping, name: str) -> str | None:
        value = mapping.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Scalar):
            raise self.wrong(value, f"{name} is one value, no list")
        return value.text

    def flag(self, mapping: document.Mapping, name: str) -> bool:
        text = self.text(mapping, name)
        if text is None:
            return False
        known = _YES.get(text.strip().lower())
        if known is None:
            raise self.wrong(mapping.values[name], f"{name} is true or false, not {text[:32]!r}")
        return known

    def share(self, mapping: document.Mapping, name: str) -> int | None:
        text = self.text(mapping, name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_SHARE):
            raise self.wrong(mapping.values[name], f"{name} is a number, 0 for no limit, not {text[:32]!r}")
        return int(text)

    def pattern(self, node: Node) -> AddressPattern:
        if not isinstance(node, Scalar):
            raise self.wrong(node, "an address pattern is expected")
        try:
            return parse_pattern(node.text)
        except ConfigError as error:
            raise self.wrong(node, str(error)) from None

    def default(self, mapping: document.Mapping, name: str) -> int:
        text = self.text(mapping, name)
        if text is None:
            return DENY
        found = parse_permission(text)
        if found is None:
            self.note(mapping.values[name], f"{name} is DENY, PUB, SUB or PUB|SUB; {text[:32]!r} counts as DENY")
            return DENY
        return found

    def permissions(self, mapping: document.Mapping, name: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in self.items(mapping, name):
            text = (item.text or "") if isinstance(item, Scalar) else ""
            resource, equals, permission = (part.strip() for part in text.partition("="))
            bits = parse_permission(permission)
            if not (resource and equals) or bits is None:
                raise self.wrong(
                    item, f"{name}: {text[:80]!r}: name=PUB, name=SUB, name=PUB|SUB or name=DENY is expected"
                )
            if resource in found:
                raise self.wrong(item, f"{name}: {resource[:80]} is here twice: remove one")
            found[resource] = bits
        return found

    def account(self, mapping: document.Mapping) -> Account:
        for key, node in mapping.keys.items():
            if key not in ACCOUNT_KEYS:
                self.unknown(node, key, ACCOUNT_KEYS)
        access_key, secret = self.text(mapping, "accessKey") or "", self.text(mapping, "secretKey") or ""
        for name, text in (("accessKey", access_key), ("secretKey", secret)):
            if short_name(text):
                raise self.wrong(
                    mapping.values.get(name, mapping),
                    f"{name} has {len(text)} characters: it must have more than {_TOO_SHORT}",
                )
        topics, groups = self.permissions(mapping, "topicPerms"), self.permissions(mapping, "groupPerms")
        for name in [name for name in topics if name.startswith(RETRY_PREFIX)]:
            # What Java keeps a group's permission under.
            groups.setdefault(name.removeprefix(RETRY_PREFIX), topics.pop(name))
        white = mapping.values.get("whiteRemoteAddress")
        return Account(
            access_key, secret,
            white=NOBODY if white is None else self.pattern(white),
            admin=self.flag(mapping, "admin"),
            broker=self.flag(mapping, "broker"),
            disabled=self.flag(mapping, "disabled"),
            default_topic=self.default(mapping, "defaultTopicPerm"),
            default_group=self.default(mapping, "defaultGroupPerm"),
            topics=topics,
            groups=groups,
            requests=self.share(mapping, "maxRequestsPerSecond"),
            bytes=self.share(mapping, "maxBytesPerSecond"),
            connections=self.share(mapping, "maxConnections"),
            place=f"{self._path}:{mapping.line}",
        )  # fmt: skip

    def version(self, root: document.Mapping) -> DataVersion | None:
        items = self.items(root, "dataVersion")
        if not items:
            return None
        first = items[0]
        if not isinstance(first, document.Mapping):
            raise self.wrong(first, "dataVersion is a list of one map: counter and timestamp")
        numbers = {}
        for name in ("counter", "timestamp"):
            text = self.text(first, name) or "0"
            if not text.isdecimal() or len(text) > 18:
                raise self.wrong(first.values[name], f"{name} is a number, not {text[:32]!r}")
            numbers[name] = int(text)
        return DataVersion(counter=numbers["counter"], timestamp=numbers["timestamp"])

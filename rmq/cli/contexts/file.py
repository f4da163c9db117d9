"""The file of contexts: clusters by name, and the one that is meant where nothing else says.

It is ``$RMQ_CONTEXTS``, else ``$XDG_CONFIG_HOME/rmq/contexts.yml``, else ``~/.config/rmq/contexts.yml``::

    current: test
    contexts:
      test:
        namesrv: 127.0.0.1:9876
      prod:
        namesrv: ns1.example.com:9876;ns2.example.com:9876
        credentials: prod-tools.yml      # account and TLS, as conf/tools.yml; relative to this file

No secret stands in it: ``credentials`` names the file that has one.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field

from rmq.auth.document import MOST_BYTES, Mapping, Node, Scalar, parse_document
from rmq.protocol.errors import ClientError, ConfigError
from rmq.runtime.world import Files

__all__ = ["Context", "Contexts", "path_of_contexts", "read_contexts", "refuse_addresses", "refuse_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEYS = ("namesrv", "credentials")


@dataclass(frozen=True, slots=True)
class Context:
    """:param namesrv: name servers, ``host:port;host:port``. :param credentials: a file as tools.yml; absolute."""

    namesrv: str
    credentials: str | None = None


@dataclass(slots=True)
class Contexts:
    """:param path: of the file. :param current: the name of the one that is meant where nothing else says."""

    path: str
    named: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named_as(self, name: str) -> Context:
        """:raises ConfigError: there is none of this name."""
        if (found := self.named.get(name)) is not None:
            return found
        near = difflib.get_close_matches(name, self.named, 1)
        if near:
            hint = f"did you mean {near[0]}?"
        elif self.named:
            hint = f"there are {', '.join(self.named)}"
        else:
            hint = f"rmq context set {name} -n host:port makes it"
        raise ConfigError(f"{self.path}: there is no context {name}: {hint}")

    def write(self, files: Files) -> None:
        """Replace the file; the folder is made where it is not there. :raises OSError: from the disk."""
        import yaml

        folder = os.path.dirname(self.path)
        contexts = {}
        for name, one in self.named.items():
            contexts[name] = {"namesrv": one.namesrv}
            if one.credentials is not None:
                # Beside this file it stays right when the folder is moved.
                beside = os.path.dirname(one.credentials) == folder
                contexts[name]["credentials"] = os.path.basename(one.credentials) if beside else one.credentials
        whole = {"current": self.current, "contexts": contexts}
        text = yaml.safe_dump(whole, allow_unicode=True, sort_keys=False)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        files.write_atomic(self.path, f"# Written by rmq context; comments of your own do not stay.\n{text}".encode())


def path_of_contexts() -> str:
    """Where the file is, or would be."""
    if path := os.environ.get("RMQ_CONTEXTS"):
        return os.path.abspath(path)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "rmq", "contexts.yml")


def refuse_name(name: str) -> None:
    """:raises ValueError: this can be no name of a context."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a context: letters, digits, and _ . - behind the first")


def refuse_addresses(namesrv: str) -> None:
    """:raises ValueError: these can be no name servers."""
    from rmq.client.nameservers import parse_addresses

    try:
        found = parse_addresses(namesrv)
    except ClientError as error:
        raise ValueError(str(error)) from None
    if not found:
        raise ValueError(f"{namesrv!r} names no server: host:port;host:port is expected")


def read_contexts(files: Files, path: str) -> Contexts:
    """What stands in the file; nothing where there is none.

    :raises ConfigError: it cannot be read, or names the line and what is wrong there.
    """
    try:
        data = files.read(path, MOST_BYTES)
    except FileNotFoundError:
        return Contexts(path)
    except OSError as error:
        raise ConfigError(f"{path}: the contexts cannot be read: {error.strerror or error}") from None
    found = Contexts(path)
    root = parse_document(path, data)
    if root is None:
        return found
    _known(path, root, ("current", "contexts"))
    contexts = root.values.get("contexts")
    for name, node in {} if contexts is None else _mapping(path, "contexts", contexts).values.items():
        try:
            refuse_name(name)
        except ValueError as error:
            raise ConfigError(f"{path}:{node.line}: {error}") from None
        found.named[name] = _context(path, name, node)
    current = root.values.get("current")
    chosen = None if current is None else _text(path, "current", current)
    if current is not None and chosen is not None:
        if chosen not in found.named:
            raise ConfigError(f"{path}:{current.line}: current is {chosen}, and there is no such context")
        found.current = chosen
    return found


def _context(path: str, name: str, node: Node) -> Context:
    values = _mapping(path, name, node)
    _known(path, values, _KEYS)
    texts = {key: _text(path, f"{key} of {name}", value) for key, value in values.values.items()}
    namesrv, credentials = texts.get("namesrv"), texts.get("credentials")
    if not namesrv:
        raise ConfigError(f"{path}:{node.line}: the context {name} has no namesrv: host:port is expected")
    try:
        refuse_addresses(namesrv)
    except ValueError as error:
        raise ConfigError(f"{path}:{values.values['namesrv'].line}: {name}: {error}") from None
    if credentials:
        credentials = os.path.join(os.path.dirname(path), os.path.expanduser(credentials))
    return Context(namesrv, credentials or None)


def _known(path: str, node: Mapping, keys: tuple[str, ...]) -> None:
    for key, value in node.keys.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {' and '.join(keys)}"
            raise ConfigError(f"{path}:{value.line}: there is no key {key}: {meant}")


def _mapping(path: str, what: str, node: Node) -> Mapping:
    if isinstance(node, Scalar) and node.text is None:
        return Mapping(node.start, node.end)
    if not isinstance(node, Mapping):
        raise ConfigError(f"{path}:{node.line}: {what}: keys with values are expected")
    return node


def _text(path: str, what: str, node: Node) -> str | None:
    if not isinstance(node, Scalar):
        raise ConfigError(f"{path}:{node.line}: {what}: a text is expected")
    return node.text

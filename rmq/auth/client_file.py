"""What a client reads besides its options: one YAML file with its account, and with how it speaks TLS.

Java's tools read ``accessKey``, ``secretKey`` and ``securityToken`` of such a file (tools.yml), and no more of it::

    accessKey: shop-orders
    secretKey: 'a long secret'
    useTLS: true
    tlsCaFile: ca.pem            # relative to this file
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq.auth.credentials import Credentials
from rmq.auth.document import MOST_BYTES, Scalar, parse_document
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import Files

__all__ = ["TLS_KEYS", "ClientFile", "parse_client_file", "read_client_file"]

_FLAGS = ("useTLS", "tlsVerify", "tlsCheckHostname")
_PATHS = ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPasswordFile")
#: Those of TLS; options of the SDK have the same names in Python's spelling.
TLS_KEYS = (*_FLAGS, *_PATHS, "tlsKeyPassword", "tlsServerName")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """What stands in it; no secret is in a text of it.

    :param tls: values of those of :data:`TLS_KEYS` that are there; flags are ``true`` or ``false``, paths are absolute.
    """

    account: Credentials | None
    tls: Mapping[str, str] = field(repr=False)


def parse_client_file(path: str, data: bytes) -> ClientFile:
    """:raises ConfigError: names the file, the line and what is wrong with it."""
    root = parse_document(path, data)
    found: dict[str, str] = {}
    for name, node in ({} if root is None else root.values).items():
        if name.lower().startswith(("tls", "usetls")) and name not in TLS_KEYS:
            near = difflib.get_close_matches(name, TLS_KEYS, 1)
            raise ConfigError(f"{path}: there is no key {name}" + (f": did you mean {near[0]}?" if near else ""))
        if isinstance(node, Scalar) and node.text:
            found[name] = node.text
    keys = [found.get(name) for name in ("accessKey", "secretKey")]
    tls = {name: found[name] for name in TLS_KEYS if name in found}
    if None in keys and (keys != [None, None] or not tls):
        missing = "accessKey" if keys[0] is None else "secretKey"
        raise ConfigError(f"{path}: {missing} is missing: a line `{missing}: ...` is expected")
    for name in _FLAGS:
        if name in tls:
            tls[name] = tls[name].lower()
            if tls[name] not in ("true", "false"):
                raise ConfigError(f"{path}: {name}: true or false is expected")
    for name in _PATHS:
        if name in tls:
            tls[name] = os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(tls[name]))
    access, secret = keys
    account = Credentials(access, secret, found.get("securityToken")) if access and secret else None
    return ClientFile(account, tls)


def read_client_file(files: Files, path: str) -> ClientFile:
    """:raises ConfigError: the file cannot be read, or something is wrong with it."""
    try:
        data = files.read(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: the account to sign with cannot be read: {error.strerror or error}") from None
    return parse_client_file(path, data)

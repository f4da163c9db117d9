"""The account that a daemon or a tool signs its own calls with."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmq.auth.document import MOST_BYTES, Scalar, parse_document
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.signature import LAST_WITHOUT_MARK, UNIQUE_KEY_QUERY, signed_fields
from rmq.runtime.world import Files

__all__ = ["Credentials", "Signer", "parse_credentials", "read_credentials"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret; the secret is in no text of it."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def parse_credentials(path: str, data: bytes) -> Credentials:
    """Read ``accessKey``, ``secretKey`` and perhaps ``securityToken`` (what Java calls tools.yml).

    :raises ConfigError: names the file and what is missing.
    """
    root = parse_document(path, data)
    found: dict[str, str] = {}
    for name, node in ({} if root is None else root.values).items():
        if isinstance(node, Scalar) and node.text:
            found[name] = node.text
    for name in ("accessKey", "secretKey"):
        if name not in found:
            raise ConfigError(f"{path}: {name} is missing: a line `{name}: ...` is expected")
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken"))


def read_credentials(files: Files, path: str) -> Credentials:
    """:raises ConfigError: the file cannot be read, or something is missing in it."""
    try:
        data = files.read(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: the account to sign with cannot be read: {error.strerror or error}") from None
    return parse_credentials(path, data)


class Signer:
    """Signs every request of a client (Java: AclClientRPCHook)."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, addr: str, request: Command) -> None:
        """As a hook of a client."""
        self.sign(request)

    def sign(self, request: Command) -> None:
        """Put account and signature into the ext fields.

        Brokers of 4.7 to 5.0 check the unique-key mark as not signed, whatever the version, those of 5.1 and later as
        not signed by a client of 4.9.3 or before: a request with it is signed, and sent, as such a client's.
        """
        one = self._credentials
        if UNIQUE_KEY_QUERY in (request.ext or ()):
            request.version = LAST_WITHOUT_MARK
        request.ext = signed_fields(
            request.ext, request.body, one.access_key, one.secret_key, one.security_token, request.version
        )

    def after(self, addr: str, request: Command, response: Command | None) -> None:
        """Nothing is left to do."""

"""The signature that 4.x access control adds to a request's ext fields (protocol.md 6.1).

HMAC-SHA1 with the account's secret over the values of the ext fields, joined without separator in ascending order of
their names, followed by the body; standard Base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["ACCESS_KEY", "SECURITY_TOKEN", "SIGNATURE", "content", "sign", "signed_fields", "verify"]

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
#: V4_9_3: clients up to it leave the unique-key mark out of what they sign.
LAST_WITHOUT_MARK = 399
#: Bytes of a block of SHA-1.
_BLOCK = 64


def content(ext: Mapping[str, str | None], body: bytes, version: int | None = None) -> bytes:
    """What is signed.

    :param version: the requester's version when checking a request; None when signing one.
    """
    unsigned = UNIQUE_KEY_QUERY if version is not None and version <= LAST_WITHOUT_MARK else SIGNATURE
    values = [ext[name] for name in sorted(ext) if name != SIGNATURE and name != unsigned]
    # Java signs a field that came as null as the text "null".
    text = "".join(["null" if value is None else value for value in values])
    return text.encode("utf-8", "replace") + body


def sign(signed: bytes, secret_key: str) -> str:
    """The signature of a content."""
    inner, outer = _begun(secret_key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(signed)
    outer.update(inner.digest())
    return base64.b64encode(outer.digest()).decode()


@lru_cache(maxsize=1024)
def _begun(secret_key: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Both hashes of HMAC-SHA1 with the key in them (RFC 2104): that is half of what a signature of 1 KB takes."""
    key = secret_key.encode("utf-8", "replace")
    if len(key) > _BLOCK:
        key = hashlib.sha1(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    return hashlib.sha1(bytes(byte ^ 0x36 for byte in key)), hashlib.sha1(bytes(byte ^ 0x5C for byte in key))


def signed_fields(
    ext: Mapping[str, str | None] | None,
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str | None]:
    """The ext fields with the account's name, its token and the signature added."""
    fields = dict(ext or {})
    fields[ACCESS_KEY] = access_key
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = sign(content(fields, body), secret_key)
    return fields


def verify(ext: Mapping[str, str | None], body: bytes, secret_key: str, version: int) -> bool:
    """Whether a request's signature is the account's; compared in constant time.

    The unique-key mark may be signed or not, whatever the version: some clients say another one than they are.
    """
    given = ext.get(SIGNATURE)
    if given is None:
        return False
    told = given.encode("utf-8", "replace")
    if UNIQUE_KEY_QUERY not in ext:
        return hmac.compare_digest(sign(content(ext, body, version), secret_key).encode(), told)
    forms = (None, LAST_WITHOUT_MARK)
    return any(hmac.compare_digest(sign(content(ext, body, form), secret_key).encode(), told) for form in forms)

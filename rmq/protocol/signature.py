"""The signature that 4.x access control adds to a request's ext fields (protocol.md 6.1).

HMAC-SHA1 with the account's secret over the values of the ext fields, joined without separator in ascending order of
their names, followed by the body; standard Base64.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter

__all__ = [
    "ACCESS_KEY",
    "LAST_WITHOUT_MARK",
    "SECURITY_TOKEN",
    "SIGNATURE",
    "UNIQUE_KEY_QUERY",
    "content",
    "sign",
    "signed_fields",
    "verify",
]

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
#: V4_9_3: clients up to it leave the unique-key mark out of what they sign.
LAST_WITHOUT_MARK = 399
#: Bytes of a block of SHA-1.
_BLOCK = 64

_InOrder = Callable[[Mapping[str, str | None]], tuple[str | None, ...]]
#: What takes the values in the order in which they are signed, by the names as they came: a client's requests of one
#: kind have the same names in the same order, and to sort them takes longer than all else. No more sets of names than
#: this are kept, and none that is longer, in characters, than any request has.
_ORDERS: dict[tuple[str, ...], _InOrder] = {}
_MOST_ORDERS = 256
_LONGEST_ORDER = 1024


def content(ext: Mapping[str, str | None], body: bytes, version: int | None = None) -> bytes:
    """What is signed.

    :param version: of who signs: clients up to 4.9.3 leave the unique-key mark out. None: it is signed.
    """
    names = tuple(ext)
    if version is not None and version <= LAST_WITHOUT_MARK and UNIQUE_KEY_QUERY in ext:
        names = tuple(name for name in names if name != UNIQUE_KEY_QUERY)
    values = (_ORDERS.get(names) or _keep_order(names))(ext)
    try:
        text = "".join(values)  # type: ignore[arg-type]
    except TypeError:  # Java signs a field that came as null as the text "null"
        text = "".join(["null" if value is None else value for value in values])
    return text.encode("utf-8", "replace") + body


def _keep_order(names: tuple[str, ...]) -> _InOrder:
    """What takes the values of these names in the order in which they are signed; kept if it is worth that."""
    order = sorted(name for name in names if name != SIGNATURE)
    if len(order) < 2:  # an itemgetter of one name gives no tuple
        return lambda ext: tuple(ext[name] for name in order)
    in_order = itemgetter(*order)
    if sum(map(len, names)) <= _LONGEST_ORDER:
        if len(_ORDERS) >= _MOST_ORDERS:
            _ORDERS.clear()
        _ORDERS[names] = in_order
    return in_order


def sign(signed: bytes, secret_key: str) -> str:
    """The signature of a content."""
    return _sign(signed, secret_key).decode()


def _sign(signed: bytes, secret_key: str) -> bytes:
    inner, outer = _begun(secret_key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(signed)
    outer.update(inner.digest())
    return binascii.b2a_base64(outer.digest(), newline=False)


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
    version: int | None = None,
) -> dict[str, str | None]:
    """The ext fields with the account's name, its token and the signature added.

    :param version: what the request says it is of, as :func:`content` takes it.
    """
    fields = dict(ext or {})
    fields[ACCESS_KEY] = access_key
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = sign(content(fields, body, version), secret_key)
    return fields


def verify(ext: Mapping[str, str | None], body: bytes, secret_key: str) -> bool:
    """Whether a request's signature is the account's; compared in constant time.

    The unique-key mark may be signed or not, whatever the version: some clients say another one than they are.
    """
    given = ext.get(SIGNATURE)
    if given is None:
        return False
    told = given.encode("utf-8", "replace")
    if UNIQUE_KEY_QUERY not in ext:
        return hmac.compare_digest(_sign(content(ext, body), secret_key), told)
    forms = (None, LAST_WITHOUT_MARK)
    return any(hmac.compare_digest(_sign(content(ext, body, form), secret_key), told) for form in forms)

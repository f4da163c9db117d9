"""Settings of servers as they travel: .properties text."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.client.checks import check_word
from rmq.protocol.errors import BodyError, ClientError

__all__ = ["read", "write"]


def read(body: bytes) -> dict[str, str]:
    """The settings that a server tells, by key. :raises BodyError: it is no .properties text."""
    import javaproperties  # a few commands need it, and it is slow to load

    try:
        # Written by hand on the other side, without escapes: a backslash in a path is one, and no escape either.
        lines = body.decode("utf-8", "replace").replace("\\", "\\\\")
        return dict(javaproperties.loads(lines))
    except ValueError as error:
        raise BodyError(f"settings that cannot be read: {error}") from None


def write(values: Mapping[str, str]) -> bytes:
    """The body of a change. :raises ClientError: there is nothing in it, or no text."""
    import javaproperties

    if not values:
        raise ClientError("no setting is named: give a key and a value")
    for key, value in values.items():
        check_word(key, "the key of a setting")
        check_word(value, f"the value of {key}")
    return str(javaproperties.dumps(dict(values), timestamp=False)).encode()

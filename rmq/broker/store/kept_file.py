"""A file of ours beside the log as bytes: one JSON object, with a sum of what it says.

The sum is the CRC-32 of the object without it, as JSON without blanks. With one changed byte a member of a group would
else give away a promise without a word (another term, another vote, another disk), and good messages would pass for
damaged ones. Files of the release before have none, and are believed.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from rmq.protocol.crc import crc32

__all__ = ["decode", "encode"]

_SUM: Final = "sum"


def encode(content: dict[str, Any]) -> bytes:
    """What is written."""
    return orjson.dumps({**content, _SUM: crc32(orjson.dumps(content))})


def decode(data: bytes) -> dict[str, Any]:
    """What was kept.

    :raises ValueError: this is no such file, or says something else than what was written.
    """
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if (kept := found.pop(_SUM, None)) is not None and kept != crc32(orjson.dumps(found)):
        raise ValueError("what it says is not what was written: bytes of it have changed")
    return found

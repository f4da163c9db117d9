"""What a message is found by: its unique key, and the words of its KEYS.

Java puts every word into its index, on a thread of its own. Here a message's words are hashed where it is stored, so
they are bounded: a property string has room for 16,000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

__all__ = ["MOST_WORDS", "keys_to_index", "words"]

#: Words of one message that are indexed, the first ones: half a millisecond.
MOST_WORDS = 256
_word = re.compile(rb"[^ ]+")


def words(keys: bytes) -> tuple[bytes, ...]:
    """The words of a KEYS property that are indexed; blanks are between them.

    >>> words(b"a  b ")
    (b'a', b'b')
    """
    if b" " not in keys:
        return (keys,) if keys else ()
    return tuple([found.group() for found in islice(_word.finditer(keys), MOST_WORDS)])


def keys_to_index(properties: Mapping[str, str]) -> tuple[bytes, ...]:
    """The index keys of a message, in UTF-8: its unique key, then the words of KEYS.

    Whoever appends a message says these, so that its index has what one has that reads them from the log.
    """
    unique = properties.get("UNIQ_KEY")
    found = (unique.encode(),) if unique else ()
    return found + words(properties.get("KEYS", "").encode())

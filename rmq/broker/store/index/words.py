"""The words of a message's KEYS: what it is found by besides its unique key.

Java puts every word into its index, on a thread of its own. Here a message's words are hashed where it is stored, so
they are bounded: a property string has room for 16,000.
"""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["MOST_WORDS", "words"]

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

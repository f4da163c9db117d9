"""The property string of a plain send, read without making a dictionary of it.

A property string is ``name 0x01 value 0x02 name 0x01 value ...`` (protocol.md 5.4). The Java client writes the four
properties of a plain message in one order, and that form is recognised in place; any other goes through a loop. Where a
property diverts the message, is one that the broker sets itself, or takes long to read or to index, the answer is None
and the ordinary way decides.
"""

from __future__ import annotations

from rmq.broker.kinds import SHARDING_KEY
from rmq.broker.store.index.words import words

__all__ = ["plain_properties"]

#: Beginnings of the names that make a send not plain: DELAY, TRAN_MSG, TIMER_..., CLUSTER, INNER_MULTI_...; and of
#: that which is counted apart.
_DIVERTING = (b"DELAY\x01", b"TRAN_MSG\x01", b"TIMER_", b"CLUSTER\x01", b"INNER_MULTI_", SHARDING_KEY)
#: What is plain is quick: no more properties than this, no longer keys, no more words in them.
_MOST_PROPERTIES = 64
_LONGEST_KEY = 256
_MOST_WORDS = 8


def plain_properties(text: str, cluster: bytes) -> tuple[bytes, bytes, tuple[bytes, ...], bool] | None:
    """What to store, the tag, the index keys, and whether to wait for durability; None when it is not plain.

    :param cluster: the CLUSTER property, added to what is stored; WAIT is taken out (store-and-broker.md 2.4).
    """
    parts = text.encode().split(b"\x02")
    if len(parts) == 4:
        keys, unique, wait, tags = parts
        if (
            wait == b"WAIT\x01true"
            and keys[:5] == b"KEYS\x01"
            and unique[:9] == b"UNIQ_KEY\x01"
            and tags[:5] == b"TAGS\x01"
            and b" " not in keys
            and 5 < len(keys) <= _LONGEST_KEY
            and 9 < len(unique) <= _LONGEST_KEY
        ):
            return b"\x02".join((keys, unique, tags, cluster)), tags[5:], (unique[9:], keys[5:]), True
    return _any_order(parts, cluster)


def _any_order(parts: list[bytes], cluster: bytes) -> tuple[bytes, bytes, tuple[bytes, ...], bool] | None:
    if len(parts) > _MOST_PROPERTIES:
        return None
    stored = []
    tag = unique = keys = b""
    waits = True
    for part in parts:
        if part.startswith(_DIVERTING):
            return None
        # A repeated name counts by its last occurrence, as for every decoder.
        if part.startswith(b"WAIT\x01"):
            waits = part[5:].lower() == b"true"
            continue
        if part.startswith(b"TAGS\x01"):
            tag = part[5:] or tag
        elif part.startswith(b"KEYS\x01"):
            keys = part[5:] or keys
        elif part.startswith(b"UNIQ_KEY\x01"):
            unique = part[9:] or unique
        if part:
            stored.append(part)
    if len(keys) > _LONGEST_KEY or len(unique) > _LONGEST_KEY or keys.count(b" ") >= _MOST_WORDS:
        return None
    stored.append(cluster)
    found: tuple[bytes, ...] = (unique,) if unique else ()
    return b"\x02".join(stored), tag, found + words(keys), waits

"""(b) The property string: TAGS, KEYS and UNIQ_KEY found, WAIT dropped, CLUSTER added, stored form as bytes."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmark.micro.messages import CLUSTER, COUNT, property_text
from benchmark.micro.timing import compare

#: tags, keys, unique key, plain (no DELAY, no TRAN_MSG), stored
Found = tuple[bytes, bytes, bytes, bool, bytes]

ANCHORED_TEXT = re.compile("KEYS\x01([^\x02]+)\x02UNIQ_KEY\x01([^\x02]+)\x02(?:WAIT\x01true\x02)?TAGS\x01([^\x02]+)$")
ANCHORED_BYTES = re.compile(ANCHORED_TEXT.pattern.encode())
NAMED = re.compile("(?:^|\x02)(KEYS|TAGS|UNIQ_KEY|DELAY|WAIT|TRAN_MSG)\x01([^\x02]+)")
WAIT = "WAIT\x01true\x02"


def by_dict(text: str) -> Found:
    found: dict[str, str] = {}
    kept = []
    for part in text.split("\x02"):
        name, _, value = part.partition("\x01")
        if name and value:
            found[name] = value
            if name != "WAIT":
                kept.append(part)
    kept.append(CLUSTER)
    plain = "DELAY" not in found and "TRAN_MSG" not in found
    return _bytes(found["TAGS"], found["KEYS"], found["UNIQ_KEY"], plain, "\x02".join(kept))


def _bytes(tags: str, keys: str, unique: str, plain: bool, stored: str) -> Found:
    return tags.encode(), keys.encode(), unique.encode(), plain, stored.encode()


def by_pairs(text: str) -> Found:
    found = dict([part.split("\x01", 1) for part in text.split("\x02")])
    plain = "DELAY" not in found and "TRAN_MSG" not in found
    return _bytes(found["TAGS"], found["KEYS"], found["UNIQ_KEY"], plain, f"{text.replace(WAIT, '', 1)}\x02{CLUSTER}")


def by_findall(text: str) -> Found:
    found = dict(NAMED.findall(text))
    plain = "DELAY" not in found and "TRAN_MSG" not in found
    return _bytes(found["TAGS"], found["KEYS"], found["UNIQ_KEY"], plain, f"{text.replace(WAIT, '', 1)}\x02{CLUSTER}")


def by_find(text: str) -> Found:
    marked = f"\x02{text}\x02{CLUSTER}"
    at = marked.find("\x02TAGS\x01") + 6
    tags = marked[at : marked.find("\x02", at)]
    at = marked.find("\x02KEYS\x01") + 6
    keys = marked[at : marked.find("\x02", at)]
    at = marked.find("\x02UNIQ_KEY\x01") + 10
    unique = marked[at : marked.find("\x02", at)]
    plain = "DELAY\x01" not in marked and "TRAN_MSG\x01" not in marked
    return _bytes(tags, keys, unique, plain, marked.replace(WAIT, "", 1)[1:])


def by_loop(text: str) -> Found:
    """Any order, any names: five characters tell the ones that matter."""
    keys = unique = tags = ""
    plain = True
    wait = False
    for part in text.split("\x02"):
        start = part[:5]
        if start == "KEYS\x01":
            keys = part[5:]
        elif start == "TAGS\x01":
            tags = part[5:]
        elif start == "WAIT\x01":
            wait = True
        elif start == "UNIQ_" and part[:9] == "UNIQ_KEY\x01":
            unique = part[9:]
        elif start in ("DELAY", "TRAN_"):
            plain = False
    stored = text.replace(WAIT, "", 1) if wait else text
    return _bytes(tags, keys, unique, plain, f"{stored}\x02{CLUSTER}")


CLUSTER_BYTES = CLUSTER.encode()
joined = b"\x02".join


def by_four(text: str) -> Found:
    """The order Java's hash map gives a message with one key and one tag, names compared in place."""
    parts = text.encode().split(b"\x02")
    if len(parts) == 4:
        one, two, three, four = parts
        if (
            one[:5] == b"KEYS\x01"
            and two[:9] == b"UNIQ_KEY\x01"
            and three == b"WAIT\x01true"
            and four[:5] == b"TAGS\x01"
        ):
            return four[5:], one[5:], two[9:], True, joined((one, two, four, CLUSTER_BYTES))
    return by_loop(text)


def by_anchored_text(text: str) -> Found:
    match = ANCHORED_TEXT.match(text)
    if match is None:
        return by_loop(text)
    keys, unique, tags = match.groups()
    return _bytes(tags, keys, unique, True, f"KEYS\x01{keys}\x02UNIQ_KEY\x01{unique}\x02TAGS\x01{tags}\x02{CLUSTER}")


def by_anchored_bytes(text: str) -> Found:
    match = ANCHORED_BYTES.match(text.encode())
    if match is None:
        return by_loop(text)
    keys, unique, tags = match.groups()
    stored = b"KEYS\x01%b\x02UNIQ_KEY\x01%b\x02TAGS\x01%b\x02CLUSTER\x01DefaultCluster" % (keys, unique, tags)
    return tags, keys, unique, True, stored


VARIANTS: list[tuple[str, Callable[[str], Found]]] = [
    ("split, partition, dict, join", by_dict),
    ("dict of split pairs", by_pairs),
    ("regex findall, dict", by_findall),
    ("str.find a name on a marked text", by_find),
    ("split, five characters decide (any order)", by_loop),
    ("split in four as bytes, names compared in place", by_four),
    ("one anchored regex on text", by_anchored_text),
    ("one anchored regex on bytes", by_anchored_bytes),
]


def run() -> None:
    compare("(b) property string", [property_text(i) for i in range(COUNT)], VARIANTS)

"""What the pieces of the hot path cost, variant beside variant, in nanoseconds an operation.

``python -m benchmark.micro [SECTION ...]``: decode props hash pack answer crc split. Each figure is the least of
several rounds over 256 different messages, on the thread's own CPU clock, so that a busy machine spoils little.
Variants of one section must give equal results; the program checks that before it times them.
"""

from __future__ import annotations

import importlib
import re
import struct
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from operator import mul
from typing import Any

import msgspec
import orjson

COUNT = 256
TOPIC = "BenchTopic"
CLUSTER = "CLUSTER\x01DefaultCluster"


def timed(run: Callable[[], object], per: int, rounds: int = 25, again: int = 8) -> float:
    """Least nanoseconds an operation; ``per`` operations a run."""
    return timed_together([run], per, rounds, again)[0]


def timed_together(runs: Sequence[Callable[[], object]], per: int, rounds: int = 40, again: int = 3) -> list[float]:
    """The same for several programs, taking turns, so that a slow minute of the machine hits all of them."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            start = time.thread_time_ns()
            for _ in range(again):
                run()
            best[i] = min(best[i], (time.thread_time_ns() - start) / (per * again))
    return best


def show(title: str, runs: Sequence[tuple[str, Callable[[], object]]], per: int, again: int = 3) -> None:
    """Print a line for each program, cheapest marked."""
    figures = timed_together([run for _, run in runs], per, again=again)
    print(f"\n## {title}")
    for ns, (name, _) in zip(figures, runs, strict=True):
        print(f"{ns:8.0f} ns  {'*' if ns == min(figures) else ' '} {name}")


Variant = tuple[str, Callable[[Any], Any]]


def compare(title: str, items: Sequence[Any], variants: Sequence[Variant], *, check: bool = True) -> None:
    """Time each variant over the items and print a line for each, cheapest marked."""
    expected = [variants[0][1](item) for item in items[:32]] if check else None
    runs: list[tuple[str, Callable[[], object]]] = []
    for name, one in variants:
        if expected is not None:
            got = [one(item) for item in items[:32]]
            if got != expected:
                raise SystemExit(f"{title}: {name} gives another result: {got[0]!r} instead of {expected[0]!r}")

        def run(one: Callable[[Any], Any] = one) -> None:
            for item in items:
                one(item)

        runs.append((name, run))
    show(title, runs, len(items))


def unique_key(index: int) -> str:
    return f"7F000001{4321:04X}{0x18B4AAC2:08X}{1234567 + index // 8:08X}{index & 0xFFFF:04X}"


def properties_of(index: int) -> str:
    return f"KEYS\x01order-{index:010d}\x02UNIQ_KEY\x01{unique_key(index)}\x02WAIT\x01true\x02TAGS\x01TagA"


def header_of(index: int) -> bytes:
    ext = {
        "a": "bench_producer",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(index % 4),
        "f": "0",
        "g": str(1_700_000_000_000 + index),
        "h": "0",
        "i": properties_of(index),
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    command = {
        "code": 310,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": 1000 + index,
        "serializeTypeCurrentRPC": "JSON",
        "version": 401,
    }
    return orjson.dumps(command)


def frame_of(index: int, body: int) -> bytes:
    header = header_of(index)
    return struct.pack(">ii", 4 + len(header) + body, len(header)) + header + bytes(body)


# ------------------------------------------------------------------------------------------------ (a) decode


class Ext(msgspec.Struct, gc=False):
    a: str
    b: str
    c: str
    d: int
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    k: bool = False
    l: int = -1  # noqa: E741
    m: bool = False
    n: str = ""


class Send(msgspec.Struct, gc=False):
    code: int
    extFields: Ext
    flag: int = 0
    opaque: int = 0


class ExtFew(msgspec.Struct, gc=False):
    """Only what the lane reads; the rest is skipped (k and c matter only on the slow branch)."""

    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False


class SendFew(msgspec.Struct, gc=False):
    extFields: ExtFew
    opaque: int = 0
    flag: int = 0


class ExtText(msgspec.Struct, gc=False):
    b: str
    e: str
    f: str
    g: str
    h: str
    i: str = ""
    j: str = "0"
    m: str = "false"


class SendText(msgspec.Struct, gc=False):
    extFields: ExtText
    opaque: int = 0
    flag: int = 0


class ExtGc(msgspec.Struct):
    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False


class SendGc(msgspec.Struct):
    extFields: ExtGc
    opaque: int = 0
    flag: int = 0


def pick(send: Any) -> tuple[Any, ...]:
    ext = send.extFields
    return ext.b, int(ext.e), int(ext.f), int(ext.g), int(ext.h), ext.i, int(ext.j), send.opaque


HEADER_RE = re.compile(
    rb'\{"code":310,"extFields":\{"a":"[^"\\]*","b":"([^"\\]*)","c":"[^"\\]*","d":"\d+","e":"(-?\d+)","f":"(\d+)",'
    rb'"g":"(\d+)","h":"(-?\d+)","i":"([^"]*)","j":"(\d+)","k":"false","m":"false","n":"[^"\\]*"\},"flag":0,'
    rb'"language":"JAVA","opaque":(-?\d+),'
)


class Shape:
    """What stays the same from send to send of one connection, learnt from its first header.

    The header is `prefix queueId '","f":"0","g":"' 13 digits middle properties suffix opaque tail`: four compares
    and three finds. Anything that does not fit (an escaped quote, another order) takes the ordinary decoder.
    """

    __slots__ = ("after_queue", "middle", "prefix", "rest", "suffix", "tail")

    def __init__(self, header: bytes) -> None:
        queue = header.index(b'"e":"') + 5
        self.prefix = header[:queue]
        after = header.index(b'"', queue)
        born = header.index(b'"g":"') + 5
        self.after_queue = header[after:born]
        end = header.index(b'"', born)
        props = header.index(b'"i":"') + 5
        self.middle = header[end:props]
        quote = header.index(b'"', props)
        opaque = header.index(b'"opaque":') + 9
        self.suffix = header[quote:opaque]
        comma = header.index(b",", opaque)
        self.tail = header[comma:]
        self.rest = len(self.prefix), len(self.after_queue), len(self.middle), len(self.suffix)


def decode_section() -> None:
    headers = [header_of(i) for i in range(COUNT)]
    full = msgspec.json.Decoder(Send, strict=False).decode
    few = msgspec.json.Decoder(SendFew, strict=False).decode
    text = msgspec.json.Decoder(SendText, strict=False).decode
    tracked = msgspec.json.Decoder(SendGc, strict=False).decode
    plain = msgspec.json.decode
    shape = Shape(headers[0])
    prefix, after_queue, middle, suffix, tail = (
        shape.prefix,
        shape.after_queue,
        shape.middle,
        shape.suffix,
        shape.tail,
    )
    n_prefix, n_after, n_middle, n_suffix = shape.rest

    def by_orjson(header: bytes) -> tuple[Any, ...]:
        command = orjson.loads(header)
        ext = command["extFields"]
        get = ext.get
        return (
            ext["b"],
            int(ext["e"]),
            int(get("f", "0")),
            int(ext["g"]),
            int(ext["h"]),
            get("i", ""),
            int(get("j", "0")),
            command["opaque"],
        )

    def by_regex(header: bytes) -> tuple[Any, ...]:
        match = HEADER_RE.match(header)
        assert match is not None
        b, e, f, g, h, i, j, opaque = match.groups()
        props = i.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02").decode()
        return b.decode(), int(e), int(f), int(g), int(h), props, int(j), int(opaque)

    def by_shape(header: bytes) -> tuple[Any, ...]:
        if header.startswith(prefix) and header.endswith(tail):
            quote = header.find(b'"', n_prefix)
            born = quote + n_after
            end = born + 13
            props = end + n_middle
            if header.startswith(after_queue, quote) and header.startswith(middle, end):
                close = header.find(b'"', props)
                if header.startswith(suffix, close):
                    escaped = header[props:close]
                    raw = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
                    if b"\\" not in raw:
                        return (
                            TOPIC,
                            int(header[n_prefix:quote]),
                            0,
                            int(header[born:end]),
                            0,
                            raw.decode(),
                            0,
                            int(header[close + n_suffix : -len(tail)]),
                        )
        return pick(few(header))

    def by_shape_bytes(header: bytes) -> tuple[Any, ...]:
        if header.startswith(prefix) and header.endswith(tail):
            quote = header.find(b'"', n_prefix)
            born = quote + n_after
            end = born + 13
            props = end + n_middle
            if header.startswith(after_queue, quote) and header.startswith(middle, end):
                close = header.find(b'"', props)
                if header.startswith(suffix, close):
                    return (
                        TOPIC,
                        header[n_prefix:quote],
                        0,
                        int(header[born:end]),
                        0,
                        header[props:close],
                        0,
                        header[close + n_suffix : -len(tail)],
                    )
        return pick(few(header))

    compare(
        "(a) V2 send header to (topic, queue, sysFlag, born, flag, properties, reconsume, opaque)",
        headers,
        [
            ("msgspec Structs, every field, gc=False, strict=False", lambda h: pick(full(h))),
            ("msgspec Structs, only the lane's fields", lambda h: pick(few(h))),
            ("msgspec Structs, only the lane's fields, numbers kept as text then int()", lambda h: pick(text(h))),
            ("msgspec Structs, only the lane's fields, gc tracked", lambda h: pick(tracked(h))),
            ("orjson.loads and int()", by_orjson),
            ("one regex", by_regex),
            ("shape learnt from the connection's first header", by_shape),
        ],
    )
    compare(
        "(a) the decoder alone, no picking",
        headers,
        [
            ("msgspec every field", full),
            ("msgspec lane's fields", few),
            ("msgspec lane's fields, text", text),
            ("msgspec lane's fields, gc tracked", tracked),
            ("msgspec untyped", plain),
            ("orjson.loads", orjson.loads),
            ("shape, nothing unescaped, queue and opaque left as bytes", by_shape_bytes),
        ],
        check=False,
    )
    for batch in (1, 16, 256):
        many = msgspec.json.Decoder(list[SendFew], strict=False).decode
        group = headers[:batch]
        joined = b"[" + b",".join(group) + b"]"
        lines = b"\n".join(group)
        decode_lines = msgspec.json.Decoder(SendFew, strict=False).decode_lines

        def as_array(group: list[bytes] = group, many: Callable[[bytes], Any] = many) -> object:
            return many(b"[" + b",".join(group) + b"]")

        def one_by_one(group: list[bytes] = group) -> object:
            return [few(h) for h in group]

        assert many(joined) == decode_lines(lines) == one_by_one()
        scale = COUNT // batch
        print(
            f"   batch {batch:3d}: one by one {timed(one_by_one, batch, again=8 * scale):.0f} ns, "
            f"joined to one JSON array {timed(as_array, batch, again=8 * scale):.0f} ns a header"
        )
    buf = frame_of(0, 128) * 1
    view = memoryview(buf)
    size = len(headers[0])
    print(
        f"   slicing the header out of the buffer: bytes {timed(lambda: buf[8 : 8 + size], 1, again=2000):.0f} ns, "
        f"memoryview {timed(lambda: view[8 : 8 + size], 1, again=2000):.0f} ns; "
        f"msgspec from bytes slice {timed(lambda: few(buf[8 : 8 + size]), 1, again=2000):.0f}, "
        f"from memoryview slice {timed(lambda: few(view[8 : 8 + size]), 1, again=2000):.0f} ns"
    )


# -------------------------------------------------------------------------------------------- (b) properties

PROPS_RE = re.compile("(?:^|\x02)(KEYS|TAGS|UNIQ_KEY|DELAY|WAIT|TRAN_MSG)\x01([^\x02]+)")
COMMON_RE = re.compile("KEYS\x01([^\x02]+)\x02UNIQ_KEY\x01([^\x02]+)\x02(WAIT\x01true\x02)?TAGS\x01([^\x02]+)\x02?$")


def props_section() -> None:
    texts = [properties_of(i) for i in range(COUNT)]
    tail = "\x02" + CLUSTER
    tail_bytes = tail.encode()
    rare = ("DELAY\x01", "TRAN_MSG\x01")

    def by_dict(text: str) -> tuple[Any, ...]:
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
        return found.get("TAGS"), found.get("KEYS"), found.get("UNIQ_KEY"), plain, "\x02".join(kept).encode()

    def by_dict_split(text: str) -> tuple[Any, ...]:
        found = dict([part.split("\x01", 1) for part in text.split("\x02")])
        get = found.get
        stored = text
        if "WAIT" in found:
            stored = text.replace("WAIT\x01true\x02", "", 1)
        plain = "DELAY" not in found and "TRAN_MSG" not in found
        return get("TAGS"), get("KEYS"), get("UNIQ_KEY"), plain, (stored + tail).encode()

    def by_flat(text: str) -> tuple[Any, ...]:
        flat = text.replace("\x02", "\x01").split("\x01")
        found = dict(zip(flat[::2], flat[1::2], strict=False))
        get = found.get
        stored = text.replace("WAIT\x01true\x02", "", 1) if "WAIT" in found else text
        plain = "DELAY" not in found and "TRAN_MSG" not in found
        return get("TAGS"), get("KEYS"), get("UNIQ_KEY"), plain, (stored + tail).encode()

    def by_finditer(text: str) -> tuple[Any, ...]:
        found = dict(PROPS_RE.findall(text))
        get = found.get
        stored = text.replace("WAIT\x01true\x02", "", 1) if "WAIT" in found else text
        plain = "DELAY" not in found and "TRAN_MSG" not in found
        return get("TAGS"), get("KEYS"), get("UNIQ_KEY"), plain, (stored + tail).encode()

    def by_find(text: str) -> tuple[Any, ...]:
        marked = "\x02" + text + tail
        at = marked.find("\x02TAGS\x01")
        tags = marked[at + 6 : marked.find("\x02", at + 6)] if at >= 0 else None
        at = marked.find("\x02KEYS\x01")
        keys = marked[at + 6 : marked.find("\x02", at + 6)] if at >= 0 else None
        at = marked.find("\x02UNIQ_KEY\x01")
        unique = marked[at + 10 : marked.find("\x02", at + 10)] if at >= 0 else None
        plain = "DELAY\x01" not in marked and "TRAN_MSG\x01" not in marked
        stored = marked.replace("\x02WAIT\x01true\x02", "\x02", 1)
        return tags, keys, unique, plain, stored[1:].encode()

    def by_find_bytes(raw: bytes) -> tuple[Any, ...]:
        marked = b"\x02" + raw + tail_bytes
        at = marked.find(b"\x02TAGS\x01")
        tags = marked[at + 6 : marked.find(b"\x02", at + 6)] if at >= 0 else None
        at = marked.find(b"\x02KEYS\x01")
        keys = marked[at + 6 : marked.find(b"\x02", at + 6)] if at >= 0 else None
        at = marked.find(b"\x02UNIQ_KEY\x01")
        unique = marked[at + 10 : marked.find(b"\x02", at + 10)] if at >= 0 else None
        plain = b"DELAY\x01" not in marked and b"TRAN_MSG\x01" not in marked
        stored = marked.replace(b"\x02WAIT\x01true\x02", b"\x02", 1)
        return tags, keys, unique, plain, stored[1:]

    def by_common_regex(text: str) -> tuple[Any, ...]:
        match = COMMON_RE.match(text)
        if match is None:
            return by_dict(text)
        keys, unique, wait, tags = match.groups()
        stored = text if wait is None else text[: match.start(3)] + text[match.end(3) :]
        return tags, keys, unique, True, (stored + tail).encode()

    orders: dict[tuple[str, ...], tuple[int, int, int, int, bool]] = {}

    def by_split(text: str) -> tuple[Any, ...]:
        # four parts whose names are checked where the last message of the connection had them
        parts = text.split("\x02")
        if len(parts) == 4:
            one, two, three, four = parts
            if (
                one[:5] == "KEYS\x01"
                and two[:9] == "UNIQ_KEY\x01"
                and three == "WAIT\x01true"
                and four[:5] == "TAGS\x01"
            ):
                stored = f"{one}\x02{two}\x02{four}\x02{CLUSTER}"
                return four[5:], one[5:], two[9:], True, stored.encode()
        return by_dict(text)

    known: dict[str, tuple[Any, ...]] = {}

    def by_names(text: str) -> tuple[Any, ...]:
        # cut at 01 and 02 alike; the even cells are the names; the set of names is looked up whole
        flat = text.replace("\x02", "\x01").split("\x01")
        names = tuple(flat[::2])
        plan = orders.get(names)
        if plan is None:
            plan = orders[names] = (
                names.index("TAGS") * 2 + 1,
                names.index("KEYS") * 2 + 1,
                names.index("UNIQ_KEY") * 2 + 1,
                names.index("WAIT") * 2 + 1,
                not {"DELAY", "TRAN_MSG"} & set(names),
            )
        tags, keys, unique, _, plain = plan
        return (
            flat[tags],
            flat[keys],
            flat[unique],
            plain,
            (text.replace("WAIT\x01true\x02", "", 1) + tail).encode(),
        )

    del known, rare
    compare(
        "(b) property string to (TAGS, KEYS, UNIQ_KEY, plain?, stored bytes: WAIT dropped, CLUSTER added)",
        texts,
        [
            ("split, partition, dict, join", by_dict),
            ("dict of split pairs, replace", by_dict_split),
            ("replace 02 by 01, one split, dict(zip)", by_flat),
            ("regex findall, dict", by_finditer),
            ("str.find per name on a marked text", by_find),
            ("one anchored regex of the common form", by_common_regex),
            ("split in four and compare the names in place", by_split),
            ("one split, tuple of names as the key of a plan", by_names),
        ],
    )
    raws = [text.encode() for text in texts]
    compare("(b) the same from bytes", raws, [("bytes.find per name on marked bytes", by_find_bytes)], check=False)


# ------------------------------------------------------------------------------------------------- (c) hashes

POWERS = [pow(31, n, 1 << 32) for n in range(256)]
DESCENDING = {n: tuple(reversed(POWERS[:n])) for n in range(128)}


def java_hash(text: str, start: int = 0) -> int:
    value = start
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value


class Tails(dict[str, int]):
    """Hash of a short text, remembered."""

    def __missing__(self, text: str) -> int:
        value = self[text] = java_hash(text)
        return value


def hash_section() -> None:
    uniques = [unique_key(i) for i in range(COUNT)]
    keys = [f"order-{i:010d}" for i in range(COUNT)]
    start = java_hash(TOPIC + "#")
    by_length = {n: start * POWERS[n] for n in range(128)}
    prefixes: dict[str, int] = {}
    prefixes28: dict[str, int] = {}
    tails = Tails()
    descending = DESCENDING
    last12, last4 = DESCENDING[12], DESCENDING[4]

    def loop(key: str) -> int:
        value = 0
        for char in (TOPIC + "#" + key).encode():
            value = (31 * value + char) & 0xFFFFFFFF
        return value

    def loop_late(key: str) -> int:
        value = start
        for char in key.encode():
            value = 31 * value + char
        return value & 0xFFFFFFFF

    def dot(key: str) -> int:
        n = len(key)
        return sum(map(mul, key.encode(), descending[n]), by_length[n]) & 0xFFFFFFFF

    def prefix20(key: str) -> int:
        head = key[:20]
        value = prefixes.get(head)
        if value is None:
            value = prefixes[head] = java_hash(head, start) * POWERS[12]
        return sum(map(mul, key[20:].encode(), last12), value) & 0xFFFFFFFF

    def prefix28(key: str) -> int:
        head = key[:28]
        value = prefixes28.get(head)
        if value is None:
            if len(prefixes28) > 4096:
                prefixes28.clear()
            value = prefixes28[head] = prefix20_of_28(head) * POWERS[4]
        a, b, c, d = key[28:].encode()
        return (value + 29791 * a + 961 * b + 31 * c + d) & 0xFFFFFFFF

    last8 = DESCENDING[8]

    def prefix20_of_28(head: str) -> int:
        base = head[:20]
        value = prefixes.get(base)
        if value is None:
            value = prefixes[base] = java_hash(base, start) * POWERS[12]
        return sum(map(mul, head[20:].encode(), last8), java_hash(base, start) * POWERS[8]) & 0xFFFFFFFF

    prefixes28t: dict[str, int] = {}

    def prefix28_tail(key: str) -> int:
        head = key[:28]
        value = prefixes28t.get(head)
        if value is None:
            value = prefixes28t[head] = java_hash(head, start) * POWERS[4]
        return (value + tails[key[28:]]) & 0xFFFFFFFF

    prefixes24: dict[str, int] = {}
    tails2 = Tails()
    p4, p2 = POWERS[4], POWERS[2]

    def pieces(key: str) -> int:
        head = key[:24]
        value = prefixes24.get(head)
        if value is None:
            value = prefixes24[head] = java_hash(head, start) * POWERS[8]
        return (value + p4 * tails2[key[24:28]] + tails2[key[28:]]) & 0xFFFFFFFF

    del last4, p2
    compare(
        "(c) Java hash of topic#UNIQ_KEY (32 hex digits, 8 a millisecond)",
        uniques,
        [
            ("loop, masked each step", loop),
            ("loop from the topic's cached hash, masked at the end", loop_late),
            ("sum(map(mul, bytes, powers)), topic cached", dot),
            ("first 20 digits cached in a dict, dot product of 12", prefix20),
            ("first 28 digits cached (a new one each ms), four digits unrolled", prefix28),
            ("first 28 digits cached, last four from a remembering dict", prefix28_tail),
            ("first 24 digits cached, two remembered groups of four", pieces),
        ],
    )
    prefixes6: dict[str, int] = {}

    def key_prefix(key: str) -> int:
        head = key[:12]
        value = prefixes6.get(head)
        if value is None:
            value = prefixes6[head] = java_hash(head, start) * POWERS[len(key) - 12]
        return sum(map(mul, key[12:].encode(), descending[len(key) - 12]), value) & 0xFFFFFFFF

    compare(
        "(c) Java hash of topic#KEY (16 characters)",
        keys,
        [
            ("loop from the topic's cached hash, masked at the end", loop_late),
            ("sum(map(mul, bytes, powers)), topic cached", dot),
            ("first 12 characters cached, dot product of 4", key_prefix),
        ],
    )
    tags_cache: dict[str, int] = {"TagA": 2598919}
    print(f"   tag code from a dict: {timed(lambda: tags_cache['TagA'], 1, again=5000):.0f} ns (with the call)")


# --------------------------------------------------------------------------------------------------- (d) pack

MAGIC = 0xDAA320A7
RECORD = struct.Struct(">IIIiiqqiq8sq8siqi")
ENTRY = struct.Struct(">qiq")
PROPS_LENGTH = struct.Struct(">h")
TWO_BYTES = [struct.pack(">h", n) for n in range(4096)]


def pack_section() -> None:
    born, store = b"\x7f\0\0\x01\0\0\xc3\x50", b"\x7f\0\0\x01\0\0\x2a\x9f"
    topic = TOPIC.encode()
    topic_cell = bytes([len(topic)]) + topic
    body = bytes(range(128))
    props = [properties_of(i).encode() + b"\x02CLUSTER\x01DefaultCluster" for i in range(COUNT)]
    items = [(i, 1_000_000 + i * 400, 1_700_000_000_000 + i, p) for i, p in enumerate(props)]
    crc = zlib.crc32(body) & 0x7FFFFFFF
    now = 1_700_000_000_005
    fixed = 91 + len(topic)
    pack = RECORD.pack
    lengths = TWO_BYTES

    def joined(item: tuple[int, int, int, bytes]) -> bytes:
        offset, physical, at, p = item
        size = fixed + len(body) + len(p)
        head = pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body))
        return b"".join((head, body, topic_cell, lengths[len(p)], p))

    def added(item: tuple[int, int, int, bytes]) -> bytes:
        offset, physical, at, p = item
        size = fixed + len(body) + len(p)
        return (
            pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body))
            + body
            + topic_cell
            + lengths[len(p)]
            + p
        )

    def percent(item: tuple[int, int, int, bytes]) -> bytes:
        offset, physical, at, p = item
        size = fixed + len(body) + len(p)
        head = pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body))
        return b"%b%b%b%b%b" % (head, body, topic_cell, lengths[len(p)], p)

    whole: dict[tuple[int, int], Callable[..., bytes]] = {}

    def one_struct(item: tuple[int, int, int, bytes]) -> bytes:
        offset, physical, at, p = item
        shape = len(body), len(p)
        packed = whole.get(shape)
        if packed is None:
            packed = whole[shape] = struct.Struct(f">IIIiiqqiq8sq8siqi{shape[0]}s{len(topic_cell)}sh{shape[1]}s").pack
        n, m = shape
        return packed(
            fixed + n + m,
            MAGIC,
            crc,
            2,
            0,
            offset,
            physical,
            0,
            at,
            born,
            now,
            store,
            0,
            0,
            n,
            body,
            topic_cell,
            m,
            p,
        )

    short = struct.Struct(">IIIiiqqiq")
    ending = struct.Struct(">8sq8siqi")

    def two_heads(item: tuple[int, int, int, bytes]) -> bytes:
        # store time, hosts, reconsume and prepared offset are the same for a connection's messages of a tick
        offset, physical, at, p = item
        size = fixed + len(body) + len(p)
        return b"".join(
            (short.pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at), common, body, topic_cell, lengths[len(p)], p)
        )

    common = ending.pack(born, now, store, 0, 0, len(body))
    compare(
        "(d) one record, 128 B body",
        items,
        [
            ("head by one Struct, join of five", joined),
            ("head by one Struct, + four times", added),
            ("head by one Struct, %b of five", percent),
            ("whole record by one Struct cached by (body, properties) length", one_struct),
            ("head in two: per message 52 bytes, per connection and tick 36 bytes cached, join of six", two_heads),
        ],
    )

    def batch_extend() -> bytes:
        parts: list[bytes] = []
        extend = parts.extend
        for offset, physical, at, p in items:
            size = fixed + len(body) + len(p)
            head = pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body))
            extend((head, body, topic_cell, lengths[len(p)], p))
        return b"".join(parts)

    def batch_iadd() -> bytes:
        parts: list[bytes] = []
        for offset, physical, at, p in items:
            size = fixed + len(body) + len(p)
            parts += (
                pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body)),
                body,
                topic_cell,
                lengths[len(p)],
                p,
            )
        return b"".join(parts)

    def batch_append() -> bytes:
        parts: list[bytes] = []
        append = parts.append
        for offset, physical, at, p in items:
            size = fixed + len(body) + len(p)
            append(pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body)))
            append(body)
            append(topic_cell)
            append(lengths[len(p)])
            append(p)
        return b"".join(parts)

    def batch_records() -> bytes:
        return b"".join([one_struct(item) for item in items])

    def batch_bytearray() -> bytes:
        out = bytearray()
        for offset, physical, at, p in items:
            size = fixed + len(body) + len(p)
            out += pack(size, MAGIC, crc, 2, 0, offset, physical, 0, at, born, now, store, 0, 0, len(body))
            out += body
            out += topic_cell
            out += lengths[len(p)]
            out += p
        return bytes(out)

    def batch_inline_struct() -> bytes:
        parts: list[bytes] = []
        append = parts.append
        get = whole.get
        n = len(body)
        for offset, physical, at, p in items:
            m = len(p)
            packed = get((n, m))
            assert packed is not None
            append(
                packed(
                    fixed + n + m,
                    MAGIC,
                    crc,
                    2,
                    0,
                    offset,
                    physical,
                    0,
                    at,
                    born,
                    now,
                    store,
                    0,
                    0,
                    n,
                    body,
                    topic_cell,
                    m,
                    p,
                )
            )
        return b"".join(parts)

    assert batch_extend() == batch_iadd() == batch_append() == batch_records() == batch_bytearray()
    assert batch_inline_struct() == batch_extend()
    show(
        "(d) 256 records to one bytes object, a record",
        (
            ("list.extend of five cells, one join", batch_extend),
            ("list += tuple of five cells, one join", batch_iadd),
            ("list.append five times, one join", batch_append),
            ("whole-record Struct in a function, one join", batch_records),
            ("whole-record Struct inline, one join", batch_inline_struct),
            ("bytearray +=", batch_bytearray),
        ),
        COUNT,
    )

    entries = [(1_000_000 + i * 400, 400, 2598919) for i in range(COUNT)]
    one = ENTRY.pack
    many = struct.Struct(">" + "qiq" * COUNT).pack

    def entry_join() -> bytes:
        return b"".join([one(a, b, c) for a, b, c in entries])

    def entry_flat() -> bytes:
        flat: list[int] = []
        for a, b, c in entries:
            flat += (a, b, c)
        return many(*flat)

    def entry_bytearray() -> bytes:
        out = bytearray()
        for a, b, c in entries:
            out += one(a, b, c)
        return bytes(out)

    low = struct.Struct(">Qi").pack
    tag = struct.pack(">q", 2598919)

    def entry_cached_tag() -> bytes:
        out = bytearray()
        for a, b, _ in entries:
            out += low(a, b) + tag
        return bytes(out)

    assert entry_join() == entry_flat() == entry_bytearray() == entry_cached_tag()
    show(
        "(d) queue entries of 20 bytes, an entry",
        (
            ("pack each, join", entry_join),
            ("pack each, bytearray +=", entry_bytearray),
            ("flat list, one pack of the whole batch", entry_flat),
            ("pack 12 bytes and add the tag's cached 8", entry_cached_tag),
        ),
        COUNT,
    )


# ------------------------------------------------------------------------------------------------- (e) answer


def answer_section() -> None:
    items = [(i % 4, 123_456 + i, 987_654_321 + 400 * i, 1000 + i) for i in range(COUNT)]
    template = (
        b'{"code":0,"extFields":{"queueId":"%d","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"7F00000100002A9F'
        b'%016X","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
        b'"version":409}'
    )
    text = template.decode()
    per_queue = [template.replace(b'"%d"', b'"%d"' % q, 1) for q in range(4)]
    heads = [struct.pack(">ii", 4 + n, n) for n in range(1024)]
    per_queue_framed = {q: {n: heads[n] + per_queue[q] for n in range(150, 330)} for q in range(4)}
    base = [len(t % (0, 0, 0)) - 2 for t in per_queue]
    pack = struct.Struct(">ii").pack

    def by_dumps(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = orjson.dumps(
            {
                "code": 0,
                "extFields": {
                    "queueId": str(queue),
                    "TRACE_ON": "true",
                    "MSG_REGION": "DefaultRegion",
                    "msgId": f"7F00000100002A9F{physical:016X}",
                    "queueOffset": str(offset),
                },
                "flag": 1,
                "language": "PYTHON",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": 409,
            }
        )
        return pack(4 + len(header), len(header)) + header

    def by_percent(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = template % (queue, physical, offset, opaque)
        return pack(4 + len(header), len(header)) + header

    def by_percent_heads(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = template % (queue, physical, offset, opaque)
        return heads[len(header)] + header

    def by_queue_template(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = per_queue[queue] % (physical, offset, opaque)
        return heads[len(header)] + header

    def by_str_percent(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = text % (queue, physical, offset, opaque)
        return heads[len(header)] + header.encode()

    def by_fstring(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        header = (
            f'{{"code":0,"extFields":{{"queueId":"{queue}","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
            f'"msgId":"7F00000100002A9F{physical:016X}","queueOffset":"{offset}"}},"flag":1,"language":"PYTHON",'
            f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":409}}'
        )
        return heads[len(header)] + header.encode()

    cut = [t.split(b"%016X") for t in per_queue]
    tails = [(c[0], *c[1].split(b"%d")) for c in cut]
    tails_text = [tuple(p.decode() for p in t) for t in tails]

    def by_fstring_queue(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        a, b, c, d = tails_text[queue]
        header = f"{a}{physical:016X}{b}{offset}{c}{opaque}{d}"
        return heads[len(header)] + header.encode()

    texts_heads = [h.decode("latin-1") for h in heads]

    def by_fstring_queue_latin(item: tuple[int, int, int, int]) -> bytes:
        queue, offset, physical, opaque = item
        a, b, c, d = tails_text[queue]
        header = f"{a}{physical:016X}{b}{offset}{c}{opaque}{d}"
        return (texts_heads[len(header)] + header).encode("latin-1")

    compare(
        "(e) the answer's frame",
        items,
        [
            ("orjson.dumps, struct", by_dumps),
            ("bytes % template, struct", by_percent),
            ("bytes % template, 8 leading bytes from a table by length", by_percent_heads),
            ("bytes % template of the queue, table", by_queue_template),
            ("str % template, encode, table", by_str_percent),
            ("f-string, encode, table", by_fstring),
            ("f-string of the queue's four constant cells, encode, table", by_fstring_queue),
            ("the same, table as text, latin-1", by_fstring_queue_latin),
        ],
    )

    def list_then_encode() -> bytes:
        # all answers of one connection as text, encoded once; lengths known from the text's own length
        out: list[str] = []
        append = out.append
        for queue, offset, physical, opaque in items:
            a, b, c, d = tails_text[queue]
            header = f"{a}{physical:016X}{b}{offset}{c}{opaque}{d}"
            append(texts_heads[len(header)])
            append(header)
        return "".join(out).encode("latin-1")

    def list_of_bytes() -> bytes:
        out: list[bytes] = []
        append = out.append
        for queue, offset, physical, opaque in items:
            header = per_queue[queue] % (physical, offset, opaque)
            append(heads[len(header)])
            append(header)
        return b"".join(out)

    def predicted() -> bytes:
        out: list[bytes] = []
        append = out.append
        width_offset = len(str(items[0][1]))
        width_opaque = len(str(items[0][3]))
        framed = [per_queue_framed[q].get(base[q] + width_offset + width_opaque, b"") for q in range(4)]
        for queue, offset, physical, opaque in items:
            append(framed[queue] % (physical, offset, opaque))
        return b"".join(out)

    assert list_then_encode() == list_of_bytes()
    show(
        "(e) 256 answers of one connection to one bytes object, an answer",
        (
            ("bytes % of the queue, join", list_of_bytes),
            ("f-string, one join and one latin-1 encode", list_then_encode),
            ("bytes % with the 8 leading bytes in the template (digits' count known)", predicted),
        ),
        COUNT,
    )


# ---------------------------------------------------------------------------------------------------- (f) crc


def crc_section() -> None:
    print("\n## (f) crc32")
    found: list[tuple[str, Callable[..., int]]] = [("zlib", zlib.crc32)]
    for label, module in (("zlib-ng", "zlib_ng.zlib_ng"), ("isal", "isal.isal_zlib")):
        try:
            found.append((label, importlib.import_module(module).crc32))
        except ImportError:
            print(f"          {label}: not installed")
    for size in (16, 128, 1024, 4096, 65536):
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        view = memoryview(data)
        cells = []
        for label, crc in found:
            assert crc(data) == zlib.crc32(data)
            again = max(200, 200_000 // size)
            cells.append(
                f"{label} {timed(lambda crc=crc: crc(data), 1, again=again):.0f} "  # type: ignore[misc]
                f"(memoryview {timed(lambda crc=crc: crc(view), 1, again=again):.0f})"  # type: ignore[misc]
            )
        print(f"   {size:6d} B: {'; '.join(cells)} ns (each with a lambda call)")


# -------------------------------------------------------------------------------------------------- (g) split


def split_section() -> None:
    for body in (128, 1024):
        chunk = b"".join(frame_of(i, body) for i in range(16))
        unpack = struct.Struct(">i").unpack_from
        unpack_two = struct.Struct(">iI").unpack_from
        from_bytes = int.from_bytes

        def by_unpack(chunk: bytes = chunk) -> list[tuple[bytes, int, int]]:
            out = []
            lo, end = 0, len(chunk)
            while lo + 4 <= end:
                (length,) = unpack(chunk, lo)
                lo += 4
                hi = lo + length
                if hi > end or length < 4:
                    break
                out.append((chunk, lo, hi))
                lo = hi
            return out

        def by_unpack_two(chunk: bytes = chunk) -> list[tuple[bytes, int, int, int]]:
            out = []
            append = out.append
            lo, end = 0, len(chunk)
            while end - lo >= 8:
                length, header = unpack_two(chunk, lo)
                hi = lo + 4 + length
                if hi > end or length < 4:
                    break
                append((chunk, lo + 4, hi, header))
                lo = hi
            return out

        def by_from_bytes(chunk: bytes = chunk) -> list[tuple[bytes, int, int]]:
            out = []
            lo, end = 0, len(chunk)
            while lo + 4 <= end:
                length = from_bytes(chunk[lo : lo + 4], "big")
                lo += 4
                hi = lo + length
                if hi > end:
                    break
                out.append((chunk, lo, hi))
                lo = hi
            return out

        def by_index(chunk: bytes = chunk) -> list[tuple[bytes, int, int]]:
            out = []
            lo, end = 0, len(chunk)
            while lo + 4 <= end:
                length = chunk[lo] << 24 | chunk[lo + 1] << 16 | chunk[lo + 2] << 8 | chunk[lo + 3]
                lo += 4
                hi = lo + length
                if hi > end:
                    break
                out.append((chunk, lo, hi))
                lo = hi
            return out

        def copied(chunk: bytes = chunk) -> list[bytes]:
            out = []
            lo, end = 0, len(chunk)
            while lo + 4 <= end:
                (length,) = unpack(chunk, lo)
                lo += 4
                hi = lo + length
                if hi > end or length < 4:
                    break
                out.append(chunk[lo:hi])
                lo = hi
            return out

        def header_and_body(chunk: bytes = chunk) -> list[tuple[bytes, bytes]]:
            out = []
            append = out.append
            lo, end = 0, len(chunk)
            while end - lo >= 8:
                length, header = unpack_two(chunk, lo)
                hi = lo + 4 + length
                if hi > end or length < 4:
                    break
                cut = lo + 8 + header
                append((chunk[lo + 8 : cut], chunk[cut:hi]))
                lo = hi
            return out

        show(
            f"(g) {len(chunk)} bytes of 16 frames with {body} B bodies, a frame",
            (
                ("unpack_from length, (buf, lo, hi)", by_unpack),
                ("unpack_from length and header length, (buf, lo, hi, header)", by_unpack_two),
                ("int.from_bytes of a slice, (buf, lo, hi)", by_from_bytes),
                ("four indexings", by_index),
                ("unpack_from, frame copied out", copied),
                ("unpack_from both, header and body copied out (what the step needs anyway)", header_and_body),
            ),
            16,
            again=100,
        )


SECTIONS = {
    "decode": decode_section,
    "props": props_section,
    "hash": hash_section,
    "pack": pack_section,
    "answer": answer_section,
    "crc": crc_section,
    "split": split_section,
}


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"micro: no section {unknown[0]!r}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    print(f"Python {sys.version.split()[0]}, msgspec {msgspec.__version__}, orjson {orjson.__version__}")
    for name in names or SECTIONS:
        SECTIONS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

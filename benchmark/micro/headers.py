"""(a) The V2 send header."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from benchmark.micro.messages import COUNT, send_frame, send_header
from benchmark.micro.timing import compare, show


class EveryExt(msgspec.Struct, gc=False):
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


class EveryField(msgspec.Struct, gc=False):
    code: int
    extFields: EveryExt
    flag: int = 0
    opaque: int = 0


class FewExt(msgspec.Struct, gc=False):
    """Only what the plain lane reads; the rest is skipped."""

    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False


class FewFields(msgspec.Struct, gc=False):
    extFields: FewExt
    opaque: int = 0
    flag: int = 0


class RawExt(msgspec.Struct, gc=False):
    """Properties left as JSON text."""

    b: str
    e: int
    f: int
    g: int
    h: int
    i: msgspec.Raw
    j: int = 0
    m: bool = False


class RawFields(msgspec.Struct, gc=False):
    extFields: RawExt
    opaque: int = 0
    flag: int = 0


class TextExt(msgspec.Struct, gc=False):
    b: str
    e: str
    f: str
    g: str
    h: str
    i: str = ""
    j: str = "0"
    m: str = "false"


class TextFields(msgspec.Struct, gc=False):
    extFields: TextExt
    opaque: int = 0
    flag: int = 0


class TrackedExt(msgspec.Struct):
    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False


class TrackedFields(msgspec.Struct):
    extFields: TrackedExt
    opaque: int = 0
    flag: int = 0


ONE_REGEX = re.compile(
    rb'\{"code":310,"extFields":\{"a":"[^"\\]*","b":"([^"\\]*)","c":"[^"\\]*","d":"\d+","e":"(-?\d+)","f":"(\d+)",'
    rb'"g":"(\d+)","h":"(-?\d+)","i":"([^"]*)","j":"(\d+)","k":"false","m":"false","n":"[^"\\]*"\},"flag":0,'
    rb'"language":"JAVA","opaque":(-?\d+),'
)


def read(send: Any) -> tuple[Any, ...]:
    ext = send.extFields
    return ext.b, int(ext.e), int(ext.f), int(ext.g), int(ext.h), ext.i, int(ext.j), send.opaque


def by_orjson(header: bytes) -> tuple[Any, ...]:
    command = orjson.loads(header)
    ext = command["extFields"]
    numbers = int(ext["e"]), int(ext["f"]), int(ext["g"]), int(ext["h"])
    return ext["b"], *numbers, ext["i"], int(ext["j"]), command["opaque"]


def by_regex(header: bytes) -> tuple[Any, ...]:
    match = ONE_REGEX.match(header)
    assert match is not None
    topic, queue, sys_flag, born, flag, escaped, times, opaque = match.groups()
    text = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02").decode()
    return topic.decode(), int(queue), int(sys_flag), int(born), int(flag), text, int(times), int(opaque)


class Shape:
    """What stays the same from send to send of one connection, learnt from its first header.

    A header then is four compares and three finds; what does not fit takes the ordinary decoder.
    """

    def __init__(self, header: bytes) -> None:
        queue = header.index(b'"e":"') + 5
        born = header.index(b'"g":"') + 5
        end = header.index(b'"', born)
        text = header.index(b'"i":"') + 5
        quote = header.index(b'"', text)
        opaque = header.index(b'"opaque":') + 9
        self.topic = orjson.loads(header)["extFields"]["b"]
        self.prefix = header[:queue]
        self.after_queue = header[header.index(b'"', queue) : born]
        self.middle = header[end:text]
        self.suffix = header[quote:opaque]
        self.tail = header[header.index(b",", opaque) :]

    def read(self, header: bytes) -> tuple[Any, ...]:
        prefix, after_queue, middle, suffix = self.prefix, self.after_queue, self.middle, self.suffix
        if header.startswith(prefix) and header.endswith(self.tail):
            quote = header.find(b'"', len(prefix))
            born = quote + len(after_queue)
            end = born + 13
            if header.startswith(after_queue, quote) and header.startswith(middle, end):
                close = header.find(b'"', end + len(middle))
                raw = header[end + len(middle) : close].replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
                if header.startswith(suffix, close) and b"\\" not in raw:
                    queue, opaque = header[len(prefix) : quote], header[close + len(suffix) : -len(self.tail)]
                    return self.topic, int(queue), 0, int(header[born:end]), 0, raw.decode(), 0, int(opaque)
        return by_orjson(header)


def run() -> None:
    headers = [send_header(i) for i in range(COUNT)]
    every = msgspec.json.Decoder(EveryField, strict=False).decode
    few = msgspec.json.Decoder(FewFields, strict=False).decode
    raw = msgspec.json.Decoder(RawFields, strict=False).decode
    text = msgspec.json.Decoder(TextFields, strict=False).decode
    tracked = msgspec.json.Decoder(TrackedFields, strict=False).decode
    compare(
        "(a) V2 send header to eight values",
        headers,
        [
            ("msgspec, every field, gc=False, strict=False", lambda h: read(every(h))),
            ("msgspec, only the lane's fields", lambda h: read(few(h))),
            ("msgspec, numbers as text, then int()", lambda h: read(text(h))),
            ("orjson.loads and int()", by_orjson),
            ("one regex", by_regex),
            ("shape learnt from the connection's first header", Shape(headers[0]).read),
        ],
    )
    compare(
        "(a) the decoder alone",
        headers,
        [
            ("msgspec every field", every),
            ("msgspec only the lane's fields", few),
            ("msgspec only the lane's fields, properties Raw", raw),
            ("msgspec only the lane's fields, gc tracked", tracked),
            ("msgspec untyped", msgspec.json.decode),
            ("orjson.loads", orjson.loads),
        ],
        same=False,
    )
    many = msgspec.json.Decoder(list[FewFields], strict=False).decode
    for size in (1, 16):
        group = headers[:size]
        show(
            f"(a) {size} headers, a header",
            [
                ("one by one", lambda group=group: [few(header) for header in group]),  # type: ignore[misc]
                ("joined to one JSON array", lambda group=group: many(b"[" + b",".join(group) + b"]")),  # type: ignore[misc]
            ],
            size,
            again=50,
        )
    frame = send_frame(0, 128)
    view, end = memoryview(frame), 8 + len(headers[0])
    show(
        "(a) from the buffer",
        [
            ("decode(buffer[lo:hi])", lambda: few(frame[8:end])),
            ("decode(memoryview[lo:hi])", lambda: few(view[8:end])),
        ],
        1,
        again=500,
    )

"""(e) The answer's frame: JSON header with the offset message id, queue offset and opaque."""

from __future__ import annotations

import struct

import orjson

from benchmark.micro.messages import COUNT
from benchmark.micro.timing import check_same, compare, show

#: queue id, queue offset, physical offset, opaque
Item = tuple[int, int, int, int]

TEMPLATE = (
    b'{"code":0,"extFields":{"queueId":"%d","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"7F00000100002A9F'
    b'%016X","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
    b'"version":409}'
)
TEXT = TEMPLATE.decode()
OF_QUEUE = [TEMPLATE.replace(b'"%d"', b'"%d"' % queue, 1) for queue in range(4)]
#: The eight bytes before a header of n bytes, when no body follows.
LEADS = [struct.pack(">ii", 4 + n, n) for n in range(1024)]
TEXT_LEADS = [lead.decode("latin-1") for lead in LEADS]
pack = struct.Struct(">ii").pack


def by_orjson(item: Item) -> bytes:
    queue, offset, physical, opaque = item
    ext = {
        "queueId": str(queue),
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "msgId": f"7F00000100002A9F{physical:016X}",
        "queueOffset": str(offset),
    }
    command = {"code": 0, "extFields": ext, "flag": 1, "language": "PYTHON", "opaque": opaque}
    header = orjson.dumps(command | {"serializeTypeCurrentRPC": "JSON", "version": 409})
    return pack(4 + len(header), len(header)) + header


def by_template(item: Item) -> bytes:
    queue, offset, physical, opaque = item
    header = TEMPLATE % (queue, physical, offset, opaque)
    return pack(4 + len(header), len(header)) + header


def by_table(item: Item) -> bytes:
    queue, offset, physical, opaque = item
    header = OF_QUEUE[queue] % (physical, offset, opaque)
    return LEADS[len(header)] + header


def by_text(item: Item) -> bytes:
    queue, offset, physical, opaque = item
    header = TEXT % (queue, physical, offset, opaque)
    return LEADS[len(header)] + header.encode()


def by_format(item: Item) -> bytes:
    queue, offset, physical, opaque = item
    header = (
        f'{{"code":0,"extFields":{{"queueId":"{queue}","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
        f'"msgId":"7F00000100002A9F{physical:016X}","queueOffset":"{offset}"}},"flag":1,"language":"PYTHON",'
        f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":409}}'
    )
    return LEADS[len(header)] + header.encode()


def run() -> None:
    items = [(i % 4, 123_456 + i, 987_654_321 + 400 * i, 1000 + i) for i in range(COUNT)]
    compare(
        "(e) one answer",
        items,
        [
            ("orjson.dumps", by_orjson),
            ("bytes % template, lengths packed", by_template),
            ("bytes % template of the queue, lengths from a table", by_table),
            ("str % template, encode, table", by_text),
            ("f-string, encode, table", by_format),
        ],
    )

    def of_bytes() -> bytes:
        out: list[bytes] = []
        append = out.append
        for queue, offset, physical, opaque in items:
            header = OF_QUEUE[queue] % (physical, offset, opaque)
            append(LEADS[len(header)])
            append(header)
        return b"".join(out)

    def of_text() -> bytes:
        out: list[str] = []
        append = out.append
        for queue, offset, physical, opaque in items:
            header = TEXT % (queue, physical, offset, opaque)
            append(TEXT_LEADS[len(header)])
            append(header)
        return "".join(out).encode("latin-1")

    programs = [("bytes % of the queue, one join", of_bytes), ("str %, one join, one encode", of_text)]
    check_same(programs)
    show("(e) 256 answers of one connection, an answer", programs, COUNT)

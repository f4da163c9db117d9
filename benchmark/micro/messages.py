"""256 different messages as a Java 4.9.8 producer sends them."""

from __future__ import annotations

import struct

import orjson

COUNT = 256
TOPIC = "BenchTopic"
CLUSTER = "CLUSTER\x01DefaultCluster"


def unique_key(index: int) -> str:
    """A message's own id: address, process and loader constant, time in ms (8 messages each), counter."""
    return f"7F000001{4321:04X}{0x18B4AAC2:08X}{1234567 + index // 8:08X}{index & 0xFFFF:04X}"


def user_key(index: int) -> str:
    return f"order-{index:010d}"


def property_text(index: int) -> str:
    """In the order Java's hash map gives these four names."""
    return f"KEYS\x01{user_key(index)}\x02UNIQ_KEY\x01{unique_key(index)}\x02WAIT\x01true\x02TAGS\x01TagA"


def send_header(index: int) -> bytes:
    """The JSON header of a SEND_MESSAGE_V2."""
    ext = {
        "a": "bench_producer",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(index % 4),
        "f": "0",
        "g": str(1_700_000_000_000 + index),
        "h": "0",
        "i": property_text(index),
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    command = {"code": 310, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 1000 + index}
    return orjson.dumps(command | {"serializeTypeCurrentRPC": "JSON", "version": 409})


def send_frame(index: int, body: int) -> bytes:
    header = send_header(index)
    return struct.pack(">ii", 4 + len(header) + body, len(header)) + header + bytes(body)
